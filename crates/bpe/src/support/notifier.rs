//! Receivers of a change's progress, which may also interrupt it: the terminal, or a task of the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::failure::{Exit, Failure};
use crate::support::terminal::{indented, say};

pub trait Notifier {
    /// Titles of all steps, in order.
    fn steps(&mut self, _titles: &[&str]) {}

    /// Step number `_step` begins, and all earlier ones are done. The total number of steps means that all are done.
    fn begin(&mut self, _step: usize) {}

    /// This step failed; its messages follow.
    fn failed(&mut self, _step: usize) {}

    /// The actions of this step were undone after a failure; without `wholly`, only some of them.
    fn undone(&mut self, _step: usize, _wholly: bool) {}

    /// A message about a completed action, or a hint.
    fn line(&mut self, text: &str);

    /// Checked after every step; `true` rolls the change back.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Lines on standard output. With `catching_signals`, SIGINT, SIGTERM and SIGHUP do not end the command within a step;
/// they are checked after it.
#[derive(Default)]
pub struct TerminalNotifier {
    interrupted: Arc<AtomicBool>,
}

impl TerminalNotifier {
    /// Catches signals. A second signal ends the command at once: its record stays, and `bpe disable` undoes the rest.
    pub fn catching_signals() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_shutdown};
        let terminal = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let came = || Arc::clone(&terminal.interrupted);
            register_conditional_shutdown(signal, Exit::Failed as i32, came())
                .and_then(|_| register(signal, came()))
                .map_err(|error| Failure::step(format!("cannot catch signals: {error}")))?;
        }
        Ok(terminal)
    }
}

impl Notifier for TerminalNotifier {
    fn line(&mut self, text: &str) {
        say!("{}", indented(text));
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }
}
