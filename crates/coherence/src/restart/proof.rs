//! Which persisted files are proven, and why another one is not.
//!
//! # Terms
//! - *Recovery* ([`Recovery`]): which proofs the records provide to this process, by what it found ([`Found::recovery`]).
//! - *Persisted file* ([`PersistedFile`]): a record of the previous process, until the server opens the file.
//! - *Rejection* ([`Rejection`]): the reason why a file is not proven. It stays for later processes, too.
//!
//! # Two steps
//! 1. At the start, [`Manifest::recover`] rejects a record that proves nothing, whatever the file is like now.
//! 2. At the file's first open, [`PersistedFile::prove_file`] compares the record with the file. Only equality proves it.
//!
//! [`stamp`](crate::restart::stamp) has the protocol and the argument.

use cache::FileId;

use crate::platform::os::{Os, Stat};
use crate::platform::sync::Ordering;
use crate::restart::manifest::{Manifest, Record, get, set};
use crate::restart::stamp::{FileIdentity, VOID, change_stamp, has_fraction};

/// Which proofs the records provide to a starting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Same boot of the host, and same mount of the data directory.
    SameMount {
        /// Stamps are fine ([`crate::restart::stamp`]).
        has_fine_stamps: bool,
    },
    /// A snapshot of a clean stop. Device number and superblock of the data directory, then and now.
    Image { device: (u64, u64), superblock: u64 },
    /// No proof: the pages are only listed for the loader. Device number of the data directory, then and now, and the reason.
    ListOnly {
        device: (u64, u64),
        superblock: u64,
        why: Rejection,
    },
}

/// Facts about the persisted state when a process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The data directory's current device number and superblock.
    pub device: u64,
    pub superblock: u64,
    /// The records are in memory, from this boot of the host and this mount of the data directory.
    pub is_same_mount: bool,
    /// The kernel has fine stamps.
    pub has_fine_stamps: bool,
    /// A snapshot was copied. Holds the data directory's device number when it was written. The flag is true if token and redo
    /// log are those of the stop that wrote it.
    pub image: Option<(u64, bool)>,
}

impl Found {
    /// Which proofs the records provide.
    pub fn recovery(&self) -> Recovery {
        let (now, superblock) = (self.device, self.superblock);
        match self.image {
            None if self.is_same_mount => Recovery::SameMount {
                has_fine_stamps: self.has_fine_stamps,
            },
            // No clean stop preceded the remount.
            None => Recovery::ListOnly {
                device: (now, now),
                superblock,
                why: Rejection::OtherMount,
            },
            Some((then, true)) => Recovery::Image {
                device: (then, now),
                superblock,
            },
            Some((then, false)) => Recovery::ListOnly {
                device: (then, now),
                superblock,
                why: Rejection::NoProof,
            },
        }
    }
}

/// Why the pages of a file are not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    Changed,
    OtherFile,
    OtherMount,
    OtherSubvolume,
    FileSystem,
    WholeSeconds,
    LastTick,
    Untracked,
    PageCache,
    NoProof,
}

impl Rejection {
    /// The human-readable reason.
    pub fn text(self) -> &'static str {
        match self {
            Rejection::Changed => "it was changed while the server was down",
            Rejection::OtherFile => "it is another file of the same number",
            Rejection::OtherMount => {
                "its file system was mounted again, and the server was not stopped cleanly before"
            }
            Rejection::OtherSubvolume => "its btrfs subvolume was replaced",
            Rejection::FileSystem => "its file system has no change stamps that prove anything",
            Rejection::WholeSeconds => "its file system keeps no fractions of a second",
            Rejection::LastTick => {
                "it was written right before the server ended, and this kernel has no fine stamps"
            }
            Rejection::Untracked => "a write to it was not tracked to its end",
            Rejection::PageCache => "it was written without O_DIRECT, and the server was killed",
            Rejection::NoProof => "InnoDB has run without the plugin since",
        }
    }

    /// Whether the file still contains the pages that were cached, perhaps in another version.
    pub fn keeps_pages(self) -> bool {
        self != Rejection::OtherFile
    }
}

impl Manifest {
    /// Recovers the persisted files. Returns the object number and the persisted state of each file.
    pub fn recover(&self, os: &impl Os, by: Recovery) -> Vec<(u32, PersistedFile)> {
        let was_killed = get(&self.head.stopped) == 0;
        let alive = self.head.alive.load(Ordering::SeqCst);
        let superblock = self.superblock();
        match by {
            Recovery::Image {
                superblock: now, ..
            }
            | Recovery::ListOnly {
                superblock: now, ..
            } => self.be_on(now),
            Recovery::SameMount { .. } => {}
        }
        let mut recovered = Vec::new();
        for (owner, record) in (1..).zip(self.known()) {
            match record.recover(by, superblock, alive, was_killed) {
                Some(file) => recovered.push((owner, file)),
                None => record.free(),
            }
        }
        set(&self.head.stopped, 0);
        self.note_life(os);
        set(&self.head.crashed, 0);
        set(&self.head.taken_over, get(&self.head.since_boot).max(1));
        recovered
    }
}

