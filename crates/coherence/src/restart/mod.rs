//! What outlives the process: the records of data files.

pub mod manifest;
#[cfg(all(test, debug_assertions, not(checker)))]
mod model_tests;
pub mod recovery;
pub mod stamp;
