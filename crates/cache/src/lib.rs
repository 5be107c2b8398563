//! Cache engine of innodb-bpe: a second-level cache of clean pages on fast local disks.
//!
//! A plain library. It handles pages, instances, policies, segments, devices and statistics, and is independent of any
//! server. A page takes this path: [`extension`] (facade, life of a page, order of locks), [`reading`], [`offering`] ->
//! [`instance`] -> [`directory`], [`policy`] -> [`staging`] -> [`writer`] ([`spread`], [`compression`]), [`recovery`],
//! [`reclaim`] -> [`log`], [`stream`] -> [`flight`] -> [`batch`]; [`segment`] -> [`device`].

mod adoption;
mod arena;
mod batch;
#[cfg(feature = "bench")]
pub mod benching;
mod budget;
#[cfg(debug_assertions)]
pub mod canary;
mod clearing;
mod compression;
mod config;
mod device;
mod directory;
mod extension;
mod findings;
mod flight;
mod forgotten;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod generation;
mod group;
mod instance;
mod left_out;
mod locating;
mod log;
mod measure;
mod memory;
mod offering;
mod open;
mod pace;
mod page;
mod policy;
mod reading;
mod reclaim;
mod recovery;
mod report;
mod segment;
mod share;
mod shared;
mod spread;
mod staging;
mod statistics;
mod store;
mod stream;
mod sweep;
mod sync;
#[cfg(test)]
mod tests;
mod thread;
#[cfg(feature = "tuning")]
pub mod tuning {
    //! The constants of a policy, changeable.
    pub use crate::policy::density::numbers::{all, set};
}
mod validate;
mod wake;
mod warming;
mod writer;

pub use arena::{Inherited, open_in_memory};
pub use budget::WriteBudget;
pub use config::{
    Compression, Config, DeviceConfig, DeviceFacts, MAX_INSTANCES, OpenError, OwnerIdentity,
};
pub use device::bounded::{GivenUp, give_idle_memory_back};
pub use device::exposure::{Exposure, Who, exposures};
pub use device::file::{check_device, make_own, open_own, remove_left, reserve, room};
pub use device::kernel::aio_contexts;
pub use extension::{Extension, Frozen, Inspected, MissReason, OfferOutcome, ReadOutcome, Source};
pub use generation::{Generations, ReadTicket};
pub use group::{Group, Limits};
pub use locating::Located;
pub use measure::histogram::{HistogramSnapshot, LatencyHistogram};
pub use open::fits;
#[cfg(any(checker, debug_assertions))]
pub use page::check_of;
pub use page::{
    EXTENT_SHIFT, FileId, MAX_PAGE, MIN_PAGE, NumberHasher, PageId, hash, is_page_length,
};
pub use policy::list::PolicyName;
pub use segment::LEAST_DEVICE_BYTES;
pub use share::{Room, divide, part};
pub use statistics::{DeviceStatistics, InstanceStatistics, Statistics};
pub use thread::spawn;
pub use validate::Figures;
pub use warming::{EXTENT_PAGES, Heat, MOST_HEAT, Wanted};