impl Record {
    /// Recovers the record for a starting process. `superblock`: of the previous data directory; `alive`: the last sign of life.
    fn recover(
        &self,
        by: Recovery,
        superblock: u64,
        alive: i64,
        was_killed: bool,
    ) -> Option<PersistedFile> {
        if get(&self.used) == 0 {
            return None;
        }
        let was_killed = was_killed || get(&self.superblock) != superblock;
        let mut rejection = None;
        let has_fine_stamps = match by {
            Recovery::SameMount { has_fine_stamps } => has_fine_stamps || canary!("tick-rule"),
            Recovery::Image {
                device,
                superblock: now,
            } => {
                // Files on other file systems: their current device number is unknown, and the token does not cover them.
                if get(&self.superblock) != superblock || get(&self.device) != device.0 {
                    return None;
                }
                set(&self.device, device.1);
                set(&self.superblock, now);
                false
            }
            Recovery::ListOnly { device, why, .. } => {
                if get(&self.device) == device.0 {
                    set(&self.device, device.1);
                }
                rejection = Some(why);
                true
            }
        };
        let stamp = self.stamp.load(Ordering::SeqCst);
        if !self.is_provable() {
            rejection = rejection.or(Some(Rejection::FileSystem));
        } else if stamp == 0 || stamp == VOID {
            rejection = rejection.or(Some(Rejection::Untracked));
        } else if !has_fraction(stamp) && !canary!("whole-seconds") {
            rejection = rejection.or(Some(Rejection::WholeSeconds));
        } else if !has_fine_stamps && stamp >= alive {
            rejection = rejection.or(Some(Rejection::LastTick));
        } else if was_killed && get(&self.buffered) != 0 && !canary!("page-cache") {
            rejection = rejection.or(Some(Rejection::PageCache));
        }
        // A clean stop syncs only the file system of the data directory.
        if !was_killed {
            set(&self.buffered, 0);
        }
        if rejection.is_some() {
            // Also for the process after this one, whether this one opens the file or not.
            self.reject();
        }
        let (shape, id) = (get(&self.shape), get(&self.id));
        let file = PersistedFile {
            identity: self.identity(),
            id: FileId(id as u32),
            page_size: shape as u32,
            first_page: (shape >> 32) as u32,
            pages: get(&self.pages),
            stamp,
            rejection,
        };
        // Without a page size no page of the file was cached.
        (file.page_size != 0).then_some(file)
    }
}

/// The persisted state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistedFile {
    pub identity: FileIdentity,
    pub id: FileId,
    /// Page size, bytes.
    pub page_size: u32,
    /// The file's first page number.
    pub first_page: u32,
    /// Approximate number of its cached pages.
    pub pages: u64,
    stamp: i64,
    /// Reason to reject the pages, independent of the file's current state.
    rejection: Option<Rejection>,
}

impl PersistedFile {
    /// Rejects the pages, whatever the file is like. The first reason stays.
    pub(crate) fn reject(&mut self, why: Rejection) {
        self.rejection.get_or_insert(why);
    }

    /// Proves that the cached pages are those of the opened file.
    ///
    /// # Errors
    /// The reason why they are not proven.
    pub fn prove_file(&self, file: &FileIdentity, stat: &Stat) -> Result<(), Rejection> {
        if canary!("inherit-blindly") {
            return Ok(());
        }
        if self.identity.inode != file.inode || self.identity.birth != file.birth {
            return Err(Rejection::OtherFile);
        }
        if let Some(rejection) = self.rejection {
            return Err(rejection);
        }
        let (Some(then), Some(now)) = (self.identity.system, file.system) else {
            return Err(Rejection::FileSystem);
        };
        if then.superblock != now.superblock && !canary!("superblock") {
            return Err(Rejection::OtherMount);
        }
        if then.subvolume != now.subvolume && !canary!("subvolume") {
            return Err(Rejection::OtherSubvolume);
        }
        let changed = change_stamp(stat);
        let is_same = if canary!("stamp-order") {
            changed <= self.stamp
        } else {
            changed == self.stamp
        };
        if is_same {
            Ok(())
        } else {
            Err(Rejection::Changed)
        }
    }
}
