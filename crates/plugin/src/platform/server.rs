//! The server that loaded the library: its kind, release and exported symbols.

use std::ffi::{CStr, c_void};

/// The server that loaded the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// MySQL, or a server made from it.
    MySql,
    /// No server: the library was preloaded into another program.
    None,
}

/// Returns the first of these symbols that the server exports; null if there is none.
pub fn lookup(names: &[&CStr]) -> *mut c_void {
    for name in names {
        // SAFETY: a symbol lookup with a valid string.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !symbol.is_null() {
            return symbol;
        }
    }
    std::ptr::null_mut()
}

/// Identifies the server by its built-in binary log plugin, whose symbol differs between the two. Returns the server and its
/// interface version (release number times 256).
pub fn server() -> (Flavour, i32) {
    for (symbol, flavour) in [
        (c"builtin_maria_binlog_plugin", Flavour::MariaDb),
        (c"builtin_binlog_plugin", Flavour::MySql),
    ] {
        if let Some(version) = interface_version(symbol) {
            return (flavour, version);
        }
    }
    (Flavour::None, 0)
}

fn interface_version(symbol: &CStr) -> Option<i32> {
    // SAFETY: a symbol lookup. The symbol is an array of plugin declarations. Their second word points to the descriptor of
    // a storage engine, which begins with the interface version.
    unsafe {
        let declarations = libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<*const i32>();
        if declarations.is_null() {
            return None;
        }
        let info = *declarations.add(1);
        (!info.is_null()).then(|| *info)
    }
}
