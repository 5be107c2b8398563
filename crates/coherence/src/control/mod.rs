//! Switching on and off, and background work on cached files.

pub mod audit;
pub mod compare;
pub mod controller;
pub mod scan;
pub mod warm;
