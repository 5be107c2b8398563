//! Persists the cache over restarts: location of its state, recovery and shutdown.
//!
//! Two files on an in-memory file system have the name of the cache files. `.arena` belongs to the extension
//! ([`cache::Config::arena`]), and `.files` has the records of the data files ([`coherence::manifest`]). This process
//! locks both, and maps them as long as it lives. [`coherence::stamp`] defines what of them is trusted, and why.
//!
//! 1. [`begin`] runs while the server initialises the plugin. If the plugin was loaded early and is to be on, it replaces
//!    the [token](crate::token), recovers persisted files, and starts tracking files.
//! 2. [`inherits`] and [`register_persisted`] run when the extension is opened.
//! 3. [`End`] and [`end`] run when the plugin ends; [`image::at_end`] runs when the process ends.
//!
//! If the plugin is loaded after InnoDB, it starts with an empty cache.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cache::{Extension, OwnerIdentity};
use coherence::manifest::{Found, Head, Manifest, Memory, Record, Recovery};
use coherence::recovery::Reasons;
use rustix::fs::FallocateFlags;

use crate::image;
use crate::label::{self, Label};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan::{self, Plan};
use crate::process::{CORE, KNOWN};
use crate::settings::{self, Settings};
use crate::token::{Token, TokenFile};
use crate::{clock, fence, owned_files, scan, unseen};

/// Bytes before the records: one memory page.
const HEAD: usize = 4096;
/// Run time of InnoDB after which the location of its log counts as unknown.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);
/// Offset and maximum length of the log's directory in the head.
const LOG: u64 = 2048;
const LONGEST_LOG: usize = HEAD - LOG as usize;
/// Maximum number of records. Files beyond it are new to the next process.
const RECORDS: usize = 64 << 10;
/// Initial number of records.
const FIRST_RECORDS: usize = 512;
/// Timeouts: of the server's start for the recovery, and of its end for writing the staged pages.
pub const PATIENCE: Duration = image::PATIENCE;

