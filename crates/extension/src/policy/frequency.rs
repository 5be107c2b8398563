//! What servers use: a clock of two bits behind a gate that compares frequencies.
//!
//! Which one has to go is found by a clock whose hand moves over the directory; every hit of a page makes it pass over the
//! page once, up to three times. What gets in is for [`super::admission`] to say, unless the page is likely to come again when it is
//! written ([`super::writeback`]): then it waits for that, and where such a page was hit it is the first to go. While the
//! working set changes ([`super::drift`], shared by all instances) other rules hold.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::admission::{Admission, Contender};
use super::drift::Drift;
use super::writeback::Writeback;
use super::{Candidate, Places, Policy, Room, Thrift, Totals};
use crate::directory::{Entry, Hand, Kind, Slot};
use crate::page::PageId;
use crate::policy::mode::AdmissionMode;

/// Buckets that the hand of the clock may pass in search of a victim.
const HAND_STEPS: usize = 64;
/// Hits that a new page is credited with: the hand may come by soon. And one that the rules prefer.
const NEW_CLOCK: u8 = 2;
const PREFERRED_CLOCK: u8 = 3;
/// Accesses that the rules credit a page with that they prefer, when it competes.
const PREFERENCE: u32 = 3;
/// Pages remembered as the first to go.
const MOST_LEAVING: usize = 128;

pub(crate) struct Frequency {
    admission: Admission,
    writeback: Writeback,
    drift: Arc<Drift>,
    hand: Hand,
    /// Bucket and location of pages that were hit, and that InnoDB is likely to write back before it asks for them again.
    leaving: VecDeque<(u32, u32)>,
}

impl Frequency {
    /// The page that was the first to be hit of those that InnoDB is likely to write back.
    fn next_leaving(&mut self, places: &Places<'_>) -> Option<Slot> {
        while let Some((bucket, location)) = self.leaving.pop_front() {
            let slot = places.find_location(bucket, location);
            if slot.is_some() {
                return slot;
            }
        }
        None
    }
}

impl Policy for Frequency {
    const NAME: &'static str = "frequency";

    type Model = Drift;

    fn model(pages: u64, instances: usize) -> Drift {
        Drift::new(pages, instances)
    }

    fn bytes(pages: u64, thrift: Thrift) -> u64 {
        Admission::memory_needed(pages, thrift)
    }

    fn new(room: Room, drift: &Arc<Drift>) -> io::Result<Frequency> {
        Ok(Frequency {
            admission: Admission::new(room.pages, room.thrift)?,
            writeback: Writeback::new(room.entries),
            drift: Arc::clone(drift),
            hand: Hand::default(),
            leaving: VecDeque::with_capacity(MOST_LEAVING),
        })
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> u64 {
        self.admission.memory_bytes()
    }

    #[inline]
    fn accessed(&mut self, places: &mut Places<'_>, page: PageId, _: Option<Slot>) -> bool {
        let known = self
            .admission
            .record(places.identity(page), self.drift.changing());
        self.writeback.note_read(page);
        known
    }

    #[inline]
    fn hit(&mut self, places: &mut Places<'_>, page: PageId, slot: Slot, entry: Entry) {
        places.touch(slot);
        if entry.kind != Kind::STAGED && self.writeback.is_likely(page.file) {
            if self.leaving.len() == MOST_LEAVING {
                self.leaving.pop_front();
            }
            self.leaving.push_back((slot.bucket(), entry.location));
        }
    }

    fn written(&mut self, _: &mut Places<'_>, page: PageId) {
        self.writeback.note_write(page);
    }

    fn admits(
        &mut self,
        places: &mut Places<'_>,
        page: PageId,
        what: Candidate,
        mode: AdmissionMode,
    ) -> bool {
        let changing = self.drift.changing();
        let later = what == Candidate::Read
            && self.writeback.is_likely(page.file)
            && mode == AdmissionMode::Frequency
            && !changing;
        if later {
            return false;
        }
        let Some(slot) = places.next_victim(&mut self.hand, HAND_STEPS) else {
            return mode == AdmissionMode::All;
        };
        let credit = |preferred| if preferred { PREFERENCE } else { 0 };
        let candidate = Contender {
            identity: places.identity(page),
            credit: credit(places.prefers()),
        };
        let victim = Contender {
            identity: places.identity_at(slot),
            credit: credit(places.prefers_at(slot)),
        };
        let admitted = self
            .admission
            .admits(mode, what, candidate, victim, changing);
        if !admitted {
            self.hand.pass_over();
        }
        admitted
    }

    fn entered(&mut self, places: &mut Places<'_>, _: PageId) -> u8 {
        if places.prefers() {
            PREFERRED_CLOCK
        } else {
            NEW_CLOCK
        }
    }

    fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot> {
        let leaving = if places.has_all() {
            self.next_leaving(places)
        } else {
            None
        };
        leaving.or_else(|| places.next_victim(&mut self.hand, HAND_STEPS))
    }

    fn worth(&self, places: &Places<'_>, page: PageId) -> u32 {
        self.admission.frequency(places.identity(page))
    }

    fn count(&self, identity: u64) -> u32 {
        self.admission.frequency(identity)
    }

    fn seed(&mut self, places: &mut Places<'_>, page: PageId, count: u32) -> u8 {
        self.admission.seed(places.identity(page), count);
        count.min(3) as u8
    }

    fn cool(&mut self, identity: u64) {
        self.admission.cool(identity);
    }

    fn look_every(&self) -> u64 {
        self.drift.look_every()
    }

    fn look(&mut self, totals: Totals) {
        self.drift.look(totals.hits, totals.accesses, totals.full);
    }

    fn threshold(&self) -> f64 {
        self.admission.threshold()
    }
}
