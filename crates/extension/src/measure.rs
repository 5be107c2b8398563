//! What the engine measures with.

pub(crate) mod histogram;
