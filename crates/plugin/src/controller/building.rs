//! Builds the extension for a client or for the controller's thread, and makes it the active one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use extension::Extension;
use parking_lot::MutexGuard;

use super::retiring::{close_retiring, retire, wait_for_retired};
use super::state::{
    AFTER_PANIC, BUILDING, Building, CHANGED, DEFAULT_PAGE, INNER, Inner, PANICKED, Prepared,
    RETIRE_WAIT, SWITCHED_ON, ensure_thread, nothing_unseen,
};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan::Plan;
use crate::process::CORE;
use crate::settings::{self, Settings};
use crate::switch::{self, Active};

/// How long a client waits for a disk: for longer than for other sessions and for the extension before, together.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often settings are looked at while other sessions switch on and off.
const CHECKS: u32 = 5;
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);
/// How long a recording waits for a switching on that is under way.
const RECORDING_WAIT: Duration = Duration::from_secs(5);
/// Smaller pages than this do not make the directory larger: some tables of tiny pages must not multiply its memory.
const LEAST_NOMINAL_PAGE: u32 = 4096;
const BUSY: &str = "the extension is being built or switched; try again in some seconds; if this continues, a disk in \
                    bpe_path does not answer";

/// First half of switching on, for a client: builds the extension and gets to know the open files. Returns warnings.
pub fn prepare() -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, || {
        let building = BUILDING.try_lock_for(RETIRE_WAIT).ok_or(BUSY)?;
        let result = prepare_for(&Settings::current(), None, &building);
        let mut inner = INNER.lock();
        if inner.stop {
            // The plugin was uninstalled while this was waiting for a disk.
            close_retiring(&mut inner);
        }
        result
    })
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

/// Builds the extension, for a client or, under the number of the controller's own intent, for the controller.
pub(super) fn prepare_for(
    settings: &Settings,
    intent: Option<u64>,
    _building: &Building,
) -> Result<Vec<String>, String> {
    const OVERTAKEN: &str = "another session has switched the extension off meanwhile";
    nothing_unseen()?;
    let (nominal_page, intent) = {
        let mut inner = INNER.lock();
        if let Some(reason) = &inner.passive {
            return Err(reason.clone());
        }
        if PANICKED.load(Ordering::SeqCst) {
            return Err(AFTER_PANIC.into());
        }
        // Without it nothing would be retired, nor tried again.
        ensure_thread(&mut inner)?;
        if inner.running.is_some() || inner.prepared.is_some() {
            // If it was built with other settings, the controller will see to that.
            return Ok(Vec::new());
        }
        inner.tried = Some(settings.clone());
        let (intent, own) = (intent.unwrap_or(inner.intent), intent.is_some());
        if own {
            // Nobody but this thread would close them.
            close_retiring(&mut inner);
        } else {
            wait_for_retired(&mut inner)?;
        }
        if inner.intent != intent {
            return Err(OVERTAKEN.into());
        }
        (usual_page(&inner), intent)
    };
    let (active, warnings, nominal_page) = lay_out(settings, nominal_page)?;
    let begins_to_follow = {
        let mut inner = INNER.lock();
        if inner.intent != intent {
            retire(&mut inner, active);
            return Err(OVERTAKEN.into());
        }
        CORE.requests.disarm_all();
        // A recording that is under way has followed the files since it began, under the same lock as this.
        CORE.switch().start_tracking(|| CORE.files.forget_all())
    };
    if begins_to_follow {
        CORE.register_open_files();
    }
    let mut inner = INNER.lock();
    let panicked = PANICKED.load(Ordering::SeqCst);
    if inner.intent != intent || panicked {
        // The mode is off again: switching off has seen to that.
        retire(&mut inner, active);
        return Err(if panicked { AFTER_PANIC } else { OVERTAKEN }.into());
    }
    inner.nominal_page = nominal_page;
    inner.prepared = Some(Prepared {
        active,
        settings: settings.clone(),
        since: Instant::now(),
        intent,
    });
    Ok(warnings)
}

/// Lets the hooks follow files and note page reads and writes for a recording, whether the extension is on or off.
///
/// # Errors
/// The reason, for the client, why the hooks cannot be switched on.
pub fn follow_for_recording() -> Result<(), String> {
    let _building = BUILDING.try_lock_for(RECORDING_WAIT).ok_or(BUSY)?;
    let begins_to_follow = {
        let inner = INNER.lock();
        if let Some(reason) = inner.passive.as_ref().or(inner.unseen.as_ref()) {
            return Err(format!("the server's I/O cannot be seen: {reason}"));
        }
        if inner.stop || inner.thread.is_none() {
            return Err("the plugin is not installed, only its function is".into());
        }
        if PANICKED.load(Ordering::SeqCst) {
            return Err(AFTER_PANIC.into());
        }
        CORE.switch().start_recording(|| CORE.files.forget_all())
    };
    if begins_to_follow {
        CORE.register_open_files();
    }
    if PANICKED.load(Ordering::SeqCst) {
        CORE.switch().stop_recording();
        return Err(AFTER_PANIC.into());
    }
    Ok(())
}

/// The page size in which most bytes were read, but not below [`LEAST_NOMINAL_PAGE`].
pub(super) fn usual_page(inner: &Inner) -> u32 {
    let mut bytes = std::collections::BTreeMap::<u32, u64>::new();
    for file in CORE.files.all() {
        let page = file.page_size();
        if page != 0 {
            let reads = file.hits.load(Ordering::Relaxed) + file.misses.load(Ordering::Relaxed);
            *bytes.entry(page.max(LEAST_NOMINAL_PAGE)).or_default() += reads * u64::from(page);
        }
    }
    let known = if inner.nominal_page == 0 {
        DEFAULT_PAGE
    } else {
        inner.nominal_page
    };
    bytes
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .max_by_key(|(_, bytes)| *bytes)
        .map_or(known, |(page, _)| page)
}

