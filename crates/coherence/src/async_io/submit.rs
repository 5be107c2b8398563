//! Before a submission: redirects reads of cached pages, prepares writes, and reverts what the kernel did not accept.

use std::ffi::c_int;
use std::time::Duration;

use super::Submission;
use crate::core::Core;
use crate::core::page_request::Completion;
use crate::core::requests::{
    Iocb, PREAD, PWRITE, PWRITEV, Purpose, Request, Vector, Words, is_tag, vector_bytes,
};
use crate::files::DataFile;
use crate::platform::os::{Errno, Os};
use crate::platform::sync::Instant;
use crate::switch::Mode;

impl<O: Os> Core<O> {
    /// Submits requests under the coherence rules.
    ///
    /// `real` makes the server's call; `again` repeats it after a call that submitted nothing.
    pub fn submit(
        &'static self,
        by: Submission,
        requests: &[*mut Iocb],
        real: impl FnOnce() -> c_int,
        again: impl FnOnce() -> c_int,
    ) -> c_int {
        let Submission { mode, context, .. } = by;
        if !mode.tracks() {
            return real();
        }
        self.requests.note_use();
        let context = (mode.is_active() && self.requests.is_armed(context)).then_some(context);
        let mut redirected = false;
        let mut tagged = Vec::new();
        // Copied: the requests belong to the kernel after the submission, and to the server again after their harvest.
        let mut written: Vec<(i32, &'static DataFile)> = Vec::new();
        for &request in requests {
            // SAFETY: the server's requests are valid until they are harvested.
            if let Some(iocb) = unsafe { request.as_mut() } {
                // No file is looked up for a request that needs no handling.
                let concerned = match iocb.opcode {
                    PREAD => context.is_some() && by.mode.handles_reads() || mode.records(),
                    opcode => opcode == PWRITE || opcode == PWRITEV,
                };
                let file = concerned.then(|| self.files.of_descriptor(iocb.fd));
                if let Some(file) = file.flatten() {
                    if mode.records() {
                        // SAFETY: as above.
                        unsafe { self.record_write(iocb, file) };
                    }
                    if iocb.opcode != PREAD && written.last().is_none_or(|last| last.0 != iocb.fd) {
                        written.push((iocb.fd, file));
                    }
                    redirected |= self.prepare(by, iocb, file, context);
                }
                if is_tag(iocb.data) {
                    tagged.push((request as usize, iocb.data));
                }
            }
        }
        debug_assert!(
            !redirected || context.is_some(),
            "no thread would verify it"
        );
        let mut result = real();
        if redirected && result < 0 && result != -Errno::AGAIN.0 {
            // The kernel may have refused the cache file, which the server must not see.
            for &request in requests {
                if let Some(taken) = self.requests.take(request as usize) {
                    if let Purpose::Redirected { located, .. } = &taken.purpose {
                        located.refused(-result);
                    }
                    // SAFETY: not accepted by the kernel, so still the server's, which waits for this call to return.
                    self.take_back(unsafe { &mut *request }, taken);
                }
            }
            for &request in requests {
                // SAFETY: as above.
                if let Some(iocb) = unsafe { request.as_mut() } {
                    if let Some(file) = self
                        .files
                        .of_descriptor(iocb.fd)
                        .filter(|_| iocb.opcode != PREAD)
                    {
                        self.prepare(by, iocb, file, context);
                    }
                }
            }
            result = again();
        }
        // The kernel stamps a file when a write is submitted, and not again when it ends.
        for (fd, file) in written {
            self.files.stamp(file, fd);
        }
        let accepted = usize::try_from(result).unwrap_or(0).min(requests.len());
        for &request in &requests[accepted..] {
            if let Some(taken) = self.requests.take(request as usize) {
                // SAFETY: not accepted by the kernel, so still the server's, which waits for this call to return.
                unsafe { self.take_back(&mut *request, taken) };
            }
        }
        self.submitted(&tagged);
        result
    }

    /// Prepares a request before it is submitted. `context` is given if its completions are observed. Returns whether the request
    /// was redirected to a cache file.
    fn prepare(
        &'static self,
        by: Submission,
        iocb: &mut Iocb,
        file: &'static DataFile,
        context: Option<usize>,
    ) -> bool {
        match (iocb.opcode, context) {
            (PREAD, Some(context)) if by.mode.handles_reads() => {
                return self.prepare_read(by.mode, iocb, file, context);
            }
            (PREAD, _) if by.mode.records() => {
                // Only recorded; passes unmodified.
                let _ = self.page_of_request(by.mode, file, iocb.length as usize, iocb.offset);
            }
            (PWRITE, _) => self.prepare_write(iocb, file, iocb.length as usize, context),
            (PWRITEV, _) => {
                // SAFETY: the server's own vector.
                let length =
                    unsafe { vector_bytes(iocb.buffer as *const Vector, iocb.length as c_int) };
                self.prepare_write(iocb, file, length, None);
            }
            _ => {}
        }
        false
    }

    /// Records a write in the trace.
    ///
    /// # Safety
    /// A write must be one that the server is about to submit, with its buffer.
    unsafe fn record_write(&'static self, iocb: &Iocb, file: &DataFile) {
        match iocb.opcode {
            PWRITE if iocb.length != 0 => {
                let length = iocb.length as usize;
                // SAFETY: the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(iocb.buffer as *const u8, length) };
                self.trace
                    .record_write(file, Some(bytes), length, iocb.offset);
            }
            PWRITEV => {
                // SAFETY: the server's own vector.
                let length =
                    unsafe { vector_bytes(iocb.buffer as *const Vector, iocb.length as c_int) };
                self.trace.record_write(file, None, length, iocb.offset);
            }
            _ => {}
        }
    }

    fn prepare_read(
        &'static self,
        mode: Mode,
        iocb: &mut Iocb,
        file: &'static DataFile,
        context: usize,
    ) -> bool {
        let Some(target) = self.page_of_request(mode, file, iocb.length as usize, iocb.offset)
        else {
            return false;
        };
        let guard = self.switch().active();
        let (Some(active), Some(pending)) = (&*guard, self.requests.begin(self.switch(), context))
        else {
            return false;
        };
        let timed = target.timed(mode);
        let is_control = timed.is_some_and(|timed| timed.control);
        if is_control && mode.serves() {
            active.extension.count_access(target.page);
        }
        let may_be_located = mode.serves() && !is_control;
        let located = may_be_located.then(|| {
            let (group, to) = (target.file.group(), iocb.buffer as usize);
            active
                .extension
                .locate(target.page, group, iocb.length as usize, to)
        });
        let located = located.flatten();
        let words = Words::of(iocb);
        debug_assert!(!is_tag(words.data), "a server's word is an address");
        let redirected = located.as_ref().map(|located| Words {
            fd: located.fd,
            offset: located.offset as i64,
            length: located.length.into(),
            buffer: located.buffer().map_or(words.buffer, |start| start as u64),
            rw_flags: words.rw_flags | located.flags(),
            ..words
        });
        let purpose = match located {
            Some(located) => Purpose::Redirected {
                target,
                tag: located.buffer().map(|_| self.requests.new_tag()),
                located,
            },
            None => {
                let mut ticket = None;
                if mode.serves() {
                    let generations = self.switch().generations();
                    ticket = generations.begin_read(target.file.owner, target.page.page);
                    if ticket.is_none() {
                        return false;
                    }
                }
                Purpose::Missed {
                    target,
                    ticket,
                    started: Instant::now(),
                }
            }
        };
        let tag = match &purpose {
            Purpose::Redirected { tag: Some(tag), .. } => Some(tag.word()),
            _ => None,
        };
        let request = Request {
            purpose,
            context,
            submitted: canary!("overdue-before-submitted").then(Instant::now),
            timed: timed.map(Box::new),
            words,
            length: Request::length_of(iocb.length),
            epoch: active.epoch,
            pending: Some(pending),
        };
        match (self.track(iocb, request), redirected) {
            (None, Some(redirected)) => {
                let data = tag.unwrap_or(words.data);
                Words { data, ..redirected }.restore(iocb);
                true
            }
            (None, None) => false,
            (Some(request), _) => {
                if let Purpose::Redirected { located, .. } = request.purpose {
                    active.extension.release(located);
                }
                false
            }
        }
    }

    fn prepare_write(
        &'static self,
        iocb: &Iocb,
        file: &'static DataFile,
        length: usize,
        context: Option<usize>,
    ) {
        let guard = self.switch().active();
        let pending = context
            .filter(|_| guard.is_some())
            .and_then(|context| self.requests.begin(self.switch(), context));
        let end = pending
            .as_ref()
            .map_or(Completion::MaybeObserved, |_| Completion::Observed);
        let Some(write) = self.begin_write(file, length, iocb.offset, end) else {
            return;
        };
        let request = Request {
            purpose: Purpose::Write(write),
            context: context.unwrap_or(0),
            submitted: (end == Completion::MaybeObserved).then(Instant::now),
            timed: None,
            words: Words::of(iocb),
            length: Request::length_of(length as u64),
            epoch: guard.as_deref().map_or(0, |active| active.epoch),
            pending,
        };
        if let Some(Request {
            purpose: Purpose::Write(write),
            ..
        }) = self.track(iocb, request)
        {
            // Not tracked after all: the pages are dropped and their generations incremented.
            self.finish_write(write, None, None);
        }
    }

    /// Ends writes that are older than `after` and whose end may have passed unobserved. Call periodically.
    pub fn end_unobserved_writes(&'static self, after: Duration) {
        for shard in self.requests.shards() {
            let is_old = |request: &Request| {
                matches!(request.purpose, Purpose::Write(_))
                    && request
                        .submitted
                        .is_some_and(|when| when.elapsed() >= after)
            };
            let mut shard = shard.lock();
            let old = shard.iter().filter(|(_, request)| is_old(request));
            let old: Vec<usize> = old.map(|(key, _)| *key).collect();
            let old: Vec<_> = old.iter().filter_map(|key| shard.remove(key)).collect();
            drop(shard);
            for request in old {
                if let Purpose::Write(write) = request.purpose {
                    self.finish_write(write, None, None);
                }
            }
        }
    }

    /// Reverts the preparation of a request that the kernel did not accept.
    fn take_back(&'static self, iocb: &mut Iocb, request: Request) {
        match request.purpose {
            Purpose::Redirected { located, .. } => {
                if canary!("giving-back") {
                    return;
                }
                request.words.restore(iocb);
                if let Some(active) = self
                    .switch()
                    .active()
                    .as_ref()
                    .filter(|active| active.epoch == request.epoch)
                {
                    active.extension.release(located);
                }
            }
            Purpose::Missed { .. } => {}
            Purpose::Write(write) => self.finish_write(write, None, None),
        }
    }
}
