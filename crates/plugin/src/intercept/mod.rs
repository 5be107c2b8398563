//! Interception: patches the server's imports, and detects I/O that bypasses them.
//!
//! [`got`] stores the addresses of the hooks into the executable's import table, all of them or none. [`untracked`]
//! detects asynchronous I/O whose submissions no hook sees. The functions themselves are in [`crate::hooks`].

pub mod got;
pub mod untracked;
