//! Canaries: switches that disable a rule, so that tests can prove that they detect its absence. The rules of persistence
//! can be disabled in this crate's tests only, the checks of generations and contents in builds with debug assertions.

#[cfg(debug_assertions)]
use std::sync::atomic::AtomicBool;

/// Insertions ignore the generation of their ticket.
#[cfg(debug_assertions)]
pub static IGNORE_GENERATIONS: AtomicBool = AtomicBool::new(false);

/// Wrong bytes pass for the page, unless they belong to another page whose entry collides with it.
#[cfg(debug_assertions)]
pub static IGNORE_CHECKS: AtomicBool = AtomicBool::new(false);

/// A rule that tests disable, to prove that they detect its absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Recovery drops entries of staged pages.
    Staged,
    /// A footer in an empty segment is outdated.
    Footers,
    /// Segments' sequence numbers continue.
    Sequences,
    /// Recovery counts entries in their segments.
    Counts,
    /// A write looks up the pages of persisted files.
    Files,
}

#[cfg(any(not(test), checker, miri))]
#[inline(always)]
pub(crate) fn is_disabled(_: Rule) -> bool {
    false
}

#[cfg(all(test, not(any(checker, miri))))]
pub(crate) use tests::{is_disabled, with_disabled};

#[cfg(all(test, not(any(checker, miri))))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Rule;

    thread_local! {
        static DISABLED: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub(crate) fn is_disabled(rule: Rule) -> bool {
        DISABLED.get() == Some(rule)
    }

    pub(crate) fn with_disabled(rule: Rule, act: impl FnOnce()) -> std::thread::Result<()> {
        DISABLED.set(Some(rule));
        let result = catch_unwind(AssertUnwindSafe(act));
        DISABLED.set(None);
        result
    }
}
