//! The selected policy.

use std::io;
use std::sync::Arc;

use super::density::Density;
use super::second_chance::SecondChance;
use super::{Candidate, MemoryPressure, Places, Policy};
use crate::common::config::PolicyName;
use crate::common::page::PageId;
use crate::index::directory::{Entry, Slot};

/// One type per policy. A `match` instead of a table of functions, because reads pass here.
macro_rules! policies {
    ($($policy:ident),+ $(,)?) => {
        impl PolicyName {
            pub(crate) fn bytes(self, pages: u64, pressure: MemoryPressure) -> u64 {
                match self {
                    $(PolicyName::$policy => $policy::bytes(pages, pressure)),+
                }
            }

            /// State that all instances share.
            pub(crate) fn model(self, pages: u64) -> Model {
                match self {
                    $(PolicyName::$policy => Model::$policy(Arc::new($policy::model(pages)))),+
                }
            }
        }

        /// State that the instances of one extension share, for the selected policy.
        pub(crate) enum Model {
            $($policy(Arc<<$policy as Policy>::Model>)),+
        }

        impl Model {
            /// The policy of one instance.
            pub fn policy(&self, pages: u64, pressure: MemoryPressure) -> io::Result<Chosen> {
                match self {
                    $(Model::$policy(model) => $policy::new(pages, pressure, model).map(Chosen::$policy)),+
                }
            }
        }

        /// The policy of an instance. Its functions are those of [`Policy`].
        #[expect(clippy::large_enum_variant, reason = "the instances of servers have the largest")]
        pub(crate) enum Chosen {
            $($policy($policy)),+
        }

        impl Chosen {
            #[cfg(test)]
            pub fn memory_bytes(&self) -> u64 {
                match self {
                    $(Chosen::$policy(policy) => policy.memory_bytes()),+
                }
            }

            #[inline]
            pub fn accessed(
                &mut self,
                places: &mut Places<'_>,
                page: PageId,
                found: Option<Slot>,
            ) -> bool {
                match self {
                    $(Chosen::$policy(policy) => policy.accessed(places, page, found)),+
                }
            }

            #[inline]
            pub fn hit(&mut self, places: &mut Places<'_>, page: PageId, slot: Slot, entry: Entry) {
                match self {
                    $(Chosen::$policy(policy) => policy.hit(places, page, slot, entry)),+
                }
            }

            pub fn written(&mut self, places: &mut Places<'_>, page: PageId) {
                match self {
                    $(Chosen::$policy(policy) => policy.written(places, page)),+
                }
            }

            pub fn admits(&mut self, places: &mut Places<'_>, page: PageId, what: Candidate) -> bool {
                match self {
                    $(Chosen::$policy(policy) => policy.admits(places, page, what)),+
                }
            }

            pub fn entered(&mut self, places: &mut Places<'_>, page: PageId) -> u8 {
                match self {
                    $(Chosen::$policy(policy) => policy.entered(places, page)),+
                }
            }

            pub fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot> {
                match self {
                    $(Chosen::$policy(policy) => policy.victim(places)),+
                }
            }

            pub fn score(&self, places: &Places<'_>, page: PageId) -> u32 {
                match self {
                    $(Chosen::$policy(policy) => policy.score(places, page)),+
                }
            }

            pub fn count(&self, identity: u64) -> u32 {
                match self {
                    $(Chosen::$policy(policy) => policy.count(identity)),+
                }
            }

            pub fn seed(&mut self, places: &mut Places<'_>, page: PageId, count: u32) -> u8 {
                match self {
                    $(Chosen::$policy(policy) => policy.seed(places, page, count)),+
                }
            }

            pub fn cool(&mut self, identity: u64) {
                match self {
                    $(Chosen::$policy(policy) => policy.cool(identity)),+
                }
            }

            pub fn learn_every(&self) -> u64 {
                match self {
                    $(Chosen::$policy(policy) => policy.learn_every()),+
                }
            }

            pub fn learn(&mut self, full: bool) {
                match self {
                    $(Chosen::$policy(policy) => policy.learn(full)),+
                }
            }
        }
    };
}

policies! {
    Density,
    SecondChance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_take_the_memory_that_they_say() {
        for &name in PolicyName::ALL {
            for (pages, pressure) in [
                (1, MemoryPressure::Normal),
                (5000, MemoryPressure::Normal),
                (5000, MemoryPressure::High),
            ] {
                let policy = name.model(pages).policy(pages, pressure).unwrap();
                assert_eq!(policy.memory_bytes(), name.bytes(pages, pressure), "{name}");
            }
        }
    }
}
