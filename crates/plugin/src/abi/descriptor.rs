//! The plugin descriptors of both servers, and the plugin's life cycle: constructor, init, deinit.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

use coherence::os::Os as _;
use coherence::scan;
use interface::{Maker, Release};

use super::ServerTable;
use super::status::{STATUS, StatusVariable};
use super::variables::{VARIABLES, VariablePointer};
use crate::control::{self, CONTROLLER};
use crate::hooks;
use crate::intercept::got;
use crate::intercept::untracked::{self, ASYNC_IO};
use crate::platform::error_log::ERROR_LOG;
use crate::platform::server::{Flavour, server};
use crate::platform::{CORE, Linux};
use crate::reports::diagnostics::DIAGNOSTICS;
use crate::restart::persist;
use crate::settings::{self, BYPASS};
use crate::tables::TABLES;

const DAEMON: c_int = 3;
const LICENCE_GPL: c_int = 1;
const MATURITY_STABLE: u32 = 5;
/// MySQL: `early-plugin-load` may load the plugin.
const ALLOW_EARLY: c_ulong = 4;
/// 0.1, in the servers' encoding of plugin versions.
const VERSION: u32 = 0x0001;

type LifeCall = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `st_mysql_daemon`: the interface version must be the server's own release.
#[repr(C)]
pub struct Info {
    interface_version: c_int,
}

static INFO: ServerTable<Info> = ServerTable::new(Info {
    interface_version: 0,
});

/// `st_mysql_plugin` of MySQL, 112 bytes.
#[repr(C)]
pub struct MySqlDeclaration {
    kind: c_int,
    info: *mut Info,
    name: *const c_char,
    author: *const c_char,
    description: *const c_char,
    licence: c_int,
    init: Option<LifeCall>,
    check_uninstall: Option<LifeCall>,
    deinit: Option<LifeCall>,
    version: u32,
    status: *const StatusVariable,
    variables: *const VariablePointer,
    reserved: *const c_void,
    flags: c_ulong,
}

/// `st_maria_plugin` of MariaDB, 104 bytes.
#[repr(C)]
pub struct MariaDbDeclaration {
    kind: c_int,
    info: *mut Info,
    name: *const c_char,
    author: *const c_char,
    description: *const c_char,
    licence: c_int,
    init: Option<LifeCall>,
    deinit: Option<LifeCall>,
    version: u32,
    status: *const StatusVariable,
    variables: *const VariablePointer,
    version_text: *const c_char,
    maturity: u32,
}

const NAME: *const c_char = c"bpe".as_ptr();
const AUTHOR: *const c_char = c"innodb-bpe".as_ptr();
const DESCRIPTION: *const c_char =
    c"Buffer pool extension: InnoDB pages on fast local disks".as_ptr();

const MYSQL_END: MySqlDeclaration = MySqlDeclaration {
    kind: 0,
    info: std::ptr::null_mut(),
    name: std::ptr::null(),
    author: std::ptr::null(),
    description: std::ptr::null(),
    licence: 0,
    init: None,
    check_uninstall: None,
    deinit: None,
    version: 0,
    status: std::ptr::null(),
    variables: std::ptr::null(),
    reserved: std::ptr::null(),
    flags: 0,
};

const MARIADB_END: MariaDbDeclaration = MariaDbDeclaration {
    kind: 0,
    info: std::ptr::null_mut(),
    name: std::ptr::null(),
    author: std::ptr::null(),
    description: std::ptr::null(),
    licence: 0,
    init: None,
    deinit: None,
    version: 0,
    status: std::ptr::null(),
    variables: std::ptr::null(),
    version_text: std::ptr::null(),
    maturity: 0,
};

/// Interface version of MySQL's plugin API; only the upper byte is compared.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _mysql_plugin_interface_version_: c_int = 0x010B;

/// Size of one declaration.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _mysql_sizeof_struct_st_plugin_: c_int = size_of::<MySqlDeclaration>() as c_int;

/// MySQL's declarations.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _mysql_plugin_declarations_: ServerTable<[MySqlDeclaration; 2]> = ServerTable::new([
    MySqlDeclaration {
        kind: DAEMON,
        info: INFO.get(),
        name: NAME,
        author: AUTHOR,
        description: DESCRIPTION,
        licence: LICENCE_GPL,
        init: Some(init),
        check_uninstall: None,
        deinit: Some(deinit),
        version: VERSION,
        status: STATUS.get().cast(),
        variables: VARIABLES.get().cast(),
        reserved: std::ptr::null(),
        flags: ALLOW_EARLY,
    },
    MYSQL_END,
]);

/// Interface version of MariaDB's plugin API.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _maria_plugin_interface_version_: c_int = 0x010f;

