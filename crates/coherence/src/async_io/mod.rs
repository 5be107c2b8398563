//! Asynchronous I/O through libaio, from submit to harvest.
//!
//! A read of a cached page is redirected to the cache file before it is submitted. At harvest its bytes are verified. If that
//! fails, the server's own read replaces it before the server sees the event. At harvest an uncached read is offered for
//! admission. So is a write, once it is known to have succeeded.
//!
//! All this requires that the completion passes through the hooks. A thread that waits inside an `io_getevents` from before the
//! extension was switched on would take completions past them. So requests are tracked only on *armed* contexts: a harvester
//! has entered them through the hook since then. On other contexts reads pass unmodified. A write on such a context drops the
//! pages it touches, and blocks the admission of reads of these pages. The block ends when the end of the write is observed,
//! when the server reuses the request, or after [`UNOBSERVED_TIMEOUT`]. Reason: MariaDB overwrites a freed page with zeros while
//! it may read it ahead, and the kernel may execute the read first.
//!
//! A read that the cache disk does not answer in time expires (`timeout`). A server's thread must not wait for that disk inside
//! `io_submit` either. So a read is redirected only while the disk certainly has a free request, and it carries `RWF_NOWAIT`.
//!
//! A fallback read is submitted to the server's own context. So many of them are in flight together, and the harvesting thread
//! waits for none.
//!
//! # States of a request
//! | state | from | to |
//! |---|---|---|
//! | redirected | submission of a cached page's read | verified at harvest; else reissued; overdue: expired |
//! | missed | submission of another read, or a reissued read | harvested: its page is offered |
//! | write | submission of a write | harvested: ended; after `UNOBSERVED_TIMEOUT` if its end may pass unobserved |
//! | abandoned | an expired read, already answered to the server | answered by the cache disk |
//!
//! # Files
//! `submit`, `harvest`, `reissue` (the server's own read in place of a redirected one), `timeout` (overdue reads). The table of
//! requests is [`crate::core::requests`].

mod harvest;
mod reissue;
mod submit;
mod timeout;

use std::time::Duration;

use crate::switch::Mode;

pub use crate::core::requests::{IoEvent, Iocb};
pub use timeout::MAX_HARVEST_WAIT;

/// How long a write counts as in flight if its end may have passed unobserved.
pub const UNOBSERVED_TIMEOUT: Duration = Duration::from_secs(60);

/// Mode and context of a submission.
#[derive(Clone, Copy)]
pub struct Submission {
    pub mode: Mode,
    pub context: usize,
}

#[cfg(test)]
mod redirected_tests;
#[cfg(test)]
mod untracked_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<Iocb>(), 64);
        assert_eq!(size_of::<IoEvent>(), 32);
        assert_eq!(std::mem::offset_of!(Iocb, opcode), 16);
        assert_eq!(std::mem::offset_of!(Iocb, fd), 20);
        assert_eq!(std::mem::offset_of!(Iocb, offset), 40);
    }

    #[test]
    fn a_context_counts_as_armed_only_after_its_harvester_came_by() {
        let core = crate::testing::os_for_tests::core();
        core.requests.disarm_all();
        core.entering_harvest(0x1000); // off: must not arm
        assert!(!core.requests.is_armed(0x1000));
    }
}
