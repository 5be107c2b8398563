//! `bpe status --explain`: takes two readings some seconds apart, and explains the figures.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::snapshot::Snapshot;
use crate::connect::server::Server;
use crate::observe::explain::{Circumstances, explain};
use crate::observe::{Figures, Level, Sample, Sentence};
use crate::support::failure::Failure;
use crate::support::progress_line::ProgressLine;
use crate::support::terminal::{Paint, wrapped};

/// Interval between checks of the clock.
const TICK: Duration = Duration::from_millis(200);
/// Maximum line length; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

pub struct Explanation {
    figures: Figures,
    sentences: Vec<Sentence>,
}

impl Explanation {
    /// Watches the server for `seconds`, and shows the progress on a terminal.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn watch(server: &mut Server, seconds: u64) -> Result<Self, Failure> {
        let before = Sample::take(server)?;
        let time = Duration::from_secs(seconds);
        let started = Instant::now();
        let mut progress =
            ProgressLine::new(seconds, "watching the server {wide_bar} {pos}/{len} s");
        while started.elapsed() < time {
            let line = || {
                format!(
                    "watching the server, {} of {seconds} s",
                    started.elapsed().as_secs()
                )
            };
            progress.show(Some(started.elapsed().as_secs()), "", line);
            std::thread::sleep(TICK.min(time.saturating_sub(started.elapsed())));
        }
        drop(progress);
        let figures = Figures::between(&before, &Sample::take(server)?);
        let sentences = explain(&figures, &Circumstances::read(server, &figures)?);
        Ok(Self { figures, sentences })
    }

    pub fn add_to(&self, json: &mut Value) {
        json["figures"] = json!(self.figures);
        json["explain"] = json!(self.sentences);
    }

    /// Each sentence, followed by its figures. `width`: columns of the terminal, if there is one.
    pub fn text(&self, snapshot: &Snapshot, paint: Paint, width: Option<usize>) -> String {
        let width = width.map(|width| width.min(MAX_WIDTH));
        let lines = |text: &str, indent: usize| match width {
            Some(width) => wrapped(text, width.saturating_sub(indent).max(20)),
            None => vec![text.to_owned()],
        };
        let head = format!(
            "{}, {}: {}, watched for {:.1} s",
            snapshot.server,
            snapshot.address,
            snapshot.state(),
            self.figures.interval_s
        );
        let mut out = String::new();
        for line in lines(&head, 0) {
            let _ = writeln!(out, "{}", paint.dim(&line));
        }
        for sentence in &self.sentences {
            let mark = match sentence.level {
                Level::Good => paint.green("+"),
                Level::Note => paint.yellow("-"),
                Level::Bad => paint.red("!"),
            };
            out.push('\n');
            for (number, line) in lines(&sentence.text, 2).iter().enumerate() {
                let _ = writeln!(out, "{} {line}", if number == 0 { &mark } else { " " });
            }
            for line in sentence.origin().iter().flat_map(|text| lines(text, 4)) {
                let _ = writeln!(out, "    {}", paint.dim(&line));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::explain::tests::good;

    #[test]
    fn each_sentence_has_its_figures_beneath() {
        let figures = good();
        let explanation = Explanation {
            sentences: explain(&figures, &Circumstances::default()),
            figures,
        };
        let text = explanation.text(&Snapshot::default(), Paint::stdout(), None);
        for part in [
            "\n+ It helps: of 1,000 reads a second",
            "\n    data_reads_per_s 100, hit_ratio_percent 90, reads_per_s 1000\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let narrow = explanation.text(&Snapshot::default(), Paint::stdout(), Some(60));
        let longest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(60), "{longest:?} in\n{narrow}");
        let mut json = json!({ "state": "active" });
        explanation.add_to(&mut json);
        assert_eq!(json["explain"][0]["text_key"], "verdict.helps");
        assert_eq!(json["explain"][0]["level"], "good");
        assert_eq!(json["figures"]["qps"], 2000.0);
    }
}
