//! Coverage of a run: counts of the tried cases. A run proves nothing about an omitted case.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counted {
    ($($name:ident = $text:literal,)*) => {
        #[derive(Clone, Copy)]
        pub enum Reached { $($name),* }
        const TEXTS: &[&str] = &[$($text),*];
        static COUNTS: [AtomicU64; TEXTS.len()] = [const { AtomicU64::new(0) }; TEXTS.len()];
    };
}

counted! {
    Reads = "page reads",
    AsyncReads = "asynchronous reads",
    VectoredReads = "vectored reads",
    Warmed = "runs of pages loaded for another server",
    WarmedTooLate = "such runs with pages that were written meanwhile, or are others",
    OddReads = "reads of other lengths (headers, blocks of an import)",
    Redirected = "submits with a read pointed at a cache file",
    Writes = "page writes",
    AsyncWrites = "asynchronous writes",
    VectoredWrites = "vectored writes",
    AsyncVectoredWrites = "asynchronous vectored writes",
    CompressedWrites = "short writes of compressed pages, and the hole behind them",
    RingWrites = "writes through io_uring",
    RingReads = "reads through io_uring",
    RingHoles = "holes through io_uring",
    ZeroWrites = "zeros over several pages",
    Holes = "holes over pages",
    ZeroedRanges = "zeroed ranges",
    OverlappedZeroWrites = "zeros over a freed page while it is read ahead",
    OverlappedHoles = "holes over freed pages while they are read ahead",
    ShortTransfers = "transfers that came short",
    FailedTransfers = "transfers that failed",
    SubmitsBySyscall = "submits through syscall",
    RefusedSubmits = "submits refused by the kernel",
    RefusedRedirects = "submits refused because of the cache file",
    PartialSubmits = "submits of which a part was taken",
    SpoiledRedirects = "reads of a cache file that failed or were wrong",
    BusyRedirects = "reads of a cache file for which the kernel would have waited",
    Replaced = "true reads submitted in the place of others",
    RefusedReplacements = "of them: not taken by the kernel",
    Extensions = "extensions",
    Truncations = "truncations in place",
    PathTruncations = "truncations by path",
    Relearned = "page sizes learned anew",
    Probes = "second descriptors for a look at the header",
    SecondNames = "writes through a second name",
    Renames = "renames",
    Exchanges = "exchanges of names",
    Replacements = "renames over another file",
    TruncatedTables = "tables truncated (rename, create, unlink)",
    Drops = "files dropped and created again",
    DropsUnderIo = "of them: unlinked while requests were under way",
    SameInode = "files created with the inode of a dropped one",
    Reopened = "files closed and opened again",
    ReopenedKept = "of them: what was cached was kept",
    ReplacedOutside = "files changed by another program while closed",
    Unfollowed = "writes without an offset",
    Emptied = "opens that empty a file",
    Imports = "imports",
    Flushes = "flushes",
    TimesSet = "times of a file set",
    Looks = "looks at a file that was not, which looks the same",
    LooksAfterChanges = "looks at a file that was seen to change",
    SwitchedOff = "switched off",
    SwitchedOn = "switched on",
    Bypassed = "bypassed",
    Refilled = "bypassed with refill",
    BypassedUnderWay = "of both: while requests were under way",
    ServedAgain = "served again after a bypass",
    MinutesPassed = "times that a minute passed",
    Identities = "new identities of a file",
    Hits = "hits",
    HitsStaged = "of them: from staging",
    HitsOnDevice = "of them: from the device",
    HitsLocated = "of them: read from the device by the server's own asynchronous read",
    Compressed = "pages stored compressed",
    Stale = "insertions turned away by the generation",
    Invalidated = "pages dropped by a write",
    Evicted = "pages evicted",
    HeldBack = "reads of a cache file that were answered late",
    GivenUp = "reads of the cache disk given up",
}

/// Cases that some hosts cannot produce, or that need threads.
const OPTIONAL: &[&str] = &[
    "files created with the inode of a dropped one",
    "reads of a cache file that were answered late",
    "reads of the cache disk given up",
];

/// Cases that need a minute after each ON: only in test builds, whose clocks can be advanced.
const AFTER_A_MINUTE: &[&str] = &[
    "runs of pages loaded for another server",
    "such runs with pages that were written meanwhile, or are others",
];

pub fn reached(what: Reached) {
    add(what, 1);
}

pub fn add(what: Reached, count: u64) {
    COUNTS[what as usize].fetch_add(count, Ordering::Relaxed);
}

/// All counters with their descriptions.
pub fn all() -> impl Iterator<Item = (&'static str, u64)> {
    TEXTS
        .iter()
        .zip(&COUNTS)
        .map(|(text, count)| (*text, count.load(Ordering::Relaxed)))
}

/// Cases that did not occur: kinds of operation, ways of a hit, intercepted calls.
pub fn missing() -> Vec<&'static str> {
    let never = |(name, count): (&'static str, u64)| (count == 0).then_some(name);
    all()
        .filter(|(text, _)| !OPTIONAL.contains(text))
        .filter(|(text, _)| crate::kernel::minutes_pass() || !AFTER_A_MINUTE.contains(text))
        .filter_map(never)
        .chain(crate::calls::made().filter_map(never))
        .collect()
}
