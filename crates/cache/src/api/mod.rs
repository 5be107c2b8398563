//! The engine's interface: [`Extension`] and its operations. The server's hooks call them.
//!
//! Files in reading order: [`extension`] (types, opening and closing, settings), [`inserting`], [`reading`], [`locating`]
//! (asynchronous reads), [`clearing`] (forgotten files), [`warming`] (another server's pages), [`mod@open`] and [`recovering`]
//! (start), `report` and [`consistency`].
//!
//! # Terms
//! - *Entry*: the record of a cached page in the [directory](crate::index::directory). A page has at most one at any time,
//!   and it alone decides which bytes are served.
//! - *Frame*: memory of [staging](crate::instance::staging) that holds one page.
//! - *Place*: location of a page on a device.
//! - *Check*: 32 bits that prove that bytes are those of a page.
//! - *Garbage*: frames and places without an entry. They are collected later.
//!
//! # Life of a page
//! | state | how it begins | who | served from |
//! |---|---|---|---|
//! | absent | | | data file |
//! | staged | [`Extension::insert`]: the policy admits it, and the ticket is current under the instance's lock | the thread that read or wrote the page | frame |
//! | on a device | the write succeeded, and the entry still refers to the frame; then the frame is free | the device's writer | place |
//! | moved | its segment is compacted; as for the first write | the device's writer | old place, then the new one |
//! | absent | invalidated by a write: after it has incremented the generation, before it is forwarded | [`Extension::invalidate`] | data file |
//! | absent | evicted for another page, cleared with its forgotten file, or purged with its failed device | inserting threads, writers | data file |
//!
//! # Hit
//! [`Extension::read`] finds the entry under the lock and reads without it. A bounded read goes into memory of the extension,
//! so that it can be abandoned. An unbounded read goes into the caller's buffer where alignment allows. The bytes are
//! trusted only if
//! - their check equals the entry's, and
//! - the entry is still there. It need not be looked up again if neither the segment's sequence number nor the instance's
//!   count of removals has changed since it was found.
//!
//! # Lock order
//! 1. the writers of an extension without threads ([`Extension::pump`])
//! 2. the lock of one instance (never two)
//! 3. leaves, under which nothing else is locked: free frames of staging; reason and remark of a device's health; the
//!    rate limiter's bucket; the account of the daily write budget; the mutex on which writers sleep; a slot for bounded
//!    reads, which is only tried.
//!
//! No lock is held during I/O or while a page is copied, except the lock of the slot that is read into.
//!
//! # Cost
//! A hit or a miss takes one instance lock. `benches/instructions.txt` has the instructions of each operation. Operations
//! other than `open`, `statistics` and the like allocate nothing, with these exceptions: the memory of a slot at its first
//! use, and the tables of files and of forgotten files when they grow.
//!
//! # Failure
//! A failed, slow or damaged device causes misses with a [`MissReason`], never errors. Insertions fail
//! with an [`InsertOutcome`].
//!
//! [`Extension::insert`]: crate::Extension::insert
//! [`Extension::invalidate`]: crate::Extension::invalidate
//! [`Extension::pump`]: crate::Extension::pump
//! [`Extension::read`]: crate::Extension::read
//! [`Extension`]: crate::Extension
//! [`InsertOutcome`]: crate::InsertOutcome
//! [`MissReason`]: crate::MissReason

#[cfg(feature = "bench")]
pub mod benching;
mod clearing;
pub(crate) mod consistency;
pub(crate) mod extension;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod inserting;
pub(crate) mod locating;
pub(crate) mod open;
mod reading;
mod recovering;
mod report;
pub(crate) mod warming;
