//! InnoDB's own plugin descriptor. Both servers export the list of built-in plugins, with descriptors as in
//! `abi/descriptor.rs`. The descriptor has the tables of InnoDB's system and status variables.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use coherence::scan;

use super::linux::Linux;
use super::server::{Flavour, server};

/// InnoDB was seen with its files open, so its variables have their values. Never reset.
static SEEN: AtomicBool = AtomicBool::new(false);

const STORAGE_ENGINE: c_int = 1;
/// Limit on built-in plugins and rows of a table: more than any server has.
const MAX_ITEMS: usize = 1000;
/// `SHOW_FUNC`, `SHOW_ARRAY` and `SHOW_LONGLONG`, the same in both servers.
const FUNCTION: c_int = 8;
const ARRAY: c_int = 7;
const LONGLONG: c_int = 4;
/// The status variable of the current LSN, without `Innodb_`: MariaDB, and MySQL since 8.0.30.
const LSN: [&CStr; 2] = [c"lsn_current", c"redo_log_current_lsn"];
/// Bytes that a status function may use (`SHOW_VAR_FUNC_BUFF_SIZE` is 1024 in both).
const BUFFER_BYTES: usize = 4096;

/// The beginning of a descriptor, which both servers share.
#[repr(C)]
struct Plugin {
    kind: c_int,
    info: *const u8,
    name: *const c_char,
}

/// `st_mysql_show_var`.
#[repr(C)]
struct Status {
    name: *const c_char,
    value: *const u8,
    kind: c_int,
    scope: c_int,
}

/// A status function: MySQL passes the first three arguments, MariaDB all.
type Show = unsafe extern "C" fn(
    thd: *mut u8,
    variable: *mut Status,
    buffer: *mut u8,
    status: *mut u8,
    scope: c_int,
) -> c_int;

/// Index of the word of InnoDB's descriptor that points to its variables. The word before it points to its status.
fn variables_word() -> Option<usize> {
    match server().0 {
        Flavour::MariaDb => Some(10),
        Flavour::MySql => Some(11),
        Flavour::None => None,
    }
}

/// Whether InnoDB has started.
pub fn runs() -> bool {
    if !SEEN.load(Ordering::SeqCst) && scan::innodb_is_running(&Linux) {
        SEEN.store(true, Ordering::SeqCst);
    }
    SEEN.load(Ordering::SeqCst)
}

/// The table of InnoDB's variables: pointers, null at the end.
pub fn variables() -> Option<*const *const u8> {
    let word = variables_word()?;
    // SAFETY: a server's descriptor has at least that many words.
    let table = unsafe { *descriptor()?.cast::<*const *const u8>().add(word) };
    (!table.is_null()).then_some(table)
}

/// InnoDB's current LSN; `None` where this server does not show it. Call from a session's thread: InnoDB ends after the last
/// session.
pub fn lsn() -> Option<u64> {
    let word = variables_word()? - 1;
    // SAFETY: as in `variables`. InnoDB's status is one row: a function that fills an array. It takes only its own locks, as
    // for `SHOW STATUS`, and reads no argument but the row. Rows end with a null name.
    unsafe {
        let row = *descriptor()?.cast::<*const Status>().add(word);
        if row.is_null() || (*row).name.is_null() || (*row).kind & 0xff != FUNCTION {
            return None;
        }
        let show: Show = std::mem::transmute::<*const u8, Show>((*row).value);
        let mut shown = Status {
            name: (*row).name,
            value: std::ptr::null(),
            kind: 0,
            scope: 0,
        };
        let mut buffer = [0u64; BUFFER_BYTES / 8];
        let null = std::ptr::null_mut();
        if show(null, &mut shown, buffer.as_mut_ptr().cast(), null, 2) != 0
            || shown.kind & 0xff != ARRAY
        {
            return None;
        }
        let rows = shown.value.cast::<Status>();
        (0..MAX_ITEMS)
            .map(|at| &*rows.add(at))
            .take_while(|row| !row.name.is_null())
            .find(|row| row.kind & 0xff == LONGLONG && LSN.contains(&CStr::from_ptr(row.name)))
            .map(|row| row.value.cast::<u64>().read_volatile())
    }
}

fn descriptor() -> Option<*const u8> {
    [c"mysql_mandatory_plugins", c"mysql_optional_plugins"]
        .into_iter()
        // SAFETY: the servers' own lists, which end with null and never change.
        .find_map(|list| unsafe { in_list(list) })
}

/// # Safety
/// The symbol must be a list of pointers to plugins that ends with null.
unsafe fn in_list(symbol: &CStr) -> Option<*const u8> {
    // SAFETY: the caller's promise. Names end with a zero byte.
    unsafe {
        let list = libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<*const Plugin>();
        if list.is_null() {
            return None;
        }
        let plugin = items(list).find(|plugin| {
            (**plugin).kind == STORAGE_ENGINE
                && !(**plugin).name.is_null()
                && CStr::from_ptr((**plugin).name) == c"InnoDB"
        });
        plugin.map(|plugin| plugin.cast())
    }
}

/// # Safety
/// `list` must be a list of pointers that ends with null.
pub unsafe fn items<T>(list: *const *const T) -> impl Iterator<Item = *const T> {
    // SAFETY: the caller's promise.
    (0..MAX_ITEMS)
        .map(move |at| unsafe { *list.add(at) })
        .take_while(|item| !item.is_null())
}
