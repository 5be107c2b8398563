//! What clients ask for: on, off, another path, a recording.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use coherence::controller::Work;

use super::building::{perform, wait_for_retired};
use super::machine::{
    Event, Later, NOT_INSTALLED, ask, kill_and_post, lock, post, wait_until, worded,
};
use super::retiring::{RETIRE_WAIT, close_all};
use super::thread;
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
/// How long a recording waits for a switching on that is under way.
const RECORDING_WAIT: Duration = Duration::from_secs(5);

/// First half of switching on, for a client: builds the extension and gets to know the open files. Returns warnings.
///
/// # Errors
/// The reason, for the client.
pub fn prepare() -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, || {
        let mut later = ask(|| Event::AskOn(Settings::current()), RETIRE_WAIT)?;
        if let [Later::Prepare { number, .. }] = later[..] {
            // Without it nothing would be retired, nor tried again.
            if let Err(why) = thread::ensure() {
                let work = Work::Build(number);
                later = post(Event::Failed { work, why });
            }
        }
        let answer = perform(later);
        if lock().machine.is_gone() {
            // The plugin was uninstalled while this was waiting for a disk.
            close_all();
        }
        answer.map_err(worded)
    })
}

/// Second half of switching on, for a client: hooks serve from here on.
pub fn commit() {
    let _ = perform(post(Event::Commit));
}

/// Switches off at once, a recording too. What was active is retired in the background.
pub fn disable() {
    end(Event::Off);
}

/// Switches off, and posts why.
pub(super) fn end(event: Event) {
    let later = kill_and_post(event);
    let needs_thread = lock().machine.needs_thread();
    if needs_thread {
        let _ = thread::ensure();
    }
    let _ = perform(later);
}

/// Lets the hooks follow files and note page reads and writes for a recording, whether the extension is on or off.
///
/// # Errors
/// The reason, for the client, why the hooks cannot be switched on.
pub fn follow_for_recording() -> Result<(), String> {
    if !thread::is_running() && !lock().machine.is_gone() {
        return Err(NOT_INSTALLED.into());
    }
    let later = ask(|| Event::AskRecord, RECORDING_WAIT)?;
    perform(later).map(drop).map_err(worded)
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
        wait_until(RETIRE_WAIT, |machine| !machine.is_at_work());
        let _ = wait_for_retired();
        let own = own_files();
        result = Plan::new(settings).and_then(|plan| plan.check(&own));
        // Refused for a file that another session has just made our own, or was closing? Then not twice.
        let settled = !lock().machine.is_at_work() && own == own_files();
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
    let waiting = lock().machine.waiting().map(Arc::clone);
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
