//! `bpe-lab replay`: simulates the extension and other policies with a recorded stream of page reads and writes.
//!
//! Reads the trace, runs every policy at every cache size (`results`), prints the table or JSON (`output`), and draws the
//! plot (`plot`). Errors in the sizes are reported before the trace is read.

mod output;
pub(crate) mod plot;
pub(crate) mod results;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bpe::failure::{Exit, Failure};
use bpe::terminal::{complain, say};
use replay::policies::PolicyName;
use replay::{LEAST_CACHE_PAGES, MAX_INSTANCES, Trace};

use results::{Contender, Results};

/// Part of a trace that warms the cache.
const WARM_UP: f64 = 30.0;
/// Larger sizes cannot be addressed.
const MAX_CACHE_PAGES: f64 = u32::MAX as f64;

#[derive(clap::Args)]
#[command(
    after_help = "Traces are sequences of 16-byte little-endian records, plain or compressed with zstd: u32 file, u32 page\n\
    number, u8 operation (0 read, 1 write), u8 pages, u16 zero, u32 sequence number. Pages have 16 KiB.\n\n\
    Hits are counted on reads. A write of a page that is in the cache updates it. Every insertion and every update\n\
    is a page written to the cache device. OPT knows all reads to come, and takes in a page that is read or written\n\
    only if it is worth a place.\n\n\
    JSON: `read_hit_ratio` and `opt_read_hit_ratio` are fractions from 0 to 1. With several sizes there is an object\n\
    for each in `runs`; with `--policy all` every policy's figures are in `policies`.\n\n\
    Several traces are replayed one after the other, none sharing a page with another: a full change of the working\n\
    set. Percentages then are of the last one: `--trace A --trace B --until 5` measures the first 5 % after the change."
)]
pub struct Args {
    /// Recorded stream; `-` is standard input. Given several times: one after the other
    #[arg(long, value_name = "FILE", required = true)]
    trace: Vec<PathBuf>,
    /// Pages of the buffer pool from which the trace was recorded
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    pool_pages: u64,
    /// Size of the cache relative to the buffer pool; several with commas between them
    #[arg(long, value_name = "R", required = true, allow_negative_numbers = true,
          value_delimiter = ',', value_parser = ratio)]
    cache_ratio: Vec<f64>,
    /// What to replay: the extension (product), the extension with another policy (density is its own), a simulated policy,
    /// or product and all simulated
    #[arg(long, value_name = "NAME", default_value = "product", value_parser = Choice::parser())]
    policy: Choice,
    /// Instances of the extension
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INSTANCES)))]
    instances: u32,
    /// Percentage of the (last) trace that passes before counting begins [default: 30, with several traces 0]
    #[arg(long, visible_alias = "from", value_name = "PERCENT", allow_negative_numbers = true,
          value_parser = percent)]
    warm_up: Option<f64>,
    /// Percentage of the (last) trace after which the replay ends
    #[arg(long, value_name = "PERCENT", default_value = "100", allow_negative_numbers = true,
          value_parser = percent)]
    until: f64,
    /// How to print the figures
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Draw the hit ratio by cache size for the extension, LRU, OPT and the policies of `--policy`
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// The value of `--policy`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    One(Contender),
    All,
}

impl Choice {
    fn parser() -> impl clap::builder::TypedValueParser<Value = Choice> {
        use clap::builder::{PossibleValuesParser, TypedValueParser};
        let names = Contender::known().map(Contender::name).chain(["all"]);
        PossibleValuesParser::new(names).map(|text| {
            let contender = Contender::known().find(|contender| contender.name() == text);
            contender.map_or(Choice::All, Choice::One)
        })
    }

    /// In output order.
    fn names(self) -> Vec<Contender> {
        match self {
            Choice::One(contender) => vec![contender],
            Choice::All => Contender::all().collect(),
        }
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio > 0.0 => Ok(ratio),
        Ok(_) => Err("give a number above 0, such as 2 for a cache twice the buffer pool".into()),
        Err(_) => Err("not a number".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("give percent, from 0 to 100".into()),
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let sizes = sizes(&args)?;
    if let Some(path) = &args.plot {
        check_plot(path, sizes.len())?;
    }
    let (trace, measured) = load(&args)?;
    let shown = args.policy.names();
    let mut requested = shown.clone();
    let drawn = [Contender::Product, Contender::Policy(PolicyName::Lru)];
    let wanted = drawn.into_iter().filter(|_| args.plot.is_some());
    for contender in wanted.chain([Contender::Policy(PolicyName::Opt)]) {
        if !requested.contains(&contender) {
            requested.push(contender);
        }
    }
    let results = Results::gather(&trace, measured, &sizes, &requested, args.instances)?;
    drop(trace);
    match args.format {
        Format::Table => say!("{}", output::table(&results, &shown, args.pool_pages)),
        Format::Json => {
            let all = args.policy == Choice::All;
            say!("{:#}", output::json(&results, &shown, all, args.pool_pages));
        }
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&results, args.pool_pages)).map_err(|error| {
            Failure::step(format!(
                "cannot write the plot to '{}': {error}",
                path.display()
            ))
        })?;
        complain!("The plot is in {}.", path.display());
    }
    Ok(Exit::Ok.into())
}

