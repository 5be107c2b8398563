//! The list of suspended files, for status and reports: which, why, for how long, and what is known of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sync::Mutex;

/// The list. Its lock is a leaf.
pub struct Suspensions(Mutex<Listing>);

struct Listing {
    /// By number of entry, so the oldest comes first.
    rows: BTreeMap<u64, Row>,
    /// Entries that were ever made.
    entries: u64,
}

/// One file of the list. Moments are those of [`Os::running`](crate::os::Os::running).
#[derive(Clone)]
pub struct Row {
    /// Its path.
    pub file: String,
    /// How it looks otherwise.
    pub why: String,
    /// When it was suspended.
    pub since: Duration,
    /// Pages that were compared, and since when nothing suspicious was seen; `None` until they are.
    pub cleared: Option<(u64, Duration)>,
}

/// An entry of a list; taken off it when this is dropped.
pub struct Listed(&'static Suspensions, u64);

impl Default for Suspensions {
    fn default() -> Suspensions {
        Suspensions::new()
    }
}

impl Suspensions {
    /// None is suspended.
    pub const fn new() -> Suspensions {
        Suspensions(Mutex::new(Listing {
            rows: BTreeMap::new(),
            entries: 0,
        }))
    }

    /// A file is suspended from now on, for this reason.
    pub fn add(&'static self, file: String, why: String, now: Duration) -> Listed {
        let row = Row {
            file,
            why,
            since: now,
            cleared: None,
        };
        let mut list = self.0.lock();
        list.entries += 1;
        let entry = list.entries;
        list.rows.insert(entry, row);
        Listed(self, entry)
    }

    /// How many files are suspended now.
    pub fn count(&self) -> u64 {
        self.0.lock().rows.len() as u64
    }

    /// The data files as a whole are suspected.
    pub fn suspect(&self) {
        self.0.lock().entries += 1;
    }

    /// How often a file was suspended, or all were suspected.
    pub fn suspicions(&self) -> u64 {
        self.0.lock().entries
    }

    /// The list, the oldest first.
    pub fn rows(&self) -> Vec<Row> {
        self.0.lock().rows.values().cloned().collect()
    }
}

impl Listed {
    fn change(&self, act: impl FnOnce(&mut Row)) {
        if let Some(row) = self.0.0.lock().rows.get_mut(&self.1) {
            act(row);
        }
    }

    /// So many cached pages were compared with the file, and none differed.
    pub fn cleared(&self, compared: u64, now: Duration) {
        self.change(|row| row.cleared = Some((compared, now)));
    }

    /// The file looks otherwise once more.
    pub fn again(&self, now: Duration) {
        self.change(|row| {
            if let Some((_, since)) = &mut row.cleared {
                *since = now;
            }
        });
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.0.lock().rows.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_while_it_is_suspended() {
        let list: &Suspensions = Box::leak(Box::default());
        let at = Duration::from_secs;
        let listed = list.add("./listed/t.ibd".into(), "it grew".into(), at(5));
        let row = || list.rows().remove(0);
        assert_eq!(
            (row().file.as_str(), row().why.as_str()),
            ("./listed/t.ibd", "it grew")
        );
        assert_eq!((row().since, row().cleared), (at(5), None));
        listed.again(at(6));
        assert_eq!(row().cleared, None, "not compared yet");
        listed.cleared(17, at(7));
        assert_eq!(row().cleared, Some((17, at(7))));
        listed.again(at(9));
        assert_eq!(row().cleared, Some((17, at(9))));
        assert_eq!((list.count(), list.suspicions()), (1, 1));
        drop(listed);
        assert!(list.rows().is_empty());
        assert_eq!((list.count(), list.suspicions()), (0, 1));
    }
}
