//! Whether somebody wants the command to end: by Ctrl-C, or as `systemctl stop` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

use crate::failure::{Exit, Failure};

/// Between two looks while the command waits.
const LOOK: Duration = Duration::from_millis(100);

pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// From now on the first signal is only noted, so that what was begun can be ended in order. A second one ends the command.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn catch() -> Result<Self, Failure> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            register_conditional_shutdown(signal, Exit::Failed as i32, Arc::clone(&came))
                .and_then(|_| register(signal, Arc::clone(&came)))
                .map_err(|error| Failure::step(format!("cannot catch Ctrl-C: {error}")))?;
        }
        Ok(Self(came))
    }

    pub fn came(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for so long, or until it comes.
    pub fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.came() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_once_it_came() {
        let one = Interruption(Arc::default());
        let began = Instant::now();
        one.wait(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50) && !one.came());
        one.0.store(true, Ordering::SeqCst);
        one.wait(Duration::from_secs(3600));
        assert!(one.came());
    }
}
