//! Checks whether a constant of the policy `density` depends on a single trace: leaves each trace out once, and chooses
//! the constant on the others.
//!
//! ```sh
//! cargo run --release -p replay --features tuning --example leave_one_out -- 4096:tpcc.zst 4096:report.zst ...
//! ```
//!
//! An argument is the number of pages of the buffer pool, and a trace. Each constant is set to two thirds and to one
//! and a half times its value, while the others are unchanged. A value's score on a trace is the mean hit ratio, in
//! percentage points, over caches of one, two and four times the pool. A penalty of one point applies per 40 page
//! writes per 1,000 events. Progress goes to standard error, a table in Markdown to standard output.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use replay::{EnginePolicy, ProductOptions, Trace, run_product, tuning};

/// Sizes of the cache relative to the pool.
const RATIOS: [u64; 3] = [1, 2, 4];
/// Percentage of a trace that warms the cache.
const WARM_UP: usize = 30;
/// Factors for a constant.
const TRIED: [f64; 2] = [2.0 / 3.0, 1.5];
/// Page writes per 1,000 events that cost as much as one point of hits.
const WRITES_OF_A_POINT: f64 = 40.0;

type Failure = Box<dyn std::error::Error>;

struct Stream {
    name: String,
    pool: u64,
    trace: Trace,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let streams: Vec<Stream> = std::env::args()
        .skip(1)
        .map(|argument| load(&argument))
        .collect::<Result<_, _>>()?;
    if streams.len() < 3 {
        return Err("name at least three streams, each as PAGES_OF_THE_POOL:FILE".into());
    }
    let now = figures(&streams)?;
    eprintln!("as it is: {}", line(&now));
    println!(
        "| number | now | tried: mean of points against now | chosen on all | leaving one out | most that the one left out loses by it |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, usual) in tuning::all() {
        let mut values = vec![(usual, now.clone())];
        for factor in TRIED {
            let value = round(usual, factor);
            tuning::set(name, value);
            let figures = figures(&streams);
            tuning::set(name, usual);
            let figures = figures?;
            eprintln!("{name} {value}: {}", line(&figures));
            values.push((value, figures));
        }
        println!("{}", row(name, &values, &streams));
    }
    Ok(())
}

fn load(argument: &str) -> Result<Stream, Failure> {
    let wrong = || format!("'{argument}' is not PAGES_OF_THE_POOL:FILE");
    let (pool, file) = argument.split_once(':').ok_or_else(wrong)?;
    let path = Path::new(file);
    let name = path.file_stem().ok_or_else(wrong)?.to_string_lossy();
    Ok(Stream {
        name: name.trim_end_matches(".trace").into(),
        pool: pool.parse().map_err(|_| wrong())?,
        trace: Trace::read(path)?,
    })
}

/// Scales a constant; integers stay integers, and change.
fn round(usual: f64, factor: f64) -> f64 {
    match usual.fract() == 0.0 {
        true if factor < 1.0 => (usual * factor).floor().max(1.0),
        true => (usual * factor).ceil(),
        // A remaining part stays below 1.
        false if usual < 1.0 && usual * factor >= 1.0 => 1.0 - (1.0 - usual) / factor,
        false => usual * factor,
    }
}

/// Scores of all traces with the current constants.
fn figures(streams: &[Stream]) -> Result<Vec<f64>, Failure> {
    let pieces = streams.len() * RATIOS.len();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![0.0; streams.len()]));
    let work = || -> Result<(), String> {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return Ok(());
            }
            let at = piece / RATIOS.len();
            let stream = &streams[at];
            let mut options = ProductOptions::new(stream.pool * RATIOS[piece % RATIOS.len()]);
            options.policy = EnginePolicy::Density;
            let events = stream.trace.events().len();
            let measured = events * WARM_UP / 100..events;
            let outcome = run_product(&stream.trace, measured, &options, &mut |_| ())
                .map_err(|error| format!("{}: {error}", stream.name))?
                .outcome;
            let figure = outcome.read_hit_ratio() * 100.0
                - outcome.page_writes_per_1000() / WRITES_OF_A_POINT;
            done.lock().map_err(|error| error.to_string())?[at] += figure / RATIOS.len() as f64;
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(done.into_inner().expect("no panic"))
}

/// The best value on all traces, or on all but one.
fn best(values: &[(f64, Vec<f64>)], left_out: Option<usize>) -> usize {
    let sum = |figures: &[f64]| -> f64 {
        let kept = figures.iter().enumerate();
        kept.filter(|&(n, _)| Some(n) != left_out)
            .map(|(_, figure)| figure)
            .sum()
    };
    // Among equals the first, which is the current value.
    (0..values.len())
        .rev()
        .max_by(|&a, &b| sum(&values[a].1).total_cmp(&sum(&values[b].1)))
        .expect("there are values")
}

fn row(name: &str, values: &[(f64, Vec<f64>)], streams: &[Stream]) -> String {
    let (usual, now) = &values[0];
    let tried: Vec<String> = values[1..]
        .iter()
        .map(|(value, figures)| {
            let gained: f64 = figures.iter().zip(now).map(|(then, now)| then - now).sum();
            format!("{value:.4}: {:+.2}", gained / now.len() as f64)
        })
        .collect();
    let on_all = best(values, None);
    let others: Vec<usize> = (0..streams.len())
        .map(|left_out| best(values, Some(left_out)))
        .collect();
    let differing: Vec<String> = others
        .iter()
        .zip(streams)
        .filter(|&(&choice, _)| choice != on_all)
        .map(|(&choice, stream)| format!("{:.4} without {}", values[choice].0, stream.name))
        .collect();
    // Compared with the choice that includes the trace.
    let lost = others
        .iter()
        .enumerate()
        .map(|(n, &choice)| values[on_all].1[n] - values[choice].1[n])
        .fold(0.0, f64::max);
    let choices = match differing.is_empty() {
        true => "the same".to_string(),
        false => differing.join(", "),
    };
    format!(
        "| {name} | {usual} | {} | {:.4} | {choices} | {lost:.2} |",
        tried.join(", "),
        values[on_all].0
    )
}

fn line(figures: &[f64]) -> String {
    let figures: Vec<String> = figures
        .iter()
        .map(|figure| format!("{figure:.2}"))
        .collect();
    figures.join(" ")
}
