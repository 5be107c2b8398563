//! Read timeout: redirected reads that the cache disk does not answer in time.
//!
//! A redirected read with a timeout goes into memory that the extension lends, and carries a *tag* in place of the server's own
//! word. When it is overdue, the server's own read is submitted, and the server gets its event as usual. The tag identifies a
//! later answer of the cache disk. The server does not get that answer, because it may have reused the request by then.
//!
//! Lock order: the table of abandoned reads, then a shard of the requests.

use std::time::Duration;

use super::reissue::Submit;
use crate::core::Core;
use crate::core::page_request::PageRequest;
use crate::core::requests::{Abandoned, CONTEXTS, IoEvent, Iocb, Purpose, Request, Words};
use crate::platform::os::Os;
use crate::platform::sync::{Instant, Ordering};
use crate::switch::control_group::Timed;

/// Maximum time that a harvester waits in the kernel while a read may become overdue.
pub const MAX_HARVEST_WAIT: Duration = Duration::from_millis(100);
/// Minimum interval between two searches of a context's requests, milliseconds.
const SEARCH_INTERVAL: u64 = 20;
/// Time limit of one pass that replaces overdue reads. The harvester harvests again after it.
const PASS_LIMIT: Duration = Duration::from_millis(20);

/// A read that was removed from the requests and is not yet answered to the server.
struct OverdueRead {
    key: usize,
    /// The server's values.
    words: Words,
    length: usize,
    target: PageRequest,
    timed: Option<Timed>,
}

impl<O: Os> Core<O> {
    /// Allows these requests, given by key and tag, to be given up. Call after the kernel has accepted them: otherwise the server's
    /// request would be submitted after the server got its completion. Some may be harvested already, so that other reads have
    /// their keys.
    pub fn submitted(&'static self, tagged: &[(usize, u64)]) {
        for &(key, word) in tagged {
            if let Some(request) = self.requests.shard(key).lock().get_mut(&key) {
                if let Purpose::Redirected {
                    located,
                    tag: Some(tag),
                    ..
                } = &mut request.purpose
                {
                    if tag.word() == word {
                        located.submitted();
                        request.submitted = Some(Instant::now());
                    }
                }
            }
        }
    }

    /// Whether a search for overdue reads of a context is due.
    fn is_due(&'static self, number: usize, now: u64) -> bool {
        let looked = self.requests.searched_at[number].load(Ordering::Relaxed);
        // A context that was never searched is due.
        let due = looked == 0 || now >= looked + SEARCH_INTERVAL;
        if due {
            self.requests.searched_at[number].store(now.max(1), Ordering::Relaxed);
        }
        due
    }

    /// Gives up the overdue reads of a context, and submits the server's own reads in their place. A read that the kernel does not
    /// accept is made synchronously, and its event returned. Only one per call, so that others do not wait for many.
    pub fn expire_reads(
        &'static self,
        context: usize,
        room: usize,
        submit: Submit<'_>,
    ) -> Option<IoEvent> {
        if !self.requests.expects_tags() || room == 0 {
            return None;
        }
        let number = self.requests.number_of(context).unwrap_or(CONTEXTS);
        let begun = Instant::now();
        if !self.is_due(number, self.requests.now()) {
            return None;
        }
        // Limited, because the kernel may execute the server's own read synchronously, for example in a file without direct I/O.
        while begun.elapsed() < PASS_LIMIT {
            let late = self.remove_overdue(context)?;
            // SAFETY: the server waits for this request and does not touch it, because it got no event for it.
            late.words.restore(unsafe { &mut *(late.key as *mut Iocb) });
            let request = late.key as *mut Iocb;
            if self.resubmit_original(request, late.target, context, late.timed, submit) {
                continue;
            }
            let started = Instant::now();
            let mut event = IoEvent {
                data: late.words.data,
                request: late.key as u64,
                result: 0,
                result2: 0,
            };
            self.read_original(&mut event, &late.words, late.length);
            self.count_data_read_of(late.words.fd, started, late.timed);
            self.requests.searched_at[number].store(0, Ordering::Relaxed); // there may be more
            return Some(event);
        }
        self.requests.searched_at[number].store(0, Ordering::Relaxed);
        None
    }

    /// Removes an overdue read of a context from the requests.
    fn remove_overdue(&'static self, context: usize) -> Option<OverdueRead> {
        let mut abandoned = self.requests.abandoned.lock();
        for shard in self.requests.shards() {
            let mut shard = shard.lock();
            let overdue = shard
                .iter()
                .find(|(_, request)| request.context == context && is_overdue(request));
            let Some(request) = overdue
                .map(|(key, _)| *key)
                .and_then(|key| Some((key, shard.remove(&key)?)))
            else {
                continue;
            };
            let (key, request) = request;
            let Purpose::Redirected {
                located,
                tag: Some(tag),
                target,
            } = request.purpose
            else {
                continue; // excluded by `is_overdue`
            };
            let guard = self.switch().active();
            let active = guard
                .as_deref()
                .filter(|active| active.epoch == request.epoch);
            let given_up = match active {
                Some(active) => active.extension.give_up(located),
                None => located.give_up(),
            };
            if let Some(given_up) = given_up.filter(|_| !canary!("free-on-give-up")) {
                let before = abandoned.insert(
                    tag.word(),
                    Abandoned {
                        _given_up: given_up,
                        _pending: request.pending,
                    },
                );
                debug_assert!(before.is_none(), "a tag was given twice");
            }
            return Some(OverdueRead {
                key,
                words: request.words,
                length: request.length as usize,
                target,
                timed: request.timed.map(|timed| *timed),
            });
        }
        None
    }
}

fn is_overdue(request: &Request) -> bool {
    match (&request.purpose, request.submitted) {
        (
            Purpose::Redirected {
                located,
                tag: Some(_),
                ..
            },
            Some(when),
        ) => located.bound().is_some_and(|bound| when.elapsed() > bound),
        _ => false,
    }
}

#[cfg(test)]
#[path = "timeout_tests.rs"]
mod tests;
