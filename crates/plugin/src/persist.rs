//! What this process leaves to the next one, and takes over from the one before: where it lies, and when.
//!
//! Two files on a file system in memory have the name of the cache files: `.arena` is the extension's ([`extension::Config::arena`]), and
//! `.files` has the records of the data files ([`coherence::manifest`]). Both are this process's alone, and are mapped as long as it
//! lives.
//!
//! 1. [`begin`], while the server initialises the plugin: if it was loaded early and shall be on, and a process before has
//!    left something, files are followed from here on.
//! 2. [`inherits`] and [`hand_over`], when the extension is opened. If InnoDB has started before, because the plugin was loaded
//!    late or the extension was off, what was left is taken over here, and all of it is compared before it is served.
//! 3. [`End`] and [`end`], when the plugin goes.
//!
//! Over a restart of the machine they are kept by the [`image`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coherence::inheritance::Reasons;
use coherence::manifest::{Head, Manifest, Memory, Record};
use extension::{Extension, OwnerIdentity};
use rustix::fs::FallocateFlags;

use crate::label::{self, Label};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan::{self, Plan};
use crate::process::{CORE, KNOWN};
use crate::settings::{self, Persist, Settings};
use crate::{clock, fence, image, scan};

/// Bytes before the records: a page of memory.
const HEAD: usize = 4096;
/// InnoDB is seen at work for so long, and its log is not: then it will not be.
const LONGEST_START: Duration = Duration::from_secs(60);
/// After so long the times of a file are those of its last change, and of no other; and how often that is waited for.
const SETTLED: Duration = Duration::from_millis(25);
const MOST_WAITS: u32 = 20;
/// Where in the head the folder of a log is named, and bytes of that at most.
const LOG: u64 = 2048;
const LONGEST_LOG: usize = HEAD - LOG as usize;
/// Files beyond this are new to the next process.
const RECORDS: usize = 64 << 10;
/// There is room for so many at first.
const FIRST_RECORDS: usize = 512;
/// How long the server waits for what was left, at its start; and for what is staged to be written, at its end.
pub const PATIENCE: Duration = image::PATIENCE;

/// Whether InnoDB has opened files before somebody who looks for what was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    Early,
    Late,
}

/// The server is starting, and the extension shall be on. Whether something is taken over now: then files are followed, and the server
/// should wait for the extension a moment. `early`: InnoDB has not started, and the extension does not wait for that.
pub fn begin(early: bool) -> bool {
    let owner = plan::owner();
    if settings::persist() == Persist::Off {
        // What was left before it was switched off.
        remove(&owner);
        return false;
    }
    if !early {
        return false;
    }
    // Errors are said when the extension is opened.
    let Ok(Some(session)) = open(&owner, Some(Comes::Early)) else {
        return false;
    };
    if CORE.files.inherit() == 0 {
        return false;
    }
    KNOWN.kept.session.store(session, Ordering::SeqCst);
    CORE.switch().start_tracking(|| ());
    true
}

/// The server goes on with its start, which was held up for so long.
pub fn held_up(time: Duration) {
    KNOWN.kept.held_up.store(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        Ordering::SeqCst,
    );
}

/// How long the server's start was held up, milliseconds.
pub fn held_up_for() -> u64 {
    KNOWN.kept.held_up.load(Ordering::SeqCst)
}

/// What was taken over, and what has become of it.
#[derive(Default)]
pub struct Taken {
    /// Pages that the active extension has taken over, and such that were lost with the process before.
    pub pages: u64,
    pub dropped: u64,
    /// Files and their pages, more or less: those that are believed, those that are compared before they are served, those that are
    /// lost, and those that were not opened yet.
    pub trusted: (u64, u64),
    pub doubtful: (u64, u64),
    pub lost: (u64, u64),
    pub left: (u64, u64),
    /// Why some are doubtful or lost.
    pub reasons: Reasons,
    pub lost_reasons: Reasons,
    /// Pages that are still to be compared, and such that were and are equal.
    pub to_compare: u64,
    pub verified: u64,
}

