//! The compared settings, and their order.

use super::super::args::Workload;

/// The compared numbers of instances.
pub const COUNTS: [u64; 2] = [1, 8];
pub const ROUNDS: usize = 2;
pub const WORKLOADS: [Workload; 2] = [Workload::ReadOnly, Workload::ReadWrite];

/// Seconds for a start of sysbench: its threads prepare their statements for every table.
pub fn start_time(tables: u64) -> u64 {
    1 + tables / 15
}

/// The numbers of instances in the order of a round: ascending and descending in turn.
pub fn order(round: usize) -> Vec<u64> {
    let mut counts = COUNTS.to_vec();
    if round % 2 == 1 {
        counts.reverse();
    }
    counts
}
