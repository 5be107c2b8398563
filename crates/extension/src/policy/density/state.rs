//! The states of a page that are told apart: what a counter shows, and how what they bring is laid out.

pub(crate) const WAYS: usize = 26;
/// Ways that share a cell.
pub(crate) const SPAN: usize = 4;
pub(crate) const CLASS_BITS: usize = 2;
pub(crate) const CLASSES: usize = 1 << CLASS_BITS;
/// The class of pages at the end of a file that grows. The others say how many of the pages of its file are written before they come back.
pub(crate) const NEW: u8 = CLASSES as u8 - 1;
pub(crate) const STEPS: usize = 8;
/// Of a class: written or not, and the step of the count.
pub(crate) const STATES: usize = 2 * STEPS;
pub(crate) const ROWS: usize = CLASSES * STATES;
/// Cells of a row, of which the last is never used.
pub(crate) const SPANS: usize = 8;
pub(crate) const CELLS: usize = ROWS * SPANS;
pub(crate) const LANES: usize = 32;

/// A counter as scores see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Class of the page, written or not, step of the count: below [`ROWS`].
    pub row: usize,
    pub way: usize,
}

impl Seen {
    /// The cell in which it is counted.
    #[inline]
    pub fn cell(self) -> usize {
        self.row % ROWS * SPANS + self.way % LANES / SPAN
    }

    pub fn is_written(self) -> bool {
        self.row & 8 != 0
    }
}
