//! How far a command is: a line that moves on a terminal, or lines now and then where there is none.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use interface::untrusted::one_line;

use crate::terminal::complain;

/// Between two lines when there is no terminal to draw on.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Goes away when it is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Progress {
    /// Counts to `length`, shown by a template of indicatif.
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

    /// Whether there is a terminal to draw on.
    pub fn is_drawn(&self) -> bool {
        self.bar.is_some()
    }

    /// Where it is now. The message is part of the line that moves; without a terminal `line` makes what is printed.
    pub fn show(&mut self, position: Option<u64>, message: &str, line: impl FnOnce() -> String) {
        match &self.bar {
            Some(bar) => {
                if let Some(position) = position {
                    bar.set_position(position);
                }
                bar.set_message(one_line(message));
                bar.tick();
            }
            None if self.last_line.elapsed() >= PLAIN_EVERY => {
                self.last_line = Instant::now();
                complain!("{}", line());
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
