//! What the rules for tables say of each data file.
//!
//! Whoever knows rules and tables ([`Judge`]) is asked when a file is opened or renamed, and for all files when the rules change; the
//! answer is a byte of the [`DataFile`](crate::files::DataFile), which hooks load. A file that comes to be excluded gets another identity, so
//! what was cached of it is out of reach at once, in this process and for the next. Pages of any other treatment stay.
//!
//! The lock of the judge is a leaf; it is held for a copy of the pointer to it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Figure;

use extension::Group;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// Of a data file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// Nothing of it is served or inserted.
    Excluded,
    /// Its pages are of this group.
    Cached(Group),
}

impl Treatment {
    /// As if there were no rules.
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

/// Knows the rules, and the table of a file.
pub trait Judge: Send + Sync {
    /// What becomes of the file of this name, as the server named it. May ask the file system.
    fn treatment(&self, name: &str) -> Treatment;
}

/// The rules as they are now, and what they have kept out.
pub struct Treatments {
    judge: Mutex<Option<Arc<dyn Judge>>>,
    /// Raised under the lock with every change.
    version: AtomicU64,
    /// Page reads and writes of excluded files, and their bytes. Figures: `Relaxed` everywhere.
    pub pages: Figure,
    pub bytes: Figure,
}

impl Treatments {
    /// No rules.
    pub const fn new() -> Treatments {
        Treatments {
            judge: Mutex::new(None),
            version: AtomicU64::new(0),
            pages: Figure::new(0),
            bytes: Figure::new(0),
        }
    }

    /// Other rules from now on. Files that are known are to be asked about anew.
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
