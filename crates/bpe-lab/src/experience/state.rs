//! State of the experience of one server.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use bpe::console::Watched;
use bpe::enable::Locations;

use super::load::Bench;
use super::run::Run;

/// Lock order: `state` is a leaf.
pub struct Experience {
    pub(super) server: Arc<Watched>,
    pub(super) places: Locations,
    /// sysbench, or why it cannot be run.
    pub(super) bench: Result<Bench, String>,
    /// Directory for results and sysbench's outputs.
    pub(super) folder: Option<PathBuf>,
    pub(super) state: Mutex<Runs>,
    pub(super) stop: AtomicBool,
    pub(super) last: AtomicU64,
}

#[derive(Default)]
pub struct Runs {
    pub run: Option<Run>,
    /// Newest last.
    pub results: VecDeque<Run>,
}
