//! One function per intercepted call of the C library.
//!
//! Every function begins with the same check: while the extension is off, jump to the address that was in the slot before.
//! After that check [`guard`] catches panics, makes the call once (on a hit, not at all), and preserves its errno.
//!
//! | file | calls |
//! |---|---|
//! | `guard` | the macro that defines a hook, and the guard around the original call |
//! | `input_output` | on descriptors: reads, writes, holes, truncation, flushes, close |
//! | `names` | on paths: open, unlink, rename, truncate, times |
//! | `asynchronous`, `io_uring` | submissions and harvests of asynchronous I/O |
//! | `ending` | by which a process ends itself |
//!
//! Cost: off, one relaxed load. Locks: this room has none; the rooms below it hold none during the original call. Failure: a
//! panic switches the extension off until the server restarts, and the call is made.

mod asynchronous;
mod ending;
mod guard;
pub(crate) mod input_output;
mod io_uring;
mod names;

use crate::intercept::got::Import;

/// All intercepted calls: those of [`interface::calls`].
pub fn imports() -> Vec<Import> {
    let mut imports = input_output::imports();
    imports.extend(names::imports());
    imports.extend(asynchronous::imports());
    imports.extend(ending::imports());
    imports
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The verdict and the hooks use the same list.
    #[test]
    fn the_hooks_are_those_of_the_list() {
        let hooks: BTreeSet<_> = super::imports().iter().map(|i| i.names).collect();
        let list: BTreeSet<_> = interface::calls::hooked().collect();
        assert_eq!(hooks, list);
        assert_eq!(super::imports().len(), hooks.len(), "one hook for each");
    }
}
