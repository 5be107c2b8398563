//! Command line options.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Directory for files in memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

#[derive(Parser)]
pub struct Options {
    /// Seed of all choices; random by default
    #[arg(long)]
    pub seed: Option<u64>,
    /// Seconds to run; 10 by default, unlimited with --deaths
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Kill the process this many times, at any moment, and let the next one recover the cache
    #[arg(long)]
    pub deaths: Option<u64>,
    /// Stop after this many operations, if that is sooner. With one thread, a replay ends at the same operation
    #[arg(long)]
    pub operations: Option<u64>,
    /// Threads that read and write; 1: one thread for everything, exactly repeatable
    #[arg(long, default_value_t = 4)]
    pub threads: u64,
    /// Directory for the data files and the cache; by default the directory for temporary files, with one thread a tmpfs
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Directory for the cache, if it is a different one
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// Keep a history with several threads too, and show it with a violation
    #[arg(long)]
    pub trace: bool,
    /// Write the latest operations to this file (with several threads only with --trace)
    #[arg(long)]
    pub history: Option<PathBuf>,
    /// Print the tried cases, and how often
    #[arg(long)]
    pub verbose: bool,
    /// Do not fail if some case was not tried
    #[arg(long)]
    pub partial: bool,
    /// Advance the clock by minutes now and then, and delay threads between the steps of registering, closing and finding files
    #[arg(long)]
    pub minutes: bool,
    /// List the rules that BPE_CANARY can remove, and exit
    #[arg(long)]
    pub rules: bool,
    /// For the children of --deaths: course of this child
    #[arg(long, hide = true)]
    pub life: Option<Life>,
    #[arg(long, hide = true, default_value_t = 0)]
    pub round: u64,
    #[arg(long, hide = true, default_value_t = 0)]
    pub run_seed: u64,
    #[arg(long, hide = true)]
    pub kept: Option<PathBuf>,
}

/// Course of a child's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Life {
    /// Recovers the cache, works, and is killed.
    Killed,
    /// As `Killed`, with the extension switched off and on in between.
    Switching,
    /// Recovers, works, and stops as a server does; it may be killed while stopping.
    Stopped,
    /// Loads the plugin late, and recovers the cache for comparison.
    Late,
    /// Starts with the extension off.
    Off,
    /// Recovers, and persists nothing: `bpe_persist_path` is empty.
    Unkept,
    /// Recovers and stops without touching any file, as the server's program does for its help text or for recovery only.
    Brief,
    /// Runs without the plugin.
    Without,
}

impl Life {
    /// Whether it verifies the persisted state and recovers it.
    pub fn takes_over(self) -> bool {
        matches!(
            self,
            Life::Killed | Life::Switching | Life::Stopped | Life::Late
        )
    }
}
