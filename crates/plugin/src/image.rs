//! What outlives the machine's restart, after a clean stop: when the image ([`file`]) is written, taken and made invalid.
//!
//! 1. [`prepare`], when a server that stops ends the plugin and leaves something. [`at_end`], when its main thread ends the process:
//!    InnoDB is gone. The writers are ended, the cache files synced, and what lies in memory is copied.
//! 2. [`restore`], when a process begins that finds nothing in memory. The image is copied there, and is made invalid before anything of
//!    it is believed. So it is used once.
//! 3. [`discard`], when it is known to be of no use.
//!
//! All of it is done in a thread of its own, which the server leaves after [`LONGEST_END`], or [`PATIENCE`]: the disk may hang.
//! (The kernel ends no process that has a request under way. A disk that is known not to answer is not asked.)
//! An image that is left behind all the same, and found later, is of use to nobody: InnoDB's redo log is another one then (the fence).

mod file;

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use extension::OwnerIdentity;
use parking_lot::Mutex;

use crate::fence::{self, Fence};
use crate::label::{LABEL, Label};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan;
use crate::process::{CORE, KNOWN, Leaving};
use file::{Head, Image, Refused, useless};

/// How long its start waits.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How long whoever switches the extension on late waits, which the server does not.
const PATIENCE_LATE: Duration = Duration::from_secs(10);
/// How long the server's end waits for the image. Then there is none.
const LONGEST_END: Duration = Duration::from_secs(5);
/// How much of that is for writes of the cache that are under way.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// The server stops, and will leave what is cached: an image of it is written at its very end.
pub fn prepare(owner: OwnerIdentity) {
    let leaving = plan::first_path()
        .zip(data_device())
        .and_then(|(place, data_device)| {
            Some(Leaving {
                place,
                label: Label::now(owner.0).ok()?,
                data_device,
            })
        });
    *KNOWN.kept.leaving.lock() = leaving;
}

/// At the process's end [`at_end`] is called. Once for each process.
pub fn watch_the_end() {
    extern "C" fn ends() {
        let _ = std::panic::catch_unwind(at_end);
    }
    // SAFETY: the library stays loaded. Without room for it there is no image.
    unsafe { libc::atexit(ends) };
}

/// The process ends. Does nothing but in its main thread, once, after [`prepare`].
pub fn at_end() {
    let process = rustix::process::getpid();
    // A child of the server that ends is not the server.
    let is_server = KNOWN.kept.process.load(Ordering::SeqCst) == process.as_raw_nonzero().get();
    if !is_server || rustix::thread::gettid() != process {
        return;
    }
    let leaving = KNOWN.kept.leaving.try_lock();
    let Some(leaving) = leaving.and_then(|mut leaving| leaving.take()) else {
        return;
    };
    let began = Instant::now();
    let left = within(LONGEST_END, move || leaving.write());
    let why = match left {
        Some(Ok(bytes)) => {
            let took = began.elapsed().as_millis();
            return Linux.note(&format!(
                "what is cached will be there after a restart of the machine, too: {bytes} bytes were written beside the cache file in {took} ms"
            ));
        }
        Some(Err(why)) => why,
        None => "the cache disk has not answered in time".into(),
    };
    Linux.note(&format!(
        "what is cached will be lost if the machine is restarted now: {why}"
    ));
}

impl Leaving {
    /// Bytes written.
    fn write(&self) -> Result<u64, String> {
        let guard = CORE.switch().active();
        let active = guard.as_ref().ok_or("the extension is off")?;
        let redo = fence::folder().ok_or("it was not seen where InnoDB has its redo log")?;
        let fence = fence::of(redo)?;
        let frozen = active.extension.freeze(LONGEST_REST);
        let frozen = frozen.ok_or("a cache disk does not answer")?;
        for path in &frozen.devices {
            let device = extension::open_own(path).map_err(|error| error.to_string())?;
            let device = device.ok_or("a cache file is gone")?;
            device.sync_data().map_err(|error| error.to_string())?;
        }
        let records = KNOWN.kept.records.load(Ordering::SeqCst);
        if records < 0 {
            return Err("the plugin was uninstalled".into());
        }
        // SAFETY: it is closed only when the plugin is uninstalled, which needs a session.
        let records = File::from(
            unsafe { BorrowedFd::borrow_raw(records) }
                .try_clone_to_owned()
                .map_err(|error| error.to_string())?,
        );
        let length = |file: &File| file.metadata().map(|metadata| metadata.len());
        let parts = length(&records).and_then(|records| Ok([records, length(&frozen.arena)?]));
        let head = Head {
            owner: self.label.owner,
            boot: self.label.boot,
            data_device: self.data_device,
            fence,
            redo: redo.into(),
            session: frozen.session,
            parts: parts.map_err(|error| error.to_string())?,
            number: frozen.session ^ CORE.os().since_boot() as u64,
        };
        file::write(&self.image(), &head, [&records, &frozen.arena])
    }

