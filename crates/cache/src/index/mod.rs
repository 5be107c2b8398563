//! HEAD

pub(crate) mod directory;
pub(crate) mod forgotten;
pub(crate) mod generation;
