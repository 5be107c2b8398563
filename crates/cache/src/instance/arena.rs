//! The arena: memory that outlives the process. Holds the directories and the segments' sequence numbers, in a file of an
//! in-memory file system.
//!
//! The contents survive the process, however it ends. At any instruction at which it may end, each entry in the arena was
//! entered completely ([`crate::index::directory`]), and an entry is removed before its page is written. So the next process finds
//! a state that was true at the end. Staged pages are lost. All other state is rebuilt (`recovering.rs` in [`crate::api`]).
//!
//! File format; integers are in native byte order, since the file never leaves the host:
//!
//! | from | contents |
//! |---|---|
//! | 0 | head: magic `BPEARENA`, version u64, layout u64, session u64 (0: the contents are unusable), owner 16 bytes |
//! | first page of memory | for each device the sequence number u32, less one, of each segment; each device starts at a whole page |
//! | behind | for each instance its directory; each starts at a whole page of memory, or huge page if it is as large |
//!
//! The layout is a hash of everything that determines the positions of the parts. An arena with another layout is created
//! anew. The session equals that of the cache files: contents and directories are used together or not at all.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use twox_hash::XxHash3_64;

use crate::common::config::{Config, OpenError, OwnerIdentity};
use crate::common::memory::{HUGE_PAGE, Mapped, in_pages, page};
use crate::device::file::{self, failed, make_own, open_own};
use crate::device::segment::{Geometry, Table};
use crate::index::directory::Directory;

const MAGIC: u64 = u64::from_le_bytes(*b"BPEARENA");
/// 1: buckets of six entries, checks by XXH3.
const VERSION: u64 = 1;
const SESSION_OFFSET: usize = 24;
const OWNER_OFFSET: usize = 32;
const HEAD: usize = 48;
/// `f_type` of an in-memory file system.
const TMPFS: i64 = 0x0102_1994;

/// Positions of an arena's parts, and its owner.
#[derive(Debug)]
pub(crate) struct Layout {
    owner: OwnerIdentity,
    /// Start, and number of segments.
    sequences: Vec<(u64, u32)>,
    /// Start of each.
    directories: Vec<u64>,
    /// Pages for which the directory of an instance is sized.
    entries: u64,
    end: u64,
    hash: u64,
}

impl Layout {
    pub fn new(config: &Config, geometries: &[Geometry], entries: u64) -> Layout {
        // The file may be restored under a kernel with another page size (`image` of the plugin).
        let page = page() as u64;
        let mut end = page;
        let mut place = |bytes: u64| {
            let whole = if bytes >= HUGE_PAGE as u64 {
                HUGE_PAGE as u64
            } else {
                page
            };
            let start = end.next_multiple_of(whole);
            end = start + in_pages(bytes);
            start
        };
        let sequences = geometries
            .iter()
            .map(|g| (place(u64::from(g.segments) * 4), g.segments))
            .collect();
        let directory = Directory::memory_needed(entries);
        let directories: Vec<u64> = (0..config.instances).map(|_| place(directory)).collect();
        debug_assert!(directories.iter().all(|start| start % page == 0));
        let mut said = vec![
            config.instances.into(),
            entries,
            config.nominal_page.into(),
            page,
        ];
        for geometry in geometries {
            said.extend([
                geometry.base.into(),
                geometry.segments.into(),
                geometry.segment_bytes,
            ]);
        }
        let bytes: Vec<u8> = said
            .iter()
            .flat_map(|number: &u64| number.to_le_bytes())
            .collect();
        Layout {
            owner: config.devices[0].owner,
            sequences,
            directories,
            entries,
            end,
            hash: XxHash3_64::oneshot(&bytes),
        }
    }
}

/// Result of recovering the state of another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredEntries {
    pub pages: u64,
    /// Persisted entries that could not be recovered: of staged pages, or of a device without its contents.
    pub dropped: u64,
    /// Duration of the recovery.
    pub took: Duration,
    /// There was persisted state.
    pub any: bool,
    /// Why nothing will outlive this process, although the configuration requests it.
    pub refused: Option<String>,
}

/// Contents of an arena: the table of each device, and the directory of each instance.
pub(crate) struct Parts {
    pub tables: Vec<Table>,
    pub directories: Vec<Directory>,
}

pub(crate) struct Arena {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
    layout: Layout,
    /// Session of the process that persisted its state here, if it is recovered.
    recovered_session: Option<u64>,
    /// Session of the entries; 0: nothing may be entered yet.
    session: AtomicU64,
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Created for an extension that could not be opened.
        if self.recovered_session.is_none() && self.session().is_none() {
            self.discard();
        }
    }
}