    fn image(&self) -> PathBuf {
        image_at(&self.place, &OwnerIdentity(self.label.owner))
    }
}

/// Where the image of the server is whose first cache file is, or is in, this. Asks the disk.
fn image_at(first: &Path, owner: &OwnerIdentity) -> PathBuf {
    let folder = match first.parent() {
        Some(parent) if !first.is_dir() => parent,
        _ => first,
    };
    folder.join(format!("{}.image", plan::stem(owner)))
}

fn data_device() -> Option<u64> {
    Some(std::fs::metadata(plan::data_directory()).ok()?.dev())
}

/// Does something that may have to wait for a disk. `None` if it takes longer.
fn within<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    let thread = Linux.spawn("bpe-image", move || {
        let _ = sender.send(body());
    });
    let (thread, result) = (thread.ok()?, receiver.recv_timeout(limit).ok()?);
    // It is at its end, and nobody should find it afterwards.
    let _ = thread.join();
    Some(result)
}

/// An image that may be there is of no use to anybody any more. What cannot be made sure of does no harm.
pub fn discard(owner: &OwnerIdentity) {
    if let Some(first) = plan::first_path() {
        let owner = *owner;
        let discarded = within(PATIENCE, move || file::discard(&image_at(&first, &owner)));
        if let Some(Err(why)) = discarded {
            Linux.warning(&format!("an image of what was cached may be left: {why}"));
        }
    }
}

/// Where an image is copied to. Whoever has this taken away from him writes there no more.
struct Target {
    records: File,
    arena: Option<File>,
}

type Shared = Arc<Mutex<Option<Target>>>;

/// Copies an image of this server to memory, if there is one that was written in another start of the machine, and nobody has run InnoDB
/// since. Then it is not there any more. `records` are locked, and have no label. `is_late`: InnoDB runs, and so its log says nothing, and
/// must not be opened: to close it would take InnoDB's locks away. All of it is to be compared then.
pub fn restore(
    owner: &OwnerIdentity,
    label: &Label,
    records: &File,
    is_late: bool,
) -> Option<Restored> {
    let (first, now) = (plan::first_path()?, data_device()?);
    let (arena, of) = (plan::kept_in(owner, "arena"), *owner);
    let (patience, fence) = match is_late {
        true => (PATIENCE_LATE, None),
        false => (PATIENCE, Some(fence::of as fn(&Path) -> _)),
    };
    let path = move || image_at(&first, &of);
    match take(path, *label, arena, records, fence, patience) {
        Ok(head) => {
            let head = head?;
            Some(Restored {
                devices: (head.data_device, now),
                redo: head.redo,
            })
        }
        Err(why) => {
            Linux.warning(&format!(
                "what was cached before the machine's restart is not used: {why}"
            ));
            None
        }
    }
}

/// What was copied, before any of it is believed.
pub struct Restored {
    /// The numbers of the device of the data directory, then and now.
    pub devices: (u64, u64),
    /// The folder of the redo log that was the same then and now.
    pub redo: PathBuf,
}

