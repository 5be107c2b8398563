//! What clients wait for: switching on, another path.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use coherence::controller::RETIRE_WAIT;

use super::server::CONTROLLER;
use super::texts::worded;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan::Plan;
use crate::process::CORE;
use crate::settings::Settings;

/// How long a client waits for a disk: for longer than for other sessions and for the extension before, together.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often settings are looked at while other sessions switch on and off.
const CHECKS: u32 = 5;
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

/// First half of switching on, for a client: builds the extension and gets to know the open files. Returns warnings.
///
/// # Errors
/// The reason, for the client.
pub fn prepare() -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, || CONTROLLER.prepare().map_err(worded))
}

/// Looks at paths and size of new settings. What is just being built or closed is waited for, so that its files are known
/// as this server's own; but not for ever, since a path may be changed because its disk hangs. Returns warnings.
///
/// # Errors
/// What is wrong with them.
pub fn check(settings: Settings) -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, move || check_at_leisure(&settings))
}

fn check_at_leisure(settings: &Settings) -> Result<Vec<String>, String> {
    let mut result = Ok(Vec::new());
    let mut refused = false;
    for _ in 0..CHECKS {
        CONTROLLER.wait_until(RETIRE_WAIT, |machine| !machine.is_at_work());
        CONTROLLER.wait_for_retired();
        let own = own_files();
        result = Plan::new(settings).and_then(|plan| plan.check(&own));
        // Refused for a file that another session has just made our own, or was closing? Then not twice.
        let settled = !CONTROLLER.with(|machine| machine.is_at_work()) && own == own_files();
        if result.is_ok() || settled && refused {
            break;
        }
        refused = settled;
        std::thread::sleep(BETWEEN_CHECKS);
    }
    result
}

/// Cache files of the extension that is active, or waits to become it.
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

/// Does something that may have to wait for a disk in a thread of its own, so that a client does not wait for ever.
fn waiting_at_most<T: Send + 'static>(
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
        // It is at its end, and nobody should find it after the statement.
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
    fn a_client_does_not_wait_for_ever() {
        let (end, until) = sync_channel::<()>(0);
        let until = Mutex::new(until);
        let refused = waiting_at_most(Duration::from_millis(20), move || {
            let _ = until.lock().recv();
            Ok(())
        });
        assert!(refused.is_err_and(|reason| reason.contains("has not answered")));
        drop(end);
        assert_eq!(waiting_at_most(PATIENCE, || Ok(7)), Ok(7));
        let failed = waiting_at_most(PATIENCE, || Err::<(), _>("why".to_owned()));
        assert_eq!(failed, Err("why".into()));
        let panicked = waiting_at_most(PATIENCE, || -> Result<(), String> { panic!("on purpose") });
        assert!(panicked.is_err_and(|reason| reason.contains("internal error")));
    }
}
