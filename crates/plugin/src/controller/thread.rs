//! The controller's thread: tries again, rebuilds when settings or page sizes change, and looks behind the server's back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::building::{commit_prepared, prepare_for, usual_page};
use super::off::{clean_up_after_panic, disable, disable_because};
use super::retiring::{close_retiring, retire, take_unused};
use super::state::{BUILDING, Building, CHANGED, INNER, Inner, PANICKED, Prepared, nothing_unseen};
use crate::audit::Audit;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;
use crate::settings::Settings;
use crate::unseen::{self, Watch};

/// A prepared extension that nobody commits is given up after this.
const PREPARED_FOR: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(500);
/// Between two rebuilds for another page size.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);
/// Switches on for the controller, unless the administrator has switched off since the number was taken.
fn switch_on_or_retry(settings: &Settings, intent: u64, building: &Building) {
    match prepare_for(settings, Some(intent), building) {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| Linux.warning(warning));
            commit_prepared(&mut INNER.lock());
        }
        Err(reason) => failed(reason, intent),
    }
}

pub(super) fn failed(reason: String, intent: u64) {
    let mut inner = INNER.lock();
    if inner.intent != intent {
        return;
    }
    let pause = inner
        .retry
        .map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LAST_RETRY));
    if inner.failure.as_ref() != Some(&reason) {
        Linux.error(&format!(
            "not switched on: {reason}. It is tried again by itself."
        ));
    }
    inner.failure = Some(reason);
    inner.retry = Some((Instant::now() + pause, pause));
}

/// The controller's thread, for one installation of the plugin.
pub(super) fn run(life: u64) {
    let mut audit = Audit::default();
    let mut watch = Watch::default();
    let mut someone_builds = false;
    loop {
        let mut inner = INNER.lock();
        close_retiring(&mut inner);
        let gone = take_unused(&mut inner.lingering);
        if inner.stop || inner.life != life {
            drop(inner);
            drop(gone);
            return;
        }
        if (!inner.rebuild || someone_builds) && gone.is_empty() {
            CHANGED.wait_for(&mut inner, TICK);
        }
        drop(inner);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(gone);
            // Whoever builds, a client, may be about to bring what is wanted; and it waits for this thread to close what
            // was before.
            let building = BUILDING.try_lock();
            someone_builds = building.is_none();
            if let Some(building) = building {
                tick(&building);
            }
            look_behind_our_back(&mut audit);
            look_for_unseen(&mut watch);
        }));
    }
}

/// Goes passive if somebody else has written to the data files.
fn look_behind_our_back(audit: &mut Audit) {
    if coherence::left_out!("audit") {
        return;
    }
    let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
    if epoch.is_none() || !audit.belongs_to(epoch) {
        audit.begin(epoch);
        return;
    }
    let Some(reason) = audit.look() else {
        return;
    };
    if !epoch.is_some_and(|epoch| CORE.switch().still_serves(epoch)) {
        return; // switched off meanwhile: the server changes files, and nobody follows that
    }
    disable_because(Some(reason.clone()));
    Linux.error(&format!(
        "{reason}. Everything cached is dropped and the extension is off. Find out who writes to the data files of a \
         running server, which is a danger to the data itself; SET GLOBAL bpe_enabled = ON uses the extension again."
    ));
}

/// Goes passive if the server uses asynchronous I/O that passes the hooks by.
fn look_for_unseen(watch: &mut Watch) {
    if CORE.switch().active().is_none() {
        return;
    }
    if let Some(refusal) = watch.look() {
        disable();
        INNER.lock().unseen = Some(refusal.to_string());
        Linux.error(&format!(
            "passive: {refusal} Everything cached is dropped and the extension is off."
        ));
    }
}

fn tick(building: &Building) {
    let waits = unseen::waits_for_innodb();
    let mut inner = INNER.lock();
    if PANICKED.load(Ordering::SeqCst) {
        clean_up_after_panic(&mut inner);
    }
    if !inner.wanted {
        // A client whose SET failed after the check leaves a prepared extension behind.
        let expired = |prepared: &mut Prepared| prepared.since.elapsed() > PREPARED_FOR;
        if let Some(prepared) = inner.prepared.take_if(expired) {
            inner.intent += 1;
            retire(&mut inner, prepared.active);
            let _ = CORE.switch().switch_off();
        }
    }
    if !inner.wanted || inner.passive.is_some() || PANICKED.load(Ordering::SeqCst) {
        inner.rebuild = false;
        return;
    }
    if waits {
        inner.rebuild = false;
        return; // what InnoDB will use is not known yet
    }
    let settings = Settings::current();
    let changed = inner
        .tried
        .as_ref()
        .is_some_and(|tried| !tried.same_layout(&settings));
    let due = match inner.retry {
        Some((when, _)) => Instant::now() >= when,
        None => inner.running.is_none() && inner.prepared.is_none(),
    };
    if inner.prepared.is_some() && !changed {
        // A client is about to commit what it has prepared. That is what is wanted, so it need not be built anew; and if
        // its statement fails after all, nobody else would commit it.
        inner.rebuild = false;
        commit_prepared(&mut inner);
        return;
    }
    let resize = resize_needed(&mut inner);
    if !(inner.rebuild || changed || resize || due) {
        return;
    }
    inner.rebuild = false;
    inner.running = None;
    if let Some(prepared) = inner.prepared.take() {
        retire(&mut inner, prepared.active);
    }
    if let Some(before) = CORE.switch().switch_off() {
        retire(&mut inner, before);
    }
    let intent = inner.intent;
    drop(inner);
    if nothing_unseen().is_err() {
        let mut inner = INNER.lock();
        if inner.intent == intent {
            inner.wanted = false; // until a client asks for it
        }
        return;
    }
    switch_on_or_retry(&settings, intent, building);
}

/// Whether most of what is read are smaller pages than the extension is laid out for.
fn resize_needed(inner: &mut Inner) -> bool {
    let looked = inner
        .resized
        .is_some_and(|when| when.elapsed() < RESIZE_PAUSE);
    if looked || inner.running.is_none() {
        return false;
    }
    inner.resized = Some(Instant::now());
    let page = usual_page(inner);
    let needed = page < inner.nominal_page && inner.refused_page != Some(page);
    if needed {
        Linux.note(&format!(
            "most data is read in pages of {page} bytes; the cache is laid out anew for them"
        ));
    }
    needed
}
