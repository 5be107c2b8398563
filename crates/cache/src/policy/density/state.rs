//! Distinguished states of a page, derived from its counter, and the layout of their statistics.

pub(crate) const WAYS: usize = 26;
/// Ways that share a cell.
pub(crate) const SPAN: usize = 4;
pub(crate) const CLASS_BITS: usize = 2;
pub(crate) const CLASSES: usize = 1 << CLASS_BITS;
/// Class of pages at the end of a growing file. The other classes are the share of the file's pages that are written
/// between two reads.
pub(crate) const NEW: u8 = CLASSES as u8 - 1;
pub(crate) const STEPS: usize = 8;
/// States of a class: written bit and step of the count.
pub(crate) const STATES: usize = 2 * STEPS;
pub(crate) const ROWS: usize = CLASSES * STATES;
/// Cells per row. The last one is unused.
pub(crate) const SPANS: usize = 8;
pub(crate) const CELLS: usize = ROWS * SPANS;
pub(crate) const LANES: usize = 32;

/// The part of a counter that determines the score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Class of the page in the upper bits, then whether it was written since its last read, and in the lower three bits the
    /// step of its read count (0 to 7). Below [`ROWS`].
    pub row: usize,
    /// Position by recency, 0: the most recently read page of the set.
    pub way: usize,
}

impl Seen {
    /// Index of its statistics.
    #[inline]
    pub fn cell(self) -> usize {
        debug_assert!(self.row < ROWS && self.way < WAYS);
        self.row % ROWS * SPANS + self.way % LANES / SPAN
    }

    pub fn is_written(self) -> bool {
        self.row & 8 != 0
    }
}
