//! Coherence protocol: keeps the cached pages equal to the data files.
//!
//! # Terms
//! - *Generation*: a counter for each group of pages. Every write of the group increments it before the write is submitted.
//! - *Ticket* ([`ReadTicket`](cache::ReadTicket)): the generation that a missed read observed before it was submitted.
//! - *Admission*: inserting a page after a read or after a write.
//! - *Completion* ([`Completion`](crate::core::page_request::Completion)): whether the plugin observes the end of a write.
//!
//! # A read
//! 1. Name the page. A file that the table rules exclude ends here.
//! 2. Hit: copy the page, compare the page number in its header, return. The server's call is not made.
//! 3. Miss: take a ticket, *then* make the server's call.
//! 4. Admit the page under that ticket. The cache rejects it if a write of the page has begun since step 3.
//!
//! # A write
//! 1. Count a change of the file in flight, for the audit.
//! 2. Increment the generations. From here on, no read of these pages gets a ticket.
//! 3. Take the file's identity, and drop the pages' entries under it.
//! 4. Make the server's call.
//! 5. Store the file's [change stamp](crate::restart::stamp), for the next process.
//! 6. End the write. If no other write of the page overlapped, this returns a ticket.
//! 7. Admit the written page if the write has succeeded, wrote exactly one page, and the identity is the same.
//!
//! # Any other change
//! - Truncation, unlink, replacement and calls without an offset assign a new identity before they are submitted. They block the
//!   admission of reads until they have completed.
//! - A hole or a zeroed range is a write of its pages, of which none is admitted.
//! - A change of size, names or times keeps the pages, counts as a change in flight, and stores the change stamp.
//!
//! # Why this is enough
//! A stale entry needs a page image that was read before a write and admitted after it. Step 2 of the write comes before the
//! write itself, so the ticket of that image is void. An image that was admitted before step 2 is dropped in step 3. The
//! identity is taken after the increment. So a page that is admitted under a newer identity needs a ticket from after it.
//! `interleavings/` tests every order of threads, and removes each of these rules in turn.
//!
//! # Modes
//! | mode | serve | admit | drop entries |
//! |---|---|---|---|
//! | on | yes | yes | yes |
//! | bypass | no | no | yes |
//! | bypass with refill | no | written pages | yes |
//! | off | no | no | nothing is cached |
//!
//! # Files
//! `read`, `write`, `change` (any other change), `steps` (parts of both that a test can do wrong).

mod change;
mod read;
#[cfg(test)]
pub(crate) mod read_write_tests;
#[cfg(test)]
mod rules_tests;
mod steps;
mod write;
