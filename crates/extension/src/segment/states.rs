//! In which state each segment of a device is. By the device's writer only.
//!
//! ```text
//! Free ──> Open ──> Full ──> Sorting ──> Open     its holes are filled
//!   ^                ^          ├──────> Full     no hole is large enough
//!   │                └──────────┤
//!   │                           ├──────> Vacated  its pages are about to be written elsewhere
//!   └───────────────────────────┴─────────┘       nothing refers to it
//! ```
//!
//! When the device has failed, a purge makes all of them free. The lists tell who comes next without a look at every segment.
//!
//! A step that does not fit the state is a panic: in a writer's thread it costs the device
//! ([`crate::writer::Writer::run`]), and nothing is written over what may still be asked for.

use crate::findings::Findings;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    /// A stream writes to it.
    Open,
    Full,
    /// Chosen for reclaim: it is found out what in it is alive.
    Sorting,
    /// What was alive in it is in a chunk that is not written yet.
    Vacated,
}

pub(crate) struct States {
    states: Box<[State]>,
    /// The last is opened next.
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

    /// Of a device with contents: segments to which entries point, as `live` tells, are full.
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

    fn turn(&mut self, segment: u32, from: State, to: State) {
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

    /// In no order that means anything.
    pub fn full(&self) -> &[u32] {
        &self.full
    }

    /// A free segment for a stream.
    pub fn open(&mut self) -> Option<u32> {
        let segment = self.free.pop()?;
        self.turn(segment, State::Free, State::Open);
        Some(segment)
    }

    /// The stream is done with it.
    pub fn fill(&mut self, segment: u32) {
        self.turn(segment, State::Open, State::Full);
        self.full.push(segment);
    }

    /// To be reclaimed: the one at this place of [`States::full`].
    pub fn sort(&mut self, at: usize) -> u32 {
        let segment = self.full.swap_remove(at);
        self.turn(segment, State::Full, State::Sorting);
        segment
    }

    pub fn leave_full(&mut self, segment: u32) {
        self.turn(segment, State::Sorting, State::Full);
        self.full.push(segment);
    }

    pub fn reopen(&mut self, segment: u32) {
        self.turn(segment, State::Sorting, State::Open);
    }

    pub fn vacate(&mut self, segment: u32) {
        self.turn(segment, State::Sorting, State::Vacated);
        self.vacated.push(segment);
    }

    /// What is left of a segment that was sorted is nothing.
    pub fn set_free(&mut self, segment: u32) {
        self.turn(segment, State::Sorting, State::Free);
        self.free.push(segment);
    }

    /// A vacated segment, which is free now.
    pub fn free_vacated(&mut self) -> Option<u32> {
        let segment = self.vacated.pop()?;
        self.turn(segment, State::Vacated, State::Free);
        self.free.push(segment);
        Some(segment)
    }

    /// Nothing refers to any of them.
    pub fn purge(&mut self) {
        self.states.fill(State::Free);
        self.vacated.clear();
        self.full.clear();
        self.free.clear();
        self.free.extend((0..self.states.len() as u32).rev());
    }

    /// The lists are what the states say. `open`: those to which streams write. `live`: entries into a segment.
    pub fn validate(&self, open: &[u32], live: impl Fn(u32) -> u32, findings: &mut Findings) {
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
                findings.expect(is == state, || {
                    format!("segment {segment} is {is:?}, and listed as {state:?}")
                });
            }
        }
        for (segment, &count) in listed.iter().enumerate() {
            findings.expect(count == 1, || {
                format!("segment {segment} is in {count} states instead of one")
            });
        }
        for &segment in &self.free {
            findings.equal(live(segment), 0, "entries into a free segment");
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

    /// Breaks it: a full segment says that it is being sorted.
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
        s.leave_full(0);
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
        let mut findings = Findings::default();
        s.validate(&[], |_| 0, &mut findings);
        assert!(findings.0.is_empty() && s.free() == 8, "{:?}", findings.0);
    }

    #[test]
    #[should_panic(expected = "segment 0 is Open instead of Sorting")]
    fn an_open_segment_is_not_freed() {
        let mut s = States::new(8);
        s.open();
        s.set_free(0);
    }
}
