//! The controller's thread: lets time pass for the machine, closes what is retired, and looks behind the server's back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::building::{perform, usual_page};
use super::machine::{Event, NOT_INSTALLED, lock, post, wait_for_change};
use super::retiring::{close_all, take_unused};
use crate::audit::Audit;
use crate::clock;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};
use crate::settings::Settings;
use crate::unseen::{self, Watch};

const TICK: Duration = Duration::from_millis(500);
/// Between two looks at the page size in which most is read.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);

struct Thread {
    handle: Option<JoinHandle<()>>,
    /// Why it could not be started when that was tried last.
    refused: Option<String>,
}

static THREAD: Mutex<Thread> = Mutex::new(Thread {
    handle: None,
    refused: None,
});

/// Starts the controller's thread if it could not be started before.
///
/// # Errors
/// Says why there is none.
pub fn ensure() -> Result<(), String> {
    let mut thread = THREAD.lock();
    if thread.handle.is_some() {
        return Ok(());
    }
    let (life, is_gone) = {
        let inner = lock();
        (inner.machine.life(), inner.machine.is_gone())
    };
    if life == 0 {
        return Err(NOT_INSTALLED.into());
    }
    if is_gone {
        return Ok(());
    }
    match Linux.spawn("bpe-controller", move || run(life)) {
        Ok(handle) => {
            *thread = Thread {
                handle: Some(handle),
                refused: None,
            };
            Ok(())
        }
        Err(error) => {
            let reason = format!(
                "cannot start the controller's thread: {error}; raise the limit on threads"
            );
            thread.refused = Some(reason.clone());
            Err(reason)
        }
    }
}

/// Why there is no thread, if it could not be started.
pub fn refused() -> Option<String> {
    THREAD.lock().refused.clone()
}

pub fn is_running() -> bool {
    THREAD.lock().handle.is_some()
}

/// The plugin goes: the caller may wait for the thread.
pub fn take() -> Option<JoinHandle<()>> {
    let mut thread = THREAD.lock();
    thread.refused = None;
    thread.handle.take()
}

/// The controller's thread, for one installation of the plugin.
fn run(life: u64) {
    let mut audit = Audit::new(&CORE, &KNOWN.suspensions);
    let mut watch = Watch::default();
    let mut pages_looked_at = None;
    let waits = AtomicBool::new(false);
    loop {
        close_all();
        let mut inner = lock();
        let is_over = inner.machine.is_gone() || inner.machine.life() != life;
        if is_over && inner.machine.has_to_close() {
            continue;
        }
        let gone = take_unused(&mut inner.lingering);
        if is_over {
            drop(inner);
            drop(gone);
            return;
        }
        let has_to_do = inner.machine.is_due(clock::running()) && !waits.load(Ordering::Relaxed);
        if !has_to_do && gone.is_empty() {
            wait_for_change(&mut inner, TICK);
        }
        drop(inner);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(gone);
            let innodb_has_not_started = unseen::waits_for_innodb();
            waits.store(innodb_has_not_started, Ordering::Relaxed);
            let _ = perform(post(Event::Tick {
                life,
                settings: Settings::current(),
                waits: innodb_has_not_started,
            }));
            KNOWN.bypassing.look(&CORE);
            look_at_pages(&mut pages_looked_at);
            look_behind_our_back(&mut audit);
            look_for_unseen(&mut watch);
        }));
    }
}

/// Whether most of what is read are smaller pages than the extension is laid out for.
fn look_at_pages(looked: &mut Option<Instant>) {
    let known = {
        let inner = lock();
        inner.machine.is_on().then(|| inner.machine.nominal_page())
    };
    let Some(known) = known else { return };
    if looked.is_some_and(|when| when.elapsed() < RESIZE_PAUSE) {
        return;
    }
    *looked = Some(Instant::now());
    let page = usual_page(known);
    if page < known {
        let settings = Settings::current();
        let _ = perform(post(Event::UsualPage { page, settings }));
    }
}

/// Goes passive if somebody else has written to the data files.
fn look_behind_our_back(audit: &mut Audit<Linux>) {
    if coherence::left_out!("audit") {
        return;
    }
    let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
    let Some(epoch) = epoch.filter(|_| audit.belongs_to(epoch)) else {
        audit.begin(epoch);
        return;
    };
    let Some(why) = audit.look() else {
        return;
    };
    if !CORE.switch().still_serves(epoch) {
        return; // switched off meanwhile: the server changes files, and nobody follows that
    }
    let _ = perform(post(Event::Foreign { epoch, why }));
}

/// Goes passive if the server uses asynchronous I/O that passes the hooks by.
fn look_for_unseen(watch: &mut Watch) {
    if CORE.switch().active().is_none() {
        return;
    }
    if let Some(refusal) = watch.look() {
        let _ = perform(post(Event::Unseen(refusal.to_string())));
    }
}
