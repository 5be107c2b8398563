//! Warming: exports the heat of this server's pages, and inserts pages on behalf of another server.
//!
//! Warming has the lowest priority. Its pages are no accesses, age no counter and move no clock hand. They take at most
//! half of staging. On devices they take unused room or the place of a page with fewer reads, never that of a page with
//! as many. The reported heat counts as if this server had read the page as often. So pages of the next day can replace
//! those of the day before.

use crate::api::extension::{Extension, InsertOutcome};
use crate::common::group::Group;
use crate::common::page::{EXTENT_SHIFT, FileId, PageId, check};
use crate::index::directory::Slot;
use crate::index::generation::ReadTicket;
use crate::instance::store::Store;
use crate::instance::{Instance, InstanceState};
use crate::policy::{MAX_COUNT, Places};

/// Pages of an extent.
pub const EXTENT_PAGES: usize = 1 << EXTENT_SHIFT;
/// Maximum heat of a page: [`Extension::heat`].
pub const MAX_HEAT: u8 = MAX_COUNT as u8;
/// Minimum number of entries in the search for the coldest one, and maximum number of buckets of that search.
const AMONG: usize = 12;
const MAX_BUCKETS: usize = 64;
/// Maximum number of evictions for one page.
const MAX_EVICTIONS: usize = 4;

/// Heat of an extent's cached pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// A bit for each cached page. One absent page in 1,400 is reported as cached.
    pub cached: u64,
    /// Approximate number of recent reads of each page, 0 to [`MAX_HEAT`]; 0 for absent pages.
    pub of: [u8; EXTENT_PAGES],
}

impl Default for Heat {
    fn default() -> Heat {
        Heat {
            cached: 0,
            of: [0; EXTENT_PAGES],
        }
    }
}

/// State of an extent's pages that another server has cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bits of the pages that are cached here, too.
    pub cached: u64,
    /// Bits of the other pages that would be admitted now.
    pub admissible: u64,
}

impl InstanceState {
    /// The page with the fewest reads among a few pages on devices, and its number of reads.
    fn coldest(&mut self) -> Option<(u32, Slot)> {
        let places = Places::new(&mut self.directory);
        let mut coldest: Option<(u32, Slot)> = None;
        let mut seen = 0;
        for _ in 0..MAX_BUCKETS.min(places.buckets() as usize) {
            for (slot, _) in places.on_devices(self.warm_hand) {
                seen += 1;
                let count = self.policy.count(places.identity_at(slot));
                if coldest.is_none_or(|(least, _)| count < least) {
                    coldest = Some((count, slot));
                }
            }
            self.warm_hand += 1;
            if self.warm_hand >= places.buckets() {
                self.warm_hand = 0;
            }
            if seen >= AMONG {
                break;
            }
        }
        coldest
    }

    /// Makes room for a page with `count` recent reads, by evicting pages with fewer. Returns the number of evictions;
    /// as an error if it found no colder page.
    fn make_room_for(&mut self, store: &Store, count: u32) -> Result<u64, u64> {
        for evicted in 0..MAX_EVICTIONS as u64 {
            if store.balancing().has_room(0) && self.directory.used() < self.directory.capacity() {
                return Ok(evicted);
            }
            match self.coldest() {
                Some((least, slot)) if least < count => self.evict_this(store, slot),
                _ => return Err(evicted),
            }
        }
        Ok(MAX_EVICTIONS as u64)
    }

    /// Heat of an extent's cached pages; `first` is its first page. `then` gets the slot of each.
    fn heat(
        &mut self,
        store: &Store,
        first: PageId,
        then: impl Fn(&mut Self, &Store, Slot),
    ) -> Heat {
        let mut heat = Heat::default();
        for (n, of) in heat.of.iter_mut().enumerate() {
            let page = PageId::new(first.file, first.page + n as u32);
            if let Some((slot, _)) = self.find(store, page) {
                let identity = Places::new(&mut self.directory).identity(page);
                heat.cached |= 1 << n;
                *of = self.policy.count(identity) as u8;
                then(self, store, slot);
            }
        }
        heat
    }

    fn has_spare_room(&self, store: &Store) -> bool {
        self.directory.used() < self.directory.capacity() && store.has_spare_room()
    }
}

impl Extension {
    /// Heat of the cached pages of an extent (64 pages starting at `extent * 64`). Takes one lock, counts nothing, and
    /// does not change the policy's state.
    pub fn heat(&self, file: FileId, extent: u32) -> Heat {
        let shared = &*self.shared;
        let first = PageId::new(file, extent << EXTENT_SHIFT);
        let mut state = shared.instance(first).lock();
        let highest = state.highest_page(file);
        if highest.is_none_or(|page| page < first.page) {
            return Heat::default();
        }
        state.heat(&shared.store, first, |_, _, _| ())
    }

