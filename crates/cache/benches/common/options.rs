//! Arguments and environment of the benches without a harness.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Result of a bench; the error is text for the user.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub struct Options {
    /// Runs only as a smoke test: its figures are meaningless.
    pub quick: bool,
    /// Duration of one measurement.
    pub time: Duration,
    /// Other arguments.
    pub rest: Vec<String>,
}

impl Options {
    /// Reads the options. A measurement takes `usual` seconds, unless BENCH_SECONDS or `--quick` overrides it.
    ///
    /// # Errors
    /// BENCH_SECONDS is not a positive number.
    pub fn read(usual: f64) -> Outcome<Options> {
        let mut rest: Vec<String> = std::env::args().skip(1).collect();
        // `cargo bench` gives `--bench`; `cargo test --benches` does not, and wants a short run.
        let benched = rest.iter().any(|argument| argument == "--bench");
        let quick = !benched || rest.iter().any(|argument| argument == "--quick");
        rest.retain(|argument| argument != "--bench" && argument != "--quick");
        let seconds = match std::env::var("BENCH_SECONDS") {
            Ok(text) => text
                .parse()
                .ok()
                .filter(|&seconds: &f64| seconds > 0.0 && seconds < 3600.0)
                .ok_or_else(|| {
                    format!(
                        "BENCH_SECONDS is '{text}'; give the seconds of one measurement, as 0.5"
                    )
                })?,
            Err(_) if quick => 0.05,
            Err(_) => usual,
        };
        Ok(Options {
            quick,
            time: Duration::from_secs_f64(seconds),
            rest,
        })
    }

    /// For benches without further arguments.
    ///
    /// # Errors
    /// There are further arguments.
    pub fn no_more(&self) -> Outcome {
        match self.rest.first() {
            Some(other) => Err(format!(
                "unknown argument '{other}'; the first lines of the bench name those it knows"
            )
            .into()),
            None => Ok(()),
        }
    }
}

/// A directory in memory, so that no disk affects the figures.
pub fn memory_directory() -> PathBuf {
    std::env::var_os("BENCH_MEMORY_DIRECTORY").map_or_else(
        || {
            let shm = PathBuf::from("/dev/shm");
            if shm.is_dir() {
                shm
            } else {
                std::env::temp_dir()
            }
        },
        PathBuf::from,
    )
}

/// A directory on the disk to measure.
pub fn disk_directory() -> PathBuf {
    std::env::var_os("BENCH_DIRECTORY")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
}
