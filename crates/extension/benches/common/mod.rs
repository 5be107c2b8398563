//! What the benches share.

pub mod cache;
pub mod instructions;
pub mod machine;
pub mod options;
pub mod sysbench;
