//! Termination requests: Ctrl-C, or a signal such as that of `systemctl stop`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

use crate::support::failure::{Exit, Failure};

/// Polling interval of a waiting command.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Catches signals. The first one is only recorded, so that running work can end in order. A second one ends the command.
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

    /// Waits for this time, or until a signal arrives.
    pub fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.came() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(POLL_INTERVAL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruption_ends_the_wait() {
        let one = Interruption(Arc::default());
        let began = Instant::now();
        one.wait(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50) && !one.came());
        one.0.store(true, Ordering::SeqCst);
        one.wait(Duration::from_secs(3600));
        assert!(one.came());
    }
}
