//! `bpe record`: records the page reads and writes of a live server to a trace file for `bpe-lab replay`.
//!
//! The plugin stores the events in a bounded ring, and `bpe_report()` returns them. [`drain`] fetches them ten times a
//! second, [`tally`] counts them, and [`file`] writes them. The server needs the plugin, but neither a fast disk nor an
//! active extension. So a trace can predict the benefit of a cache before it exists.
//!
//! Ctrl-C or a lost server ends the recording early. The file with the events until then is valid.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::connect;
use crate::connect::server::Server;
use crate::support::failure::{Exit, Failure};
use crate::support::interruption::Interruption;
use crate::support::progress_line::ProgressLine;
use crate::support::terminal::{complain, say};

mod drain;
mod file;
mod tally;

use drain::{Drain, RECORD_BYTES};
use file::TraceFile;
use tally::Tally;

/// Interval between fetches.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for fetching the last events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of events, as in a replay.
const MAX_EVENTS: u64 = 1 << 31;
/// Default page size of a trace.
const DEFAULT_PAGE_BYTES: u64 = 16384;

#[derive(clap::Args)]
pub struct Args {
    /// The trace file to write, such as server.trace.zst
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Record for this many seconds; otherwise until Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,
    /// Record this many page reads and writes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_EVENTS))]
    events: Option<u64>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: connect::Args,
}

/// Why the recording ended.
enum End {
    /// Time, number of events, or Ctrl-C.
    Wished,
    /// It ended early with this error.
    Early(String),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut file = TraceFile::create(&args.output, args.force)?;
    let mut server = Server::connect(&args.connection)?;
    let pool_pages = pool_pages(&mut server)?;
    let interruption = Interruption::catch()?;
    let mut drain = Drain::start(&mut server)?;
    let mut tally = Tally::default();
    let end = record(&args, &mut drain, &mut file, &mut tally, &interruption)?;
    let (lost, page_sizes) = (drain.lost(), drain.page_sizes().to_vec());
    if tally.events() == 0 {
        // `file` removes its partial contents.
        let what = match end {
            End::Wished => "no page was read or written in this time, so there is no trace".into(),
            End::Early(why) => format!("nothing was recorded: {why}"),
        };
        return Err(Failure::step(what)
            .advise("record for longer, while the server is at work")
            .into());
    }
    let bytes = file.finish()?;
    say!(
        "{}",
        summary(&args, &tally, lost, &page_sizes, pool_pages, bytes).trim_end()
    );
    match end {
        End::Wished => Ok(Exit::Ok.into()),
        End::Early(why) => Err(Failure::step(format!("the recording ended early: {why}"))
            .advise("what was recorded until then is in the file and can be replayed")
            .into()),
    }
}

/// Records until a limit, a signal or a failure. Fails only if the file cannot be written.
fn record(
    args: &Args,
    drain: &mut Drain<'_>,
    file: &mut TraceFile,
    tally: &mut Tally,
    interruption: &Interruption,
) -> Result<End, Failure> {
    let began = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let most = args.events.unwrap_or(MAX_EVENTS);
    let mut report = Summary::new(limit);
    let mut stopped: Option<Instant> = None;
    loop {
        let answer = match drain.next() {
            Ok(answer) => answer,
            Err(why) => return Ok(End::Early(why)),
        };
        let room = (most - tally.events()).min((answer.records.len() / RECORD_BYTES) as u64);
        let records = &answer.records[..room as usize * RECORD_BYTES];
        tally.count(records);
        file.write(records)?;
        report.show(tally.events(), drain.lost(), stopped.is_some());
        let full = tally.events() >= most;
        if let Some(since) = stopped {
            if answer.done || full {
                return Ok(End::Wished);
            }
            if since.elapsed() > DRAIN_TIMEOUT {
                return Ok(End::Early("the last events were not given".into()));
            }
        } else if let Some(why) = answer.ended {
            if answer.done {
                return Ok(End::Early(why));
            }
        } else if full || interruption.came() || limit.is_some_and(|limit| began.elapsed() >= limit)
        {
            if let Err(why) = drain.stop() {
                return Ok(End::Early(why));
            }
            stopped = Some(Instant::now());
            continue;
        }
        if !answer.more {
            let left = limit.map_or(POLL_INTERVAL, |limit| limit.saturating_sub(began.elapsed()));
            // A signal shortens this sleep only if it is delivered to the main thread; the sleep is short anyway.
            std::thread::sleep(POLL_INTERVAL.min(left));
        }
    }
}