/// Returns ratio and pages of each size, after validation.
fn sizes(args: &Args) -> Result<Vec<(f64, u64)>, Failure> {
    let product = args.plot.is_some()
        || args
            .policy
            .names()
            .iter()
            .any(|contender| contender.engine().is_some());
    let mut sizes = Vec::new();
    for &ratio in &args.cache_ratio {
        let pages = (args.pool_pages as f64 * ratio).round();
        let cache = format!("{ratio} x {} pages", args.pool_pages);
        if pages < 1.0 {
            let what = format!("a cache of {cache} has less than one page");
            return Err(Failure::usage(what).advise("raise --cache-ratio"));
        }
        if pages > MAX_CACHE_PAGES {
            let what = format!("a cache of {cache} is larger than any disk");
            return Err(Failure::usage(what).advise("lower --cache-ratio or --pool-pages"));
        }
        let pages = pages as u64;
        if u64::from(args.instances) > pages {
            let what = format!(
                "{} instances are more than the {pages} pages of the cache",
                args.instances
            );
            return Err(Failure::usage(what).advise("lower --instances or raise --cache-ratio"));
        }
        if product && pages < LEAST_CACHE_PAGES {
            let what = format!(
                "a cache of {cache} is too small for the extension, which needs at least {LEAST_CACHE_PAGES} pages"
            );
            return Err(Failure::usage(what)
                .advise("raise --cache-ratio, or name another policy than the product"));
        }
        sizes.push((ratio, pages));
    }
    Ok(sizes)
}

/// Reports errors of the plot early, not after minutes of replay.
fn check_plot(path: &Path, sizes: usize) -> Result<(), Failure> {
    if sizes < 2 {
        return Err(Failure::usage("a plot needs several sizes of the cache")
            .advise("name them with commas: --cache-ratio 0.5,1,2,4"));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() || !folder.is_dir() {
        let what = format!("cannot write the plot to '{}'", path.display());
        return Err(Failure::usage(what).advise("name a file in a folder that exists"));
    }
    Ok(())
}

/// Loads and concatenates the traces. Returns also the measured range of events.
fn load(args: &Args) -> Result<(Trace, Range<usize>), Failure> {
    let from_stdin = args.trace.iter().filter(|path| **path == Path::new("-"));
    if from_stdin.count() > 1 {
        return Err(Failure::usage("standard input can be read only once")
            .advise("name files, or `--trace -` a single time"));
    }
    let wrong = |error: replay::TraceError| Failure::step(error.to_string());
    let mut traces = args.trace.iter();
    let first = traces
        .next()
        .map(PathBuf::as_path)
        .unwrap_or(Path::new("-"));
    let mut whole = Trace::read(first).map_err(wrong)?;
    let mut begin = 0;
    for path in traces {
        begin = whole.events().len();
        whole
            .append(&Trace::read(path).map_err(wrong)?)
            .map_err(wrong)?;
    }
    let default = if args.trace.len() > 1 { 0.0 } else { WARM_UP };
    let from = args.warm_up.unwrap_or(default);
    let length = (whole.events().len() - begin) as f64;
    let at = |percent: f64| begin + (length * percent / 100.0) as usize;
    let measured = at(from)..at(args.until);
    if from >= args.until {
        return Err(Failure::usage(format!(
            "nothing is measured from {from} % to {} % of the trace",
            args.until
        ))
        .advise("lower --warm-up or raise --until"));
    }
    let events = &whole.events()[measured.clone()];
    if events.iter().all(|event| event.is_write()) {
        let what = format!(
            "none of the {} events from {from} % to {} % of the trace is a read, so there is no hit ratio",
            events.len(),
            args.until
        );
        return Err(Failure::step(what).advise("measure a larger part with --warm-up and --until"));
    }
    Ok((whole, measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(more: &[&str]) -> Result<Args, String> {
        let line = ["bpe", "--trace", "t", "--pool-pages", "1000"];
        Line::try_parse_from(line.iter().chain(more))
            .map(|line| line.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn ratios_and_percentages() {
        let args = parse(&["--cache-ratio", "0.5, 1,2"]).map(|args| args.cache_ratio);
        assert_eq!(args, Ok(vec![0.5, 1.0, 2.0]));
        for bad in ["0", "-1", "nan", "inf", "1e999", "one", "", "1,,2"] {
            assert!(parse(&["--cache-ratio", bad]).is_err(), "{bad}");
        }
        assert_eq!(percent("30%"), Ok(30.0));
        for bad in ["-1", "101", "nan", "x"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_that_make_no_cache() {
        let message = |more: &[&str]| {
            let args = parse(more).unwrap_or_else(|error| panic!("{error}"));
            sizes(&args).map_err(|failure| failure.what)
        };
        assert_eq!(
            message(&["--cache-ratio", "1,2"]),
            Ok(vec![(1.0, 1000), (2.0, 2000)])
        );
        let part = |more, part: &str| {
            let text = message(more).unwrap_err();
            assert!(text.contains(part), "{text}");
        };
        part(&["--cache-ratio", "1e300"], "larger than any disk");
        part(&["--cache-ratio", "0.0001"], "less than one page");
        part(&["--cache-ratio", "0.1"], "too small for the extension");
        assert!(message(&["--cache-ratio", "0.1", "--policy", "lru"]).is_ok());
        part(
            &["--cache-ratio", "0.01", "--instances", "11"],
            "11 instances are more than the 10 pages",
        );
    }

    #[test]
    fn every_policy_has_a_name_of_its_own() {
        for contender in Contender::known() {
            let args = parse(&["--cache-ratio", "1", "--policy", contender.name()]);
            assert!(
                args.is_ok_and(|a| a.policy == Choice::One(contender)),
                "{contender:?}"
            );
        }
        assert!(parse(&["--cache-ratio", "1", "--policy", "best"]).is_err());
    }
}
