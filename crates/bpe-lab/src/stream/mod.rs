//! `bpe-lab stream`: synthetic streams of page reads and writes, in the format of recorded ones.
//!
//! A load (`tpcc`, `sysbench`, `loads`, `aside`) accesses pages through a buffer pool (`pool`). Misses and write-backs of
//! the pool form the stream. Seed, pool size and number of events determine it completely.

mod aside;
mod chance;
mod load;
mod loads;
mod pool;
mod sysbench;
mod tpcc;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bpe::failure::{Exit, Failure};
use bpe::terminal::say;
use fastrand::Rng;
use replay::Trace;
use replay::trace::{Operation, TraceWriter};

use load::Load;
use pool::{Pool, Record};

/// More would exceed the page numbers of the largest load.
const MAX_POOL_PAGES: i64 = 1 << 20;
const MAX_EVENTS: i64 = 1 << 30;

#[derive(clap::Args)]
#[command(
    after_help = "The same name, seed, size and number of events give the same stream. `bpe-lab replay` reads it, `bpe-lab policies`\n\
    runs all policies over all of them."
)]
pub struct Args {
    /// Which load
    #[arg(value_enum)]
    name: Name,
    #[command(flatten)]
    shape: Shape,
    /// Where the stream goes; compressed with zstd
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// What a stream is made of, besides its load.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Shape {
    /// Seed of all chance
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Pages of the buffer pool; the data is some times larger
    #[arg(long, value_name = "N", default_value = "4096", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(64..=MAX_POOL_PAGES))]
    pub pool_pages: u32,
    /// Reads and writes
    #[arg(long, value_name = "N", default_value = "1000000", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MAX_EVENTS))]
    pub events: u32,
}

/// The loads there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Name {
    /// TPC-C-like, with whole warehouses of seven times the pool
    Tpcc,
    /// sysbench's read-write load, by its distribution `special`
    Special,
    /// The same by `pareto`
    Pareto,
    /// The same, all rows equally often
    Uniform,
    /// A skewed load by day, and beside it a nightly report that reads a large table once
    Report,
    /// A table that grows, and is read at its end
    Growing,
    /// Eight tenants, of which another one is busy every ten minutes
    Tenants,
    /// A skewed load that drifts, with scans
    Drift,
    /// A queue of jobs, which are done and deleted in order
    Queue,
    /// Messages, of which users read their last ten
    Messages,
    /// What devices measure, by month
    Months,
}

impl Name {
    /// The name on the command line.
    pub fn text(self) -> &'static str {
        match self {
            Name::Tpcc => "tpcc",
            Name::Special => "special",
            Name::Pareto => "pareto",
            Name::Uniform => "uniform",
            Name::Report => "report",
            Name::Growing => "growing",
            Name::Tenants => "tenants",
            Name::Drift => "drift",
            Name::Queue => "queue",
            Name::Messages => "messages",
            Name::Months => "months",
        }
    }
}

fn load(name: Name, pages: usize, random: &mut Rng) -> Box<dyn Load> {
    match name {
        Name::Tpcc => Box::new(tpcc::Tpcc::new(pages, random)),
        Name::Special => Box::new(sysbench::Sysbench::new(pages, chance::special)),
        Name::Pareto => Box::new(sysbench::Sysbench::new(pages, chance::pareto)),
        Name::Uniform => Box::new(sysbench::Sysbench::new(pages, |random, n| random.u32(..n))),
        Name::Report => Box::new(loads::Report::new(pages)),
        Name::Growing => Box::new(loads::Growing::new(pages)),
        Name::Tenants => Box::new(loads::Tenants::new(pages)),
        Name::Drift => Box::new(loads::Drift::new(pages, random)),
        Name::Queue => Box::new(aside::Queue::new(pages)),
        Name::Messages => Box::new(aside::Messages::new(pages)),
        Name::Months => Box::new(aside::Months::new(pages)),
    }
}

fn records(name: Name, shape: Shape) -> Vec<Record> {
    let events = shape.events as usize;
    let mut random = Rng::with_seed(shape.seed);
    let mut pool = Pool::new(shape.pool_pages as usize);
    let mut load = load(name, pool.capacity(), &mut random);
    while pool.records().len() < events {
        load.step(&mut random, &mut pool);
    }
    let mut records = pool.into_records();
    records.truncate(events);
    records
}

/// Generates the stream in memory.
pub fn trace(name: Name, shape: Shape) -> Trace {
    Trace::from_events(records(name, shape))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let failed = |error: io::Error| {
        let what = format!("cannot write '{}': {error}", args.out.display());
        Failure::step(what).advise("name a file in a folder that exists and has room")
    };
    // Errors of the file are reported before the work.
    let file = File::create(&args.out).map_err(failed)?;
    let records = records(args.name, args.shape);
    write(file, &records).map_err(failed)?;
    say!("{}", summary(&args.out, &records, args.shape));
    Ok(Exit::Ok.into())
}

fn write(file: File, records: &[Record]) -> io::Result<()> {
    let mut writer = TraceWriter::new(BufWriter::new(file))?;
    for &(file, page, operation) in records {
        writer.write(file, page, operation)?;
    }
    writer.finish()?.flush()
}

fn summary(out: &Path, records: &[Record], shape: Shape) -> String {
    let reads = records.iter().filter(|r| r.2 == Operation::Read).count();
    format!(
        "{reads} reads and {} writes of pages are in {}. To replay them:\n\
         bpe-lab replay --trace '{}' --pool-pages {} --cache-ratio 1,2,4 --policy all",
        records.len() - reads,
        out.display(),
        out.display(),
        shape.pool_pages,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_load_reads_more_than_fits_and_writes() {
        let shape = Shape {
            seed: 3,
            pool_pages: 200,
            events: 20_000,
        };
        for &name in Name::value_variants() {
            let records = records(name, shape);
            assert_eq!(records.len(), 20_000);
            let writes = records.iter().filter(|r| r.2 == Operation::Write).count();
            assert!((200..15_000).contains(&writes), "{name:?}: {writes}");
            let pages = Trace::from_events(records).distinct_pages();
            assert!(pages > 800, "{name:?}: {pages} pages");
        }
    }

    #[test]
    fn names_are_those_of_the_command() {
        for &name in Name::value_variants() {
            let value = name.to_possible_value();
            assert_eq!(
                value.map(|v| v.get_name().to_owned()).as_deref(),
                Some(name.text())
            );
        }
    }
}
