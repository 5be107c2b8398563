//! Replays recorded traces of page reads and writes through the extension itself, and through well-known policies for
//! comparison.
//!
//! A [`Trace`] is read from one or several files. [`run_product`] replays it through the product's own code,
//! [`policies::run`] through a simulation of another policy. Both return an [`Outcome`] over the measured part of the
//! trace; the part before it only warms the cache.
//!
//! All policies use the same counting: a *hit* is a read of a resident page. Every insertion, and every update of a
//! resident page by a write, is one page write to the cache device.

mod outcome;
pub mod policies;
mod product;
pub mod trace;

#[cfg(feature = "tuning")]
pub use cache::tuning;
pub use outcome::{Outcome, PROGRESS_EVERY};
pub use product::{
    EnginePolicy, LEAST_CACHE_PAGES, MAX_INSTANCES, ProductError, ProductOptions, ProductOutcome,
    available_memory, run_product,
};
pub use trace::{Event, Operation, PAGE_BYTES, Trace, TraceError};
