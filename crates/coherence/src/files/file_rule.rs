//! The effect of the table rules on each data file.
//!
//! A [`Judge`] knows rules and tables. It evaluates a file that is opened or renamed, and all files when the rules change. The
//! result is a byte of the [`DataFile`](crate::files::DataFile), which hooks load. A newly excluded file gets another identity. So its
//! entries are unreachable at once, in this process and for the next. After any other change of the effect the pages stay.
//!
//! The judge's lock is a leaf. It is held only to copy the pointer to the judge.

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Figure;

use cache::Group;

use crate::platform::sync::{AtomicU64, Mutex, Ordering};

/// The effect of the rules on a data file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// No page of the file is served or inserted.
    Excluded,
    /// The file's pages belong to this cache group.
    Cached(Group),
}

impl Treatment {
    /// The effect without rules.
    pub const NORMAL: Treatment = Treatment::Cached(Group::NORMAL);
    const EXCLUDED: u8 = u8::MAX;

    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Treatment::Excluded => Self::EXCLUDED,
            Treatment::Cached(group) => group.number() as u8,
        }
    }

    #[inline]
    pub(crate) fn from_byte(byte: u8) -> Treatment {
        if byte == Self::EXCLUDED {
            Treatment::Excluded
        } else {
            Treatment::Cached(Group::of_number(byte.into()))
        }
    }
}

/// Evaluates the rules for the table of a file.
pub trait Judge: Send + Sync {
    /// The effect on a file, by the name that the server uses for it. May query the file system.
    fn treatment(&self, name: &str) -> Treatment;
}

/// The current rules, and statistics of the excluded files.
pub struct Treatments {
    judge: Mutex<Option<Arc<dyn Judge>>>,
    /// Incremented under the lock with every change.
    version: AtomicU64,
    /// Page reads and writes of excluded files, and their bytes. Statistics: `Relaxed` everywhere.
    pub pages: Figure,
    pub bytes: Figure,
}

impl Treatments {
    /// Creates an instance without rules.
    pub const fn new() -> Treatments {
        Treatments {
            judge: Mutex::new(None),
            version: AtomicU64::new(0),
            pages: Figure::new(0),
            bytes: Figure::new(0),
        }
    }

    /// Replaces the rules. The caller must evaluate the known files again.
    pub(crate) fn change(&self, judge: Option<Arc<dyn Judge>>) {
        let mut now = self.judge.lock();
        let before = std::mem::replace(&mut *now, judge);
        self.version.fetch_add(1, Ordering::SeqCst);
        drop(now);
        drop(before);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(crate) fn of(&self, name: &str) -> Treatment {
        let judge = self.judge.lock().clone();
        judge.map_or(Treatment::NORMAL, |judge| judge.treatment(name))
    }
}

impl Default for Treatments {
    fn default() -> Treatments {
        Treatments::new()
    }
}
