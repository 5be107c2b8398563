//! Performance of the extension relative to its disk, measured alternately with fio on the same disk.
//!
//! `BENCH_DIRECTORY=/mnt/nvme cargo bench -p cache --bench disk [-- [reads] [writes] [--quick]]`
//!
//! Reads: random pages of a full cache file. fio reads the same file in the same way (psync, O_DIRECT, 16 KiB, same
//! number of threads). Goal: 90 % of fio's reads per second. The bench also measures a loop of bare preads in this
//! process, and the CPU time of each read. The difference is the extension's overhead. Goal: 2 microseconds.
//!
//! Writes: distinct pages are inserted as fast as the writer accepts them, first into an empty file, then into a full
//! one. fio writes a file of the same size sequentially, in blocks of 256 KiB, and pages at random offsets of it, with
//! as many writes in flight (16). Goals: 80 % of fio's bytes per second while the file is filled, 90 % into a full one.
//! Also shown: bytes written for each inserted byte; the calling thread's time in `insert`, and how often it waited
//! there; the accuracy of a limit on bytes per second.
//!
//! BENCH_DIRECTORY: on the disk to measure, with O_DIRECT; default: the target directory. BENCH_MIB: size of the cache
//! file, default 1024. BENCH_SECONDS: duration of one measurement, default 2. Needs fio (`scripts/install-dependencies
//! tests`, or `apt-get install fio`).

#[allow(dead_code, reason = "each bench uses a part")]
mod common;
#[path = "disk/fio.rs"]
mod fio;
#[path = "disk/reads.rs"]
mod reads;
#[path = "disk/writes.rs"]
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use common::cache::PAGE;
use common::machine;
use common::options::{Options, Outcome, disk_directory};

/// Parameters of both parts.
pub struct Setting {
    pub directory: PathBuf,
    pub options: Options,
    /// Pages of the cache file.
    pub pages: u32,
    pub rounds: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut options = Options::read(2.0)?;
    let mut requested = |part: &str| {
        let before = options.rest.len();
        options.rest.retain(|argument| argument != part);
        options.rest.len() < before
    };
    let (reads, writes) = match (requested("reads"), requested("writes")) {
        (false, false) => (true, true),
        some => some,
    };
    options.no_more()?;
    let version = match fio::version() {
        Ok(version) => version,
        Err(error) => {
            println!("skipped: disk: {error}");
            return Ok(());
        }
    };
    let mib = match std::env::var("BENCH_MIB") {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|mib| (16..=1 << 22).contains(mib))
            .ok_or_else(|| {
                format!(
                    "BENCH_MIB is '{text}'; give a number from 16 to {}",
                    1 << 22
                )
            })?,
        Err(_) if options.quick => 32,
        Err(_) => 1024,
    };
    let setting = Setting {
        directory: disk_directory(),
        pages: mib * ((1 << 20) / PAGE as u32),
        rounds: if options.quick { 1 } else { 5 },
        options,
    };
    println!("{}", machine::describe());
    println!(
        "{version}; cache file of {mib} MiB in {}; medians of {} rounds of {} s{}",
        setting.directory.display(),
        setting.rounds,
        setting.options.time.as_secs_f64(),
        if setting.options.quick {
            " (quick: the figures mean nothing)"
        } else {
            ""
        }
    );
    if reads {
        reads::measure(&setting)?;
    }
    if writes {
        writes::measure(&setting)?;
    }
    Ok(())
}
