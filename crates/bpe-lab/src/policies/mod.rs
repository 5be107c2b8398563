//! `bpe-lab policies`: all policies over all synthetic streams, at several sizes of the cache.
//!
//! Streams are generated in memory. Then threads process the combinations of stream, size and policy. The table (`table`)
//! and the plot (`plot`) present the results.

mod compared;
mod plot;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, available_parallelism};

use bpe::failure::{Exit, Failure};
use bpe::terminal::{complain, say};
use clap::ValueEnum;
use replay::{LEAST_CACHE_PAGES, Outcome, Trace};

use crate::replay::results::{self, Contender};
use crate::stream::{self, Name, Shape};
use compared::{Compared, RATIOS, contenders};

/// Percentage of a stream that warms the cache.
const WARM_UP: usize = 30;

#[derive(clap::Args)]
#[command(
    after_help = "Each cell: reads that hit in %, and page writes to the cache device per 1,000 events. The first 30 % of a stream\n\
    warm the cache. The policies of the extension run in the extension itself, the others are simulated.\n\n\
    The second table has, for the policy of servers: points above MQ's hits, and page writes in % of MQ's."
)]
pub struct Args {
    /// Streams; several with commas between them [default: all]
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    streams: Vec<Name>,
    #[command(flatten)]
    shape: Shape,
    /// Replays at a time [default: one for each processor]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Folder in which policies.md and policies.svg are made
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if u64::from(args.shape.pool_pages) < LEAST_CACHE_PAGES {
        let what = format!("the extension needs a cache of at least {LEAST_CACHE_PAGES} pages");
        return Err(Failure::usage(what).advise("raise --pool-pages").into());
    }
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| unwritable(&folder.display().to_string(), &error))?;
    }
    let names = match args.streams.is_empty() {
        true => Name::value_variants().to_vec(),
        false => args.streams,
    };
    let processors = available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, usize::from);
    let compared = compare(&names, args.shape, jobs)?;
    let text = table::markdown(&compared);
    say!("{}", text.trim_end());
    if let Some(folder) = &args.out {
        let plot = plot::svg(&compared, args.shape.pool_pages);
        for (name, content) in [("policies.md", &text), ("policies.svg", &plot)] {
            let path = folder.join(name);
            std::fs::write(&path, content)
                .map_err(|error| unwritable(&path.display().to_string(), &error))?;
        }
        complain!("Table and plot are in {}.", folder.display());
    }
    Ok(Exit::Ok.into())
}

fn unwritable(path: &str, error: &std::io::Error) -> Failure {
    Failure::step(format!("cannot write '{path}': {error}"))
        .advise("name a folder where files can be made")
}

/// Generates all streams, then replays them.
fn compare(names: &[Name], shape: Shape, jobs: usize) -> Result<Vec<Compared>, Failure> {
    let traces = each(jobs, names, |&name| Ok(stream::trace(name, shape)))?;
    for (name, trace) in names.iter().zip(&traces) {
        let measured = &trace.events()[measured(trace)];
        if measured.iter().all(|event| event.is_write()) {
            let what = format!("nothing is read in the measured part of `{}`", name.text());
            return Err(Failure::usage(what).advise("raise --events"));
        }
    }
    let contenders = contenders();
    let mut pieces = Vec::new();
    for trace in &traces {
        for &contender in &contenders {
            pieces.extend(RATIOS.map(|ratio| (trace, contender, ratio)));
        }
    }
    let outcomes = each(jobs, &pieces, |&(trace, contender, ratio)| {
        let pages = u64::from(shape.pool_pages * ratio);
        let measurement =
            results::measure(contender, trace, measured(trace), pages, 1, &mut |_| ());
        measurement
            .map(|measurement| measurement.outcome)
            .map_err(results::failure)
    })?;
    let of_stream = outcomes.chunks_exact(contenders.len() * RATIOS.len());
    let compared = names.iter().zip(of_stream).map(|(&name, of_stream)| {
        let rows = contenders.iter().zip(of_stream.chunks_exact(RATIOS.len()));
        let row = |(&contender, of_who): (&Contender, &[Outcome])| {
            (contender, std::array::from_fn(|n| of_who[n]))
        };
        Compared {
            name,
            rows: rows.map(row).collect(),
        }
    });
    Ok(compared.collect())
}

fn measured(trace: &Trace) -> std::ops::Range<usize> {
    let events = trace.events().len();
    events * WARM_UP / 100..events
}

/// Processes the pieces in `jobs` threads. Results are in order. After the first failure no further piece is started.
fn each<T: Sync, R: Send>(
    jobs: usize,
    pieces: &[T],
    work: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(pieces.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((n, piece)) = {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    pieces.get(n).map(|piece| (n, piece))
                } {
                    let result = work(piece);
                    if result.is_err() {
                        next.store(pieces.len(), Ordering::Relaxed);
                    }
                    if sender.send((n, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = Vec::new();
        for (n, result) in receiver {
            done.push((n, result?));
        }
        done.sort_by_key(|&(n, _)| n);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_order_and_ends_at_a_failure() {
        let numbers: Vec<u32> = (0..100).collect();
        let doubled = each(4, &numbers, |n| Ok(n * 2));
        let wanted: Vec<u32> = numbers.iter().map(|n| n * 2).collect();
        assert!(doubled.is_ok_and(|doubled| doubled == wanted));
        let failed = each(4, &numbers, |&n| match n {
            7 => Err(Failure::step("seven")),
            n => Ok(n),
        });
        assert_eq!(failed.map_err(|failure| failure.what), Err("seven".into()));
    }
}
