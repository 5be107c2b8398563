//! The list of suspended files, for status and reports: which, why, for how long, and what is known of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::table_name;

/// The list, and how often a file got there or might have.
pub struct Suspensions {
    /// By number of entry, so the oldest comes first. The lock is a leaf.
    list: Mutex<BTreeMap<u64, Row>>,
    next: AtomicU64,
    suspicions: AtomicU64,
}

/// One file of the list.
struct Row {
    file: String,
    why: String,
    since: Instant,
    /// Pages that were compared, and since when nothing suspicious was seen; `None` until they are.
    cleared: Option<(u64, Instant)>,
}

/// An entry of a list; taken off it when this is dropped.
pub struct Listed(&'static Suspensions, u64);

impl Suspensions {
    pub(crate) const fn new() -> Suspensions {
        Suspensions {
            list: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            suspicions: AtomicU64::new(0),
        }
    }

    /// A file is suspended from now on, for this reason.
    pub fn add(&'static self, file: String, why: String) -> Listed {
        self.suspicions.fetch_add(1, Ordering::Relaxed);
        let entry = self.next.fetch_add(1, Ordering::Relaxed);
        let row = Row {
            file,
            why,
            since: Instant::now(),
            cleared: None,
        };
        self.list.lock().insert(entry, row);
        Listed(self, entry)
    }

    /// How many files are suspended now.
    pub fn count(&self) -> u64 {
        self.list.lock().len() as u64
    }

    /// How often a file was suspended.
    pub fn suspicions(&self) -> u64 {
        self.suspicions.load(Ordering::Relaxed)
    }

    /// The list for `bpe_report('suspended')`, the oldest first. Times in seconds. `compared_pages` and `latest_s` are null until
    /// the pages have been compared; `latest_s` is when the file is cached again though the server goes on changing it.
    pub fn report(&self, rest: Duration, longest: Duration) -> Value {
        let list = self.list.lock();
        let row = |row: &Row| {
            let table = table_name::of_path(&row.file);
            json!({
                "file": row.file,
                "schema": table.as_ref().map(|table| &table.schema),
                "table": table.as_ref().map(|table| &table.table),
                "partition": table.as_ref().and_then(|table| table.partition.as_ref()),
                "why": row.why,
                "suspended_s": row.since.elapsed().as_secs(),
                "compared_pages": row.cleared.map(|(compared, _)| compared),
                "rest_s": rest.as_secs(),
                "latest_s": row.cleared.map(|(_, since)| longest.saturating_sub(since.elapsed()).as_secs()),
            })
        };
        list.values().map(row).collect()
    }
}

impl Listed {
    /// So many cached pages were compared with the file, and none differed.
    pub fn cleared(&self, compared: u64) {
        if let Some(row) = self.0.list.lock().get_mut(&self.1) {
            row.cleared = Some((compared, Instant::now()));
        }
    }

    /// The file looks otherwise once more.
    pub fn again(&self) {
        if let Some((_, since)) = self
            .0
            .list
            .lock()
            .get_mut(&self.1)
            .and_then(|row| row.cleared.as_mut())
        {
            *since = Instant::now();
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.list.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(list: &Suspensions) -> Vec<Value> {
        let report = list.report(Duration::from_secs(90), Duration::from_secs(900));
        report.as_array().cloned().unwrap_or_default()
    }

    #[test]
    fn a_file_is_listed_while_it_is_suspended() {
        let file = "./listed/t.ibd";
        let list: &Suspensions = Box::leak(Box::new(Suspensions::new()));
        let listed = list.add(file.into(), "it had 1 bytes and has 2 now".into());
        let row = &rows(list)[0];
        assert_eq!(
            (&row["schema"], &row["table"]),
            (&json!("listed"), &json!("t"))
        );
        assert_eq!(row["why"], "it had 1 bytes and has 2 now");
        assert_eq!(
            (&row["compared_pages"], &row["latest_s"]),
            (&Value::Null, &Value::Null)
        );
        listed.again();
        assert!(rows(list)[0]["latest_s"].is_null(), "not compared yet");
        listed.cleared(17);
        let row = &rows(list)[0];
        assert_eq!(
            (&row["compared_pages"], &row["rest_s"]),
            (&json!(17), &json!(90))
        );
        assert!(
            row["latest_s"]
                .as_u64()
                .is_some_and(|left| (800..=900).contains(&left))
        );
        assert_eq!((list.count(), list.suspicions()), (1, 1));
        drop(listed);
        assert!(rows(list).is_empty());
        assert_eq!((list.count(), list.suspicions()), (0, 1));
    }
}
