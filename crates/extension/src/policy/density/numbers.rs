//! The numbers of the policy that were chosen by trying. That none hangs on one stream is shown by the example `leave_one_out` of `replay`,
//! for which they can be changed: with the feature `tuning`, which no library that is used has.

macro_rules! numbers {
    ($($(#[$meaning:meta])* $name:ident: $kind:ty = $now:expr;)*) => {
        #[cfg(not(feature = "tuning"))]
        mod given {
            $($(#[$meaning])* #[inline(always)] pub(crate) const fn $name() -> $kind { $now })*
        }

        #[cfg(feature = "tuning")]
        mod given {
            use std::sync::atomic::{AtomicU64, Ordering};

            /// A number that can be changed; who reads it sees one value or the other.
            struct Number {
                name: &'static str,
                now: f64,
                /// The bits of what it was changed to.
                bits: AtomicU64,
            }

            #[allow(non_camel_case_types)]
            #[derive(Clone, Copy)]
            enum Which { $($name),* }

            static NUMBERS: [Number; [$(stringify!($name)),*].len()] = [$(Number {
                name: stringify!($name),
                now: $now as f64,
                bits: AtomicU64::new(($now as f64).to_bits()),
            }),*];

            $($(#[$meaning])* #[inline] pub(crate) fn $name() -> $kind {
                let bits = &NUMBERS[Which::$name as usize].bits;
                f64::from_bits(bits.load(Ordering::Relaxed)) as $kind
            })*

            /// All of them, with their usual values.
            pub fn all() -> impl Iterator<Item = (&'static str, f64)> {
                NUMBERS.iter().map(|number| (number.name, number.now))
            }

            /// Changes one for the whole process, from the next cache on. Names come from [`all`].
            pub fn set(name: &str, value: f64) {
                let found = NUMBERS.iter().find(|number| number.name == name);
                let number = found.expect("a name of theirs");
                number.bits.store(value.to_bits(), Ordering::Relaxed);
            }
        }

        #[cfg(feature = "tuning")]
        pub use given::{all, set};
        $(pub(crate) use given::$name;)*
    };
}

numbers! {
    /// How much more a page must be worth than the one that goes: a write costs something.
    margin: f32 = 1.5;
    /// Of what victims were worth of late: below this part a search is hopeless, and made once in so many.
    hopeless: f32 = 0.5;
    tried_once_in: u32 = 8;
    /// So many victims make the moving average.
    victims_averaged: f32 = 128.0;
    /// Entries that a search should see.
    seen: usize = 4;
    /// A counter is halved once in so many reads for each page.
    ageing: u64 = 10;
    /// Spans ahead within which a page must come back. From 14 ways to all, hits are alike; who comes back later may be a scan.
    horizon: usize = 4;
    /// Time for which the count below speaks, and for which all classes do.
    borrowed: f64 = 30.0;
    borrowed_of_classes: f64 = 20.0;
    /// What is left of the sums after they were looked at.
    kept: f64 = 0.95;
    /// Parts of a cache size of reads after which scores are made anew.
    part: u64 = 4;
    /// Pages at the end of a file that grows are new: so many, as a part of the cache.
    new: f64 = 0.5;
    /// A file grows by this part of its pages at least while sums fade.
    grown: f64 = 0.005;
    /// So many pages that come back make the share of their file.
    returned_averaged: f64 = 1024.0;
    /// What LRU may find more than the policy, for each read that is compared, and what it must have found more altogether.
    slack: f64 = 0.03;
    shown: f64 = 32.0;
    /// Cache sizes of reads for which recency alone counts after that.
    change: u64 = 3;
}
