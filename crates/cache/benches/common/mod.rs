//! Shared code of the benches.

pub mod cache;
pub mod instructions;
pub mod machine;
pub mod options;
pub mod sysbench;
