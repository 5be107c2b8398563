//! Location of InnoDB's redo log, and the gate that depends on it.
//!
//! After a host reboot or a remount, serving is withheld until InnoDB has opened the log that the redo fence has
//! proven unchanged ([`withhold_until`]). Another log rejects the recovered state. If the server can choose asynchronous
//! I/O that bypasses the hooks, serving is also withheld until InnoDB has chosen.
//!
//! While InnoDB runs, only names are read: closing a descriptor of the log would release InnoDB's locks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coherence::os::Os as _;
use coherence::scan;

use super::state::RESTART;
use super::{records, redo_fence};
use crate::intercept::untracked;
use crate::platform::{CORE, Linux};
use crate::settings::BYPASS;

/// Run time of InnoDB after which the location of its log counts as unknown.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);

/// The directory of InnoDB's log, once it was seen.
pub fn directory() -> Option<&'static Path> {
    RESTART.redo_log.get().map(PathBuf::as_path)
}

/// Looks for the log among the open files of the process, until it was found once. Reads only names.
fn find() -> Option<&'static Path> {
    if RESTART.redo_log.get().is_none()
        && let Some(found) = redo_fence::open_log()
    {
        let _ = RESTART.redo_log.set(found);
    }
    directory()
}

/// Withholds serving, until [`release`].
pub fn withhold() {
    CORE.files.recoveries.withhold();
    BYPASS.reapply(&CORE);
}

/// Withholds serving until InnoDB has opened its log in this directory.
pub fn withhold_until(directory: PathBuf) {
    let _ = RESTART.required_redo_log.set(directory);
    withhold();
}

/// Call when the server has opened a file under this name.
#[inline]
pub fn file_opened(fd: i32, name: &[u8]) {
    if fd >= 0 && RESTART.redo_log.get().is_none() && redo_fence::is_log_name(name) {
        let path = Linux.path_of(fd).map(OsString::from_vec);
        if let Some(folder) = path
            .as_deref()
            .map(Path::new)
            .and_then(redo_fence::directory_of)
        {
            let _ = RESTART.redo_log.set(folder.to_path_buf());
            record_directory(folder);
        }
    }
}

/// Call when the log's directory is known. A snapshot proves nothing about another log.
fn record_directory(folder: &Path) {
    let is_other = RESTART
        .required_redo_log
        .get()
        .is_some_and(|required| required != folder);
    note_known(is_other);
    release_if_known();
}

/// The first call decides. It rejects before the log counts as known: another thread serves from then on.
fn note_known(is_other: bool) {
    if RESTART.is_redo_log_judged.swap(true, Ordering::SeqCst) {
        return;
    }
    if is_other {
        CORE.files.reject_persisted();
        Linux.warning(
            "what was cached before the machine's restart is not used: InnoDB has its redo log elsewhere now",
        );
    }
    RESTART.is_redo_log_known.store(true, Ordering::SeqCst);
}

/// Finds the log while InnoDB runs, if its opening was not seen.
pub fn search() {
    let began = RESTART.search_began.get_or_init(Instant::now);
    if let Some(folder) = find() {
        record_directory(folder);
    } else if CORE.files.recoveries.is_withheld()
        && began.elapsed() > LOG_TIMEOUT
        && scan::innodb_is_running(&Linux)
        && !RESTART.is_redo_log_judged.load(Ordering::SeqCst)
    {
        // The log was opened under another name, or names cannot be read.
        note_known(RESTART.required_redo_log.get().is_some());
    }
    release_if_known();
}

fn release_if_known() {
    let is_log_known = RESTART.required_redo_log.get().is_none()
        || RESTART.is_redo_log_known.load(Ordering::SeqCst);
    // The controller's thread checks next, and drops files that cannot be tracked.
    if CORE.files.recoveries.is_withheld()
        && is_log_known
        && !untracked::waits_for_innodb()
        && untracked::refusal().is_none()
    {
        release();
    }
}

pub fn release() {
    records::clear_log_name();
    CORE.files.recoveries.release();
    // A stopping server must not serve again.
    if !RESTART.is_stopping.load(Ordering::SeqCst) {
        BYPASS.reapply(&CORE);
    }
}
