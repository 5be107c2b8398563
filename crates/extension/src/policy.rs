//! Which pages get in, and which have to go.

pub(crate) mod admission;
pub(crate) mod drift;
pub(crate) mod writeback;
