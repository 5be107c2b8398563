//! Foundation of the other rooms: types and services that every room of the engine may use. It imports none of them.
//!
//! - Pages: [`page`] (identity, hashes, check), [`group`] (table rules).
//! - Configuration: [`config`], [`sizing`] (the cache size's parts for the devices).
//! - Limits: [`budget`] (bytes written a day), [`rate_limiter`] (bytes written a second).
//! - Figures: [`statistics`], [`measure`], [`violations`] (inconsistencies).
//! - System: [`memory`], [`sync`] (locks and atomics, replaceable by the model checker's), [`mod@thread`], [`wake`].
//! - Tests: [`canary`] (disables a rule).

pub(crate) mod budget;
pub mod canary;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod page;
pub(crate) mod rate_limiter;
pub(crate) mod sizing;
pub(crate) mod statistics;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod violations;
pub(crate) mod wake;
