//! The index: which pages are cached, and which bytes may still be inserted.
//!
//! - [`directory`]: maps a page to its entry. One for each instance, under the instance's lock.
//! - [`forgotten`]: files whose entries are removed in the background.
//! - [`generation`]: detects writes between a read and the insertion of its bytes. One for the process, without a lock.

pub(crate) mod directory;
pub(crate) mod forgotten;
pub(crate) mod generation;
