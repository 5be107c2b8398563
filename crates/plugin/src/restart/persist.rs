//! Persists the cache over restarts: location of its state, recovery and shutdown.
//!
//! Two files on an in-memory file system have the name of the cache files. `.arena` belongs to the extension
//! ([`cache::Config::arena`]), and `.files` has the records of the data files ([`coherence::manifest`]). This process
//! locks both, and maps them as long as it lives. [`coherence::stamp`] defines what of them is trusted, and why.
//!
//! 1. [`begin`] runs while the server initialises the plugin. If the plugin was loaded early and is to be on, it replaces
//!    the [token](crate::restart::token), recovers persisted files, and starts tracking files.
//! 2. [`take_session`] and [`extension_opened`] run when the extension is opened.
//! 3. [`End`] and [`end`] run when the plugin ends; [`snapshot::at_end`] runs when the process ends.
//!
//! If the plugin is loaded after InnoDB, it starts with an empty cache.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cache::{Extension, OwnerIdentity};
use coherence::os::Os as _;
use coherence::outcomes::Reasons;
use coherence::proof::{Found, Recovery};

use crate::intercept::untracked;
use crate::platform::{CORE, Linux, identity, owned_files};
use crate::restart::state::RESTART;
use crate::restart::state_header::StateHeader;
use crate::restart::token::{Token, TokenFile};
use crate::restart::{records, redo_gate, snapshot};
use crate::settings::{self, Settings};

/// Timeouts: of the server's start for the recovery, and of its end for writing the staged pages.
pub const TIMEOUT: Duration = snapshot::START_TIMEOUT;

/// Starts the recovery when the server starts and the extension is to be on. Returns whether something is recovered: then
/// files are tracked, and the server should wait briefly for the extension. `early`: InnoDB has not started.
pub fn begin(early: bool) -> bool {
    let owner = identity::owner();
    if settings::persist_path().is_none() {
        // Earlier settings may have persisted state, here or in another directory.
        remove(&owner);
        // A former place may be on a disk that hangs.
        snapshot::run_with_timeout(TIMEOUT, move || owned_files::remove_persisted(owner));
        return false;
    }
    if !early {
        return false;
    }
    // `ensure` reports errors when the extension is opened.
    let Ok(Some((session, by))) = open(&owner, true) else {
        return false;
    };
    if CORE.files.recover(by) == 0 {
        return false;
    }
    if untracked::waits_for_innodb() {
        // InnoDB's choice of asynchronous I/O may make the recovery useless.
        redo_gate::withhold();
    }
    debug_assert_ne!(session, 0);
    RESTART.session.store(session, Ordering::SeqCst);
    CORE.switch().start_tracking(|| ());
    true
}

/// Whether a recovered cache waits to be opened. It keeps its former layout, so it waits for nothing else.
pub fn is_pending() -> bool {
    RESTART.session.load(Ordering::SeqCst) != 0
}

/// Records how long the recovery delayed the server's start.
pub fn record_start_delay(time: Duration) {
    RESTART.start_delay.store(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        Ordering::SeqCst,
    );
}

/// Delay of the server's start, milliseconds.
pub fn start_delay() -> u64 {
    RESTART.start_delay.load(Ordering::SeqCst)
}

/// Result of a recovery. Page counts are approximate.
#[derive(Default)]
pub struct Recovered {
    /// Pages that the active extension has recovered, and pages that were lost with the previous process.
    pub pages: u64,
    pub dropped: u64,
    /// Files and their pages: proven, not proven, and not opened yet.
    pub trusted: (u64, u64),
    pub rejected: (u64, u64),
    pub pending: (u64, u64),
    /// Reasons for the first rejected files.
    pub reasons: Reasons,
}

/// The result for the active extension; all zero if it has recovered nothing.
pub fn recovered() -> Recovered {
    let guard = CORE.switch().active();
    let Some(active) = guard
        .as_ref()
        .filter(|active| active.extension.recovered().any)
    else {
        return Recovered::default();
    };
    let (engine, mut report) = (active.extension.recovered(), CORE.files.recoveries.report());
    let parts = [report.trusted, report.rejected, report.pending];
    let (files, pages) = parts.iter().fold((0, 0), |sum: (u64, u64), part| {
        (sum.0 + part.0, sum.1 + part.1)
    });
    if pages < engine.pages / 2 {
        // Recent counts are missing, or there are too many pages to count: distributes the total evenly over the files.
        for part in [
            &mut report.trusted,
            &mut report.rejected,
            &mut report.pending,
        ] {
            part.1 = engine.pages * part.0 / files.max(1);
        }
    }
    Recovered {
        pages: engine.pages,
        dropped: engine.dropped,
        trusted: (report.trusted.0, report.trusted.1.min(engine.pages)),
        rejected: report.rejected,
        pending: report.pending,
        reasons: report.reasons,
    }
}