/// Size of InnoDB's buffer pool in pages.
fn pool_pages(server: &mut Server) -> Result<u64, Failure> {
    let pool = server.number("innodb_buffer_pool_size")?.unwrap_or(0);
    let page = server
        .number("innodb_page_size")?
        .unwrap_or(DEFAULT_PAGE_BYTES);
    Ok((pool / page.max(1)).max(1))
}

fn summary(
    args: &Args,
    tally: &Tally,
    lost: u64,
    page_sizes: &[u64],
    pool_pages: u64,
    bytes: u64,
) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: String| {
        let _ = writeln!(out, "{label:<12}{text}");
    };
    line(
        "Trace",
        format!(
            "{}, {}",
            args.output.display(),
            crate::support::size::human(bytes)
        ),
    );
    line(
        "Events",
        format!(
            "{}: {} page reads, {} page writes",
            tally.events(),
            tally.reads(),
            tally.writes()
        ),
    );
    line(
        "Pages",
        format!(
            "{}{} different ones in {} files; the buffer pool has {pool_pages}",
            if tally.is_full() { "at least " } else { "" },
            tally.distinct_pages(),
            tally.files()
        ),
    );
    line("Lost", format!("{lost} events"));
    if lost > 0 {
        complain!(
            "bpe: warning: {lost} events are missing from the trace ({:.2} %): the server made them faster than they \
             could be fetched. Record on the server's host, or when the machine is less busy",
            lost as f64 * 100.0 / (lost as f64 + tally.events() as f64)
        );
    }
    if page_sizes.iter().any(|&size| size != DEFAULT_PAGE_BYTES) {
        let sizes: Vec<_> = page_sizes.iter().map(u64::to_string).collect();
        complain!(
            "bpe: note: there are pages of {} bytes. Each counts as one page of the trace, and a replay takes every \
             page for {DEFAULT_PAGE_BYTES} bytes",
            sizes.join(" and ")
        );
    }
    line(
        "Replay it",
        format!(
            "bpe-lab replay --trace {} --pool-pages {pool_pages} --cache-ratio 1,2,4",
            shell_word(&args.output.display().to_string())
        ),
    );
    out
}

/// Quotes a text as one word for a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Shows the progress of the recording.
struct Summary {
    progress: ProgressLine,
    limit: Option<Duration>,
    began: Instant,
}

impl Summary {
    fn new(limit: Option<Duration>) -> Self {
        let (seconds, template) = match limit {
            Some(limit) => (
                limit.as_secs(),
                "{spinner} {elapsed_precise} {bar:20.cyan/dim} {wide_msg}",
            ),
            None => (1, "{spinner} {elapsed_precise} {wide_msg}"),
        };
        let progress = ProgressLine::new(seconds, template);
        if !progress.is_drawn() || limit.is_none() {
            let until = match limit {
                Some(limit) => format!("for {} seconds", limit.as_secs()),
                None => "until Ctrl-C".into(),
            };
            complain!("Recording {until}.");
        }
        Self {
            progress,
            limit,
            began: Instant::now(),
        }
    }

    fn show(&mut self, events: u64, lost: u64, stopped: bool) {
        let elapsed = self.began.elapsed();
        let rate = events as f64 / elapsed.as_secs_f64().max(0.001);
        let ending = if stopped { ", ending" } else { "" };
        let text = format!("{events} events, {rate:.0} per second, {lost} lost{ending}");
        let position = self.limit.map(|limit| elapsed.min(limit).as_secs());
        self.progress.show(position, &text, || {
            format!("{:>5} s: {text}", elapsed.as_secs())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_run_survives_a_shell() {
        assert_eq!(shell_word("/tmp/a.trace.zst"), "/tmp/a.trace.zst");
        assert_eq!(shell_word("my trace"), "'my trace'");
        assert_eq!(shell_word("o'brien"), r"'o'\''brien'");
        assert_eq!(shell_word(""), "''");
    }
}
