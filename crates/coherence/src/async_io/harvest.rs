//! At harvest: verifies redirected reads, offers pages for admission, and ends writes, before the server sees the events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cache::Source;

use super::reissue::Submit;
use crate::core::Core;
use crate::core::page_request::Write;
use crate::core::requests::{IoEvent, Iocb, Purpose, Request, Words, is_tag};
use crate::platform::os::{Errno, Os};
use crate::platform::sync::{Instant, Ordering};
use crate::switch::Active;

/// Restores the server's request.
fn restore(event: &mut IoEvent, words: &Words) {
    debug_assert!(!is_tag(words.data), "the server must not get a tag");
    event.data = words.data;
    // SAFETY: the request is complete and not yet returned to the server, so it is ours.
    words.restore(unsafe { &mut *(event.request as *mut Iocb) });
}

/// Result of processing a completion.
enum Completed {
    AsItIs,
    /// The bytes from the cache file are not the requested page.
    ReadAgain,
}

impl<O: Os> Core<O> {
    /// Arms a context: a harvester is about to wait inside the hook, so its completions will be observed.
    pub fn entering_harvest(&self, context: usize) {
        if self.switch().mode().is_active() {
            self.requests.arm(context);
        }
    }

    /// Processes completions before the server does. Returns how many of them are for the server, and moves those to the front.
    /// Each completion is processed separately: if one panics, its page and the others are still read from the right file.
    ///
    /// `panicked` switches the extension off.
    pub fn harvested(
        &'static self,
        events: &mut [IoEvent],
        submit: Submit<'_>,
        panicked: fn(),
    ) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let event = &mut events[at];
            if self.requests.forget(event.data) {
                continue;
            }
            sync_point!("harvested");
            let request = self
                .requests
                .take_answered(event.request as usize, event.data);
            if request.is_none() && is_tag(event.data) {
                self.requests.forget(event.data); // another thread gave it up just now
                continue;
            }
            let over = request.is_none_or(|request| self.harvest(event, request, submit, panicked));
            if over {
                events.swap(kept, at);
                kept += 1;
            }
        }
        kept
    }

    /// Processes one completion. Returns whether the request is over, so that the event is the server's.
    fn harvest(
        &'static self,
        event: &mut IoEvent,
        request: Request,
        submit: Submit<'_>,
        panicked: fn(),
    ) -> bool {
        let redirected = match &request.purpose {
            Purpose::Redirected { target, .. } => Some(*target),
            _ => None,
        };
        let (words, length) = (request.words, request.length as usize);
        let (context, timed) = (request.context, request.timed());
        if redirected.is_some() {
            restore(event, &words);
        }
        let again = match catch_unwind(AssertUnwindSafe(|| self.complete(event, request))) {
            Ok(Completed::AsItIs) => None,
            Ok(Completed::ReadAgain) => redirected,
            Err(_) => {
                panicked();
                redirected
            }
        };
        if let Some(target) = again {
            let request = event.request as *mut Iocb;
            if self.resubmit_original(request, target, context, timed, submit) {
                return false;
            }
            let started = Instant::now();
            self.read_original(event, &words, length);
            self.count_data_read_of(words.fd, started, timed);
        }
        true
    }

    /// Whether reads may become overdue while a harvester waits. `bounded`: a cache disk must answer in time.
    pub fn may_expire(&self, bounded: bool) -> bool {
        // In bypass too: a harvester that waits when bypass ends must handle the reads that follow.
        self.requests.expects_tags() || bounded && self.switch().mode().is_active()
    }

    fn complete(&'static self, event: &mut IoEvent, request: Request) -> Completed {
        let guard = self.switch().active();
        let active = guard
            .as_deref()
            .filter(|active| active.epoch == request.epoch);
        let (words, length) = (request.words, request.length as usize);
        let timed = request.timed();
        let ended = |active: &Active| timed.map(|timed| active.waits.record(timed));
        let whole = event.result == length as i64;
        match request.purpose {
            Purpose::Redirected {
                target, located, ..
            } => {
                let proven = match active {
                    Some(active) if event.result == i64::from(located.length) => {
                        // SAFETY: the server's buffer for this read, which is complete and not yet returned.
                        let bytes = unsafe {
                            std::slice::from_raw_parts_mut(words.buffer as *mut u8, length)
                        };
                        // SAFETY: the read has completed.
                        let read = unsafe { located.bytes() };
                        let proven = active.extension.prove_page(&located, read, bytes)
                            && self.confirm_page(active, target, bytes);
                        proven || canary!("proof")
                    }
                    Some(active) => {
                        let errno = i32::try_from(-event.result.min(0)).unwrap_or(Errno::IO.0);
                        active.extension.release_failed(located, errno);
                        false
                    }
                    None => false,
                };
                if proven {
                    event.result = length as i64;
                    target.file.hits.fetch_add(1, Ordering::Relaxed);
                    active.and_then(ended);
                    return Completed::AsItIs;
                }
                return Completed::ReadAgain;
            }
            Purpose::Missed {
                target,
                ticket,
                started,
            } => {
                let Some(active) = active else {
                    return Completed::AsItIs;
                };
                self.count_data_read(active, target.file, started);
                ended(active);
                if let (true, Some(ticket)) = (whole, ticket) {
                    // SAFETY: the request is complete and not yet returned to the server.
                    let bytes =
                        unsafe { std::slice::from_raw_parts(words.buffer as *const u8, length) };
                    self.offer(active, target, bytes, ticket, Source::Read);
                }
            }
            Purpose::Write(write) => {
                let is_page = matches!(write, Write::Pages { whole: true, .. });
                // SAFETY: as above; the server keeps the page unchanged until it has seen the completion. One whole page, so no
                // vector.
                let bytes = (is_page && (whole || canary!("results"))).then(|| unsafe {
                    std::slice::from_raw_parts(words.buffer as *const u8, length)
                });
                self.finish_write(write, active, bytes);
            }
        }
        Completed::AsItIs
    }
}
