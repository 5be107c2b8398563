//! A trace in memory.

use std::collections::HashMap;

use super::error::{MAX_EVENTS, TraceError};

/// Page size of a trace in bytes.
pub const PAGE_BYTES: usize = 16384;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Write,
}

/// A read or a write of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event(u32);

impl Event {
    const WRITE: u32 = 1 << 31;

    /// `page` is an index into the pages of the trace, below 2^31.
    pub fn new(page: u32, operation: Operation) -> Event {
        debug_assert!(page < Self::WRITE);
        match operation {
            Operation::Read => Event(page),
            Operation::Write => Event(page | Self::WRITE),
        }
    }

    /// Index of the page in the order of first appearance; see [`Trace::page`].
    pub fn page(self) -> u32 {
        self.0 & !Self::WRITE
    }

    pub fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// File and page number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TracePage {
    pub file: u32,
    pub number: u32,
}

/// A trace in memory.
#[derive(Clone, Default, Debug)]
pub struct Trace {
    events: Vec<Event>,
    pages: Vec<TracePage>,
    /// One more than the highest file number.
    file_end: u64,
}

impl Trace {
    /// A trace from (file, page number, operation).
    ///
    /// # Panics
    /// If there are more than [`MAX_EVENTS`].
    pub fn from_events(events: impl IntoIterator<Item = (u32, u32, Operation)>) -> Trace {
        let mut builder = Builder::default();
        for (file, number, operation) in events {
            let page = TracePage { file, number };
            assert!(builder.push(page, operation), "too many events");
        }
        builder.finish()
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// File and page number for an index from [`Event::page`].
    pub fn page(&self, index: u32) -> TracePage {
        self.pages[index as usize]
    }

    /// Number of distinct pages.
    pub fn distinct_pages(&self) -> usize {
        self.pages.len()
    }

    /// Appends another trace, with its file numbers raised above all of this one: none of its pages occurs here.
    ///
    /// # Errors
    /// If the sum is too long, or file numbers run out.
    pub fn append(&mut self, other: &Trace) -> Result<(), TraceError> {
        if self.events.len() + other.events.len() > MAX_EVENTS {
            return Err(TraceError::TooLong {
                name: String::from("all traces together"),
            });
        }
        // In the order of first appearance, since the numbers may have any values.
        let mut files = HashMap::new();
        let first = self.pages.len() as u32;
        for page in &other.pages {
            let next = self.file_end + files.len() as u64;
            let file = *files.entry(page.file).or_insert(next);
            let file = u32::try_from(file).map_err(|_| TraceError::OutOfFiles)?;
            self.pages.push(TracePage { file, ..*page });
        }
        self.file_end += files.len() as u64;
        // Bit 31 stays clear: there are at most as many pages as events.
        self.events
            .extend(other.events.iter().map(|event| Event(event.0 + first)));
        Ok(())
    }
}

/// Numbers the pages.
#[derive(Default)]
pub(super) struct Builder {
    trace: Trace,
    indices: HashMap<TracePage, u32>,
}

impl Builder {
    /// False if the trace is full.
    #[must_use]
    pub(super) fn push(&mut self, page: TracePage, operation: Operation) -> bool {
        let trace = &mut self.trace;
        if trace.events.len() == MAX_EVENTS {
            return false;
        }
        let index = *self.indices.entry(page).or_insert_with(|| {
            trace.pages.push(page);
            trace.file_end = trace.file_end.max(u64::from(page.file) + 1);
            (trace.pages.len() - 1) as u32
        });
        trace.events.push(Event::new(index, operation));
        true
    }

    pub(super) fn len(&self) -> usize {
        self.trace.events.len()
    }

    pub(super) fn finish(mut self) -> Trace {
        self.trace.events.shrink_to_fit();
        self.trace.pages.shrink_to_fit();
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::Operation::{Read, Write};
    use super::*;

    fn named(trace: &Trace) -> Vec<(u32, u32, bool)> {
        let name = |event: &Event| {
            let page = trace.page(event.page());
            (page.file, page.number, event.is_write())
        };
        trace.events().iter().map(name).collect()
    }

    #[test]
    fn pages_are_numbered_in_order() {
        let trace = Trace::from_events([(7, 1, Read), (7, 2, Write), (7, 1, Write), (8, 1, Read)]);
        let indices: Vec<u32> = trace.events().iter().map(|e| e.page()).collect();
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(trace.distinct_pages(), 3);
        assert_eq!(
            named(&trace),
            [(7, 1, false), (7, 2, true), (7, 1, true), (8, 1, false)]
        );
    }

    #[test]
    fn an_appended_trace_shares_no_page() {
        let one = Trace::from_events([(3, 1, Read), (900, 1, Write)]);
        let mut both = one.clone();
        both.append(&one).unwrap();
        both.append(&one).unwrap();
        assert_eq!(both.distinct_pages(), 6);
        assert_eq!(
            named(&both),
            [
                (3, 1, false),
                (900, 1, true),
                (901, 1, false),
                (902, 1, true),
                (903, 1, false),
                (904, 1, true)
            ]
        );
    }

    #[test]
    fn file_numbers_may_run_out() {
        let mut trace = Trace::from_events([(u32::MAX, 1, Read)]);
        let error = trace.append(&Trace::from_events([(0, 1, Read)]));
        assert!(matches!(error, Err(TraceError::OutOfFiles)));
    }
}