/// Starts the recovery when the server starts and the extension is to be on. Returns whether something is recovered: then
/// files are tracked, and the server should wait briefly for the extension. `early`: InnoDB has not started.
pub fn begin(early: bool) -> bool {
    let owner = plan::owner();
    if settings::persist_path().is_none() {
        // Earlier settings may have persisted state, here or in another directory.
        remove(&owner);
        owned_files::remove_persisted(owner);
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
    if unseen::waits_for_innodb() {
        // InnoDB's choice of asynchronous I/O may make the recovery useless.
        CORE.files.recoveries.withhold();
        KNOWN.bypassing.again(&CORE);
    }
    KNOWN.kept.session.store(session, Ordering::SeqCst);
    CORE.switch().start_tracking(|| ());
    true
}

/// Whether a recovered cache waits to be opened. It keeps its former layout, so it waits for nothing else.
pub fn is_pending() -> bool {
    KNOWN.kept.session.load(Ordering::SeqCst) != 0
}

/// Records how long the recovery delayed the server's start.
pub fn held_up(time: Duration) {
    KNOWN.kept.held_up.store(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        Ordering::SeqCst,
    );
}

/// Delay of the server's start, milliseconds.
pub fn held_up_for() -> u64 {
    KNOWN.kept.held_up.load(Ordering::SeqCst)
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
pub fn ensure(owner: OwnerIdentity) -> Result<(), String> {
    if settings::persist_path().is_none() || is_kept() {
        return Ok(());
    }
    open(&owner, false).map(|_| ())
}

/// Returns the session of the cache to recover, once.
pub fn inherits() -> Option<u64> {
    let tracked = CORE.switch().mode().tracks();
    let session = KNOWN.kept.session.swap(0, Ordering::SeqCst);
    Some(session).filter(|&session| session != 0 && tracked)
}

/// The former layout of the cache to recover, if the settings match: bytes of memory, and of each device.
pub fn remembered(settings: &Settings) -> Option<(u64, Vec<u64>)> {
    let manifest = CORE.switch().manifest()?;
    let (memory, sizes) = manifest.remembered(settings.layout_digest())?;
    plan::suits_memory(settings, memory).then_some((memory, sizes))
}

/// Records that an extension was opened by this plan, for pages of `page` bytes.
pub fn register_persisted(extension: &Extension, settings: &Settings, plan: &Plan, page: u32) {
    let Some(manifest) = CORE.switch().manifest() else {
        return;
    };
    manifest.lay_out_for(page);
    let sizes: Vec<u64> = plan.devices().iter().map(|device| device.bytes).collect();
    manifest.remember(settings.layout_digest(), plan.memory_limit(), &sizes);
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
    Left,
}

impl End {
    /// Call from the thread that ends the plugin.
    pub fn now() -> End {
        let is_main = rustix::thread::gettid() == rustix::process::getpid();
        match settings::persist_path() {
            _ if !is_main => End::Uninstalled,
            Some(_) if is_kept() => End::Left,
            Some(_) => End::Untouched,
            None => End::Stopped,
        }
    }
}

/// Ends the plugin, after the controller. Writes the staged pages.
pub fn end(how: End) {
    let guard = CORE.switch().active();
    if let Some(active) = guard.as_ref().filter(|_| how == End::Left) {
        KNOWN.kept.ends.store(true, Ordering::SeqCst);
        match CORE.files.drop_changed() {
            0 => {}
            files => Linux.warning(&format!(
                "{files} data files were changed by others than the server; their cached pages are dropped"
            )),
        }
        let until = Instant::now() + PATIENCE;
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
        note(&active.extension);
        return image::prepare(plan::owner());
    }
    let owner = plan::owner();
    // The previous process's state stays for the next one, if this process could not or should not use it.
    let is_used_up = is_kept() && !plan::kept_in(&owner, "arena").exists();
    if matches!(how, End::Uninstalled | End::Stopped) || is_used_up {
        remove(&owner);
    }
    if how == End::Uninstalled {
        owned_files::forget();
    }
}

/// Records what the next process needs. Call periodically.
pub fn note(extension: &Extension) {
    look_for_log();
    CORE.files.note_pages(extension);
    note_life();
}

/// Records only that this process is alive.
pub fn note_life() {
    if let Some(manifest) = CORE.switch().manifest() {
        manifest.note_life(&Linux);
    }
}

/// Whether this process has a file with records.
fn is_kept() -> bool {
    KNOWN.kept.records.load(Ordering::SeqCst) >= 0
}

/// Removes the persisted state.
fn remove(owner: &OwnerIdentity) {
    image::discard(owner);
    let ours = KNOWN.kept.records.swap(-1, Ordering::SeqCst);
    for (kind, is_open) in [("arena", false), ("files", ours >= 0)] {
        let path = plan::kept_in(owner, kind);
        // Another server that uses the file has locked it.
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
    fn look() -> DataDirectory {
        let warn = |why: &str| {
            Linux.warning(&format!(
                "{why}; what is cached is not kept over a restart of the machine or a remount"
            ));
        };
        let folder = plan::data_directory();
        let mut directory = DataDirectory {
            device: std::fs::metadata(&folder).map_or(0, |metadata| metadata.dev()),
            superblock: 0,
            token: None,
        };
        let file = match TokenFile::open(&folder) {
            Ok(file) => file,
            Err(why) => {
                warn(&why.to_string());
                return directory;
            }
        };
        let Some(system) = file.file_system() else {
            return directory;
        };
        directory.superblock = system.superblock;
        directory.token = file.read();
        let has_fine_stamps = file.has_fine_stamps() && !coherence::canary!("fine-stamps");
        CORE.files.use_fine_stamps(has_fine_stamps);
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
    let path = plan::kept_in(owner, "files");
    let file = cache::open_in_memory(&path).map_err(|error| error.to_string())?;
    check_ours(&file).map_err(|error| failed(&path, &error))?;
    let label = Label::now(owner.0).map_err(|error| failed(&path, &error))?;
    if let Some(manifest) = CORE.switch().manifest() {
        // Records of an earlier installation: the library stays loaded, and so do they.
        image::discard(owner);
        map_again(file, &label, manifest).map_err(|error| failed(&path, &error))?;
        manifest.clear();
        manifest.be_on(DataDirectory::look().superblock);
        return Ok(None);
    }
    let directory = DataDirectory::look();
    if recovers && label.is_of_another_version(&file) {
        Linux.note("the cache starts empty: another version of the plugin has left what is cached");
    }
    let is_here = label.is_of(&file);
    let is_same_mount = is_here
        && (superblock_in(&file).ok() == Some(directory.superblock)
            || coherence::canary!("superblock"));
    let restored = match is_same_mount || !recovers {
        true => {
            image::discard(owner);
            None
        }
        false => image::restore(owner, &label, &file, directory.token),
    };
    let labelled = file.try_clone().map_err(|error| failed(&path, &error))?;
    let manifest = map(file, &label, is_here || restored.is_some());
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
            true => name_log(&labelled, &restored.redo),
            false => Ok(()),
        };
        if let Err(error) = written.and_then(|()| labelled.write_all_at(&label.bytes(), 0)) {
            manifest.clear();
            return Err(failed(&path, &error));
        }
    }
    if let Ok(Some(folder)) = named_log(&labelled)
        && recovers
    {
        let _ = KNOWN.kept.fenced.set(folder);
        CORE.files.recoveries.withhold();
        KNOWN.bypassing.again(&CORE);
    }
    let is_valid = manifest.is_tracked() && manifest.given().is_some() && !crashed;
    let session = session.filter(|_| is_valid);
    if session.is_none() {
        manifest.clear();
        manifest.be_on(directory.superblock);
        release();
    }
    let is_of_image = restored.is_some() && session.is_some();
    KNOWN.kept.of_image.store(is_of_image, Ordering::SeqCst);
    let process = rustix::process::getpid().as_raw_nonzero().get();
    KNOWN.kept.process.store(process, Ordering::SeqCst);
    CORE.switch().keep(manifest);
    image::watch_the_end();
    Ok(session.map(|session| (session, found.recovery())))
}

/// Reads the data directory's superblock from records that are not mapped yet.
fn superblock_in(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, Head::SUPERBLOCK_OFFSET as u64)?;
    Ok(u64::from_ne_bytes(word))
}

/// Whether the recovered state was persisted before a machine restart or a remount.
pub fn is_of_image() -> bool {
    KNOWN.kept.of_image.load(Ordering::SeqCst)
}

/// Withholds serving until InnoDB has opened its log in this directory. The records are from another machine start, and only
/// this log is proven unchanged. The name is stored beside the records, since a process may end before InnoDB starts.
fn name_log(file: &File, folder: &Path) -> io::Result<()> {
    let name = folder.as_os_str().as_bytes();
    let mut text = [0; LONGEST_LOG];
    let place = text.get_mut(..name.len());
    place
        .ok_or_else(|| io::Error::other("the redo log's folder has too long a name"))?
        .copy_from_slice(name);
    file.write_all_at(&text, LOG)
}

/// Reads the name that an earlier process stored, if no process has opened that log since.
fn named_log(file: &File) -> io::Result<Option<PathBuf>> {
    let mut text = [0; LONGEST_LOG];
    file.read_exact_at(&mut text, LOG)?;
    let name = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| OsStr::from_bytes(name).into()))
}

