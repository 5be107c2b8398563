//! Waits until a changed server follows the others again.

use std::time::{Duration, Instant};

use super::probe::NodeState;
use crate::observe::Observer;
use crate::support::failure::Failure;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A server without an answer for this long has left. The limit is shorter than for one that catches up.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the server is in step and at most this many seconds behind, excluding a configured delay. `say` gets the
/// awaited condition whenever it changes.
///
/// # Errors
/// The condition is not met within `limit`, the server has left, or `interrupted` returns true.
pub fn until_in_step(
    observer: &mut Observer,
    max_lag_s: f64,
    limit: Duration,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut answered = begin;
    let mut said = None;
    loop {
        let words = match observer.server().and_then(NodeState::of) {
            Ok(NodeState { membership, .. }) => {
                answered = Instant::now();
                let near = membership.late_s().is_some_and(|late| late <= max_lag_s);
                if membership.in_step && near {
                    return Ok(());
                }
                membership.describe()
            }
            Err(failure) => {
                observer.disconnect();
                failure.what
            }
        };
        let failed = |what: String| Err(Failure::step(format!("it was changed, {what}: {words}")));
        if answered.elapsed() > GONE_TIMEOUT {
            return failed("but has left".to_owned());
        }
        if begin.elapsed() > limit {
            return failed(format!("but is not in step after {} s", limit.as_secs()));
        }
        if interrupted() {
            return failed("and nobody waits any more until it is in step".to_owned());
        }
        if said.as_ref() != Some(&words) {
            say(&words);
            said = Some(words);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Args;

    #[test]
    fn wait_ends_at_its_limit() {
        let args = Args {
            socket: Some("/nowhere".into()),
            no_defaults: true,
            ..Args::default()
        };
        let mut observer = Observer::of(args.target().unwrap());
        let mut said = Vec::new();
        let mut wait = |limit, interrupted: bool| {
            let mut say = |words: &str| said.push(words.to_owned());
            until_in_step(&mut observer, 1.0, limit, &|| interrupted, &mut say)
                .unwrap_err()
                .what
        };
        let what = wait(Duration::ZERO, false);
        assert!(
            what.contains("not in step after 0 s: cannot connect"),
            "{what}"
        );
        let what = wait(Duration::from_secs(60), true);
        assert!(what.contains("nobody waits"), "{what}");
    }
}
