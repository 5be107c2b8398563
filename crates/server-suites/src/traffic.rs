//! Proof that the extension was in the path: its messages in the servers' error logs at a shutdown.

use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Sums over the servers with a clean stop; a killed server logs nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Number of times a cache was closed or persisted: each stop of a server, and each change of its layout.
    pub caches: u64,
    pub hits: u64,
    pub reads: u64,
    pub taken_in: u64,
    pub dropped: u64,
    pub failed_proofs: u64,
    pub device_errors: u64,
}

impl AddAssign<&Traffic> for Traffic {
    fn add_assign(&mut self, other: &Traffic) {
        self.caches += other.caches;
        self.hits += other.hits;
        self.reads += other.reads;
        self.taken_in += other.taken_in;
        self.dropped += other.dropped;
        self.failed_proofs += other.failed_proofs;
        self.device_errors += other.device_errors;
    }
}

impl Traffic {
    /// From all error logs below a folder.
    pub fn of_error_logs(folder: &Path) -> Traffic {
        let mut sum = Traffic::default();
        let Ok(entries) = fs::read_dir(folder) else {
            return sum;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                sum += &Traffic::of_error_logs(&path);
            } else if path.extension().is_some_and(|extension| extension == "err") {
                let text = fs::read(&path).unwrap_or_default();
                for line in String::from_utf8_lossy(&text).lines() {
                    if let Some(one) = of_line(line) {
                        sum += &one;
                    }
                }
            }
        }
        sum
    }
}

/// Parses the figures of the extension's last line. Its format is that of `ended` in the plugin's controller.
fn of_line(line: &str) -> Option<Traffic> {
    let (_, words) = line.split_once("the cache is ")?;
    let (_, words) = words.split_once(": it served ")?;
    let mut numbers = words
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next();
    Some(Traffic {
        caches: 1,
        hits: next()?,
        reads: next()?,
        taken_in: next()?,
        dropped: next()?,
        failed_proofs: next()?,
        device_errors: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_understood() {
        let line = "2026-11-22  4:03:36 0 [Note] bpe: the cache is closed: it served 7 of 175 page reads; it took in 157 \
                    pages and dropped 3 because they were written; 1 failed proofs, 2 device errors";
        let expected = Traffic {
            caches: 1,
            hits: 7,
            reads: 175,
            taken_in: 157,
            dropped: 3,
            failed_proofs: 1,
            device_errors: 2,
        };
        assert_eq!(of_line(line).as_ref(), Some(&expected));
        let left = line
            .replace("closed", "left to the server's next start")
            .replace("bpe:", "[bpe]");
        assert_eq!(of_line(&left), Some(expected));
        assert_eq!(of_line("switched off; the cache files are removed"), None);
    }
}
