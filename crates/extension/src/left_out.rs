//! Where tests of what outlives a process leave out a rule. Otherwise nothing.

/// A rule that tests leave out, to show that they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Entries of staged pages go.
    Staged,
    /// What was written in a segment is of before once it is empty.
    Footers,
    /// Segments' sequence numbers go on.
    Sequences,
    /// Entries are counted in their segments.
    Counts,
    /// Pages of inherited files are looked for when they are written.
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