impl Arena {
    /// Opens and locks the file, or creates it. Discards the state of any session other than `recover_session`.
    ///
    /// # Errors
    /// There can be no arena. The extension then works without one.
    pub fn open(
        path: &Path,
        layout: Layout,
        recover_session: Option<u64>,
    ) -> Result<(Arena, Parts), OpenError> {
        let file = open_in_memory(path)?;
        let recovered_session = look(path, &file, &layout)?
            .filter(|recovered_session| recover_session == Some(*recovered_session));
        let arena = Arena {
            path: path.to_path_buf(),
            file,
            layout,
            recovered_session,
            session: AtomicU64::new(0),
        };
        let full = || failed(path, "allocate", "make room there, or raise its limit");
        if arena.recovered_session.is_none() {
            arena.make().map_err(full())?;
        }
        let parts = arena.parts().map_err(full())?;
        Ok((arena, parts))
    }

    fn parts(&self) -> io::Result<Parts> {
        let Layout {
            sequences,
            directories,
            entries,
            ..
        } = &self.layout;
        let table = |&(start, segments): &(u64, u32)| {
            // SAFETY: the file is locked, so no other process maps it for writing. This process maps each part once and never
            // shortens the file.
            let kept: Mapped<AtomicU32> =
                unsafe { Mapped::of_file(&self.file, start, segments as usize)? };
            Ok(Table::with_sequences(segments, kept))
        };
        // SAFETY: as above.
        let directory = |&start: &u64| unsafe { Directory::of_file(&self.file, start, *entries) };
        Ok(Parts {
            tables: sequences.iter().map(table).collect::<io::Result<_>>()?,
            directories: directories
                .iter()
                .map(directory)
                .collect::<io::Result<_>>()?,
        })
    }

    /// Zeroes the file and writes a head without a session.
    fn make(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(self.layout.end)?;
        let mut head = [0; HEAD];
        for (at, number) in [MAGIC, VERSION, self.layout.hash, 0]
            .into_iter()
            .enumerate()
        {
            head[at * 8..][..8].copy_from_slice(&number.to_ne_bytes());
        }
        head[OWNER_OFFSET..].copy_from_slice(&self.layout.owner.0);
        self.file.write_all_at(&head, 0)
    }

    /// Session of the process whose state is recovered.
    pub fn recovered_session(&self) -> Option<u64> {
        self.recovered_session
    }

    /// Entries made from now on belong to this session.
    pub fn begin(&self, session: u64) {
        debug_assert_ne!(session, 0, "nothing may be entered under this session");
        self.session.store(session, Ordering::Relaxed);
        // After a failure nothing outlives the process.
        let _ = self.write_session(session);
    }

    /// Session of the entries.
    pub fn session(&self) -> Option<u64> {
        Some(self.session.load(Ordering::Relaxed)).filter(|&session| session != 0)
    }

    /// A duplicate of the open file.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn write_session(&self, session: u64) -> io::Result<()> {
        self.file
            .write_all_at(&session.to_ne_bytes(), SESSION_OFFSET as u64)
    }

    /// Makes the file unusable for later processes and removes it. Existing mappings remain valid.
    pub fn discard(&self) {
        let _ = self.write_session(0);
        let same = |metadata: fs::Metadata| {
            use std::os::unix::fs::MetadataExt;
            let ours = self.file.metadata();
            ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (metadata.dev(), metadata.ino()))
        };
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file on an in-memory file system for this process alone, or creates an empty one. As for cache files, it follows
/// no link and refuses a file that other users could change.
///
/// # Errors
/// The file or its place is unsuitable.
pub fn open_in_memory(path: &Path) -> Result<File, OpenError> {
    let file = match open_own(path)? {
        Some(file) => file,
        None => make_own(path)?,
    };
    let system = rustix::fs::fstatfs(&file);
    let advice = "name a place on one, such as /dev/shm";
    let system = system.map_err(|error| failed(path, "look at", advice)(error.into()))?;
    if system.f_type as i64 != TMPFS {
        let elsewhere = io::Error::other("it is not on a file system in memory (tmpfs)");
        return Err(failed(path, "use", advice)(elsewhere));
    }
    file::lock_alone(path, &file)?;
    Ok(file)
}

/// The session of a process that persisted its state in the same layout; `None` if there is no usable state.
///
/// # Errors
/// The file is foreign, and is not touched.
fn look(path: &Path, file: &File, layout: &Layout) -> Result<Option<u64>, OpenError> {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length == 0 {
        return Ok(None);
    }
    let path = path.to_path_buf();
    let mut head = [0; HEAD];
    if file.read_exact_at(&mut head, 0).is_err() {
        return Err(OpenError::Foreign { path });
    }
    let number = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    match (number(0), number(8), &head[OWNER_OFFSET..]) {
        // Its creator ended before it wrote the head.
        (0, 0, _) => return Ok(None),
        (MAGIC, VERSION, owner) if owner == layout.owner.0 => {}
        (MAGIC, VERSION, _) => return Err(OpenError::OtherOwner { path }),
        (MAGIC, _, _) => return Ok(None),
        _ => return Err(OpenError::Foreign { path }),
    }
    let same = number(16) == layout.hash && length == layout.end;
    Ok(Some(number(SESSION_OFFSET)).filter(|&session| same && session != 0))
}
