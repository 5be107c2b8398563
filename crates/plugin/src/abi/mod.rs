//! Interface to the plugin loaders of MySQL and MariaDB: descriptors, variables, status, and the reports (function and
//! variable).
//!
//! One library serves both: MariaDB looks for `_maria_*` symbols first, MySQL only for `_mysql_*`. Layouts and numbers come
//! from the servers' `plugin.h` (MySQL 8.0 to 9.7, MariaDB 10.11 to 11.8). Both servers keep them stable.

pub mod descriptor;
pub mod messages;
pub mod privilege;
pub mod report_function;
pub mod report_variable;
pub mod status;
pub mod variables;

use std::cell::UnsafeCell;

/// A table that the server reads. The server may write only the fields meant for it.
#[repr(transparent)]
pub struct ServerTable<T>(UnsafeCell<T>);

// SAFETY: after the server got a table, the plugin writes it only in its initialisation (`variables::guard_report`). The
// constructor writes `descriptor::INFO` before any other thread can know it.
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