/// The same of the active extension; all zero if it has taken over nothing.
pub fn inherited() -> Taken {
    let guard = CORE.switch().active();
    let Some(active) = guard.as_ref() else {
        return Taken::default();
    };
    let verified = CORE.switch().doubts.verified();
    let (unfinished, mut to_compare) = CORE.files.to_compare();
    if !active.extension.inherited().any {
        // It may have been off meanwhile.
        return Taken {
            to_compare,
            verified,
            ..Taken::default()
        };
    }
    let (engine, mut became) = (
        active.extension.inherited(),
        CORE.files.inheritance.became(),
    );
    let parts = [became.trusted, became.doubtful, became.lost, became.left];
    let (files, pages) = parts.iter().fold((0, 0), |sum: (u64, u64), part| {
        (sum.0 + part.0, sum.1 + part.1)
    });
    if pages < engine.pages / 2 {
        // They were not counted lately, or are too many to be: the same of each file.
        let each = |files_of: u64| engine.pages * files_of / files.max(1);
        for part in [
            &mut became.trusted,
            &mut became.doubtful,
            &mut became.lost,
            &mut became.left,
        ] {
            part.1 = each(part.0);
        }
        to_compare = each(unfinished).saturating_sub(verified);
    }
    Taken {
        pages: engine.pages,
        dropped: engine.dropped,
        trusted: (became.trusted.0, became.trusted.1.min(engine.pages)),
        doubtful: became.doubtful,
        lost: became.lost,
        left: became.left,
        reasons: became.reasons,
        lost_reasons: became.lost_reasons,
        to_compare,
        verified,
    }
}

/// Makes sure that there is something to leave to the next process.
///
/// # Errors
/// Why there cannot be.
pub fn ensure(owner: OwnerIdentity) -> Result<(), String> {
    if settings::persist() == Persist::Off || is_kept() {
        return Ok(());
    }
    open(&owner, None).map(|_| ())
}

/// The session of the cache that is to be taken over. Asked once.
pub fn inherits() -> Option<u64> {
    let followed = CORE.switch().mode().follows();
    let early = KNOWN.kept.session.swap(0, Ordering::SeqCst);
    let early = Some(early).filter(|&session| session != 0 && followed);
    early.or_else(inherits_late)
}

/// The same if nobody has looked yet what was left, for InnoDB had started. Nobody follows files for the extension meanwhile.
fn inherits_late() -> Option<u64> {
    if !comes_late() {
        return None;
    }
    // Errors are said by whoever makes sure that there is something to leave.
    let session = open(&plan::owner(), Some(Comes::Late)).ok()??;
    let files = CORE.files.inherit_late();
    // Whatever log InnoDB has, all is compared. Not before: the next process would believe what it must not.
    release();
    if is_of_image() {
        // Records that are of no start of the machine yet.
        let labelled = Label::now(plan::owner().0).and_then(write_label);
        if labelled.is_err() {
            return None;
        }
    }
    KNOWN.kept.late.store(files > 0, Ordering::SeqCst);
    (files > 0).then_some(session)
}

/// Whether what was taken over is compared because InnoDB had started before.
pub fn is_late() -> bool {
    KNOWN.kept.late.load(Ordering::SeqCst)
}

/// How the cache that is to be taken over is laid out, if it is by these settings: bytes of memory, and of each device.
pub fn remembered(settings: &Settings) -> Option<(u64, Vec<u64>)> {
    let manifest = CORE.switch().manifest()?;
    let (memory, sizes) = manifest.remembered(settings.layout_digest())?;
    plan::suits_memory(settings, memory).then_some((memory, sizes))
}

/// Whether what was left may be taken over late when the extension is opened. Then it is used up, whether that succeeds or not.
pub fn comes_late() -> bool {
    settings::persist() != Persist::Off && !is_kept()
}

/// An extension was opened by this plan, for pages of so many bytes.
pub fn hand_over(extension: &Extension, settings: &Settings, plan: &Plan, page: u32) {
    let Some(manifest) = CORE.switch().manifest() else {
        return;
    };
    manifest.lay_out_for(page);
    let sizes: Vec<u64> = plan.devices().iter().map(|device| device.bytes).collect();
    manifest.remember(settings.layout_digest(), plan.memory_limit(), &sizes);
    if extension.inherited().any {
        CORE.files.hand_over(extension);
    } else {
        CORE.files.forget_kept();
        manifest.took_nothing();
    }
}

/// What becomes of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is uninstalled, which a session does.
    Uninstalled,
    /// The server stops, and nothing is to be left.
    Stopped,
    /// The server stops, and had nothing to leave: what the process before has left is none of its business.
    Untouched,
    /// The server stops, and the extension is to be left as it is.
    Left,
}

impl End {
    /// Asked by whoever ends it.
    pub fn now() -> End {
        let is_main = rustix::thread::gettid() == rustix::process::getpid();
        match settings::persist() {
            _ if !is_main => End::Uninstalled,
            Persist::Restart if is_kept() => End::Left,
            Persist::Restart => End::Untouched,
            Persist::Off => End::Stopped,
        }
    }
}

