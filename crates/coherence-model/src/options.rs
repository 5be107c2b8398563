//! What the program is asked to do.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Where files lie in memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

#[derive(Parser)]
pub struct Options {
    /// Seed of all choices; a random one if none is given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long to run; 10 if none is given, or as long as it takes with --deaths.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Kill the process so many times, at any moment, and let the next one take over what is cached.
    #[arg(long)]
    pub deaths: Option<u64>,
    /// Operations after which to stop, if that is sooner. With one thread: for a replay that ends at the same place.
    #[arg(long)]
    pub operations: Option<u64>,
    /// Threads that read and write; 1: one thread for everything, exactly repeatable.
    #[arg(long, default_value_t = 4)]
    pub threads: u64,
    /// Where to put the data files and the cache: the directory for temporary files if none is given, with one thread a
    /// tmpfs.
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Where to put the cache, if not there too.
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// Keep a history also with several threads, to be shown with a violation.
    #[arg(long)]
    pub trace: bool,
    /// Write what was done last into this file (with several threads only with --trace).
    #[arg(long)]
    pub history: Option<PathBuf>,
    /// Say what was tried, and how often.
    #[arg(long)]
    pub verbose: bool,
    /// Do not fail when something was not tried.
    #[arg(long)]
    pub partial: bool,
    /// Let minutes pass now and then, and hold threads up between the steps of registering, closing and finding files.
    #[arg(long)]
    pub minutes: bool,
    /// Name the rules that BPE_CANARY can leave out, and do nothing.
    #[arg(long)]
    pub rules: bool,
    /// For the children of --deaths: what becomes of this one.
    #[arg(long, hide = true)]
    pub life: Option<Life>,
    #[arg(long, hide = true, default_value_t = 0)]
    pub round: u64,
    #[arg(long, hide = true, default_value_t = 0)]
    pub run_seed: u64,
    #[arg(long, hide = true)]
    pub kept: Option<PathBuf>,
}

/// How a child lives, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Life {
    /// Takes over what is left, works, and is killed.
    Killed,
    /// The same, and is switched off and on meanwhile.
    Switching,
    /// Takes over, works, and stops as a server does; it may be killed at that.
    Stopped,
    /// The plugin is loaded late, and takes over what is left, to be compared.
    Late,
    /// The extension is off when the server starts.
    Off,
    /// Takes over, and leaves nothing: `bpe_persist_path` is empty.
    Unkept,
    /// Takes over and stops, without a look at any file: as the server's own program does that only shows its help, or recovers.
    Brief,
    /// There is no plugin.
    Without,
}

impl Life {
    /// It looks at what was left, and takes it over.
    pub fn takes_over(self) -> bool {
        matches!(
            self,
            Life::Killed | Life::Switching | Life::Stopped | Life::Late
        )
    }
}