/// Builds the extension for this page size, or for the usual one where memory does not allow it.
fn lay_out(settings: &Settings, page: u32) -> Result<(Arc<Active>, Vec<String>, u32), String> {
    let mut plan = Plan::new(settings)?;
    plan.wait_for_room();
    let mut warnings = plan.check_any()?;
    let mut opened = |active: Arc<Active>, page| {
        warnings.extend(active.device_failures());
        (active, std::mem::take(&mut warnings), page)
    };
    match build(&plan, page) {
        Ok(active) => Ok(opened(active, page)),
        Err(reason) if page < DEFAULT_PAGE => {
            INNER.lock().refused_page = Some(page);
            Linux.warning(&format!(
                "the cache cannot be laid out for pages of {page} bytes: {reason}. It is laid out for pages of \
                 {DEFAULT_PAGE} bytes, and can keep fewer of the smaller ones."
            ));
            Ok(opened(build(&plan, DEFAULT_PAGE)?, DEFAULT_PAGE))
        }
        Err(reason) => Err(reason),
    }
}

/// Second half of switching on, for a client: hooks serve from here on.
pub fn commit() {
    let mut inner = INNER.lock();
    inner.wanted = true;
    inner.distrusted = None;
    commit_prepared(&mut inner);
    if inner.running.is_none() {
        // Another session switched off between the halves: this one came last, so the controller builds anew.
        inner.rebuild = true;
        CHANGED.notify_all();
    }
}

pub(super) fn commit_prepared(inner: &mut MutexGuard<'_, Inner>) {
    let Some(prepared) = inner.prepared.take() else {
        return;
    };
    if prepared.intent != inner.intent || PANICKED.load(Ordering::SeqCst) {
        retire(inner, prepared.active);
        return;
    }
    let settings = prepared.settings;
    match CORE.switch().publish(prepared.active) {
        Ok(None) => {}
        Ok(Some(before)) => retire(inner, before),
        Err(switch::Interrupted(ours)) => {
            if let Some(ours) = ours {
                retire(inner, ours);
            }
            return;
        }
    }
    adjust(inner);
    Linux.note(&format!(
        "switched on: {} bytes on {}, {} instance(s), {} mode",
        settings.size,
        settings.path,
        settings.instance_count(),
        if inner.early { "early" } else { "run-time" }
    ));
    inner.running = Some(settings);
    inner.failure = None;
    inner.retry = None;
    SWITCHED_ON.fetch_add(1, Ordering::Relaxed);
}

/// Settings that need no other layout have changed: the active extension takes them over.
pub fn settings_changed() {
    adjust(&mut INNER.lock());
}

/// Under the lock, so that values of before never come last.
fn adjust(_inner: &mut MutexGuard<'_, Inner>) {
    if let Some(active) = &*CORE.switch().active() {
        active.extension.set_io_capacity(settings::io_capacity());
        active.extension.set_admission(settings::admission());
    }
}

fn build(plan: &Plan, nominal_page: u32) -> Result<Arc<Active>, String> {
    let config = plan.config(nominal_page);
    let generations = Arc::clone(CORE.switch().generations());
    let open = std::panic::AssertUnwindSafe(|| Extension::open(config, generations));
    match std::panic::catch_unwind(open) {
        Ok(Ok(extension)) => Ok(Arc::new(Active {
            extension,
            epoch: CORE.switch().next_epoch(),
            data_reads: extension::LatencyHistogram::new(),
            data_read_count: AtomicU64::new(0),
        })),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("an internal error occurred while the extension was opened".into()),
    }
}

/// Looks at paths and size of new settings. What is just being built or closed is waited for, so that its files are known
/// as this server's own; but not for ever, since a path may be changed because its disk hangs. Returns warnings.
pub fn check(settings: Settings) -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, move || check_at_leisure(&settings))
}

fn check_at_leisure(settings: &Settings) -> Result<Vec<String>, String> {
    let mut result = Ok(Vec::new());
    let mut refused = false;
    for _ in 0..CHECKS {
        drop(BUILDING.try_lock_for(RETIRE_WAIT));
        let _ = wait_for_retired(&mut INNER.lock());
        let own = own_files();
        result = Plan::new(settings).and_then(|plan| plan.check(&own));
        // Refused for a file that another session has just made our own, or was closing? Then not twice.
        let settled = !BUILDING.is_locked() && own == own_files();
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
    let prepared = INNER
        .lock()
        .prepared
        .as_ref()
        .map(|prepared| Arc::clone(&prepared.active));
    CORE.switch()
        .active()
        .as_ref()
        .into_iter()
        .chain(&prepared)
        .flat_map(|active| active.extension.device_statistics())
        .map(|device| device.path)
        .collect()
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

    #[test]
    fn one_plan_is_made_for_a_switching_on() {
        let _turn = crate::process::UNDER_TEST.lock();
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: folder.path().display().to_string(),
            size: 64 << 20,
            ..Settings::current()
        };
        let before = crate::plan::LOOKS.get();
        let (active, _, page) = lay_out(&settings, DEFAULT_PAGE).unwrap();
        assert_eq!(
            crate::plan::LOOKS.get() - before,
            1,
            "what was checked may not be what is opened"
        );
        let devices = active.extension.device_statistics();
        assert_eq!((devices.len(), page), (1, DEFAULT_PAGE));
        assert!(devices[0].path.starts_with(folder.path()));
    }
}
