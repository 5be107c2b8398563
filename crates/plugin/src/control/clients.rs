//! Operations that clients wait for: switching on, another path.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use coherence::controller::RETIRE_WAIT;
use coherence::os::Os as _;

use super::host::CONTROLLER;
use super::messages::refusal_text;
use crate::control::plan::Plan;
use crate::platform::{CORE, Linux};
use crate::settings::Settings;

/// Timeout of a client that waits for a disk. It exceeds the waits for other sessions and for the previous extension
/// together.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of checks of the settings while other sessions switch on and off.
const MAX_CHECKS: u32 = 5;
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// First phase of switching on, for a client: builds the extension and attaches the open files. Returns warnings.
///
/// # Errors
/// The reason, for the client.
pub fn prepare() -> Result<Vec<String>, String> {
    run_with_timeout(CLIENT_TIMEOUT, || {
        CONTROLLER.prepare(Settings::current).map_err(refusal_text)
    })
}

/// Checks the paths and the size of new settings. Waits for a build or close in progress, so that its files count as this
/// server's own. The wait has a timeout, since a client may change a path because its disk hangs. Returns warnings.
///
/// # Errors
/// The problem with them.
pub fn check(settings: Settings) -> Result<Vec<String>, String> {
    run_with_timeout(CLIENT_TIMEOUT, move || check_at_leisure(&settings))
}

fn check_at_leisure(settings: &Settings) -> Result<Vec<String>, String> {
    let mut result = Ok(Vec::new());
    let mut refused = false;
    for _ in 0..MAX_CHECKS {
        CONTROLLER.wait_until(RETIRE_WAIT, |machine| !machine.is_at_work());
        CONTROLLER.wait_for_retired();
        let own = own_files();
        result = Plan::new(settings).and_then(|plan| plan.check(&own));
        // Refused because of a file that another session has just opened or was closing? Only one refusal can be due to
        // that.
        let settled = !CONTROLLER.with(|machine| machine.is_at_work()) && own == own_files();
        if result.is_ok() || settled && refused {
            break;
        }
        refused = settled;
        std::thread::sleep(CHECK_INTERVAL);
    }
    result
}

/// Cache files of the active extension, or of the one waiting to become active.
fn own_files() -> Vec<PathBuf> {
    let waiting = CONTROLLER.with(|machine| machine.waiting().map(Arc::clone));
    CORE.switch()
        .active()
        .as_ref()
        .into_iter()
        .chain(&waiting)
        .flat_map(|active| active.extension.device_statistics())
        .map(|device| device.path)
        .collect()
}

/// Runs `body` in a separate thread, so that a hung disk does not block the client indefinitely.
fn run_with_timeout<T: Send + 'static>(
    limit: Duration,
    body: impl Fn() -> Result<T, String> + Send + Sync + 'static,
) -> Result<T, String> {
    let body = Arc::new(body);
    let (sender, receiver) = sync_channel(1);
    let its_body = Arc::clone(&body);
    let begun = Linux.spawn("bpe-session", move || {
        let _ = sender.send(its_body());
    });
    let Ok(thread) = begun else {
        return body();
    };
    let result = receiver.recv_timeout(limit);
    if !matches!(result, Err(RecvTimeoutError::Timeout)) {
        // The thread is about to exit. It must not outlive the statement.
        let _ = thread.join();
    }
    match result {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "a disk in bpe_path has not answered for {} s; try again when it does",
            limit.as_secs()
        )),
        Err(RecvTimeoutError::Disconnected) => Err("an internal error occurred".into()),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn client_wait_has_timeout() {
        let (end, until) = sync_channel::<()>(0);
        let until = Mutex::new(until);
        let refused = run_with_timeout(Duration::from_millis(20), move || {
            let _ = until.lock().recv();
            Ok(())
        });
        assert!(refused.is_err_and(|reason| reason.contains("has not answered")));
        drop(end);
        assert_eq!(run_with_timeout(CLIENT_TIMEOUT, || Ok(7)), Ok(7));
        let failed = run_with_timeout(CLIENT_TIMEOUT, || Err::<(), _>("why".to_owned()));
        assert_eq!(failed, Err("why".into()));
        let panicked = run_with_timeout(CLIENT_TIMEOUT, || -> Result<(), String> {
            panic!("on purpose")
        });
        assert!(panicked.is_err_and(|reason| reason.contains("internal error")));
    }
}
