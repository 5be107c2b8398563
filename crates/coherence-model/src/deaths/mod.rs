//! Kills the process at any moment; the next process recovers its cache.
//!
//! The parent, in this module, repeatedly starts a child on the same data, cache and persistent memory. A child ([`life`])
//! recovers the persisted state, as a server that loads the plugin early. It verifies every page of every file ([`left`]), runs
//! the model's operations from several threads, and is killed or stops. Between two children, other programs may change the
//! files ([`foreign`]). The files' contents are the only expectation.
//!
//! A seed repeats the choices. The position of each thread at the moment of death varies.

mod common;
mod foreign;
mod left;
mod life;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;

pub use life::live;

use crate::options::{Life, Options, SHARED_MEMORY};
use crate::random::{self, below, one_in};
use crate::world::{Plan, World};
use common::{OF_THE_PARENT, SMALLER};

/// Timeout of each step of a child.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of children whose logs are kept.
const LOGS: u64 = 8;
/// Rounds after which a minimum must have been recovered.
const ENOUGH: u64 = 60;

/// Moment of a child's death.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after its start, whatever it does.
    Starting(Duration),
    /// This long after it began to work.
    Working(Duration),
    /// This long after it announced that it is about to switch off or stop.
    Said(Duration),
    /// Not killed: it ends normally.
    Never,
}

/// Totals of the children's reports.
#[derive(Default)]
struct Found {
    rounds: u64,
    deaths: u64,
    stops: u64,
    starting: u64,
    without: u64,
    foreign: u64,
    removed: u64,
    /// Children that verified all files.
    looks: u64,
    pages: u64,
    hits: u64,
    inherited: u64,
    dropped: u64,
    trusted: u64,
    rejected: u64,
    /// Children that loaded the plugin late.
    late: u64,
}

/// Directories that the children share.
struct Places {
    data: PathBuf,
    cache: PathBuf,
    kept: PathBuf,
}

impl Places {
    fn log(&self, round: u64) -> PathBuf {
        self.kept.join(format!("log-{round}"))
    }

    fn journal(&self, round: u64) -> PathBuf {
        self.kept.join(format!("journal-{round}"))
    }
}

