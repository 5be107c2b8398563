//! Limits for judging figures. `bpe status --explain`, the doctor and the page use the same ones, and `tests/consumers.rs`
//! checks alerts and dashboard against them.

/// A limit.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub name: &'static str,
    pub value: f64,
    pub meaning: &'static str,
}

/// Name, value, meaning.
macro_rules! limits {
    ($($name:ident $value:literal $meaning:literal)+) => {
        $(#[doc = $meaning] pub const $name: f64 = $value;)+

        pub const ALL: &[Limit] =
            &[$(Limit { name: stringify!($name), value: $value, meaning: $meaning }),+];
    };
}

limits! {
    IDLE 1.0 "Reads per second below which a cache has nothing to do"
    FEW 100.0 "Reads in the interval below which a ratio of them says little"
    ALIKE 10.0 "Percent of the data disk's p50 by which the cache's must differ to be called faster or slower"
    LITTLE 20.0 "Percent of hits from which on the data disk feels it"
    FULL 90.0 "Percent of the capacity from which on the cache counts as full: some is always being emptied"
    WORTH 5.0 "Percent of all reads that pages which came back must be for a larger cache to be worth it"
    CONTENDED 5.0 "Percent of accesses that find an instance's lock held, from which on threads wait noticeably"
    BEHIND 1.0 "Percent of the pages worth caching that are dropped because they cannot be written fast enough"
    UNSEEN 20.0 "Percent of InnoDB's page reads from which on it matters that the extension does not see them"
    MEMORY 4.0 "Memory that the extension should take at most, in percent of the pool"
    HALF 50.0 "Percent of hits below which a cache that still fills is not yet judged"
}
