//! Where tests let a thread die between two stores, or leave out a rule. Otherwise nothing.

/// A rule that can be left out, to show that the tests notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// The mark of an entry is stored last.
    MarkLast,
    /// A place is cleared before another entry is written there.
    ClearBefore,
    /// What moves leaves its old place before it is entered in the new one.
    ClearFirst,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn is_dead() -> bool {
    false
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn leaves_out(_: Rule) -> bool {
    false
}

#[cfg(test)]
pub(super) use tests::{is_dead, leaves_out};

#[cfg(test)]
#[path = "dying_tests.rs"]
mod tests;