/// All of it, or nothing. `fence`: what the log in a folder is now, if that is to be asked.
fn take(
    path: impl FnOnce() -> PathBuf + Send + 'static,
    label: Label,
    arena: PathBuf,
    records: &File,
    fence: Option<impl FnOnce(&Path) -> Result<Fence, String> + Send + 'static>,
    patience: Duration,
) -> Result<Option<Head>, String> {
    let target = Target {
        records: records.try_clone().map_err(|error| error.to_string())?,
        arena: None,
    };
    let target: Shared = Arc::new(Mutex::new(Some(target)));
    let copied = {
        let (target, arena) = (Arc::clone(&target), arena.clone());
        within(patience, move || {
            copy(&path(), &label, &arena, &target, fence)
        })
    };
    // Its locks go with it.
    let target = target.lock().take();
    let why = match copied {
        Some(Ok(head)) => return Ok(Some(head)),
        Some(Err(Refused::Absent)) => return Ok(None),
        Some(Err(Refused::Useless(why) | Refused::Failed(why))) => why,
        None => "the cache disk has not answered in time".into(),
    };
    let _ = records.set_len(0);
    if let Some(copy) = target.and_then(|target| target.arena) {
        let _ = copy.set_len(0);
        let _ = std::fs::remove_file(&arena);
    }
    Err(why)
}

fn copy(
    path: &Path,
    label: &Label,
    arena: &Path,
    target: &Shared,
    fence: Option<impl FnOnce(&Path) -> Result<Fence, String>>,
) -> Result<Head, Refused> {
    // InnoDB may use its log, once the server has left this thread behind: to read and close it would take InnoDB's locks away.
    let fence = fence.map(|fence| {
        |redo: &Path| match target.lock().is_some() {
            true => fence(redo),
            false => Err("it took too long".into()),
        }
    });
    let image = match Image::open(path).and_then(|image| suits(image, label, fence)) {
        Err(why @ (Refused::Useless(_) | Refused::Absent)) => {
            // One that was not finished, too.
            let _ = file::discard(path);
            return Err(why);
        }
        other => other?,
    };
    let copied = fill(&image, label, arena, target);
    let head = image.head().clone();
    // Before anything of it is believed; and if that cannot be, too.
    match (image.discard(), copied) {
        (_, Err(why)) => Err(why),
        (Err(error), Ok(())) => Err(Refused::Failed(format!(
            "it cannot be made invalid: {error}"
        ))),
        (Ok(()), Ok(())) => Ok(head),
    }
}

fn fill(image: &Image, label: &Label, arena: &Path, target: &Shared) -> Result<(), Refused> {
    let gone = || io::Error::other("it took too long");
    {
        // Held meanwhile: nobody waits for the lock of an arena that is left behind.
        let mut target = target.lock();
        let target = target.as_mut().ok_or_else(gone)?;
        let arena = extension::open_in_memory(arena)?;
        target.records.set_len(0)?;
        arena.set_len(0)?;
        target.arena = Some(arena);
    }
    image.read(|part, at, block| {
        let target = target.lock();
        let target = target.as_ref().ok_or_else(gone)?;
        let file = match part {
            0 => Some(&target.records),
            _ => target.arena.as_ref(),
        };
        let file = file.ok_or_else(gone)?;
        if (part, at) != (0, 0) {
            return file.write_all_at(block, at);
        }
        // Of this start of the machine it becomes when nothing can go wrong any more.
        let (was, rest) = block.split_at_checked(LABEL).ok_or_else(gone)?;
        if was != label.of_boot(image.head().boot).bytes() {
            return Err(io::Error::other("another version has written it"));
        }
        file.write_all_at(rest, LABEL as u64)
    })
}

/// Whether this process may use it.
fn suits(
    image: Image,
    label: &Label,
    fence: Option<impl FnOnce(&Path) -> Result<Fence, String>>,
) -> Result<Image, Refused> {
    let head = image.head();
    if head.owner != label.owner {
        return Err(Refused::Failed("it is another server's".into()));
    }
    if head.boot == label.boot {
        return Err(useless("the machine was not restarted since"));
    }
    let Some(fence) = fence else {
        return Ok(image);
    };
    match fence(&head.redo) {
        Ok(_) if coherence::left_out!("fence") => Ok(image),
        Ok(fence) if fence == [0; 4] || head.fence != fence => {
            Err(useless("InnoDB has run without it since"))
        }
        Ok(_) => Ok(image),
        Err(why) => Err(Refused::Useless(why)),
    }
}

#[cfg(test)]
mod tests;
