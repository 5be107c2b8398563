//! Interface of all loads.

use fastrand::Rng;

use super::pool::Pool;

/// A source of page accesses.
pub trait Load {
    /// Performs a transaction, or a part of one.
    fn step(&mut self, random: &mut Rng, pool: &mut Pool);
}
