//! Inserting: copies the bytes of a page into staging if the policy admits it and the bytes are current.

use crate::api::extension::{Extension, InsertOutcome, Source};
use crate::common::group::Group;
use crate::common::page::{PageId, check, is_page_length};
use crate::index::directory::Kind;
use crate::index::generation::ReadTicket;
use crate::instance::staging::Filling;
use crate::instance::{Instance, InstanceState};
use crate::policy::Candidate;

impl Extension {
    /// Inserts a page of this group after a completed read or write, if the policy admits it and the bytes are current: copies
    /// them into staging. Never waits for a device.
    pub fn insert(
        &self,
        page: PageId,
        group: Group,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> InsertOutcome {
        let instance = self.shared.instance(page);
        let counters = &instance.counters;
        counters.candidates.add(1);
        let outcome = match source {
            Source::Warm { count } => {
                self.try_insert_warm(instance, group, page, bytes, ticket, count)
            }
            _ => self.try_insert(instance, group, page, bytes, ticket, source),
        };
        match outcome {
            InsertOutcome::Admitted => counters.admitted.add(1),
            InsertOutcome::AlreadyCached => counters.already_cached.add(1),
            InsertOutcome::Rejected => {
                counters.rejected.add(1);
                counters.rejected_bytes.add(bytes.len() as u64);
            }
            // The caller inserts it again when there is room.
            InsertOutcome::StagingFull if matches!(source, Source::Warm { .. }) => {}
            InsertOutcome::StagingFull => counters.staging_full.add(1),
            InsertOutcome::WriteLimit => counters.write_limit.add(1),
            InsertOutcome::Stale => counters.stale.add(1),
            InsertOutcome::Unsuitable => {}
        }
        outcome
    }

    fn try_insert(
        &self,
        instance: &Instance,
        group: Group,
        page: PageId,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> InsertOutcome {
        let shared = &*self.shared;
        if let Some(why) = self.refusal(bytes) {
            return why;
        }
        let is_full = {
            let mut state = instance.lock();
            if !self.is_current(ticket) {
                return InsertOutcome::Stale;
            }
            if source != Source::Read {
                state.record_write(page);
            }
            if self.is_cached(&state, page, source == Source::Read) {
                return InsertOutcome::AlreadyCached;
            }
            let is_at_limit = state.is_at_limit(group);
            let is_full = state.directory.used() >= state.directory.capacity()
                || !shared.store.has_spare_room();
            let is_free = source == Source::Write { was_cached: true } || !is_full;
            let candidate = match source {
                Source::Write { .. } => Candidate::Written,
                Source::Read | Source::Warm { .. } => Candidate::Read,
            };
            if (!is_free || is_at_limit) && !state.admits(page, group, candidate) {
                instance.counters.limited.add(u64::from(is_at_limit));
                return InsertOutcome::Rejected;
            }
            is_full
        };
        if is_full {
            self.clear_for(page);
        }
        let Some(mut filling) = self.allocate_frame(instance, page, bytes.len(), source) else {
            return InsertOutcome::StagingFull;
        };
        filling.fill(page, bytes, check(page, bytes));
        let mut state = instance.lock();
        if !self.is_current(ticket) {
            return InsertOutcome::Stale;
        }
        if self.is_cached(&state, page, source == Source::Read) {
            return InsertOutcome::AlreadyCached;
        }
        let evicted = state.evict(&shared.store, group);
        if evicted > 0 {
            shared.written.evicted.add(evicted);
        }
        if state.is_at_limit(group) {
            instance.counters.limited.add(1);
            return InsertOutcome::Rejected;
        }
        state.stage(&shared.store, instance, page, group, filling, None);
        drop(state);
        self.wake_writers();
        InsertOutcome::Admitted
    }

    /// Why no page of this size can be admitted now, whatever its score.
    pub(crate) fn refusal(&self, bytes: &[u8]) -> Option<InsertOutcome> {
        let shared = &*self.shared;
        if !is_page_length(bytes.len()) || !shared.store.any_active() {
            return Some(InsertOutcome::Unsuitable);
        }
        let staged = shared.store.staging.used() + bytes.len() as u64;
        (!shared.budget.allows(staged)).then_some(InsertOutcome::WriteLimit)
    }

    /// Wakes the writers if enough pages wait for them.
    pub(crate) fn wake_writers(&self) {
        let shared = &*self.shared;
        if shared.store.waiting() >= shared.wake.staged {
            shared.wake.announce();
        }
    }

    /// A frame; if none is free, that of a staged page with a lower score.
    fn allocate_frame(
        &self,
        instance: &Instance,
        page: PageId,
        length: usize,
        source: Source,
    ) -> Option<Filling<'_>> {
        let shared = &*self.shared;
        if let Some(filling) = shared.store.staging.allocate(length) {
            return Some(filling);
        }
        shared.wake.announce();
        let update = source == Source::Write { was_cached: true };
        let displaced = instance
            .lock()
            .displace(&shared.store, page, length, update);
        if !displaced {
            return None;
        }
        instance.counters.staging_full.add(1);
        // Another thread may have been faster.
        shared.store.staging.allocate(length)
    }

    pub(crate) fn is_current(&self, ticket: ReadTicket) -> bool {
        #[cfg(test)]
        if self.shared.store.canary.skip_generation() {
            return true;
        }
        #[cfg(debug_assertions)]
        if crate::common::canary::IGNORE_GENERATIONS.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        self.shared.generations.is_current(ticket)
    }

    /// Whether the page has an entry that can serve it. After a write it cannot have one: an apparent one is another page's.
    pub(crate) fn is_cached(&self, state: &InstanceState, page: PageId, was_read: bool) -> bool {
        let Some((_, entry)) = state.find(&self.shared.store, page) else {
            return false;
        };
        entry.kind == Kind::STAGED
            || was_read
                && self
                    .shared
                    .store
                    .device_at(entry.location)
                    .is_some_and(|d| d.health.active())
    }
}