/// Kills this many children, one after another.
///
/// # Errors
/// A child's finding, or an obstacle of the parent.
pub fn run(options: &Options, deaths: u64) -> anyhow::Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let parent = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = |place: &Path| {
        let made = tempfile::Builder::new().prefix("deaths-").tempdir_in(place);
        made.with_context(|| format!("no folder in '{}'", place.display()))
    };
    let data = folder(&parent)?;
    let cache = folder(options.cache.as_deref().unwrap_or(&parent))?;
    let kept = folder(Path::new(SHARED_MEMORY))?;
    let places = Places {
        data: data.path().canonicalize()?,
        cache: cache.path().canonicalize()?,
        kept: kept.path().canonicalize()?,
    };
    World::make(Plan {
        folder: &places.data,
        cache: &places.cache,
        contexts: [0; 2],
        tracing: false,
        smaller: SMALLER,
        from: (OF_THE_PARENT, 1),
        log: None,
    });
    random::seed(seed, 0);
    println!("seed {seed}, {} threads in each child", options.threads);
    let (mut found, began) = (Found::default(), Instant::now());
    while found.deaths < deaths
        && options
            .seconds
            .is_none_or(|seconds| began.elapsed().as_secs_f64() < seconds)
    {
        let round = found.rounds;
        if let Err(wrong) = one(options, &places, seed, &mut found) {
            println!("round {round}: {wrong:#}");
            show_end_of(&places.journal(round));
            println!("{}", found.text(began.elapsed()));
            println!(
                "to repeat it, as far as the machine allows: cargo run -p coherence-model -- --deaths {} --seed {seed} \
                 --threads {}",
                found.deaths + 1,
                options.threads
            );
            bail!(
                "what outlived a process was not what the files have, or a call went wrong (seed {seed})"
            );
        }
        if options.verbose && found.rounds % 100 == 0 {
            println!("{}", found.text(began.elapsed()));
        }
    }
    println!("{}", found.text(began.elapsed()));
    if found.rounds >= ENOUGH && !options.partial {
        ensure!(
            found.trusted > 0 && found.hits > 5 * found.looks,
            "too little was inherited for this to prove anything"
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl Found {
    fn text(&self, took: Duration) -> String {
        format!(
            "{} lives in {:.1} s: {} deaths ({} while starting), {} orderly stops, {} lives without taking over; {} files changed by \
             others, {} parts of what was kept removed; {} looks at {} pages in all: {} hits of inherited pages ({} pages inherited, {} \
             lost with the process), {} files trusted, {} rejected; {} loaded late",
            self.rounds,
            took.as_secs_f64(),
            self.deaths,
            self.starting,
            self.stops,
            self.without,
            self.foreign,
            self.removed,
            self.looks,
            self.pages,
            self.hits,
            self.inherited,
            self.dropped,
            self.trusted,
            self.rejected,
            self.late,
        )
    }

    /// Adds the report of a child that verified all files.
    fn add(&mut self, line: &str) {
        self.looks += 1;
        for (name, number) in numbers(line) {
            match name {
                "pages" => self.pages += number,
                "hits" => self.hits += number,
                "inherited" => self.inherited += number,
                "dropped" => self.dropped += number,
                "trusted" => self.trusted += number,
                "rejected" => self.rejected += number,
                _ => {}
            }
        }
    }
}

/// Parses names and numbers in a child's report.
fn numbers(line: &str) -> impl Iterator<Item = (&str, u64)> {
    let parts = line.split(' ').filter_map(|part| part.split_once('='));
    parts.map(|(name, number)| (name, number.parse().unwrap_or(0)))
}

/// Runs one child from start to end, then changes its files.
fn one(options: &Options, places: &Places, seed: u64, found: &mut Found) -> anyhow::Result<()> {
    let round = found.rounds;
    found.rounds += 1;
    let millis = |range: usize| Duration::from_micros(below(range * 1000) as u64);
    // The first child creates the files.
    let life = match below(40) {
        _ if round == 0 => Life::Killed,
        0..=19 => Life::Killed,
        20..=25 => Life::Switching,
        26..=31 => Life::Stopped,
        32..=34 => Life::Late,
        35 => Life::Off,
        36 => Life::Unkept,
        37 => Life::Brief,
        _ => Life::Without,
    };
    let moment = match life {
        Life::Stopped | Life::Brief if !one_in(3) => Moment::Never,
        Life::Stopped | Life::Brief => Moment::Said(millis(25)),
        Life::Switching if !one_in(3) => Moment::Said(millis(4)),
        _ if round > 0 && one_in(12) => Moment::Starting(millis(60)),
        _ => Moment::Working(Duration::from_millis(2) + millis(198)),
    };
    let child = Running::start(options, places, seed, round, life)?;
    let (lines, status) = child.end_at(moment)?;
    let looks = lines
        .iter()
        .filter_map(|line| line.strip_prefix("checked "));
    looks.for_each(|look| found.add(look));
    found.late += u64::from(life == Life::Late);
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    match (signal, status.code()) {
        (Some(libc::SIGKILL), _) => found.deaths += 1,
        (_, Some(0)) => found.stops += 1,
        _ => {
            let said = lines.join("\n");
            let before = places.before(round, &said);
            bail!("{life:?}, to be killed at {moment:?}, ended with {status}:\n{said}\n{before}");
        }
    }
    found.starting += u64::from(matches!(moment, Moment::Starting(_)));
    found.without += u64::from(!life.takes_over());
    if options.verbose {
        println!("round {round}: {life:?}, {moment:?}: {}", lines.join("; "));
    }
    if let Some(old) = round.checked_sub(LOGS) {
        let _ = std::fs::remove_file(places.log(old));
        let _ = std::fs::remove_file(places.journal(old));
    }
    if one_in(2) {
        for _ in 0..below(4) {
            foreign::change(&places.log(round)).context("a file could not be changed")?;
            found.foreign += 1;
        }
    }
    if one_in(40) {
        places.lose_one().context("nothing could be removed")?;
        found.removed += 1;
    }
    Ok(())
}

impl Places {
    /// Removes a part of the persisted state, as a user who frees space.
    fn lose_one(&self) -> std::io::Result<()> {
        let (place, end) = [
            (&self.kept, "arena"),
            (&self.kept, "files"),
            (&self.cache, "cache"),
        ][below(3)];
        for entry in std::fs::read_dir(place)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == end) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Recent operations at the position of a violation, from the logs: lines about that position or about the whole file.
    fn before(&self, round: u64, said: &str) -> String {
        let after = |mark: &str| said.split_once(mark).map(|(_, rest)| rest);
        let word = |rest: &str| {
            rest.split([' ', ',', ':', '('])
                .next()
                .unwrap_or("")
                .to_string()
        };
        let (Some(at), Some(name)) = (
            after(" bytes at ").and_then(|rest| word(rest).parse::<u64>().ok()),
            after(" bytes at ")
                .and_then(|rest| rest.split_once(" of "))
                .map(|(_, rest)| word(rest)),
        ) else {
            return String::new();
        };
        let mut lines = Vec::new();
        for earlier in round.saturating_sub(LOGS - 1)..=round {
            let text = std::fs::read_to_string(self.log(earlier)).unwrap_or_default();
            let of_file = text.lines().filter(|line| {
                line.strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with('#'))
                    && concerns(line, at)
            });
            lines.extend(of_file.map(|line| format!("  round {earlier}: {line}")));
        }
        let last = lines.len().saturating_sub(40);
        format!(
            "what was done with this place of {name} before, the last at the end, as far as it came to be noted:\n{}",
            lines[last..].join("\n")
        )
    }
}

/// Whether a log line is about a change, possibly at this position.
fn concerns(line: &str, at: u64) -> bool {
    if ["read", "Read"].iter().any(|read| line.contains(read))
        && !line.contains("hole")
        && !line.contains("zero")
    {
        return false;
    }
    let number = |word: &str| word.trim_end_matches([',', ':']).parse::<u64>().ok();
    let words: Vec<_> = line.split(' ').collect();
    let Some(place) = words
        .windows(2)
        .position(|pair| pair[0] == "at" && number(pair[1]).is_some())
    else {
        return true;
    };
    let from = number(words[place + 1]).unwrap_or(0);
    let length = place
        .checked_sub(1)
        .and_then(|before| number(words[before]))
        .unwrap_or(65536);
    (from..from + length.max(1)).contains(&at)
}

/// A running child.
struct Running {
    child: Child,
    lines: Receiver<String>,
    began: Instant,
}

impl Running {
    fn start(
        options: &Options,
        places: &Places,
        seed: u64,
        round: u64,
        life: Life,
    ) -> anyhow::Result<Running> {
        let of_child = (seed ^ (round << 32)).to_string();
        let name = life.to_possible_value().context("a life has a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--life", name.get_name(), "--round", &round.to_string()])
            .args(["--seed", &of_child, "--run-seed", &seed.to_string()])
            .args(["--threads", &options.threads.max(2).to_string()])
            .arg("--folder")
            .arg(&places.data)
            .arg("--cache")
            .arg(&places.cache)
            .arg("--kept")
            .arg(&places.kept)
            .current_dir(&places.data)
            .stdout(Stdio::piped());
        if options.minutes {
            command.arg("--minutes");
        }
        let mut child = command.spawn().context("the child does not start")?;
        let output = child.stdout.take().context("the child has no output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Running {
            child,
            lines,
            began: Instant::now(),
        })
    }

    /// Returns the child's output and exit status.
    fn end_at(mut self, moment: Moment) -> anyhow::Result<(Vec<String>, ExitStatus)> {
        let mut said = Vec::new();
        let (mark, then) = match moment {
            Moment::Starting(when) => {
                std::thread::sleep(when);
                ("", Duration::ZERO)
            }
            Moment::Working(then) => ("working", then),
            Moment::Said(then) => ("about to", then),
            Moment::Never => ("never", Duration::ZERO),
        };
        let hangs = loop {
            if mark.is_empty()
                || said
                    .last()
                    .is_some_and(|line: &String| line.starts_with(mark))
            {
                std::thread::sleep(then);
                break false;
            }
            match self.lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => said.push(line),
                // It has ended without being killed.
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) if self.began.elapsed() > PATIENCE => break true,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let ended = self.child.try_wait()?;
        if ended.is_none() && !matches!(moment, Moment::Never) || hangs {
            self.child.kill().context("the child cannot be killed")?;
        }
        let status = self.child.wait()?;
        said.extend(self.lines.iter());
        ensure!(!hangs, "the child hangs: {}", said.join("\n"));
        Ok((said, status))
    }
}

fn show_end_of(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    println!("the end of its error log:");
    for line in &lines[lines.len().saturating_sub(12)..] {
        println!("  {line}");
    }
}
