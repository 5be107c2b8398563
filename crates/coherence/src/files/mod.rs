//! The registry: from the server's descriptors and inodes to data files.
//!
//! # Terms
//! - *Data file* ([`DataFile`]): an object that represents one inode while the server has it open or may reopen it. Objects are
//!   never freed, so a hook holds a reference without counting it.
//! - *Identity* (`FileId`): the number under which a file's present contents are cached. A new identity makes every entry under
//!   the previous one unreachable.
//! - *Descriptor table*: one slot for each descriptor. Hooks find a data file with one load.
//! - *Found* descriptor: it was open before tracking began. The slot carries a tag, and each use verifies the descriptor with
//!   `fstat`, until `FOUND_TIMEOUT` has passed.
//! - *Lease*: a borrowed descriptor. Bytes read through it count only if the lease is still valid afterwards.
//!
//! # States of a data file
//! | state | in the map of inodes | descriptors |
//! |---|---|---|
//! | open | yes | some |
//! | closed | yes, and in the list of closed files | none |
//! | quarantined | no | none |
//!
//! # Transitions
//! | event | transition | identity |
//! |---|---|---|
//! | first open of an inode | new or quarantined object to open | new |
//! | further open | open to open | kept; new if the open may have created or truncated the file |
//! | reopen | closed to open | kept if the change stamp equals that of the close; else new |
//! | last close | open to closed | kept, with the change stamp |
//! | last close of an unlinked file, or an unobserved close | open to quarantined | new |
//! | more than `CLOSED_FILES` closed files | closed to quarantined | new |
//! | unlink or replacement of a closed file | closed to quarantined | new |
//! | end of tracking ([`Files::forget_all`]) | all to quarantined | unreachable |
//! | start with persisted state ([`Files::recover`]) | new object to closed | persisted; kept at the reopen if it is proven |
//!
//! A quarantined object represents another inode after `QUARANTINE` at the earliest. A thread that found it before has left
//! its hook by then, or holds a [`Blocked`].
//!
//! # May a page be cached?
//! [`DataFile::usable_id`] returns the identity, or `None` in these cases:
//! - A change of the whole file is in flight ([`Blocked`]), or the audit suspects the file ([`Suspended`]).
//! - Caching is disabled until the file is reopened: it is unlinked, or was changed through an untracked call.
//!
//! Until the page size is known, no read names a page, so none is cached. The server's first read of a page other than page 0
//! teaches the size.
//!
//! # Locks
//! Registry, then the details of a file. The table is written only under the registry's lock, so that table and registry agree:
//! a slot with a quarantined file would eventually lead to the pages of another inode. Hooks read the table without the lock.
//! No lock is held during `fstat`, which may wait for a file server.
//!
//! # Files
//! `data_file` (identity, page size, blocks, changes in flight), `descriptor_table`, `registry` (opens, closes, renames),
//! [`file_rule`] (effect of the table rules), `persisted` (files of the previous process).

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
