//! What all loads do.

use fastrand::Rng;

use super::pool::Pool;

/// Who accesses pages.
pub trait Load {
    /// A transaction or less.
    fn step(&mut self, random: &mut Rng, pool: &mut Pool);
}
