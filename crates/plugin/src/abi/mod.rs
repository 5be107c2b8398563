//! What the plugin loaders of MySQL and MariaDB see: descriptors, variables, status, and the reports, as a function and as a variable.
//!
//! One library serves both: MariaDB looks for `_maria_*` symbols first, MySQL knows only `_mysql_*`. Layouts and numbers
//! are those of the servers' `plugin.h` (MySQL 8.0 to 9.7, MariaDB 10.11 to 11.8), which both keep stable.

pub mod descriptor;
pub mod messages;
pub mod privilege;
pub mod report_function;
pub mod report_variable;
pub mod status;
pub mod variables;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};

/// A table that the server reads, and of which it may write the parts meant for it.
#[repr(transparent)]
pub struct ServerTable<T>(UnsafeCell<T>);

// SAFETY: we never touch a table after the server got it, except `descriptor::INFO`, which is written in the
// constructor, before any other thread can know it.
unsafe impl<T> Sync for ServerTable<T> {}

impl<T> ServerTable<T> {
    /// Wraps a table.
    pub const fn new(table: T) -> ServerTable<T> {
        ServerTable(UnsafeCell::new(table))
    }

    /// Its address.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// Which server we are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// MySQL, or a server made from it.
    MySql,
    /// Not a server at all (preloaded into another program).
    None,
}

/// The first of these symbols that the server exports; null if it exports none.
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

/// Looks for the built-in binary log plugin, which both servers export under different names. Returns the server and
/// its interface version (release number times 256).
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
    // SAFETY: a symbol lookup. The symbol is an array of plugin declarations, whose second word points to the
    // descriptor of a storage engine, which begins with the interface version.
    unsafe {
        let declarations = libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<*const i32>();
        if declarations.is_null() {
            return None;
        }
        let info = *declarations.add(1);
        (!info.is_null()).then(|| *info)
    }
}
