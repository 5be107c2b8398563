//! Who is told how far a change of a server is, and asked whether to go on: the terminal, or a task of the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Exit, Failure};
use crate::terminal::{indented, say};

pub trait Told {
    /// The steps to come, in their order.
    fn steps(&mut self, _titles: &[&str]) {}

    /// The step of this number begins; those before it are done. Their number: all are done.
    fn begin(&mut self, _step: usize) {}

    /// The step of this number failed, and those after it follow.
    fn failed(&mut self, _step: usize) {}

    /// What the step of this number had done was put back after a failure; without `wholly`, not all of it could be.
    fn undone(&mut self, _step: usize, _wholly: bool) {}

    /// What was done, or is worth knowing.
    fn line(&mut self, text: &str);

    /// Looked at after every step: what was done is then put back.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Lines on standard output. With `catching_signals`, Ctrl-C and the like do not end the command in the middle of a
/// step: they are looked at after it.
#[derive(Default)]
pub struct Terminal {
    interrupted: Arc<AtomicBool>,
}

impl Terminal {
    /// A second signal ends the command at once: its record stays, and `bpe disable` undoes the rest.
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

impl Told for Terminal {
    fn line(&mut self, text: &str) {
        say!("{}", indented(text));
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }
}