/// The plugin goes, and the controller was told. What is left is written where it is staged.
pub fn end(how: End) {
    let guard = CORE.switch().active();
    if let Some(active) = guard.as_ref().filter(|_| how == End::Left) {
        KNOWN.kept.ends.store(true, Ordering::SeqCst);
        match CORE.files.drop_changed() {
            0 => {}
            files => Linux.warning(&format!(
                "{files} data files were changed by somebody else than the server; what was cached of them is dropped"
            )),
        }
        let until = Instant::now() + PATIENCE;
        while active.extension.staged_bytes() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // InnoDB may have closed all files just before.
        if CORE.files.settle_closed() {
            std::thread::sleep(SETTLED);
            CORE.files.settle_closed();
        }
        note(&active.extension);
        if !is_of_image() {
            CORE.files.leave_unopened();
        }
        return image::prepare(plan::owner());
    }
    let owner = plan::owner();
    // What the process before has left stays for the next one, if this one could not or should not use it.
    let is_used_up = is_kept() && !plan::kept_in(&owner, "arena").exists();
    if matches!(how, End::Uninstalled | End::Stopped) || is_used_up {
        remove(&owner);
    }
}

/// The server is about to close a data file. One that was changed just now could be changed once more, and have the same times: once
/// the machine has restarted it would not be believed. So a server that stops waits for a tick of the clock, in all
/// [`SETTLED`] times [`MOST_WAITS`] at most. Those that it closes afterwards are settled then, too. What it has closed before is looked
/// at by [`end`].
pub fn settle(fd: i32) {
    if !KNOWN.kept.ends.load(Ordering::Relaxed) {
        return;
    }
    let Some(stat) = Linux.stat(fd) else { return };
    let changed = i128::from(stat.changed.0) * 1_000_000_000 + i128::from(stat.changed.1);
    // Less than nothing: file systems may keep finer times than that clock.
    let passed = clock::file_time() - changed;
    let left = (SETTLED.as_nanos() as i128 - passed).min(2 * SETTLED.as_nanos() as i128);
    if let Ok(left @ 1..) = u64::try_from(left)
        && KNOWN.kept.waits.fetch_add(1, Ordering::Relaxed) < MOST_WAITS
    {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// Notes what the next process wants to know, from time to time.
pub fn note(extension: &Extension) {
    look_for_log();
    CORE.files.note_pages(extension);
    note_clocks();
}

/// The same, of the clocks alone.
pub fn note_clocks() {
    if let Some(manifest) = CORE.switch().manifest() {
        manifest.note_clocks(&Linux);
    }
}

/// Whether there is a file with the records of this process.
fn is_kept() -> bool {
    KNOWN.kept.records.load(Ordering::SeqCst) >= 0
}

/// Nothing is left.
fn remove(owner: &OwnerIdentity) {
    image::discard(owner);
    let ours = KNOWN.kept.records.swap(-1, Ordering::SeqCst);
    for (kind, is_open) in [("arena", false), ("files", ours >= 0)] {
        let path = plan::kept_in(owner, kind);
        // Another server that uses it has locked it.
        if is_open || path.exists() && extension::open_in_memory(&path).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
    if ours >= 0 {
        // SAFETY: it was this function's alone from the exchange on. What it is mapped to stays.
        drop(unsafe { OwnedFd::from_raw_fd(ours) });
    }
}

/// Opens the records, and keeps them. The session of what is left, if it shall be taken over (`comes`) and is of use at all. Those of an
/// image are about a log that InnoDB has written to, once somebody comes late. They have no label before he has read and cleared them.
fn open(owner: &OwnerIdentity, comes: Option<Comes>) -> Result<Option<u64>, String> {
    let path = plan::kept_in(owner, "files");
    let file = extension::open_in_memory(&path).map_err(|error| error.to_string())?;
    check_ours(&file).map_err(|error| failed(&path, &error))?;
    let label = Label::now(owner.0).map_err(|error| failed(&path, &error))?;
    let is_late = comes == Some(Comes::Late);
    let of_image = match CORE.switch().manifest() {
        None if comes.is_some() && !label.is_of(&file) => {
            image::restore(owner, &label, &file, is_late)
        }
        _ => {
            image::discard(owner);
            None
        }
    };
    if let Some(manifest) = CORE.switch().manifest() {
        // Of an installation before: the library stays loaded, and with it the records.
        map_again(file, &label, manifest).map_err(|error| failed(&path, &error))?;
        manifest.clear();
        return Ok(None);
    }
    let labelled = file.try_clone().map_err(|error| failed(&path, &error))?;
    let is_ours = of_image.is_some() || label.is_of(&file);
    let manifest = map(file, &label, is_ours).map_err(|error| failed(&path, &error))?;
    let left = manifest.session();
    let crashed = manifest.crashed_soon();
    if crashed && left.is_some() && comes.is_some() {
        Linux.warning(
            "the server crashed within 10 minutes after it had taken over what was cached; the cache starts empty this time",
        );
    }
    if let Some(restored) = &of_image {
        manifest.of_another_boot(restored.devices);
        // Whoever dies before has left nothing of this start.
        let written = match is_late {
            true => Ok(()),
            false => name_log(&labelled, &restored.redo)
                .and_then(|()| labelled.write_all_at(&label.bytes(), 0)),
        };
        if let Err(error) = written {
            manifest.clear();
            return Err(failed(&path, &error));
        }
    }
    match named_log(&labelled) {
        Ok(None) => {}
        _ if is_late => {}
        log => {
            if let Ok(Some(folder)) = log {
                let _ = KNOWN.kept.fenced.set(folder);
            }
            CORE.files.inheritance.withhold();
            KNOWN.bypassing.again(&CORE);
        }
    }
    let session = left.filter(|_| comes.is_some() && !crashed && manifest.given().is_some());
    if session.is_none() {
        manifest.clear();
        release();
        if of_image.is_some() {
            write_label(label).map_err(|error| failed(&path, &error))?;
        }
    }
    let is_of_image = of_image.is_some() && session.is_some();
    KNOWN.kept.of_image.store(is_of_image, Ordering::SeqCst);
    let process = rustix::process::getpid().as_raw_nonzero().get();
    KNOWN.kept.process.store(process, Ordering::SeqCst);
    CORE.switch().keep(manifest);
    image::watch_the_end();
    Ok(session)
}

/// The records are of this server, and of this start of the machine.
fn write_label(label: Label) -> io::Result<()> {
    let file = KNOWN.kept.records.load(Ordering::SeqCst);
    // SAFETY: it is closed only when the plugin is uninstalled, which waits for whoever opens the extension.
    let file = (file >= 0).then(|| unsafe { BorrowedFd::borrow_raw(file) });
    let file = file.ok_or_else(|| io::Error::other("the plugin was uninstalled"))?;
    match rustix::io::pwrite(file, &label.bytes(), 0)? == label.bytes().len() {
        true => Ok(()),
        false => Err(io::Error::other("no room")),
    }
}

/// Whether what was taken over was left before the machine's restart.
pub fn is_of_image() -> bool {
    KNOWN.kept.of_image.load(Ordering::SeqCst)
}

/// Nothing of what was left is served before InnoDB has opened its log in this folder: the records were left in another start of
/// the machine, and no other log is known to be as it was. It stands beside the records, since a process may end before InnoDB begins.
fn name_log(file: &File, folder: &Path) -> io::Result<()> {
    let name = folder.as_os_str().as_bytes();
    let mut text = [0; LONGEST_LOG];
    let place = text.get_mut(..name.len());
    place
        .ok_or_else(|| io::Error::other("the redo log's folder has too long a name"))?
        .copy_from_slice(name);
    file.write_all_at(&text, LOG)
}

/// The same of a process before, if nobody has opened that log since.
fn named_log(file: &File) -> io::Result<Option<PathBuf>> {
    let mut text = [0; LONGEST_LOG];
    file.read_exact_at(&mut text, LOG)?;
    let name = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| OsStr::from_bytes(name).into()))
}

/// Whether nothing may be served before InnoDB's log was seen.
pub fn waits_for_log() -> bool {
    CORE.files.inheritance.is_withheld()
}

/// The server has opened a file under this name.
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

/// What was left before the machine's start is of no use with another log.
fn log_is_in(folder: &Path) {
    if waits_for_log() {
        let is_other = |fenced: &PathBuf| fenced != folder;
        if KNOWN.kept.fenced.get().is_none_or(is_other) {
            disbelieve();
        }
        release();
    }
}

fn disbelieve() {
    CORE.files.disbelieve();
    Linux.warning(
        "what was cached before the machine's restart is not used: InnoDB has its redo log elsewhere now",
    );
}

/// Learns where the log is, while InnoDB runs, if it was not seen when it was opened.
fn look_for_log() {
    let since = KNOWN.kept.withheld_since.get_or_init(Instant::now);
    if let Some(folder) = fence::look() {
        log_is_in(folder);
    } else if waits_for_log() && since.elapsed() > LONGEST_START && scan::innodb_is_running(&Linux)
    {
        // It was opened under another name, or names cannot be read.
        disbelieve();
        release();
    }
}

fn release() {
    let file = KNOWN.kept.records.load(Ordering::SeqCst);
    if file >= 0 {
        // SAFETY: it is closed only when the plugin is uninstalled, and what is written is a folder that nobody waits for any more.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let _ = rustix::io::pwrite(file, &[0; LONGEST_LOG], LOG);
    }
    CORE.files.inheritance.release();
    // A server that stops serves no more.
    if !KNOWN.kept.ends.load(Ordering::SeqCst) {
        KNOWN.bypassing.again(&CORE);
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot use '{}': {error}", path.display())
}

/// Fails if somebody else has written the file.
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

/// Maps the file for as long as the process lives. It is all zero, but for the label, if it is not ours.
fn map(file: File, label: &Label, is_ours: bool) -> io::Result<Manifest> {
    let length = file.metadata()?.len();
    let mut room = (length.saturating_sub(HEAD as u64) / size_of::<Record>() as u64) as usize;
    if !is_ours || room < FIRST_RECORDS {
        // Of another start, version or server.
        room = FIRST_RECORDS;
        make(&file, label, room)?;
    }
    // SAFETY: a new mapping.
    let start = unsafe { map_at(std::ptr::null_mut(), 0, &file)? };
    // SAFETY: mapped above, zero or words of an earlier process, and aligned to a page of memory.
    let (head, records) = unsafe {
        let head = &*start.cast::<Head>();
        let records = start.cast::<u8>().add(HEAD).cast::<Record>();
        (head, std::slice::from_raw_parts(records, RECORDS))
    };
    const { assert!(size_of::<Head>() as u64 <= LOG && HEAD % align_of::<Record>() == 0) };
    // It is locked as long as it is open.
    KNOWN
        .kept
        .records
        .store(file.into_raw_fd(), Ordering::SeqCst);
    let memory = Memory {
        now: clock::file_time,
        grow: |records| {
            let file = KNOWN.kept.records.load(Ordering::SeqCst);
            // SAFETY: it is closed only after the plugin was uninstalled, when no file is followed any more.
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

/// Maps a new file where the records of this process are.
fn map_again(file: File, label: &Label, manifest: &Manifest) -> io::Result<()> {
    make(&file, label, manifest.room())?;
    let start = std::ptr::from_ref(manifest.head()).cast_mut().cast();
    // SAFETY: the mapping there is replaced as a whole, by one in which as much may be touched. Its words are atomic, and may have any
    // value at any time.
    unsafe { map_at(start, libc::MAP_FIXED, &file)? };
    KNOWN
        .kept
        .records
        .store(file.into_raw_fd(), Ordering::SeqCst);
    Ok(())
}

/// # Safety
/// With `MAP_FIXED` what is there must be a mapping by this function. The file must be locked by this process, and is never made
/// shorter. What lies behind its end must not be touched before it was made longer.
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

/// So that there is room when it is touched: a file system in memory that is full would kill the server.
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

    /// `UNINSTALL PLUGIN`, then `INSTALL PLUGIN` with `bpe_enabled = ON`: the library stays loaded, and with it the records.
    #[test]
    fn records_and_the_file_that_grows_with_them_are_the_same_after_a_second_installation() {
        let _turn = crate::process::UNDER_TEST.lock();
        settings::PERSIST.store(1, Ordering::SeqCst);
        begin(true);
        end(End::Uninstalled);
        begin(true);
        let manifest = CORE.switch().manifest().unwrap();
        manifest.lay_out_for(0x1234_5678);
        // SAFETY: it is never closed.
        let file = unsafe { BorrowedFd::borrow_raw(KNOWN.kept.records.load(Ordering::SeqCst)) };
        let mut head = [0; 256];
        rustix::io::pread(file, &mut head, 0).unwrap();
        let is_there = head
            .chunks(8)
            .any(|word| word == 0x1234_5678_u64.to_ne_bytes());
        end(End::Uninstalled);
        settings::PERSIST.store(0, Ordering::SeqCst);
        assert!(
            is_there,
            "records lie in one file, and room is made in another: what is touched beyond the first is SIGBUS"
        );
    }
}
