//! Switching on and off, and background work on cached files. No hook runs code of this room, except to post an event.
//!
//! - [`controller`]: state machine, driver and threads that open, publish and close an extension.
//! - [`scan`]: registers the files that the server has open when tracking begins.
//! - [`audit`]: detects writes by other programs, and suspends the file.
//! - [`compare`]: compares cached pages with their data files, for `bpe verify` and for the audit.
//! - [`warm`]: reads pages that another server has cached, and offers them for admission.

pub mod audit;
pub mod compare;
pub mod controller;
pub mod scan;
pub mod warm;
