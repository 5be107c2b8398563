//! What the rest of the crate is built on, and what a test or the model checker replaces.
//!
//! - [`os`]: the operating system as a trait.
//! - [`sync`]: locks, atomics and the clock.

pub mod os;
pub mod sync;
