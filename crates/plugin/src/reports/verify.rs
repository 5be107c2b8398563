//! Compares cached pages with their data files while the server runs, for `bpe verify`, through `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `verify-start [EVERY]` | begins a verification of every EVERY-th page; `next` is the argument to continue with |
//! | `verify-next NAME FILE PAGE` | compares some pages from there on; counts, `pages` that differ, `damaged_pages`, and `next`, null at the end |
//! | `verify-page NAME FILE PAGE` | the `bytes` of a page that is known to be damaged in the data file, in Base64; null if it is not, or no longer cached |
//! | `verify-stop [NAME]` | ends this verification, or all if no name is given |
//!
//! A failed request has `error` in its answer. The name of a verification is random. The verification ends [`LEASE`] after
//! its client's last request.
//!
//! [`coherence::compare`] compares the pages. A call takes a bounded time, and returns where the next one is to continue.
//!
//! Lock: the list of verifications is a leaf.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use coherence::compare::{Buffers, Compared, Cursor};
use coherence::files::DataFile;
use coherence::os::Os as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::platform::{CORE, Linux};
use crate::settings;

/// Approximate time limit of a call.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// Maximum number of wrong pages in one answer.
const MAX_LISTED: usize = 64;
/// Maximum number of damaged pages in one answer.
const MAX_LISTED_DAMAGED: usize = 1024;

/// A verification without requests of its client ends automatically after this time.
pub const LEASE: Duration = Duration::from_secs(10);
/// Maximum number of simultaneous verifications.
const MAX_ACTIVE: usize = 8;

struct Verification {
    name: String,
    every: u32,
    last_request: Instant,
    /// Calls in progress.
    active_calls: u32,
}

/// The active verifications.
pub struct Verifications(Mutex<Vec<Verification>>);

/// A call in progress for a verification.
struct Call<'a> {
    of: &'a Verifications,
    name: &'a str,
    every: u32,
}

impl<'a> Call<'a> {
    fn begin(of: &'a Verifications, name: &'a str) -> Result<Call<'a>, String> {
        let mut active = of.now();
        let one = active.iter_mut().find(|one| one.name == name).ok_or_else(|| {
            format!(
                "there is no such verification: it has ended, or was not continued for {} seconds",
                LEASE.as_secs()
            )
        })?;
        one.active_calls += 1;
        Ok(Call {
            of,
            name,
            every: one.every,
        })
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut active = self.of.0.lock();
        if let Some(one) = active.iter_mut().find(|one| one.name == self.name) {
            one.active_calls = one.active_calls.saturating_sub(1);
            one.last_request = Instant::now();
        }
    }
}

#[derive(Default)]
struct Counts {
    /// Pages compared with the data file, equal or not.
    compared: u64,
    /// Pages written during the comparison, or temporarily unreadable.
    skipped: u64,
    /// Cached pages that failed their proof: they would not have been served.
    unproven: u64,
    wrong: u64,
    /// Pages damaged in the data file.
    damaged: u64,
    listed: Vec<Value>,
    listed_damaged: Vec<Value>,
}

impl Verifications {
    pub(crate) const fn new() -> Verifications {
        Verifications(Mutex::new(Vec::new()))
    }

