//! The comparison: policies, sizes and results.

use replay::policies::PolicyName;
use replay::{EnginePolicy, Outcome};

use crate::replay::results::Contender;
use crate::stream::Name;

/// Sizes of the cache relative to the pool.
pub const RATIOS: [u32; 3] = [1, 2, 4];
/// Results of one stream: each policy at each size.
pub struct Compared {
    pub name: Name,
    pub rows: Vec<(Contender, [Outcome; RATIOS.len()])>,
}

impl Compared {
    pub fn of(&self, contender: Contender) -> Option<&[Outcome; RATIOS.len()]> {
        let found = self.rows.iter().find(|(other, _)| *other == contender);
        found.map(|(_, outcomes)| outcomes)
    }
}

/// All policies, the extension's first.
pub fn contenders() -> Vec<Contender> {
    let engine = EnginePolicy::ALL.iter().copied().map(Contender::Engine);
    let others = PolicyName::ALL.into_iter().rev().map(Contender::Policy);
    engine.chain(others).collect()
}
