//! Test hooks that stop a thread between two stores, or disable a rule. No effect outside tests.

/// A rule that a test can disable, to prove that the tests detect its absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// The mark of an entry is stored last.
    MarkLast,
    /// A way is cleared before another entry is written there.
    ClearBefore,
    /// A moved entry leaves its old way before it is inserted in the new one.
    ClearFirst,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn is_dead() -> bool {
    false
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn is_disabled(_: Rule) -> bool {
    false
}

#[cfg(test)]
pub(super) use tests::{is_dead, is_disabled};

#[cfg(test)]
#[path = "dying_tests.rs"]
mod tests;