/// Whether serving is withheld until InnoDB has opened its log, or has chosen its kind of asynchronous I/O.
pub fn is_withheld() -> bool {
    CORE.files.recoveries.is_withheld()
}

/// Call when the server has opened a file under this name.
#[inline]
pub fn opened(fd: i32, name: &[u8]) {
    if fd >= 0 && KNOWN.kept.redo.get().is_none() && fence::is_name(name) {
        let path = Linux.path_of(fd).map(OsString::from_vec);
        if let Some(folder) = path.as_deref().map(Path::new).and_then(fence::folder_of) {
            fence::found(folder);
            log_is_in(folder);
        }
    }
}

/// Call when the log's directory is known. An image proves nothing about another log.
fn log_is_in(folder: &Path) {
    if KNOWN.kept.is_log_known.swap(true, Ordering::SeqCst) {
        return;
    }
    if let Some(fenced) = KNOWN.kept.fenced.get()
        && fenced != folder
    {
        reject();
    }
    release_if_known();
}

fn reject() {
    CORE.files.reject_persisted();
    Linux.warning(
        "what was cached before the machine's restart is not used: InnoDB has its redo log elsewhere now",
    );
}

/// Finds the log while InnoDB runs, if its opening was not seen.
fn look_for_log() {
    let since = KNOWN.kept.withheld_since.get_or_init(Instant::now);
    if let Some(folder) = fence::look() {
        log_is_in(folder);
    } else if is_withheld()
        && since.elapsed() > LOG_TIMEOUT
        && scan::innodb_is_running(&Linux)
        && !KNOWN.kept.is_log_known.swap(true, Ordering::SeqCst)
        && KNOWN.kept.fenced.get().is_some()
    {
        // The log was opened under another name, or names cannot be read.
        reject();
    }
    release_if_known();
}

fn release_if_known() {
    let is_log_known =
        KNOWN.kept.fenced.get().is_none() || KNOWN.kept.is_log_known.load(Ordering::SeqCst);
    // The controller's thread checks next, and drops files that cannot be tracked.
    if is_withheld() && is_log_known && !unseen::waits_for_innodb() && unseen::refusal().is_none() {
        release();
    }
}