/// Ensures that this process can persist its state.
///
/// # Errors
/// The reason why it cannot.
pub fn ensure_records(owner: OwnerIdentity) -> Result<(), String> {
    if settings::persist_path().is_none() || has_records() {
        return Ok(());
    }
    open(&owner, false).map(|_| ())
}

/// Returns the session of the cache to recover, once.
pub fn take_session() -> Option<u64> {
    let tracked = CORE.switch().mode().tracks();
    let session = RESTART.session.swap(0, Ordering::SeqCst);
    Some(session).filter(|&session| session != 0 && tracked)
}

/// Records that an extension was opened with this layout (bytes of memory, and of each device), for pages of `page` bytes.
pub fn extension_opened(
    extension: &Extension,
    settings: &Settings,
    layout: (u64, &[u64]),
    page: u32,
) {
    let Some(manifest) = CORE.switch().manifest() else {
        return;
    };
    manifest.lay_out_for(page);
    let (memory, sizes) = layout;
    debug_assert!(!sizes.contains(&0), "a size of 0 ends the list");
    manifest.remember(settings.layout_digest(), memory, sizes);
    if extension.recovered().any {
        CORE.files.register_persisted(extension);
    } else {
        manifest.took_nothing();
    }
}

/// The way in which the plugin ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A session uninstalls it.
    Uninstalled,
    /// The server stops, and nothing is to be persisted.
    Stopped,
    /// The server stops with nothing to persist. The previous process's state stays.
    Untouched,
    /// The server stops, and the extension persists its state.
    Persisted,
}

impl End {
    /// Call from the thread that ends the plugin.
    pub fn now() -> End {
        let is_main = rustix::thread::gettid() == rustix::process::getpid();
        match settings::persist_path() {
            _ if !is_main => End::Uninstalled,
            Some(_) if has_records() => End::Persisted,
            Some(_) => End::Untouched,
            None => End::Stopped,
        }
    }
}

/// Ends the plugin, after the controller. Writes the staged pages.
pub fn end(how: End) {
    let guard = CORE.switch().active();
    if let Some(active) = guard.as_ref().filter(|_| how == End::Persisted) {
        RESTART.is_stopping.store(true, Ordering::SeqCst);
        match CORE.files.drop_changed() {
            0 => {}
            files => Linux.warning(&format!(
                "{files} data files were changed by others than the server; their cached pages are dropped"
            )),
        }
        let until = Instant::now() + TIMEOUT;
        while active.extension.staged_bytes() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        for device in active.extension.device_statistics() {
            if !device.active {
                // A process ends only after its system calls have returned.
                let (path, state) = (device.path.display(), device.state);
                Linux.warning(&format!(
                    "cache disk '{path}' {state}; the process may not end before it answers"
                ));
            }
        }
        record(&active.extension);
        return snapshot::prepare(identity::owner());
    }
    let owner = identity::owner();
    // The previous process's state stays for the next one, if this process could not or should not use it.
    let is_used_up = has_records() && !settings::persisted_file(&owner, "arena").exists();
    if matches!(how, End::Uninstalled | End::Stopped) || is_used_up {
        remove(&owner);
    }
    if how == End::Uninstalled {
        owned_files::forget();
    }
}

/// Records what the next process needs. Call periodically.
pub fn record(extension: &Extension) {
    redo_gate::search();
    CORE.files.note_pages(extension);
    record_alive();
}

/// Records only that this process is alive.
pub fn record_alive() {
    if let Some(manifest) = CORE.switch().manifest() {
        manifest.note_life(&Linux);
    }
}

/// Whether this process has a file with records.
fn has_records() -> bool {
    RESTART.records().is_some()
}

