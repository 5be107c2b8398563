//! Data files: maps the server's descriptors to the InnoDB data files behind them.
//!
//! A [`DataFile`] represents one inode while the server has it open or may reopen it. Hooks find it by descriptor with one
//! array lookup. Its `FileId` identifies its contents inside the cache. A change that is not tracked page by page assigns a
//! new `FileId`, which makes every entry under the previous one unreachable.
//!
//! Data files are never freed. They are reused only after a quarantine (`QUARANTINE`), so a hook holds a reference without counting it.
//!
//! The descriptor table is written only under the registry's lock, so that table and registry always agree. A slot with a
//! quarantined file would eventually lead to the pages of another inode. Hooks read the table without the lock.

mod data_file;
mod descriptor_table;
pub mod file_rule;
mod persisted;
#[cfg(all(test, not(checker)))]
mod persisted_tests;
mod registry;
#[cfg(test)]
mod registry_tests;

pub use crate::restart::stamp::FileStat;
pub use data_file::{Blocked, Changing, DataFile, Suspended, is_data_file_name};
pub use descriptor_table::{Entry, Slot, empty_slot};
pub use registry::{Attach, Files, Lease};
