//! Fallback read: the server's own read in place of a redirected one.

use std::ffi::c_int;

use crate::core::Core;
use crate::core::page_request::PageRequest;
use crate::core::requests::{IoEvent, Iocb, Purpose, Request, Words, is_tag};
use crate::platform::os::{Errno, Os};
use crate::platform::sync::Instant;
use crate::switch::control_group::Timed;

/// Submits a request to the kernel, as `io_submit` does.
pub type Submit<'a> = &'a dyn Fn(usize, *mut Iocb) -> c_int;

impl<O: Os> Core<O> {
    /// Submits the server's original request to its own context, in place of a redirected one. Returns whether the kernel accepted
    /// it; the server's event is then that of this request. The caller must hold no lock.
    pub(super) fn resubmit_original(
        &'static self,
        request: *mut Iocb,
        target: PageRequest,
        context: usize,
        timed: Option<Timed>,
        submit: Submit<'_>,
    ) -> bool {
        // SAFETY: the server waits for this request and does not touch it, because it got no event for it.
        self.track_original(unsafe { &*request }, target, context, timed);
        let taken = submit(context, request) == 1;
        if !taken {
            drop(self.requests.take(request as usize)); // only a read, so there is nothing to undo
        }
        taken
    }

    /// Tracks a fallback read of the data file. The read is correct without tracking too.
    pub(super) fn track_original(
        &'static self,
        iocb: &Iocb,
        target: PageRequest,
        context: usize,
        timed: Option<Timed>,
    ) {
        debug_assert!(!is_tag(iocb.data), "the server's own words are restored");
        let guard = self.switch().active();
        let (Some(active), Some(pending)) = (&*guard, self.requests.begin(self.switch(), context))
        else {
            return;
        };
        let ticket = self
            .switch()
            .generations()
            .begin_read(target.file.owner, target.page.page);
        if ticket.is_none() {
            return;
        }
        let request = Request {
            purpose: Purpose::Missed {
                target,
                ticket,
                started: Instant::now(),
            },
            context,
            submitted: None,
            timed: timed.map(Box::new),
            words: Words::of(iocb),
            length: Request::length_of(iocb.length),
            epoch: active.epoch,
            pending: Some(pending),
        };
        drop(self.track(iocb, request));
    }

    /// Counts a fallback read.
    pub(super) fn count_data_read_of(
        &'static self,
        fd: c_int,
        started: Instant,
        timed: Option<Timed>,
    ) {
        if let (Some(active), Some(file)) = (&*self.switch().active(), self.files.of_descriptor(fd))
        {
            self.count_data_read(active, file, started);
            if let Some(timed) = timed {
                active.waits.record(timed);
            }
        }
    }

    /// Makes the fallback read synchronously.
    pub(super) fn read_original(&'static self, event: &mut IoEvent, words: &Words, length: usize) {
        // SAFETY: the server's own read, with its own arguments.
        let result = unsafe {
            self.os()
                .read(words.fd, words.buffer as *mut u8, length, words.offset)
        };
        event.result = match result {
            Ok(bytes) => bytes as i64,
            Err(Errno(errno)) => -i64::from(errno),
        };
    }

    /// Tracks a request until it is harvested. Returns it if too many are tracked.
    pub(super) fn track(&'static self, iocb: &Iocb, request: Request) -> Option<Request> {
        // Otherwise nothing would end a write that is never harvested.
        debug_assert!(request.pending.is_some() || request.submitted.is_some());
        match self.requests.track(iocb, request) {
            Ok(left_over) => {
                // Its completion passed unobserved. It stays pending until its write has ended.
                if let Some(Request {
                    purpose: Purpose::Write(write),
                    pending,
                    ..
                }) = left_over
                {
                    self.finish_write(write, None, None);
                    drop(pending);
                }
                None
            }
            Err(request) => Some(request),
        }
    }
}