fn release() {
    let file = KNOWN.kept.records.load(Ordering::SeqCst);
    if file >= 0 {
        // SAFETY: the descriptor is closed only when the plugin is uninstalled. The write clears a name that no recovery
        // waits for any longer.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let _ = rustix::io::pwrite(file, &[0; LONGEST_LOG], LOG);
    }
    CORE.files.recoveries.release();
    // A stopping server must not serve again.
    if !KNOWN.kept.ends.load(Ordering::SeqCst) {
        KNOWN.bypassing.again(&CORE);
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot use '{}': {error}", path.display())
}

/// Fails if another program wrote the file.
fn check_ours(file: &File) -> io::Result<()> {
    let mut begins = [0; size_of::<u64>()];
    let read = file.read_at(&mut begins, 0)?;
    if read == begins.len()
        && begins != label::MAGIC.to_ne_bytes()
        && begins != [0; size_of::<u64>()]
    {
        return Err(io::Error::other(
            "it is not a file of this plugin; remove it, or name another place in bpe_persist_path",
        ));
    }
    Ok(())
}

/// Maps the file for the life of the process. A foreign file is zeroed, except for the label.
fn map(file: File, label: &Label, is_ours: bool) -> io::Result<Manifest> {
    let length = file.metadata()?.len();
    let mut room = (length.saturating_sub(HEAD as u64) / size_of::<Record>() as u64) as usize;
    if !is_ours || room < FIRST_RECORDS {
        // The file is from another start, version or server.
        room = FIRST_RECORDS;
        make(&file, label, room)?;
    }
    // SAFETY: a new mapping.
    let start = unsafe { map_at(std::ptr::null_mut(), 0, &file)? };
    // SAFETY: mapped above, with zeros or words of an earlier process, and aligned to a memory page.
    let (head, records) = unsafe {
        let head = &*start.cast::<Head>();
        let records = start.cast::<u8>().add(HEAD).cast::<Record>();
        (head, std::slice::from_raw_parts(records, RECORDS))
    };
    const { assert!(size_of::<Head>() as u64 <= LOG && HEAD % align_of::<Record>() == 0) };
    // The open descriptor holds the lock.
    KNOWN
        .kept
        .records
        .store(file.into_raw_fd(), Ordering::SeqCst);
    let memory = Memory {
        now: clock::file_time,
        grow: |records| {
            let file = KNOWN.kept.records.load(Ordering::SeqCst);
            // SAFETY: the descriptor is closed only after the plugin was uninstalled, when no file is tracked any longer.
            file >= 0 && allocate(unsafe { BorrowedFd::borrow_raw(file) }, records).is_ok()
        },
    };
    Ok(Manifest::new(head, records, room, memory))
}

fn make(file: &File, label: &Label, room: usize) -> io::Result<()> {
    file.set_len(0)?;
    allocate(file, room)?;
    file.write_all_at(&label.bytes(), 0)
}

/// Maps a new file in place of this process's records.
fn map_again(file: File, label: &Label, manifest: &Manifest) -> io::Result<()> {
    make(&file, label, manifest.room())?;
    let start = std::ptr::from_ref(manifest.head()).cast_mut().cast();
    // SAFETY: replaces the whole mapping by one with at least as many accessible bytes. Its words are atomic, and may have
    // any value at any time.
    unsafe { map_at(start, libc::MAP_FIXED, &file)? };
    KNOWN
        .kept
        .records
        .store(file.into_raw_fd(), Ordering::SeqCst);
    Ok(())
}

/// # Safety
/// With `MAP_FIXED` there must be a mapping by this function at `start`. This process must hold the lock of the file, and
/// never shortens it. Memory beyond the end of the file must not be accessed before the file was extended.
unsafe fn map_at(
    start: *mut libc::c_void,
    flags: libc::c_int,
    file: &File,
) -> io::Result<*mut libc::c_void> {
    // SAFETY: the caller's promise.
    let start = unsafe {
        libc::mmap(
            start,
            HEAD + RECORDS * size_of::<Record>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | flags,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(start)
}

/// Allocates space before the memory is accessed: a full in-memory file system would kill the server.
fn allocate(file: impl AsFd, records: usize) -> io::Result<()> {
    let length = HEAD + records * size_of::<Record>();
    Ok(rustix::fs::fallocate(
        file,
        FallocateFlags::empty(),
        0,
        length as u64,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UNINSTALL PLUGIN`, then `INSTALL PLUGIN` with `bpe_enabled = ON`: the library and the records stay loaded.
    #[test]
    fn records_and_the_file_that_grows_with_them_are_the_same_after_a_second_installation() {
        let _turn = crate::process::UNDER_TEST.lock();
        settings::keep_in_tests(Some(settings::DEFAULT_PERSIST_PATH));
        begin(true);
        end(End::Uninstalled);
        begin(true);
        let manifest = CORE.switch().manifest().unwrap();
        manifest.lay_out_for(0x1234_5678);
        // SAFETY: the descriptor is never closed.
        let file = unsafe { BorrowedFd::borrow_raw(KNOWN.kept.records.load(Ordering::SeqCst)) };
        let mut head = [0; 256];
        rustix::io::pread(file, &mut head, 0).unwrap();
        let is_there = head
            .chunks(8)
            .any(|word| word == 0x1234_5678_u64.to_ne_bytes());
        end(End::Uninstalled);
        settings::keep_in_tests(None);
        // Without a server, the working directory is the data directory.
        let _ = std::fs::remove_file(plan::data_directory().join(crate::token::NAME));
        assert!(
            is_there,
            "records lie in one file, and room is made in another: what is touched beyond the first is SIGBUS"
        );
    }
}
