//! The effect of the table rules on each data file.
//!
//! A [`RuleLookup`] knows rules and tables. It evaluates a file that is opened or renamed, and all files when the rules change.
//! The result is a byte of the [`DataFile`](crate::files::DataFile), which hooks load. A newly excluded file gets another
//! identity. So its entries are unreachable at once, in this process and for the next. After any other change of the effect the
//! pages stay.
//!
//! The lookup's lock is a leaf. It is held only to copy the pointer to the lookup.

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Figure;

use cache::Group;

use crate::platform::sync::{AtomicU64, Mutex, Ordering};

/// The effect of the rules on a data file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileRule {
    /// No page of the file is served or inserted.
    Excluded,
    /// The file's pages belong to this cache group.
    Cached(Group),
}

impl FileRule {
    /// The effect without rules.
    pub const NORMAL: FileRule = FileRule::Cached(Group::NORMAL);
    const EXCLUDED: u8 = u8::MAX;

    pub(crate) fn to_byte(self) -> u8 {
        match self {
            FileRule::Excluded => Self::EXCLUDED,
            FileRule::Cached(group) => group.number() as u8,
        }
    }

    #[inline]
    pub(crate) fn from_byte(byte: u8) -> FileRule {
        if byte == Self::EXCLUDED {
            FileRule::Excluded
        } else {
            FileRule::Cached(Group::of_number(byte.into()))
        }
    }
}

/// Evaluates the rules for the table of a file.
pub trait RuleLookup: Send + Sync {
    /// The effect on a file, by the name that the server uses for it. May query the file system.
    fn rule(&self, name: &str) -> FileRule;
}

/// The current rules, and statistics of the excluded files.
pub struct FileRules {
    lookup: Mutex<Option<Arc<dyn RuleLookup>>>,
    /// Incremented under the lock with every change.
    version: AtomicU64,
    /// Page reads and writes of excluded files, and their bytes. Statistics: `Relaxed` everywhere.
    pub pages: Figure,
    pub bytes: Figure,
}

impl FileRules {
    /// Creates an instance without rules.
    pub(crate) const fn new() -> FileRules {
        FileRules {
            lookup: Mutex::new(None),
            version: AtomicU64::new(0),
            pages: Figure::new(0),
            bytes: Figure::new(0),
        }
    }

    /// Replaces the rules. The caller must evaluate the known files again.
    pub(crate) fn change(&self, lookup: Option<Arc<dyn RuleLookup>>) {
        let mut now = self.lookup.lock();
        let before = std::mem::replace(&mut *now, lookup);
        self.version.fetch_add(1, Ordering::SeqCst);
        drop(now);
        drop(before);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(crate) fn of(&self, name: &str) -> FileRule {
        let lookup = self.lookup.lock().clone();
        lookup.map_or(FileRule::NORMAL, |lookup| lookup.rule(name))
    }
}
