//! Terminal output during the run: a line for each finished stage, a bar for the current one and one for the whole. Without
//! a terminal, plain lines.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Seconds between lines of a running stage without a terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// The whole run.
pub struct Progress {
    bars: Option<(MultiProgress, ProgressBar)>,
    began: Instant,
    /// Estimated seconds of the stages that have ended.
    done: Cell<u64>,
}

/// One stage.
pub struct Stage<'a> {
    progress: &'a Progress,
    title: String,
    bar: Option<ProgressBar>,
    seconds: u64,
    began: Instant,
    last_plain: Cell<Instant>,
}

impl Progress {
    /// Starts a run of about `seconds`.
    pub fn new(seconds: u64) -> Progress {
        let bars = std::io::stderr().is_terminal().then(|| {
            let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let whole = multi.add(ProgressBar::new(seconds.max(1)));
            whole.set_style(style("{wide_bar:.green/dim} {msg:>22}"));
            (multi, whole)
        });
        if bars.is_none() {
            eprintln!("This takes about {}.", minutes(seconds));
        }
        Progress {
            bars,
            began: Instant::now(),
            done: Cell::new(0),
        }
    }

    /// Starts a stage of about `seconds` (0: unknown).
    pub fn stage(&self, title: &str, seconds: u64) -> Stage<'_> {
        let bar = self.bars.as_ref().map(|(multi, whole)| {
            let bar = multi.insert_before(whole, ProgressBar::new(seconds.max(1)));
            bar.set_style(style(if seconds > 0 {
                "{spinner} {prefix:36!} {bar:20.cyan/dim} {wide_msg}"
            } else {
                "{spinner} {prefix:36!} {wide_msg}"
            }));
            bar.set_prefix(title.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            eprintln!("[{}] {title} ...", clock(self.began.elapsed()));
        }
        let now = Instant::now();
        Stage {
            progress: self,
            title: title.to_owned(),
            bar,
            seconds,
            began: now,
            last_plain: Cell::new(now),
        }
    }

    /// Prints a permanent line.
    pub fn say(&self, line: &str) {
        match &self.bars {
            // A closed terminal is no reason to stop.
            Some((multi, _)) => drop(multi.println(line)),
            None => eprintln!("[{}] {line}", clock(self.began.elapsed())),
        }
    }

    /// Removes the bars.
    pub fn close(&self) {
        if let Some((multi, whole)) = &self.bars {
            whole.finish_and_clear();
            let _ = multi.clear();
        }
    }

    fn show_whole(&self, into_stage: u64) {
        if let Some((_, whole)) = &self.bars {
            let total = whole.length().unwrap_or(1);
            whole.set_position((self.done.get() + into_stage).min(total));
            whole.set_message(format!(
                "{} of about {}",
                clock(self.began.elapsed()),
                clock(Duration::from_secs(total))
            ));
        }
    }
}

impl Stage<'_> {
    /// Shows `message` beside the bar, which moves with the time passed.
    pub fn message(&self, message: &str) {
        let into = self.began.elapsed().as_secs().min(self.seconds.max(1));
        match &self.bar {
            Some(bar) => {
                bar.set_position(into);
                bar.set_message(message.to_owned());
            }
            None if self.last_plain.get().elapsed() >= PLAIN_EVERY => {
                self.last_plain.set(Instant::now());
                eprintln!(
                    "[{}]   {}: {message}",
                    clock(self.progress.began.elapsed()),
                    self.title
                );
            }
            None => {}
        }
        self.progress.show_whole(into.min(self.seconds));
    }

    /// Time since the stage began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends the stage; `line` replaces its bar.
    pub fn finish(self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.progress.say(line);
        let done = self.progress.done.get() + self.seconds;
        self.progress.done.set(done);
        self.progress.show_whole(0);
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// `4:05`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".into(),
        n => format!("{n} minutes"),
    }
}
