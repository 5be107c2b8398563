//! Test hooks that disable a persistence rule. No effect outside tests.

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
pub(crate) fn leaves_out(_: Rule) -> bool {
    false
}

#[cfg(all(test, not(any(checker, miri))))]
pub(crate) use tests::{leaves_out, leaving_out};

#[cfg(all(test, not(any(checker, miri))))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub(crate) fn leaves_out(rule: Rule) -> bool {
        LEFT_OUT.get() == Some(rule)
    }

    pub(crate) fn leaving_out(rule: Rule, act: impl FnOnce()) -> std::thread::Result<()> {
        LEFT_OUT.set(Some(rule));
        let result = catch_unwind(AssertUnwindSafe(act));
        LEFT_OUT.set(None);
        result
    }
}