    /// The active verifications, without expired ones.
    fn now(&self) -> MutexGuard<'_, Vec<Verification>> {
        let mut active = self.0.lock();
        active.retain(|one| one.active_calls > 0 || one.last_request.elapsed() < LEASE);
        active
    }

    /// Number of active verifications.
    pub fn active(&self) -> usize {
        self.now().len()
    }

    /// Ends all verifications. A call in progress finishes within a moment.
    pub fn end_all(&self) {
        self.0.lock().clear();
    }

    /// The answer to an argument of `bpe_report()` that begins with `verify-`; `None` for an unknown one, or if the host
    /// is out of memory.
    pub fn answer(&self, argument: &str) -> Option<Value> {
        let mut words = argument.split(' ');
        let words = [(); 5].map(|()| words.next());
        let result = match words {
            [Some("verify-start"), every, None, None, None] => {
                match every.map_or(Ok(1), str::parse) {
                    Ok(every) if every > 0 => {
                        settings::check_installed().and_then(|()| self.begin(every))
                    }
                    _ => return None,
                }
            }
            [
                Some("verify-next"),
                Some(name),
                Some(file),
                Some(page),
                None,
            ] => self
                .next(name, file.parse().ok()?, page.parse().ok()?)
                .transpose()?,
            [
                Some("verify-page"),
                Some(name),
                Some(file),
                Some(page),
                None,
            ] => self.page(name, file.parse().ok()?, page.parse().ok()?),
            [Some("verify-stop"), name, None, None, None] => {
                self.0
                    .lock()
                    .retain(|one| name.is_some_and(|name| one.name != name));
                Ok(json!({}))
            }
            _ => return None,
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn begin(&self, every: u32) -> Result<Value, String> {
        let name = format!("{:016x}", RandomState::new().hash_one(Instant::now()));
        let mut active = self.now();
        if active.len() >= MAX_ACTIVE {
            return Err(format!(
                "{MAX_ACTIVE} verifications are under way; try again when one has ended"
            ));
        }
        active.push(Verification {
            name: name.clone(),
            every,
            last_request: Instant::now(),
            active_calls: 0,
        });
        drop(active);
        Linux.warning("a verification of cached pages begins");
        Ok(json!({ "verification": name, "next": format!("verify-next {name} 0 0") }))
    }

    /// Returns `None` if the host is out of memory.
    fn next(&self, name: &str, file: u32, page: u32) -> Result<Option<Value>, String> {
        let call = Call::begin(self, name)?;
        let Some(mut buffers) = Buffers::new() else {
            return Ok(None);
        };
        let mut counts = Counts::default();
        let every = call.every;
        let from = Cursor { file, page, every };
        let add = |file: &DataFile, page, compared| counts.add(file, page, compared);
        let next = CORE.compare_from(from, ANSWER_TIME, &mut buffers, add);
        drop(call);
        // A client that has found damaged pages may still request them.
        if next.is_none() && counts.damaged == 0 {
            self.0.lock().retain(|one| one.name != name);
        }
        Ok(Some(json!({
            "compared": counts.compared,
            "skipped": counts.skipped,
            "unproven": counts.unproven,
            "wrong": counts.wrong,
            "damaged": counts.damaged,
            "pages": counts.listed,
            "damaged_pages": counts.listed_damaged,
            "next": next.map(|next| format!("verify-next {name} {} {}", next.file, next.page)),
        })))
    }
}

impl Verifications {
    fn page(&self, name: &str, file: u32, page: u32) -> Result<Value, String> {
        let call = Call::begin(self, name)?;
        let bytes = CORE.copy_of_damaged(file, page);
        drop(call);
        Ok(json!({ "bytes": bytes.map(|bytes| BASE64.encode(bytes)) }))
    }
}

impl Counts {
    fn add(&mut self, file: &DataFile, number: u32, compared: Compared) {
        match compared {
            Compared::Absent => {}
            Compared::Unproven => self.unproven += 1,
            Compared::Skipped => self.skipped += 1,
            Compared::Equal => self.compared += 1,
            Compared::Damaged => {
                self.compared += 1;
                self.damaged += 1;
                if self.listed_damaged.len() < MAX_LISTED_DAMAGED {
                    self.listed_damaged
                        .push(json!({ "file": file.name(), "number": file.owner, "page": number }));
                }
            }
            Compared::Different => {
                self.compared += 1;
                self.wrong += 1;
                if self.listed.len() < MAX_LISTED {
                    Linux.error(&format!(
                        "page {number} of '{}' in the cache differed from the data file and was dropped. Please report \
                         this, and switch the extension off until the cause is known.",
                        file.name()
                    ));
                    self.listed
                        .push(json!({ "file": file.name(), "page": number }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(answer: Option<Value>) -> String {
        answer
            .map(|answer| answer["error"].to_string())
            .unwrap_or_default()
    }

    #[test]
    fn only_known_arguments_are_answered() {
        let all = Verifications::new();
        let answer = |argument: &str| all.answer(argument);
        for unknown in [
            "verify",
            "verify:0:0:1",
            "verify-start 0",
            "verify-start -1",
            "verify-start key",
            "verify-start 1 2",
            "verify-next a",
            "verify-next a 1",
            "verify-next a 1 99999999999",
            "verify-next a 1 2 3",
            "verify-stop a b",
            "verify-page a 1",
            "verify-page a 1 x",
            "summary",
        ] {
            assert_eq!(answer(unknown), None, "{unknown}");
        }
        // Tests run without a server.
        for nobodys in ["verify-start", "verify-start 10"] {
            assert!(
                error(answer(nobodys)).contains("not installed"),
                "{nobodys}"
            );
        }
        for of_none in ["verify-next 00 0 0", "verify-page 00 0 0"] {
            assert!(error(answer(of_none)).contains("no such verification"));
        }
    }

    #[test]
    fn verification_runs_to_its_end() {
        let all = Verifications::new();
        let answer = |argument: &str| all.answer(argument);
        let begun = all.begin(3).unwrap();
        let name = begun["verification"].as_str().unwrap();
        assert_eq!(begun["next"], format!("verify-next {name} 0 0"));
        assert_eq!(Call::begin(&all, name).map(|call| call.every), Ok(3));
        // There are no files, so the verification is complete.
        let answered = answer(&format!("verify-next {name} 0 0")).unwrap();
        assert!(answered["next"].is_null() && answered["wrong"] == 0);
        assert!(error(answer(&format!("verify-next {name} 0 0"))).contains("it has ended"));

        // An expired verification ends, but not while a call is in progress.
        let begun = all.begin(1).unwrap();
        let name = begun["verification"].as_str().unwrap();
        let call = Call::begin(&all, name).unwrap();
        let age = || {
            for one in all.0.lock().iter_mut() {
                one.last_request = Instant::now() - LEASE;
            }
        };
        age();
        assert_eq!(all.active(), 1);
        drop(call);
        assert_eq!(all.active(), 1);
        age();
        assert_eq!(all.active(), 0);

        for _ in 0..MAX_ACTIVE {
            assert!(all.begin(1).is_ok());
        }
        assert!(all.begin(1).unwrap_err().contains("under way"));
        let one = all.0.lock()[0].name.clone();
        answer(&format!("verify-stop {one}"));
        assert_eq!(all.active(), MAX_ACTIVE - 1);
        all.end_all();
        assert_eq!(all.active(), 0);
    }
}
