//! State of each segment of a device. Only for the device's writer.
//!
//! ```text
//! Free ──> Open ──> Full ──> Sorting ──> Open     its holes are filled
//!   ^                ^          ├──────> Full     no hole is large enough
//!   │                └──────────┤
//!   │                           ├──────> Vacated  its pages are about to be written elsewhere
//!   └───────────────────────────┴─────────┘       nothing refers to it
//! ```
//!
//! When the device has failed, a purge makes all of them free. The lists make the next segment available without a scan.
//!
//! A transition that does not fit the state is a panic. In a writer's thread it disables the device
//! ([`crate::log::writer::Writer::run`]), so that pages which may still be read are not overwritten.

use crate::common::violations::Violations;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    /// A stream writes to it.
    Open,
    Full,
    /// Chosen for reclaim: its live pages are being determined.
    Sorting,
    /// Its live pages are in a chunk that is not written yet.
    Vacated,
}

pub(crate) struct States {
    states: Box<[State]>,
    /// The last one is opened next.
    free: Vec<u32>,
    full: Vec<u32>,
    vacated: Vec<u32>,
}

impl States {
    /// Bytes for a segment: its state, and a place in the lists of free and of full ones.
    pub const BYTES: u64 = 9;

    pub fn new(segments: u32) -> States {
        States {
            states: vec![State::Free; segments as usize].into(),
            free: (0..segments).rev().collect(),
            full: Vec::with_capacity(segments as usize),
            vacated: Vec::new(),
        }
    }

    /// For a device with contents: segments with entries, according to `live`, are full.
    pub fn found(segments: u32, live: impl Fn(u32) -> u32) -> States {
        let mut states = States::new(segments);
        let full = |&segment: &u32| live(segment) > 0;
        states.full.extend((0..segments).filter(full));
        for &segment in &states.full {
            states.states[segment as usize] = State::Full;
        }
        states.free.retain(|segment| !full(segment));
        states
    }

    fn transition(&mut self, segment: u32, from: State, to: State) {
        let state = &mut self.states[segment as usize];
        assert!(
            *state == from,
            "segment {segment} is {state:?} instead of {from:?}"
        );
        *state = to;
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn vacated(&self) -> usize {
        self.vacated.len()
    }

    /// In no particular order.
    pub fn full(&self) -> &[u32] {
        &self.full
    }

    pub fn is_full(&self, segment: u32) -> bool {
        self.states[segment as usize] == State::Full
    }

    /// A free segment for a stream.
    pub fn open(&mut self) -> Option<u32> {
        let segment = self.free.pop()?;
        self.transition(segment, State::Free, State::Open);
        Some(segment)
    }

    /// Call when the stream has finished the segment.
    pub fn fill(&mut self, segment: u32) {
        self.transition(segment, State::Open, State::Full);
        self.full.push(segment);
    }

    /// Chooses the segment at this place of [`States::full`] for reclaim.
    pub fn sort(&mut self, at: usize) -> u32 {
        let segment = self.full.swap_remove(at);
        self.transition(segment, State::Full, State::Sorting);
        segment
    }

    pub fn keep_full(&mut self, segment: u32) {
        self.transition(segment, State::Sorting, State::Full);
        self.full.push(segment);
    }

    pub fn reopen(&mut self, segment: u32) {
        self.transition(segment, State::Sorting, State::Open);
    }

    pub fn vacate(&mut self, segment: u32) {
        self.transition(segment, State::Sorting, State::Vacated);
        self.vacated.push(segment);
    }

    /// Frees a sorted segment without live pages.
    pub fn set_free(&mut self, segment: u32) {
        self.transition(segment, State::Sorting, State::Free);
        self.free.push(segment);
    }

    /// Frees a vacated segment and returns it.
    pub fn free_vacated(&mut self) -> Option<u32> {
        let segment = self.vacated.pop()?;
        self.transition(segment, State::Vacated, State::Free);
        self.free.push(segment);
        Some(segment)
    }

    /// Frees all segments. Nothing may refer to any of them.
    pub fn purge(&mut self) {
        self.states.fill(State::Free);
        self.vacated.clear();
        self.full.clear();
        self.free.clear();
        self.free.extend((0..self.states.len() as u32).rev());
    }

    /// Checks the lists against the states. `open`: segments to which streams write. `live`: entries into a segment.
    pub fn validate(&self, open: &[u32], live: impl Fn(u32) -> u32, violations: &mut Violations) {
        let mut listed = vec![0; self.states.len()];
        let lists = [
            (State::Free, &self.free[..]),
            (State::Full, &self.full),
            (State::Vacated, &self.vacated),
            (State::Open, open),
        ];
        for (state, list) in lists {
            for &segment in list {
                listed[segment as usize] += 1;
                let is = self.states[segment as usize];
                violations.expect(is == state, || {
                    format!("segment {segment} is {is:?}, and listed as {state:?}")
                });
            }
        }
        for (segment, &count) in listed.iter().enumerate() {
            violations.expect(count == 1, || {
                format!("segment {segment} is in {count} states instead of one")
            });
        }
        for &segment in &self.free {
            violations.equal(live(segment), 0, "entries into a free segment");
        }
    }

    /// Breaks it: a full segment is listed as free too.
    #[cfg(test)]
    pub fn list_twice(&mut self) {
        self.free.push(self.full[0]);
    }

    /// Breaks it: a full segment is in no list.
    #[cfg(test)]
    pub fn lose_one(&mut self) {
        self.full.pop();
    }

    /// Breaks it: a full segment is in state `Sorting`.
    #[cfg(test)]
    pub fn mistake_one(&mut self) {
        self.states[self.full[0] as usize] = State::Sorting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_goes_round() {
        let mut s = States::new(8);
        assert_eq!((s.open(), s.free()), (Some(0), 7));
        s.fill(0);
        assert_eq!(s.sort(0), 0);
        s.keep_full(0);
        assert_eq!(s.full(), [0]);
        s.sort(0);
        s.reopen(0);
        s.fill(0);
        s.sort(0);
        s.vacate(0);
        assert_eq!((s.free(), s.vacated(), s.full()), (7, 1, &[][..]));
        assert_eq!((s.free_vacated(), s.free_vacated()), (Some(0), None));
        s.open();
        s.fill(0);
        s.sort(0);
        s.set_free(0);
        assert_eq!(s.free(), 8);
        s.open();
        s.purge();
        let mut violations = Violations::default();
        s.validate(&[], |_| 0, &mut violations);
        assert!(
            violations.0.is_empty() && s.free() == 8,
            "{:?}",
            violations.0
        );
    }

    #[test]
    #[should_panic(expected = "segment 0 is Open instead of Sorting")]
    fn an_open_segment_is_not_freed() {
        let mut s = States::new(8);
        s.open();
        s.set_free(0);
    }
}
