//! Coherence protocol: keeps the cached pages equal to the data files.
//!
//! # Rules
//! 1. Read miss: take a [`ReadTicket`](cache::ReadTicket) *before* the server's read. Admit the page under that ticket, which
//!    is void once a write of the page has begun.
//! 2. Write: increment the generations of the pages and drop their entries *before* the write is submitted. Admit the written
//!    page only after the write has succeeded, and only if no other write of the page overlapped.
//! 3. Any other change of a file (truncation, holes, unlink, replacement, calls without an offset) assigns a new identity
//!    before it is submitted. It blocks the admission of reads until it has completed.
//! 4. Each change stores the file's [change stamp](crate::restart::stamp) when the call returns, for the next process.
//!
//! In bypass rule 1 is suspended, because no read is served or admitted. The other rules hold in every mode.

mod canaries;
mod change;
mod read;
#[cfg(test)]
pub(crate) mod read_write_tests;
#[cfg(test)]
mod rules_tests;
mod write;