    /// Removes the entries of an extent and returns their pages' heat, for a file that was
    /// [forgotten](Self::forget_file) or never named to this process. Takes one lock, counts nothing.
    pub fn drain(&self, file: FileId, extent: u32) -> Heat {
        let shared = &*self.shared;
        let first = PageId::new(file, extent << EXTENT_SHIFT);
        let mut state = shared.instance(first).lock();
        state.heat(&shared.store, first, InstanceState::remove)
    }

    /// State of the extent's pages whose bits are set, given their number of reads on the other server. Counts nothing.
    pub fn wanted(
        &self,
        file: FileId,
        extent: u32,
        requested: u64,
        counts: &[u8; EXTENT_PAGES],
    ) -> Wanted {
        let shared = &*self.shared;
        let first = extent << EXTENT_SHIFT;
        let mut wanted = Wanted::default();
        let mut state = shared.instance(PageId::new(file, first)).lock();
        let state = &mut *state;
        // Admission requires more reads than this.
        let mut bar = None;
        for n in (0..EXTENT_PAGES).filter(|n| requested >> n & 1 != 0) {
            let page = PageId::new(file, first + n as u32);
            if state.find(&shared.store, page).is_some() {
                wanted.cached |= 1 << n;
                continue;
            }
            let identity = Places::new(&mut state.directory).identity(page);
            let own = state.policy.count(identity);
            let bar = *bar.get_or_insert_with(|| {
                if state.has_spare_room(&shared.store) {
                    return -1;
                }
                let coldest = state.coldest();
                coldest.map_or(i64::MAX, |(count, _)| i64::from(count))
            });
            let count = own.max(u32::from(counts[n]));
            wanted.admissible |= u64::from(i64::from(count) > bar) << n;
        }
        wanted
    }

    /// Records that another server no longer uses these cached pages of an extent: halves their remembered reads, and
    /// sets their clock to the coldest value.
    pub fn cool(&self, file: FileId, extent: u32, requested: u64) {
        let shared = &*self.shared;
        let first = extent << EXTENT_SHIFT;
        let mut state = shared.instance(PageId::new(file, first)).lock();
        let state = &mut *state;
        for n in (0..EXTENT_PAGES).filter(|n| requested >> n & 1 != 0) {
            let page = PageId::new(file, first + n as u32);
            if let Some((slot, _)) = state.find(&shared.store, page) {
                let mut places = Places::new(&mut state.directory);
                state.policy.cool(places.identity(page));
                places.set_clock(slot, 0);
            }
        }
    }

    /// Bytes that warming may stage now.
    pub fn warm_room(&self) -> u64 {
        let staging = &self.shared.store.staging;
        (staging.capacity() / 2).saturating_sub(staging.used())
    }

    /// Inserts a page on behalf of another server, which has recently read it `count` times.
    pub(crate) fn try_insert_warm(
        &self,
        instance: &Instance,
        group: Group,
        page: PageId,
        bytes: &[u8],
        ticket: ReadTicket,
        count: u8,
    ) -> InsertOutcome {
        let shared = &*self.shared;
        if let Some(why) = self.refusal(bytes) {
            return why;
        }
        if self.warm_room() < bytes.len() as u64 {
            shared.wake.announce();
            return InsertOutcome::StagingFull;
        }
        if !self.is_current(ticket) {
            return InsertOutcome::Stale;
        }
        let Some(mut filling) = shared.store.staging.allocate(bytes.len()) else {
            return InsertOutcome::StagingFull;
        };
        filling.fill(page, bytes, check(page, bytes));
        let mut locked = instance.lock();
        let state = &mut *locked;
        if !self.is_current(ticket) {
            return InsertOutcome::Stale;
        }
        if self.is_cached(state, page, true) {
            return InsertOutcome::AlreadyCached;
        }
        // Does not compete with the group's own pages.
        if state.is_at_limit(group) {
            instance.counters.limited.add(1);
            return InsertOutcome::Rejected;
        }
        let identity = Places::new(&mut state.directory).identity(page);
        let count = state.policy.count(identity).max(u32::from(count));
        let spare = state.has_spare_room(&shared.store);
        let evicted = if spare {
            Ok(0)
        } else {
            state.make_room_for(&shared.store, count)
        };
        let (Ok(gone) | Err(gone)) = evicted;
        if gone > 0 {
            shared.written.evicted.add(gone);
        }
        if evicted.is_err() {
            return InsertOutcome::Rejected;
        }
        state.stage(&shared.store, instance, page, group, filling, Some(count));
        drop(locked);
        self.wake_writers();
        InsertOutcome::Admitted
    }
}
