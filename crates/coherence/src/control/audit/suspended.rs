//! The list of suspended files for status and reports: name, reason, duration and result of the comparison.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::platform::sync::Mutex;

/// The list. Its lock is a leaf.
pub struct Suspensions(Mutex<Listing>);

struct Listing {
    /// Keyed by entry number, so the oldest comes first.
    rows: BTreeMap<u64, Row>,
    /// Number of entries ever added.
    entries: u64,
}

/// One suspended file. Times are those of [`Os::running`](crate::platform::os::Os::running).
#[derive(Clone)]
pub struct Row {
    /// Its path.
    pub file: String,
    /// The observed difference of size or modification time.
    pub why: String,
    /// When it was suspended.
    pub since: Duration,
    /// Number of compared pages, and the time since which nothing suspicious was seen; `None` until the comparison.
    pub cleared: Option<(u64, Duration)>,
}

/// Handle of a list entry. Dropping it removes the entry.
pub struct Listed(&'static Suspensions, u64);

impl Default for Suspensions {
    fn default() -> Suspensions {
        Suspensions::new()
    }
}

impl Suspensions {
    /// Creates an empty list.
    pub const fn new() -> Suspensions {
        Suspensions(Mutex::new(Listing {
            rows: BTreeMap::new(),
            entries: 0,
        }))
    }

    /// Adds a suspended file with the reason.
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

    /// Number of files that are suspended now.
    pub fn count(&self) -> u64 {
        self.0.lock().rows.len() as u64
    }

    /// Counts a suspicion against all data files.
    pub fn suspect(&self) {
        self.0.lock().entries += 1;
    }

    /// Number of suspicions so far, against one file or all.
    pub fn suspicions(&self) -> u64 {
        self.0.lock().entries
    }

    /// The entries, oldest first.
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

    /// Stores the result of the comparison: this number of cached pages, none of them different.
    pub fn cleared(&self, compared: u64, now: Duration) {
        self.change(|row| row.cleared = Some((compared, now)));
    }

    /// Records another suspicious change of the file.
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
