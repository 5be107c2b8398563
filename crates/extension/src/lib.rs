//! Cache engine of innodb-bpe: a second-level cache of clean pages on fast local disks. A plain library.
#![allow(dead_code)] // until the engine uses them

mod config;
mod extension;
mod generation;
mod page;
mod statistics;

pub use config::{
    AdmissionMode, Compression, Config, DeviceConfig, DeviceFacts, MAX_INSTANCES, OpenError,
    OwnerIdentity,
};
pub use extension::{
    Extension, Located, MissReason, OfferOutcome, ReadOutcome, Source, check_device,
};
pub use generation::{Generations, ReadTicket};
pub use page::{FileId, MAX_PAGE, MIN_PAGE, PageId, is_page_length};
pub use statistics::{
    DeviceStatistics, HistogramSnapshot, InstanceStatistics, LatencyHistogram, Statistics,
};
