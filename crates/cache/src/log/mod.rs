//! The log of a device: writes admitted pages from staging to segments, and reclaims segments.
//!
//! # Terms
//! - *Writer*: thread of a device ([`writer`]). Only it writes the cache file and moves segments between states.
//! - *Segment*: unit of filling and reclaiming a device, with a footer that names its pages ([`crate::device::segment`]).
//! - *Stream*: an open segment and its next chunk ([`stream`]). There are two: for new pages, and for pages that compaction
//!   moves.
//! - *Chunk*: at most 256 KiB of pages, written at once. *Gathered*: from the frames in place, asynchronously ([`in_flight`]).
//!   Otherwise copied, and written synchronously.
//! - *Batch*: the pages of one write, and the updates of their entries ([`batch`]).
//! - *Live*: an entry refers to the place. *Hole*: free space between the live pages of a reopened segment.
//! - *Victim*: the segment that is being reclaimed ([`reclaim`]).
//!
//! # States of a segment
//! All transitions are in [`States`](crate::device::segment::states::States), and panic if the state does not fit.
//!
//! | from | to | when | by |
//! |---|---|---|---|
//! | Free | Open | a stream needs a segment, and more than the reserve is free | `SegmentLog::append` |
//! | Open | Full | no page fits any longer; before its footer is written | `SegmentLog::append` |
//! | Full | Sorting | it has the fewest live units, and no write in flight targets it | `Reclaimer` |
//! | Sorting | Open | reopened: it has a hole for the next page | `SegmentLog::reopen` |
//! | Sorting | Full | no hole is large enough | `SegmentLog::reopen` |
//! | Sorting | Free | no page is live | `SegmentLog::reopen`, `release` |
//! | Sorting | Vacated | compacted: the moved pages are in a chunk that is not written yet | `SegmentLog::release` |
//! | Vacated | Free | that chunk is written, or its entries are removed | `SegmentLog::flush` |
//! | any | Free | the device failed and no entry refers to it any longer | `Recovery` |
//!
//! A segment's sequence number is incremented before its places are written again: when it becomes free, and when it is
//! reopened. A reader that finds it changed after its read looks up the entry again.
//!
//! # Entries
//! An entry refers to the frame, or to the old place, until the write has succeeded. Then the writer switches it to the new
//! place under the instance's lock, if it still refers there, and releases the frame. If the write failed, it removes the
//! entry. So a page can be read at any time.
//!
//! # Locks
//! State of segments, streams and writes in flight belongs to the writer and needs no lock. The writer takes the lock of
//! one instance at a time: to take staged pages, to switch or remove entries, to determine live pages. It holds no lock
//! during I/O.
//!
//! # Cost
//! A page is written once, and again only if its segment is compacted. A search for the victim compares at most 8192
//! segments. Lists and buffers are allocated at the start or grow to a limit ([`writer::Writer::max_buffers`]).
//!
//! # Failure
//! - A failed write: its entries are removed, and the device fails. [`device_recovery`] removes all other entries and retries the
//!   device.
//! - A footer that cannot be read: [`sweep`] removes the entries into the segment.
//! - A panic in the writer: [`sweep`] removes the entries of the device, which is unusable until the extension is opened again. The
//!   arena is discarded.
//!
//! # Files in reading order
//! [`writer`], [`segment_log`], [`stream`], [`in_flight`], [`batch`]; [`reclaim`], [`sweep`], [`device_recovery`]; [`threads`].

mod batch;
mod device_recovery;
mod in_flight;
mod reclaim;
mod segment_log;
mod stream;
pub(crate) mod sweep;
pub(crate) mod threads;
pub(crate) mod writer;
