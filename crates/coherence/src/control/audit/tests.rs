//! A quiet file, and changes that the extension does not observe.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use super::suspended::{Row, Suspensions};
use super::{Audit, MAX_SUSPENSION, PASS_INTERVAL, QUIET_PERIOD};
use crate::read_write::read_write_tests::{Served, page};
use crate::testing::os_for_tests::TestOs;

/// A server whose file is quiet and remembered by the audit.
struct Watched {
    server: Served,
    list: &'static Suspensions,
    audit: Audit<TestOs>,
}

impl Watched {
    fn new() -> Watched {
        let server = Served::new();
        (1..10).for_each(|number| server.cached(number));
        let list: &Suspensions = Box::leak(Box::default());
        let mut audit = Audit::new(server.core, list);
        audit.begin(Some(server.active.epoch));
        let mut watched = Watched {
            server,
            list,
            audit,
        };
        watched.look_for(QUIET_PERIOD + 3 * PASS_INTERVAL);
        watched
    }

    /// Runs passes for this time. Returns the proven change.
    fn look_for(&mut self, time: Duration) -> Option<String> {
        let mut passed = Duration::ZERO;
        while passed < time {
            passed += PASS_INTERVAL;
            self.server.core.os().let_pass(PASS_INTERVAL);
            let found = self.audit.look();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Runs passes until the pages of the suspected file are compared.
    fn compared(&mut self) -> Result<Row, String> {
        loop {
            if let Some(reason) = self.audit.look() {
                return Err(reason);
            }
            let rows = self.list.rows();
            if let Some(row) = rows.into_iter().find(|row| row.cleared.is_some()) {
                return Ok(row);
            }
            std::thread::yield_now();
        }
    }

    /// Sets the file's times like a copy, and keeps the bytes.
    fn touch(&self, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        self.server.file.set_modified(time).unwrap();
    }

    /// Whether the second read of a page is served from the cache.
    fn serves(&self, number: u32) -> bool {
        self.server.read(number);
        !self.server.read(number).1
    }
}

#[test]
fn what_the_server_does_is_no_suspicion() {
    let mut watched = Watched::new();
    for content in 1..5 {
        let offset = i64::from(content) * 16384;
        let bytes = page(u32::from(content), content);
        watched.server.write(&bytes, offset, bytes.len() as isize);
        assert_eq!(watched.look_for(QUIET_PERIOD + 3 * PASS_INTERVAL), None);
    }
    assert_eq!((watched.list.suspicions(), watched.list.count()), (0, 0));
    assert!(watched.serves(9));
}

#[test]
fn a_file_whose_times_are_set_is_put_aside_until_it_is_at_rest() {
    let mut watched = Watched::new();
    watched.touch(1_000_000_000);
    assert_eq!(watched.look_for(PASS_INTERVAL), None);
    assert_eq!((watched.list.suspicions(), watched.list.count()), (1, 1));
    assert!(!watched.serves(3), "nothing of it is served");
    let row = watched.compared().expect("no page differs");
    assert_eq!(row.file, "./t/t.ibd");
    assert!(row.why.contains("time"), "{}", row.why);
    assert_eq!(row.cleared.map(|(compared, _)| compared), Some(9));
    assert!(!watched.server.has(5), "all of it was dropped");
    assert!(!watched.serves(3));
    // Its times must be constant for one quiet period, and for another one after a difference.
    assert_eq!(watched.look_for(QUIET_PERIOD / 2), None);
    watched.touch(1_000_000_001);
    assert_eq!(watched.look_for(QUIET_PERIOD - PASS_INTERVAL), None);
    assert!(!watched.serves(3));
    assert_eq!(watched.look_for(QUIET_PERIOD + 4 * PASS_INTERVAL), None);
    assert_eq!((watched.list.suspicions(), watched.list.count()), (1, 0));
    assert!(watched.serves(3));
}

#[test]
fn suspected_file_that_keeps_changing_is_cached_again() {
    let mut watched = Watched::new();
    watched.touch(1_000_000_000);
    watched.look_for(PASS_INTERVAL);
    watched.compared().expect("no page differs");
    let mut looks = 0;
    while watched.list.count() > 0 {
        let bytes = page(1, 7);
        watched.server.write(&bytes, 16384, bytes.len() as isize);
        assert_eq!(watched.look_for(PASS_INTERVAL), None);
        looks += 1;
    }
    let least = MAX_SUSPENSION.as_secs() / PASS_INTERVAL.as_secs();
    assert!((least..least + 3).contains(&looks), "{looks}");
    assert!(watched.serves(3));
}

#[test]
fn a_page_that_somebody_else_wrote_is_found() {
    let mut watched = Watched::new();
    let foreign = watched.server.file.write_all_at(&page(4, 9), 4 * 16384);
    foreign.unwrap();
    watched.touch(1_000_000_000);
    assert_eq!(watched.look_for(PASS_INTERVAL), None);
    let reason = watched.compared().map(|row| row.why).unwrap_err();
    // Every account may read the reason; only the error log names the file.
    assert!(reason.contains("a data file changed"), "{reason}");
    assert!(!reason.contains("t.ibd"), "{reason}");
    assert!(reason.contains("1 of 9 cached pages"), "{reason}");
}

#[test]
fn a_damaged_page_stays_in_the_cache_and_is_not_served() {
    let mut watched = Watched::new();
    // A page with a correct checksum; later only half of it is on the disk.
    let mut whole = page(4, 7);
    let sum = crc32c::crc32c(&whole[..16380]);
    whole[16380..].copy_from_slice(&sum.to_be_bytes());
    let offset = 4 * 16384;
    watched.server.write(&whole, offset as i64, 16384);
    assert_eq!(watched.look_for(QUIET_PERIOD + 3 * PASS_INTERVAL), None);
    assert!(watched.server.has(4));
    let garbage = [0xa5; 8192];
    watched.server.file.write_all_at(&garbage, offset).unwrap();
    watched.touch(1_000_000_000);
    assert_eq!(watched.look_for(PASS_INTERVAL), None);
    let row = watched.compared().expect("no page is another version");
    assert_eq!(row.cleared.map(|(compared, _)| compared), Some(9));
    let core = watched.server.core;
    assert_eq!(core.damaged_pages(), 1);
    assert!(watched.server.has(4) && watched.server.has(5), "all stay");
    assert!(!watched.serves(3), "nothing is served");
    assert_eq!(watched.look_for(MAX_SUSPENSION + 3 * PASS_INTERVAL), None);
    assert!(watched.server.has(4) && !watched.serves(3), "however long");
    let owner = watched.server.known.owner;
    assert_eq!(core.copy_of_damaged(owner, 4).as_deref(), Some(&whole[..]));
    assert_eq!(core.copy_of_damaged(owner, 5), None, "only what is damaged");
    // After it is restored, and verified as equal, the file is cached as before.
    watched.server.file.write_all_at(&whole, offset).unwrap();
    let mut buffers = crate::control::compare::Buffers::new().unwrap();
    let all = crate::control::compare::Cursor {
        file: 0,
        page: 0,
        every: 1,
    };
    core.compare_from(all, Duration::from_secs(9), &mut buffers, |_, _, _| ());
    assert_eq!(core.damaged_pages(), 0);
    assert_eq!(watched.look_for(QUIET_PERIOD + 6 * PASS_INTERVAL), None);
    assert_eq!(watched.list.count(), 0);
    assert!(!watched.server.has(5), "it was dropped");
    assert!(watched.serves(3));
}

#[test]
fn nothing_is_known_of_the_time_before_another_switching_on() {
    let mut watched = Watched::new();
    let before = watched.audit.epoch;
    watched.touch(1_000_000_000);
    // The server's changes are untracked from here.
    let active = watched.server.core.switch().switch_off();
    assert!(active.is_some_and(|active| Some(active.epoch) == before));
    assert_eq!(watched.look_for(PASS_INTERVAL), None);
    assert_eq!(watched.list.count(), 0, "it is no suspicion");
    assert!(watched.audit.belongs_to(before) && !watched.audit.belongs_to(None));
    watched.audit.begin(None);
    assert!(watched.audit.belongs_to(None));
    assert!(watched.server.file.as_raw_fd() > 0);
}
