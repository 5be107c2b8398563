//! Records the stream of page reads and writes that InnoDB sends to its data files, for `bpe record`.
//!
//! The hooks record every single-page read and every page write of a tracked file in a bounded
//! [ring](coherence::trace::ring), at submission. They do so whether the cache serves a read or not, and whether the extension is on or off. A client drains
//! the ring through the SQL function `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `trace-start` | begins a recording; `recording` is its name |
//! | `trace-next RECORDING NUMBER` | acknowledges the events below `NUMBER`, and returns the next ones: `first`, `next` (numbers), `records` (base64 of 16-byte records as in a trace file), `more` (ask again at once), `lost`, `page_sizes`, and `ended` (reason) once recording has ended. The last answer (`done`) frees the memory |
//! | `trace-stop [RECORDING]` | ends this recording, or any recording if no name is given; recorded events can still be drained |
//!
//! A failed request has `error` in its answer.
//!
//! An account that may `SET GLOBAL` can cause at most: one recording at a time, [`MEMORY`], and some tens of nanoseconds for
//! each page read or written. The recording ends automatically [`LEASE`] after the client's last request. Its name is
//! random, so no other client can drain or end it by name. `SET GLOBAL bpe_enabled = OFF` ends it at once, like all other
//! work of the hooks.
//!
//! Lock order: the session comes before the controller's locks (building, state). Hooks take no lock: they load the ring
//! from an atomic pointer.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use coherence::os::Os as _;
use coherence::trace::ring::{RECORD_BYTES, Ring};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use crate::platform::{CORE, Linux};
use crate::{control, settings};

/// Capacity of the ring, events. At 16 bytes each it determines the memory of a recording, 4 MiB.
const RING_RECORDS: usize = 1 << 18;
/// Memory of a recording, bytes. An answer temporarily takes up to 2 MiB more.
pub const MEMORY: usize = RING_RECORDS * RECORD_BYTES;
/// A recording without requests of its client ends automatically after this time.
pub const LEASE: Duration = Duration::from_secs(5);
/// Maximum records of one answer: their text fits into 1 MiB, the smallest likely packet limit of a server.
const RECORDS_AT_ONCE: usize = 32 * 1024;

struct Session {
    name: String,
    ring: Arc<Ring>,
    last_request: Instant,
    /// Reason why recording has ended.
    ended: Option<&'static str>,
}

/// The recording, if there is one.
pub struct Recordings {
    session: Mutex<Option<Session>>,
    /// The client sent a request, or the session has ended.
    changed: Condvar,
}

fn named<'a>(session: &'a mut Option<Session>, name: &str) -> Result<&'a mut Session, String> {
    session
        .as_mut()
        .filter(|session| session.name == name)
        .ok_or_else(|| {
            format!(
                "there is no such recording: it has ended, or was not drained for {} seconds",
                LEASE.as_secs()
            )
        })
}

impl Session {
    /// Whether recording has ended.
    fn is_over(&mut self) -> bool {
        if self.ended.is_none() && !CORE.switch().mode().records() {
            self.end(
                "the hooks were switched off (bpe_enabled = OFF, trace-stop, or an internal error)",
            );
        }
        self.ended.is_some()
    }

    /// Ends recording. A hook that is writing a record may still finish.
    fn end(&mut self, why: &'static str) {
        if self.ended.is_none() {
            CORE.switch().stop_recording();
            CORE.trace.record_into(None);
            self.ended = Some(why);
            Linux.note(&format!(
                "the recording of page reads and writes ends: {why}; {} events, {} lost",
                self.ring.next_number(),
                self.ring.lost()
            ));
        }
    }
}

impl Recordings {
    pub(crate) const fn new() -> Recordings {
        Recordings {
            session: Mutex::new(None),
            changed: Condvar::new(),
        }
    }

