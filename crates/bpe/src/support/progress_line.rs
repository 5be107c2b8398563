//! ProgressLine of a command: a moving line on a terminal, or occasional lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use interface::untrusted::one_line;

use crate::support::terminal::complain;

/// Interval of lines without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Disappears when dropped.
pub struct ProgressLine {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl ProgressLine {
    /// Counts to `length`, with an indicatif template.
    pub fn new(length: u64, template: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            last_line: Instant::now(),
        }
    }

    /// Whether a terminal shows the progress.
    pub fn is_drawn(&self) -> bool {
        self.bar.is_some()
    }

    /// Updates the position. On a terminal, `message` is part of the moving line. Otherwise `line` provides the printed text.
    pub fn show(&mut self, position: Option<u64>, message: &str, line: impl FnOnce() -> String) {
        match &self.bar {
            Some(bar) => {
                if let Some(position) = position {
                    bar.set_position(position);
                }
                bar.set_message(one_line(message));
                bar.tick();
            }
            None if self.last_line.elapsed() >= PLAIN_INTERVAL => {
                self.last_line = Instant::now();
                complain!("{}", line());
            }
            None => {}
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
