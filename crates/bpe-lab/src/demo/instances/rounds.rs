//! What is compared, and in which order.

use super::super::args::Workload;

/// The numbers of instances that are compared.
pub const COUNTS: [u64; 2] = [1, 8];
pub const ROUNDS: usize = 2;
pub const WORKLOADS: [Workload; 2] = [Workload::ReadOnly, Workload::ReadWrite];

/// Seconds that a start of sysbench takes: its threads prepare their statements for every table.
pub fn start_time(tables: u64) -> u64 {
    1 + tables / 15
}

/// The numbers of instances in their order of a round: forth in one, back in the next.
pub fn order(round: usize) -> Vec<u64> {
    let mut counts = COUNTS.to_vec();
    if round % 2 == 1 {
        counts.reverse();
    }
    counts
}
