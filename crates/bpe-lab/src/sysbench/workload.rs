//! The reference's tests and their tables.

use serde::{Deserialize, Serialize};

/// Client threads of the reference's test.
pub const THREADS: u64 = 64;

/// Tables of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    pub database: &'static str,
    pub count: u64,
    /// Rows in each.
    pub rows: u64,
}

/// The reference's three tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Workload {
    ReadOnly,
    WriteOnly,
    ReadWrite,
}

impl Workload {
    /// In execution order.
    pub const ALL: [Workload; 3] = [Workload::ReadOnly, Workload::WriteOnly, Workload::ReadWrite];

    /// sysbench's name of the test.
    pub fn script(self) -> &'static str {
        match self {
            Workload::ReadOnly => "oltp_read_only",
            Workload::WriteOnly => "oltp_write_only",
            Workload::ReadWrite => "oltp_read_write",
        }
    }

    /// Title for table and report.
    pub fn title(self) -> &'static str {
        match self {
            Workload::ReadOnly => "Read only",
            Workload::WriteOnly => "Write only",
            Workload::ReadWrite => "Mixed",
        }
    }

    /// Gain in QPS that the reference measured on 8 cores and 16 GB, in percent.
    pub fn reference_gain(self) -> f64 {
        match self {
            Workload::ReadOnly => 80.0,
            Workload::WriteOnly => 33.0,
            Workload::ReadWrite => 103.0,
        }
    }
}
