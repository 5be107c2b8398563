//! Cache engine of innodb-bpe: a second-level cache of clean pages on fast local disks.
//!
//! A plain library, independent of any server. A *room* is a module at the top level of the crate, with its files. Each room
//! imports only those below it:
//!
//! | room | contents |
//! |---|---|
//! | [`api`] | the facade [`Extension`] and its operations, for the server's hooks |
//! | [`log`] | writers: take staged pages, append them to segments, reclaim segments |
//! | [`instance`] | what both share: instances (index, policy and staged pages under one lock), staging, persistent memory |
//! | [`device`] | cache files: bounded reads, writes, health, segments |
//! | [`policy`] | which pages a full cache admits and evicts |
//! | [`index`] | the directory of cached pages, generations, forgotten files |
//! | [`common`] | pages, configuration, counters, memory, locks |
//!
//! A read goes from [`api`] to [`instance`] to [`device`]. A page that is inserted goes from [`api`] to [`instance`], where
//! the policy admits it to staging, and from there a writer ([`log`]) takes it to the [`device`]. The head of [`api`] has the
//! order of locks.

mod api;
mod common;
mod device;
mod index;
mod instance;
mod log;
mod policy;
#[cfg(test)]
mod tests;
#[cfg(feature = "tuning")]
pub mod tuning {
    //! The constants of a policy, changeable.
    pub use crate::policy::density::numbers::{all, set};
}

#[cfg(feature = "bench")]
pub use api::benching;
pub use api::consistency::Figures;
pub use api::extension::{
    CopyOutcome, Extension, Frozen, InsertOutcome, MissReason, ReadOutcome, Source,
};
#[cfg(feature = "fuzz")]
pub use api::fuzzing;
pub use api::locating::Located;
pub use api::open::fits;
pub use api::warming::{EXTENT_PAGES, Heat, MAX_HEAT, Wanted};
pub use common::budget::WriteBudget;
#[cfg(debug_assertions)]
pub use common::canary;
pub use common::config::{
    Compression, Config, DeviceConfig, DeviceFacts, MAX_INSTANCES, OpenError, OwnerIdentity,
    PolicyName,
};
pub use common::group::{Group, Limits};
pub use common::measure::histogram::{HistogramSnapshot, LatencyHistogram};
#[cfg(any(checker, debug_assertions))]
pub use common::page::check_of;
pub use common::page::{
    EXTENT_SHIFT, FileId, MAX_PAGE, MIN_PAGE, NumberHasher, PageId, hash, is_page_length,
};
pub use common::sizing::{Room, divide, part};
pub use common::statistics::{DeviceStatistics, InstanceStatistics, Statistics};
pub use common::thread::spawn;
pub use device::bounded::{GivenUp, give_idle_memory_back};
pub use device::exposure::{Exposure, Who, exposures};
pub use device::file::{check_device, make_own, open_own, remove_persisted, reserve, room};
pub use device::kernel::aio_contexts;
pub use device::segment::MIN_DEVICE_BYTES;
pub use index::generation::{Generations, ReadTicket};
pub use instance::arena::{RecoveredEntries, open_in_memory};
