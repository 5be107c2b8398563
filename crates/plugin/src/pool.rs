//! How large InnoDB's buffer pool is, by the table of InnoDB's variables: both servers export the list of the plugins that are
//! built into them, with descriptors as `abi/descriptor.rs` has them for ours.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use crate::abi::{Flavour, server};
use crate::linux::Linux;
use crate::process::KNOWN;
use crate::scan;
use crate::settings::Settings;

const STORAGE_ENGINE: c_int = 1;
/// The types of variables whose values have 64 bits: `long` and `long long`.
const WIDE: [c_int; 2] = [3, 4];
const TYPE: c_int = 0x7f;
const OF_A_SESSION: c_int = 0x100;
/// The server puts its prefix before the names when it takes the plugin up.
const NAMES: [&CStr; 2] = [c"innodb_buffer_pool_size", c"buffer_pool_size"];
/// Plugins that are built in, and variables of InnoDB: more than any server has.
const MOST: usize = 1000;

/// The beginning of a descriptor, which both servers share; the variables are the word number `variables` of it.
#[repr(C)]
struct Plugin {
    kind: c_int,
    info: *const u8,
    name: *const c_char,
}

/// The beginning of `st_mysql_sys_var`.
#[repr(C)]
struct Variable {
    flags: c_int,
    name: *const c_char,
    comment: *const c_char,
    check: usize,
    update: usize,
    value: *const u64,
}

fn innodb_runs() -> bool {
    let seen = &KNOWN.innodb_runs;
    if !seen.load(Ordering::SeqCst) && scan::innodb_is_running(&Linux) {
        seen.store(true, Ordering::SeqCst);
    }
    seen.load(Ordering::SeqCst)
}

/// Whether the size of the cache depends on the buffer pool's, which is not known yet.
pub fn is_waited_for(settings: &Settings) -> bool {
    settings.percent().is_some() && settings.memory_limit == 0 && !innodb_runs()
}

/// Bytes of InnoDB's buffer pool; `None` where this server does not show them, or before InnoDB has started.
pub fn bytes() -> Option<u64> {
    if !innodb_runs() {
        return None;
    }
    let variables = match server().0 {
        Flavour::MariaDb => 10,
        Flavour::MySql => 11,
        Flavour::None => return None,
    };
    [c"mysql_mandatory_plugins", c"mysql_optional_plugins"]
        .into_iter()
        // SAFETY: the servers' own lists, which end with null and never change.
        .find_map(|list| unsafe { in_list(list, variables) })
        .filter(|bytes| *bytes > 0)
}

/// # Safety
/// The symbol must be a list of pointers to plugins that ends with null, whose variables are that word.
unsafe fn in_list(symbol: &CStr, variables: usize) -> Option<u64> {
    // SAFETY: the caller's promise. Names end with a zero byte; the lists of variables end with null. A value is read as the
    // server writes it, a word at once.
    unsafe {
        let list = libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<*const Plugin>();
        if list.is_null() {
            return None;
        }
        let plugin = items(list).find(|plugin| {
            (**plugin).kind == STORAGE_ENGINE
                && !(**plugin).name.is_null()
                && CStr::from_ptr((**plugin).name) == c"InnoDB"
        })?;
        let table = *plugin.cast::<*const *const Variable>().add(variables);
        if table.is_null() {
            return None;
        }
        let variable = items(table).find(|variable| {
            !(**variable).name.is_null() && NAMES.contains(&CStr::from_ptr((**variable).name))
        })?;
        let (flags, value) = ((*variable).flags, (*variable).value);
        let is_wide = WIDE.contains(&(flags & TYPE)) && flags & OF_A_SESSION == 0;
        (is_wide && !value.is_null()).then(|| value.read_volatile())
    }
}

/// # Safety
/// `list` must be a list of pointers that ends with null.
unsafe fn items<T>(list: *const *const T) -> impl Iterator<Item = *const T> {
    // SAFETY: the caller's promise.
    (0..MOST)
        .map(move |at| unsafe { *list.add(at) })
        .take_while(|item| !item.is_null())
}