/// Removes the persisted state.
fn remove(owner: &OwnerIdentity) {
    snapshot::discard(owner);
    let ours = RESTART.records.swap(-1, Ordering::SeqCst);
    for (kind, is_open) in [("arena", false), ("files", ours >= 0)] {
        let path = settings::persisted_file(owner, kind);
        // Keep a file that another server uses: that server holds its lock, so `open_in_memory` fails.
        if is_open || path.exists() && cache::open_in_memory(&path).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
    if ours >= 0 {
        // SAFETY: since the exchange, this function alone owns the descriptor. The mapping stays.
        drop(unsafe { OwnedFd::from_raw_fd(ours) });
    }
}

/// The data directory at a start: its former token, and its superblock; 0 where stamps prove nothing.
struct DataDirectory {
    device: u64,
    superblock: u64,
    token: Option<Token>,
}

impl DataDirectory {
    /// Reads the token, and replaces it. Once for each process, before a write is forwarded.
    fn open(folder: &Path) -> DataDirectory {
        let warn = |why: &str| {
            Linux.warning(&format!(
                "{why}; what is cached is not kept over a restart of the machine or a remount"
            ));
        };
        let mut directory = DataDirectory {
            device: std::fs::metadata(folder).map_or(0, |metadata| metadata.dev()),
            superblock: 0,
            token: None,
        };
        let file = match TokenFile::open(folder) {
            Ok(file) => file,
            Err(why) => {
                warn(&why.to_string());
                return directory;
            }
        };
        // Without a file system stamps prove nothing, but the former token goes.
        if let Some(system) = file.file_system() {
            directory.superblock = system.superblock;
            directory.token = file.read();
            let has_fine_stamps = file.has_fine_stamps() && !coherence::canary!("fine-stamps");
            CORE.files.use_fine_stamps(has_fine_stamps);
        }
        if coherence::canary!("token-stays") {
            return directory;
        }
        if let Err(error) = file.replace() {
            warn(&format!(
                "cannot replace the token in the data directory: {error}"
            ));
            directory.token = None;
        }
        directory
    }
}

/// Opens and keeps the records. `recovers`: persisted files may be trusted, since InnoDB has not started. Returns their
/// session, and the evidence for the recovery.
fn open(owner: &OwnerIdentity, recovers: bool) -> Result<Option<(u64, Recovery)>, String> {
    settings::check_persist_path()?;
    let path = settings::persisted_file(owner, "files");
    let file = cache::open_in_memory(&path).map_err(|error| error.to_string())?;
    records::check_owner(&file).map_err(|error| failed(&path, &error))?;
    let header = StateHeader::now(owner.0).map_err(|error| failed(&path, &error))?;
    if let Some(manifest) = CORE.switch().manifest() {
        // Records of an earlier installation: the library stays loaded, and so do they.
        snapshot::discard(owner);
        records::remap(file, &header, manifest).map_err(|error| failed(&path, &error))?;
        manifest.clear();
        manifest.be_on(DataDirectory::open(&identity::data_directory()).superblock);
        return Ok(None);
    }
    let directory = DataDirectory::open(&identity::data_directory());
    if recovers && header.is_of_another_version(&file) {
        Linux.note("the cache starts empty: another version of the plugin has left what is cached");
    }
    let is_here = header.is_of(&file);
    let is_same_mount = is_here
        && (records::superblock_in(&file).ok() == Some(directory.superblock)
            || coherence::canary!("superblock"));
    let restored = match is_same_mount || !recovers {
        true => {
            snapshot::discard(owner);
            None
        }
        false => snapshot::restore(owner, &header, &file, directory.token),
    };
    let file_again = file.try_clone().map_err(|error| failed(&path, &error))?;
    let manifest = records::map(file, &header, is_here || restored.is_some());
    let manifest = manifest.map_err(|error| failed(&path, &error))?;
    let session = manifest.session().filter(|_| recovers);
    let crashed = manifest.crashed_soon();
    if crashed && session.is_some() {
        Linux.warning(
            "the server crashed within 10 minutes after it had recovered what was cached; the cache starts empty this time",
        );
    }
    let found = Found {
        device: directory.device,
        superblock: directory.superblock,
        is_same_mount,
        has_fine_stamps: CORE.files.has_fine_stamps(),
        image: restored
            .as_ref()
            .map(|restored| (restored.device, restored.is_proven)),
    };
    if let Some(restored) = &restored {
        // A process that dies before this has persisted nothing of this start.
        let written = match restored.is_proven {
            true => records::name_log(&file_again, &restored.redo),
            false => {
                manifest.distrust();
                Ok(())
            }
        };
        if let Err(error) = written.and_then(|()| file_again.write_all_at(&header.bytes(), 0)) {
            manifest.clear();
            return Err(failed(&path, &error));
        }
    }
    if let Ok(Some(folder)) = records::named_log(&file_again)
        && recovers
    {
        redo_gate::withhold_until(folder);
    }
    let is_valid = manifest.is_tracked() && manifest.given().is_some() && !crashed;
    let session = session.filter(|_| is_valid);
    if session.is_none() {
        manifest.clear();
        manifest.be_on(directory.superblock);
        redo_gate::release();
    }
    let is_from_snapshot = restored.is_some() && session.is_some();
    RESTART
        .is_from_snapshot
        .store(is_from_snapshot, Ordering::SeqCst);
    let process = rustix::process::getpid().as_raw_nonzero().get();
    RESTART.process.store(process, Ordering::SeqCst);
    CORE.switch().keep(manifest);
    snapshot::register_exit_handler();
    Ok(session.map(|session| (session, found.recovery())))
}

/// Whether the recovered state was persisted before a host reboot or a remount.
pub fn is_from_snapshot() -> bool {
    RESTART.is_from_snapshot.load(Ordering::SeqCst)
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot use '{}': {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock stands for a disk that does not answer: the sweep waits for it.
    #[test]
    fn start_does_not_wait_for_former_places() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        settings::keep_in_tests(None);
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let stem = identity::stem(&identity::owner());
        let state = cache::make_own(&folder.path().join(format!("{stem}.arena"))).unwrap();
        rustix::fs::flock(&state, rustix::fs::FlockOperation::LockShared).unwrap();
        let list = identity::data_directory().join("bpe.paths");
        let line = format!("{}\n", folder.path().display());
        std::fs::write(&list, line).unwrap();
        let began = Instant::now();
        begin(true);
        let took = began.elapsed();
        std::fs::remove_file(&list).unwrap();
        assert!(took < Duration::from_secs(3), "{took:?}");
    }

    #[test]
    fn only_uninstalling_removes_the_list_of_paths() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        settings::keep_in_tests(None);
        let list = identity::data_directory().join("bpe.paths");
        let remains = |how| {
            std::fs::write(&list, "").unwrap();
            end(how);
            list.exists()
        };
        let ends = [End::Untouched, End::Stopped, End::Uninstalled];
        assert_eq!(ends.map(remains), [true, true, false]);
    }

    #[test]
    fn token_is_replaced_without_stamps() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let former = TokenFile::open(folder.path()).unwrap().replace().unwrap();
        let directory = DataDirectory::open(folder.path());
        assert_eq!((directory.superblock, directory.token), (0, None));
        let now = std::fs::read(folder.path().join(crate::restart::token::NAME)).unwrap();
        let is_there = now.windows(16).any(|bytes| bytes == former.to_ne_bytes());
        assert!(!is_there, "an image of before would count");
    }

    /// `UNINSTALL PLUGIN`, then `INSTALL PLUGIN` with `bpe_enabled = ON`: the library and the records stay loaded.
    #[test]
    fn second_installation_maps_the_new_records() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        settings::keep_in_tests(Some(settings::DEFAULT_PERSIST_PATH));
        begin(true);
        end(End::Uninstalled);
        begin(true);
        let manifest = CORE.switch().manifest().unwrap();
        manifest.lay_out_for(0x1234_5678);
        let file = RESTART.records().unwrap();
        let mut head = [0; 256];
        rustix::io::pread(file, &mut head, 0).unwrap();
        let is_there = head
            .chunks(8)
            .any(|word| word == 0x1234_5678_u64.to_ne_bytes());
        end(End::Uninstalled);
        settings::keep_in_tests(None);
        // Without a server, the working directory is the data directory.
        let _ = std::fs::remove_file(identity::data_directory().join(crate::restart::token::NAME));
        assert!(
            is_there,
            "records lie in one file, and room is made in another: what is touched beyond the first is SIGBUS"
        );
    }
}