/// Size of one declaration.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _maria_sizeof_struct_st_plugin_: c_int = size_of::<MariaDbDeclaration>() as c_int;

/// MariaDB's declarations.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static _maria_plugin_declarations_: ServerTable<[MariaDbDeclaration; 2]> = ServerTable::new([
    MariaDbDeclaration {
        kind: DAEMON,
        info: INFO.get(),
        name: NAME,
        author: AUTHOR,
        description: DESCRIPTION,
        licence: LICENCE_GPL,
        init: Some(init),
        deinit: Some(deinit),
        version: VERSION,
        status: STATUS.get().cast(),
        variables: VARIABLES.get().cast(),
        version_text: concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast(),
        maturity: MATURITY_STABLE,
    },
    MARIADB_END,
]);

/// Sets the interface version, because the server reads it right after loading the library. The constructor otherwise only
/// fills in the lists of choices. It starts no thread and opens no file.
extern "C" fn constructor() {
    let (_, version) = server();
    // SAFETY: constructors run before any other code can know this table.
    unsafe { (*INFO.get()).interface_version = version };
    super::variables::complete();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Never fails. It logs every failure, and the server runs without the extension.
unsafe extern "C" fn init(plugin: *mut c_void) -> c_int {
    if server().0 == Flavour::MySql {
        ERROR_LOG.open(plugin);
    }
    if catch_unwind(start).is_err() {
        Linux.error(
            "an internal error occurred while the plugin was initialised; the extension stays off",
        );
    }
    0
}

/// Refuses server releases that were never tested; nothing is redirected there.
fn too_old() -> Result<(), interface::Refusal> {
    let (flavour, version) = server();
    let maker = match flavour {
        Flavour::MariaDb => Maker::MariaDb,
        Flavour::MySql => Maker::MySql,
        Flavour::None => return Ok(()),
    };
    Release::of_interface(maker, u32::try_from(version).unwrap_or(0)).check()
}

fn start() {
    // SAFETY: the server is initialising the plugin, so the variables have valid values.
    unsafe {
        settings::load();
        super::variables::guard_report();
    }
    if let Some(warning) = settings::take_former_persist() {
        Linux.warning(&warning);
    }
    let rules = &TABLES;
    // SAFETY: as above.
    unsafe { settings::set_text(&rules.text, rules.text.load(Ordering::SeqCst)) };
    rules.apply(&CORE);
    let patched = too_old()
        .map_err(Into::into)
        .and_then(|()| got::patch(&hooks::imports(), interface::judge));
    let (passive, verdict) = match patched {
        Ok(verdict) => (None, Some(verdict)),
        Err(reason) => (Some(reason.to_string()), None),
    };
    let early = passive.is_none() && !scan::innodb_is_running(&Linux);
    if let Some(verdict) = verdict {
        let chooses = early && !untracked::io_uring_seen();
        let fails = untracked::to_make_fail(&verdict);
        ASYNC_IO
            .make_io_uring_fail
            .store(chooses && fails.io_uring, Ordering::SeqCst);
        ASYNC_IO
            .make_libaio_fail
            .store(chooses && fails.libaio, Ordering::SeqCst);
        untracked::begin(verdict);
    }
    BYPASS.begin(&CORE);
    let periodic = || DIAGNOSTICS.warming.reload_rejected();
    let _ = CONTROLLER.host.periodic.set(periodic);
    control::start(passive, early);
}

unsafe extern "C" fn deinit(_plugin: *mut c_void) -> c_int {
    // The hooks stay in place and forward every call: MySQL flushes its pages after deinit.
    let _ = catch_unwind(|| {
        let end = || DIAGNOSTICS.end();
        let how = persist::End::now();
        match how {
            persist::End::Persisted => control::stop_and_persist(end),
            _ => CONTROLLER.stop(end),
        }
        persist::end(how);
    });
    // Must follow the end of the controller: it would take the missing values for new ones.
    settings::LOADED.store(false, Ordering::SeqCst);
    ERROR_LOG.close();
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_have_the_servers_layout() {
        assert_eq!(_mysql_sizeof_struct_st_plugin_, 112);
        assert_eq!(_maria_sizeof_struct_st_plugin_, 104);
        assert_eq!(std::mem::offset_of!(MySqlDeclaration, status), 80);
        assert_eq!(std::mem::offset_of!(MySqlDeclaration, flags), 104);
        assert_eq!(std::mem::offset_of!(MariaDbDeclaration, status), 72);
        assert_eq!(std::mem::offset_of!(MariaDbDeclaration, maturity), 96);
    }

    #[test]
    fn a_test_program_is_no_server() {
        assert_eq!(server().0, Flavour::None);
    }
}
