//! `bpe compare`: measures whether the extension helps a production server. Serving and bypass alternate in short
//! slices, in random order. The result contains the differences that exceed random variation.
//!
//! [`schedule`] and [`statistics`] are independent of servers. [`measurement`] defines the figures, [`limit`] detects that
//! bypass hurts too much, and [`saved_settings`] changes and restores the server's variables. [`run`] performs the comparison,
//! for this command and for the console.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use checks::{TIMEOUT, timeout_in_force};

use crate::connect;
use crate::support::failure::{Exit, Failure};
use crate::support::progress_line::ProgressLine;
use crate::support::terminal::{self, complain, grouped, say};
use options::CompareOptions;
use report::{Comparison, ENOUGH, Ended};
use run::{Audience, Now};
use schedule::Side;

mod checks;
mod limit;
mod measurement;
mod notes;
pub mod options;
pub mod report;
pub mod run;
mod saved_settings;
pub mod schedule;
mod statistics;

/// Allowed duration of a comparison in minutes.
const MINUTES: std::ops::RangeInclusive<f64> = 0.1..=480.0;

#[derive(clap::Args)]
pub struct Args {
    /// Minutes that the comparison takes
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Seconds of serving or of bypass at a time, the first of which is not counted; 5 to 20 suit most servers
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=60))]
    slice: u64,
    /// Stop when bypass has less than this percentage of the statements per second that serving has; 0: only when threads pile up
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=99))]
    limit: u32,
    /// Keep pages in the cache that are written in bypass (the default)
    #[arg(long, overrides_with = "no_refill")]
    refill: bool,
    /// Let go of pages that are written in bypass, so that bypass costs nothing at all
    #[arg(long, overrides_with = "refill")]
    no_refill: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: connect::Args,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|number| MINUTES.contains(number));
    minutes.ok_or_else(|| format!("not {} to {}", MINUTES.start(), MINUTES.end()))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let refill = args.refill || !args.no_refill;
    let wish = CompareOptions::new(args.minutes, args.slice, f64::from(args.limit), refill)?;
    let mut target = args.connection.target()?;
    target.ask_password()?;
    let mut audience = TerminalAudience::new(&wish)?;
    let comparison = run::run(target, &wish, &mut audience)?;
    drop(audience);
    if args.json {
        terminal::say_json(&serde_json::to_value(&comparison)?);
    } else {
        say!("{}", comparison.text().trim_end());
    }
    Ok(match comparison.ended {
        Ended::Failed => {
            if let Some(why) = &comparison.why {
                complain!("bpe: the comparison ended early: {why}");
            }
            Exit::Failed
        }
        _ => Exit::Ok,
    }
    .into())
}

/// Shows the progress on the terminal. SIGINT, SIGTERM or SIGHUP ends the comparison.
struct TerminalAudience {
    progress: ProgressLine,
    pairs: usize,
    so_far: String,
    interrupted: Arc<AtomicBool>,
}

impl TerminalAudience {
    fn new(wish: &CompareOptions) -> Result<Self, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .map_err(|error| Failure::step(format!("cannot catch Ctrl-C: {error}")))?;
        }
        if wish.pairs < ENOUGH {
            complain!(
                "bpe: note: {} pairs of slices are too few for a verdict, which takes {ENOUGH}: --minutes {} with this --slice",
                wish.pairs,
                (ENOUGH as u64 * 2 * wish.slice).div_ceil(60)
            );
        }
        let template =
            "{spinner} {elapsed_precise} {bar:20.cyan/dim} pair {pos} of {len}, {wide_msg}";
        Ok(Self {
            progress: ProgressLine::new(wish.pairs as u64, template),
            pairs: wish.pairs,
            so_far: String::new(),
            interrupted,
        })
    }
}

impl Audience for TerminalAudience {
    fn second(&mut self, now: &Now) {
        let side = match now.side {
            _ if now.pair == 0 => "watching",
            Side::Serving => "serving",
            Side::Bypass => "bypass",
        };
        let rate = grouped(now.statements_per_s);
        let text = format!("{side}, {rate} statements/s{}", self.so_far);
        let pairs = self.pairs;
        self.progress.show(Some(now.pair as u64), &text, || {
            format!("pair {} of {pairs}: {text}", now.pair)
        });
    }

    fn pair(&mut self, so_far: &Comparison) {
        let percent = so_far.figures.first().and_then(|row| row.percent);
        if let Some(percent) = percent {
            self.so_far = format!("; serving {percent:+.1} % so far");
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_numbers() {
        for wrong in ["0", "-1", "NaN", "inf", "1000", "x"] {
            assert!(minutes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(minutes("1.5"), Ok(1.5));
    }
}
