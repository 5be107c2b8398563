//! The extension beside its peers: one recorded stream, the same bytes of disk and of memory.
//!
//! The program runs itself once for each cache and round, with `--side`: each cache has a process of its own, so that CPU
//! time and memory are its own as well. Rounds alternate the order of the caches, and the table shows medians.

mod extension_side;
mod foyer_side;
mod overflow;
mod process;
mod report;
mod side;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use replay::{LEAST_CACHE_PAGES, PAGE_BYTES, Trace};

use extension_side::ExtensionSide;
use foyer_side::{FoyerSide, Variant};
use report::Row;
use side::Figures;

/// Percent of the trace that warm the caches.
const WARM_UP: u8 = 30;
/// Bytes of the extension's cache file that are not for pages.
const HEADER_BYTES: u64 = 64 << 10;
const SMALL_BLOCK: usize = 1 << 20;
const MOST_CACHE_PAGES: f64 = u32::MAX as f64;

/// Replays a recorded stream through the extension and through foyer's hybrid cache.
#[derive(Parser)]
struct Args {
    /// Recorded stream, as `bpe record` makes it
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Pages of the buffer pool from which the trace was recorded
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pool_pages: u64,
    /// Size of the caches relative to the buffer pool
    #[arg(long, value_name = "R")]
    cache_ratio: f64,
    /// Directory for the cache files, on the disk to be measured [default: that for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// How often each cache is run
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Caches to run; the extension is always the first
    #[arg(
        long,
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ',',
        default_value = "foyer,foyer-limited,foyer-buffered,foyer-small-blocks,foyer-all-writes"
    )]
    peers: Vec<Name>,
    /// MiB per second that `foyer-limited` may write
    #[arg(long, value_name = "MIB", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..))]
    write_limit: u32,
    /// Percent of the trace after which the replay ends; 30 % warm the caches
    #[arg(long, value_name = "PERCENT", default_value = "100",
          value_parser = clap::value_parser!(u8).range(31..=100))]
    until: u8,
    /// How to print the figures
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Run this cache alone, once, and print its figures as JSON
    #[arg(long, value_name = "NAME", value_enum, requires = "memory_bytes")]
    side: Option<Name>,
    /// Bytes of memory for a peer, with `--side`
    #[arg(long, value_name = "BYTES", hide = true)]
    memory_bytes: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Name {
    Extension,
    /// Past the page cache, as the extension
    Foyer,
    /// As `foyer`, with its limit on the rate of writes
    FoyerLimited,
    /// Through the page cache, whose memory nobody counts
    FoyerBuffered,
    /// As `foyer`, evicting 1 MiB at a time instead of 16
    FoyerSmallBlocks,
    /// As `foyer-small-blocks`, taking in every page that is written, resident or not
    FoyerAllWrites,
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Name::Extension => "extension",
            Name::Foyer => "foyer",
            Name::FoyerLimited => "foyer-limited",
            Name::FoyerBuffered => "foyer-buffered",
            Name::FoyerSmallBlocks => "foyer-small-blocks",
            Name::FoyerAllWrites => "foyer-all-writes",
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let pages = cache_pages(&args)?;
    if let Some(name) = args.side {
        let figures = run_side(&args, name, pages)?;
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    let rows = run_rounds(&args)?;
    match args.format {
        Format::Table => print!("{}", report::table(&rows, pages)),
        Format::Json => println!("{}", report::json(&rows, pages)?),
    }
    Ok(())
}

fn cache_pages(args: &Args) -> Result<u64> {
    let pages = (args.pool_pages as f64 * args.cache_ratio).round();
    ensure!(
        pages >= LEAST_CACHE_PAGES as f64 && pages <= MOST_CACHE_PAGES,
        "a cache of {} x {} pages cannot be made: it needs {LEAST_CACHE_PAGES} to {MOST_CACHE_PAGES} pages; change --cache-ratio",
        args.cache_ratio,
        args.pool_pages
    );
    Ok(pages as u64)
}

/// In this process.
fn run_side(args: &Args, name: Name, pages: u64) -> Result<Figures> {
    let trace = Trace::read(&args.trace)?;
    let at = |percent: u8| trace.events().len() * usize::from(percent) / 100;
    let measured = at(WARM_UP)..at(args.until);
    ensure!(
        !measured.is_empty(),
        "'{}' has no events to measure",
        args.trace.display()
    );
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("bpe-peers-")
        .tempdir_in(&directory)
        .with_context(|| {
            format!(
                "cannot make a directory for the cache files in '{}'",
                directory.display()
            )
        })?;
    let bytes = pages * PAGE_BYTES as u64 + HEADER_BYTES;
    let memory = args.memory_bytes.unwrap_or_default();
    let mut variant = Variant::default();
    match name {
        Name::Extension => {
            let open = || ExtensionSide::open(folder.path(), bytes);
            return side::replay(&trace, measured, open);
        }
        Name::Foyer => {}
        Name::FoyerLimited => {
            variant.write_limit = NonZeroUsize::new((args.write_limit as usize) << 20);
        }
        Name::FoyerBuffered => variant.direct = false,
        Name::FoyerSmallBlocks => variant.block_bytes = SMALL_BLOCK,
        Name::FoyerAllWrites => {
            variant.block_bytes = SMALL_BLOCK;
            variant.all_writes = true;
        }
    }
    let open = || FoyerSide::open(folder.path(), bytes, memory, variant);
    side::replay(&trace, measured, open)
}

/// Each cache in each round in a process of its own.
fn run_rounds(args: &Args) -> Result<Vec<Row>> {
    let mut rows = vec![Row::new(Name::Extension.as_str())];
    let mut names = vec![Name::Extension];
    for &name in &args.peers {
        if !names.contains(&name) {
            names.push(name);
            rows.push(Row::new(name.as_str()));
        }
    }
    // Peers are given what the extension takes, so it goes first once.
    let mut memory = 0;
    for round in 0..args.rounds {
        let mut order: Vec<usize> = (0..names.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let name = names[at].as_str();
            let figures = run_child(name, memory)?;
            eprintln!(
                "round {} of {}, {name}: {:.1} % hits, {:.0} operations per CPU second",
                round + 1,
                args.rounds,
                figures.read_hit_ratio * 100.0,
                figures.operations_per_cpu_second
            );
            if names[at] == Name::Extension {
                memory = figures.memory_bytes;
            }
            rows[at].rounds.push(figures);
        }
    }
    Ok(rows)
}

/// With the arguments of this process.
fn run_child(name: &str, memory: u64) -> Result<Figures> {
    let output = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .args(["--side", name, "--memory-bytes", &memory.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run this program again")?;
    if !output.status.success() {
        bail!("the run of {name} failed: {}", output.status);
    }
    // Libraries may have something to say on standard output; the figures are the last line.
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{name} printed no figures but '{line}'"))
}