    /// The answer to an argument of `bpe_report()` that begins with `trace-`; `None` for an unknown one.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let mut words = argument.split(' ');
        let result = match (words.next()?, words.next(), words.next(), words.next()) {
            ("trace-start", None, None, None) => {
                settings::check_installed().and_then(|()| self.begin())
            }
            ("trace-next", Some(name), Some(number), None) => self.next(name, number.parse().ok()?),
            ("trace-stop", Some(name), None, None) => self.stop_named(name),
            ("trace-stop", None, None, None) => {
                CORE.switch().stop_recording(); // the session notices it at its next check
                Ok(json!({}))
            }
            _ => return None,
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn begin(&'static self) -> Result<Value, String> {
        let mut session = self.session.lock();
        match session.as_mut().map(Session::is_over) {
            Some(false) => return Err("another recording is under way".into()),
            // Its client has not fetched the last events yet. The session ends soon, at the latest with its lease.
            Some(true) => return Err("another recording is just ending; try again".into()),
            None => {}
        }
        let name = format!("{:016x}", RandomState::new().hash_one(Instant::now()));
        let ring = Arc::new(Ring::new(RING_RECORDS));
        CORE.trace.record_into(Some(Arc::clone(&ring)));
        control::track_for_recording().inspect_err(|_| CORE.trace.record_into(None))?;
        *session = Some(Session {
            name: name.clone(),
            ring,
            last_request: Instant::now(),
            ended: None,
        });
        let watched = name.clone();
        if let Err(error) = Linux.spawn("bpe-recorder", move || self.watch(&watched)) {
            self.release(&mut session);
            return Err(format!("cannot start a thread for the recording: {error}"));
        }
        Linux.warning("a recording of page reads and writes begins");
        Ok(json!({
            "recording": name,
            "lease_seconds": LEASE.as_secs(),
            "capacity": RING_RECORDS,
        }))
    }

    fn next(&self, name: &str, acknowledged: u64) -> Result<Value, String> {
        let mut guard = self.session.lock();
        let session = named(&mut guard, name)?;
        session.last_request = Instant::now();
        // Must precede the read of the records: events recorded after the end was seen would never be drained.
        session.is_over();
        session.ring.acknowledge(acknowledged);
        let (first, records) = session.ring.records(RECORDS_AT_ONCE);
        let next = first + (records.len() / RECORD_BYTES) as u64;
        let more = next < session.ring.next_number();
        let done = session.ended.is_some() && records.is_empty() && !more;
        let value = json!({
            "first": first,
            "next": next,
            "more": more,
            "lost": session.ring.lost(),
            "page_sizes": session.ring.page_sizes(),
            "ended": session.ended,
            "done": done,
            "records": BASE64.encode(records),
        });
        if done {
            self.release(&mut guard);
        }
        Ok(value)
    }

    fn stop_named(&self, name: &str) -> Result<Value, String> {
        let mut guard = self.session.lock();
        let session = named(&mut guard, name)?;
        session.last_request = Instant::now();
        session.end("asked for");
        Ok(json!({ "events": session.ring.next_number(), "lost": session.ring.lost() }))
    }

    /// Ends the session and frees its memory.
    fn release(&self, guard: &mut Option<Session>) {
        if let Some(mut session) = guard.take() {
            session.end("asked for");
            // A hook that is recording an event must not be the one that frees the memory.
            let until = Instant::now() + Duration::from_millis(10);
            while Arc::strong_count(&session.ring) > 1 && Instant::now() < until {
                std::thread::yield_now();
            }
        }
        self.changed.notify_all();
    }

    /// The thread of one recording: ends it when the lease expires.
    fn watch(&self, name: &str) {
        let mut guard = self.session.lock();
        loop {
            let Ok(session) = named(&mut guard, name) else {
                return;
            };
            let until = session.last_request + LEASE;
            if Instant::now() >= until {
                session.end("nobody drained it");
                self.release(&mut guard);
                return;
            }
            self.changed.wait_until(&mut guard, until);
        }
    }

    /// Ends the recording: the plugin is being unloaded, or the server stops.
    pub fn stop(&self) {
        self.release(&mut self.session.lock());
    }

    /// Memory of the recording, bytes; 0 without one.
    pub fn memory_bytes(&self) -> u64 {
        self.session
            .try_lock()
            .and_then(|session| Some(session.as_ref()?.ring.memory_bytes()))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::files::DataFile;

    fn recordings() -> &'static Recordings {
        Box::leak(Box::new(Recordings::new()))
    }

    #[test]
    fn only_known_arguments_are_answered() {
        let all = recordings();
        let answer = |argument: &str| all.answer(argument);
        let _turn = crate::platform::process::UNDER_TEST.lock();
        for unknown in [
            "",
            "trace",
            "trace-start now",
            "trace-next x",
            "trace-next x y",
            "trace-next x -1",
            "trace-stop a b",
        ] {
            assert_eq!(answer(unknown), None, "{unknown}");
        }
        for (nobodys, part) in [
            ("trace-next 00 0", "no such recording"),
            ("trace-stop 00", "no such recording"),
            // Tests run without a server.
            ("trace-start", "not installed"),
        ] {
            let text = answer(nobodys).map(|value| value["error"].to_string());
            assert!(
                text.as_ref().is_some_and(|text| text.contains(part)),
                "{nobodys}: {text:?}"
            );
        }
        assert_eq!(all.memory_bytes(), 0);
    }

    /// A session with a small ring, in mode `RECORD`.
    fn session(all: &Recordings, name: &str, last_request: Instant) -> Arc<Ring> {
        let ring = Arc::new(Ring::new(8));
        CORE.trace.record_into(Some(Arc::clone(&ring)));
        CORE.switch().start_recording(|| ());
        *all.session.lock() = Some(Session {
            name: name.into(),
            ring: Arc::clone(&ring),
            last_request,
            ended: None,
        });
        ring
    }

    fn page_of(number: u32) -> Vec<u8> {
        let mut page = vec![1u8; 16384];
        page[4..8].copy_from_slice(&number.to_be_bytes());
        page
    }

    #[test]
    fn recording_reaches_answer_from_hooks() {
        let all = recordings();
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let ring = session(all, "a", Instant::now());
        let file = DataFile::new(1, CORE.switch());
        CORE.trace
            .record_write(&file, Some(&page_of(3)), 16384, 3 * 16384); // its size is not known yet
        assert_eq!(file.page_of_read(16384, 5 * 16384), Some(5));
        CORE.trace.record_read(&file, 5);
        let two: Vec<u8> = [page_of(7), page_of(8)].concat();
        CORE.trace
            .record_write(&file, Some(&two), two.len(), 7 * 16384);
        CORE.trace
            .record_write(&file, Some(&two), two.len(), 64 * 16384); // copies: not these pages
        CORE.trace
            .record_write(&file, Some(&[0; 16384]), 16384, 9 * 16384); // zeros
        CORE.trace
            .record_write(&file, Some(&page_of(7)[..100]), 100, 7 * 16384 + 100); // the rest of a page
        CORE.trace.record_write(&file, None, 20000, 10 * 16384); // in several pieces
        let answered = all.next("a", 0).unwrap();
        let bytes = BASE64
            .decode(answered["records"].as_str().unwrap())
            .unwrap();
        let seen: Vec<_> = bytes
            .chunks_exact(16)
            .map(|record| (record[4], record[8] != 0))
            .collect();
        let expected = [
            (3, true),
            (5, false),
            (7, true),
            (8, true),
            (10, true),
            (11, true),
        ];
        assert_eq!(seen, expected);
        assert_eq!(answered["next"], 6);
        assert_eq!(answered["page_sizes"], json!([16384]));
        assert!(all.next("b", 6).is_err());
        assert_eq!(all.next("a", 6).unwrap()["records"], "");
        CORE.trace.record_read(&file, 6);
        assert_eq!(all.stop_named("a").unwrap()["events"], 7);
        assert!(CORE.switch().mode().is_off());
        CORE.trace.record_read(&file, 6); // too late
        assert_eq!(ring.next_number(), 7);
        let last = all.next("a", 6).unwrap();
        assert_eq!((&last["next"], &last["done"]), (&json!(7), &json!(false)));
        assert_eq!(all.next("a", 7).unwrap()["done"], true);
        assert!(all.session.lock().is_none() && all.next("a", 7).is_err());
    }

    #[test]
    fn undrained_recording_ends() {
        let all = recordings();
        let _turn = crate::platform::process::UNDER_TEST.lock();
        session(all, "c", Instant::now());
        assert_eq!(all.begin(), Err("another recording is under way".into()));
        assert!(all.memory_bytes() > 0);
        all.session.lock().as_mut().unwrap().last_request = Instant::now() - LEASE;
        all.watch("c");
        assert!(all.session.lock().is_none());
        assert_eq!((CORE.switch().mode().bits(), all.memory_bytes()), (0, 0));
    }

    #[test]
    fn kill_switch_ends_recording_and_keeps_events() {
        let all = recordings();
        let _turn = crate::platform::process::UNDER_TEST.lock();
        session(all, "d", Instant::now());
        let file = DataFile::new(1, CORE.switch());
        assert_eq!(file.page_of_read(16384, 16384), Some(1));
        CORE.trace.record_read(&file, 1);
        drop(CORE.switch().kill());
        let answered = all.next("d", 0).unwrap();
        assert_eq!(answered["next"], 1);
        assert!(answered["ended"].to_string().contains("switched off"));
        assert_eq!(all.next("d", 1).unwrap()["done"], true);
    }
}
