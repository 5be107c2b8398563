//! The comparison: policies, sizes and results.

use replay::policies::PolicyName;
use replay::{EnginePolicy, Outcome};

use crate::replay::results::Who;
use crate::stream::Name;

/// Sizes of the cache relative to the pool.
pub const RATIOS: [u32; 3] = [1, 2, 4];
/// Results of one stream: each policy at each size.
pub struct Compared {
    pub name: Name,
    pub rows: Vec<(Who, [Outcome; RATIOS.len()])>,
}

impl Compared {
    pub fn of(&self, who: Who) -> Option<&[Outcome; RATIOS.len()]> {
        let found = self.rows.iter().find(|(other, _)| *other == who);
        found.map(|(_, outcomes)| outcomes)
    }
}

/// All policies, the extension's first.
pub fn everyone() -> Vec<Who> {
    let engine = EnginePolicy::ALL.iter().copied().map(Who::Engine);
    let others = PolicyName::ALL.into_iter().rev().map(Who::Policy);
    engine.chain(others).collect()
}
