//! Constants of the policy, found by experiment. The example `leave_one_out` of `replay` shows that no constant depends
//! on a single trace. The feature `tuning` makes them variable for this; no library in production has it.

macro_rules! numbers {
    ($($(#[$meaning:meta])* $name:ident: $kind:ty = $now:expr;)*) => {
        #[cfg(not(feature = "tuning"))]
        mod given {
            $($(#[$meaning])* #[inline(always)] pub(crate) const fn $name() -> $kind { $now })*
        }

        #[cfg(feature = "tuning")]
        mod given {
            use std::sync::atomic::{AtomicU64, Ordering};

            /// A number that can be changed. A concurrent reader sees the old or the new value.
            struct Number {
                name: &'static str,
                now: f64,
                /// Bits of the changed value.
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

            /// All numbers with their default values.
            pub fn all() -> impl Iterator<Item = (&'static str, f64)> {
                NUMBERS.iter().map(|number| (number.name, number.now))
            }

            /// Changes one number for the whole process, from the next cache on. [`all`] lists the names.
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
    /// Minimum ratio of the candidate's score to the victim's, because an insertion costs a write.
    margin: f32 = 1.5;
    /// A score below this part of the victims' recent average is hopeless: only one search in `tried_once_in` is made.
    hopeless: f32 = 0.5;
    tried_once_in: u32 = 8;
    /// Victims in the moving average.
    victims_averaged: f32 = 128.0;
    /// Number of entries that a search should see.
    seen: usize = 4;
    /// Reads per page between two halvings of a counter.
    ageing: u64 = 10;
    /// Number of spans ahead within which a page must be read again. Beyond 14 ways the hits are alike; later reads may
    /// be a scan.
    horizon: usize = 4;
    /// Weight, as a time, of the next lower count and of all classes.
    borrowed: f64 = 30.0;
    borrowed_of_classes: f64 = 20.0;
    /// Remaining part of the sums after a score update.
    kept: f64 = 0.95;
    /// Number of score updates per cache size of reads.
    part: u64 = 4;
    /// The last pages of a growing file count as new. Their number, as a fraction of the cache's pages.
    new: f64 = 0.5;
    /// A file counts as growing if its growth exceeds this fraction of its pages. Each score update multiplies earlier growth
    /// by `kept`.
    grown: f64 = 0.005;
    /// Re-read pages in the moving average of a file's share.
    returned_averaged: f64 = 1024.0;
    /// Tolerated lead of LRU per compared read, and the accumulated lead that proves a change.
    slack: f64 = 0.03;
    shown: f64 = 32.0;
    /// Duration, in cache sizes of reads, of the pure LRU mode after a change.
    change: u64 = 3;
}
