//! A device with every kind of fault. A hit must always be the right page, and the engine must suspend and recover the
//! device.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::*;
use crate::device::storage::Storage;
use crate::log::sweep::sweep_in_pieces;
use crate::{Group, MissReason};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Fault {
    None,
    ReadError,
    ShortRead,
    EndOfFile,
    FlippedBit,
    /// Reads the bytes of another location.
    MisdirectedRead,
    WriteError,
    DiskFull,
    /// Reports a write that did not happen.
    LostWrite,
    /// Writes to another location.
    MisdirectedWrite,
    /// Writes only the first half.
    TornWrite,
}

const ALL: [Fault; 11] = [
    Fault::None,
    Fault::ReadError,
    Fault::ShortRead,
    Fault::EndOfFile,
    Fault::FlippedBit,
    Fault::MisdirectedRead,
    Fault::WriteError,
    Fault::DiskFull,
    Fault::LostWrite,
    Fault::MisdirectedWrite,
    Fault::TornWrite,
];

/// Fault to inject, once in `every` calls.
struct Plan {
    fault: AtomicU64,
    every: AtomicU64,
    calls: AtomicU64,
}

impl Plan {
    fn set(&self, fault: Fault, every: u64) {
        self.every.store(every, Ordering::SeqCst);
        self.fault.store(fault as u64, Ordering::SeqCst);
    }

    fn now(&self) -> Fault {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let due = crate::common::page::mix64(call) % self.every.load(Ordering::SeqCst) == 0;
        if due {
            ALL[self.fault.load(Ordering::SeqCst) as usize]
        } else {
            Fault::None
        }
    }
}

struct Faulty {
    file: File,
    plan: Arc<Plan>,
}

/// The header and the probe block have only plain I/O errors.
const DATA: u64 = crate::device::segment::format::DATA_OFFSET;
const AWAY: u64 = 128 << 10;

impl Storage for Faulty {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let fault = self.plan.now();
        let elsewhere = if offset >= DATA + AWAY {
            offset - AWAY
        } else {
            offset + AWAY
        };
        match fault {
            Fault::ReadError => Err(io::Error::from_raw_os_error(libc::EIO)),
            Fault::EndOfFile => Ok(0),
            Fault::ShortRead if buffer.len() > 4096 => {
                self.file.read_at(&mut buffer[..4096], offset)
            }
            Fault::MisdirectedRead if offset >= DATA => self.file.read_at(buffer, elsewhere),
            Fault::FlippedBit if offset >= DATA => {
                let n = self.file.read_at(buffer, offset)?;
                buffer[n / 2] ^= 0x10;
                Ok(n)
            }
            _ => self.file.read_at(buffer, offset),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let elsewhere = if offset >= DATA + AWAY {
            offset - AWAY
        } else {
            offset + AWAY
        };
        match self.plan.now() {
            Fault::WriteError => Err(io::Error::from_raw_os_error(libc::EIO)),
            Fault::DiskFull => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Fault::LostWrite if offset >= DATA => Ok(bytes.len()),
            Fault::MisdirectedWrite if offset >= DATA => self.file.write_at(bytes, elsewhere),
            Fault::TornWrite if offset >= DATA => {
                Storage::write_at(&self.file, &bytes[..bytes.len() / 2 / 4096 * 4096], offset)?;
                Ok(bytes.len())
            }
            _ => Storage::write_at(&self.file, bytes, offset),
        }
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        self.file.facts()
    }

    fn raw_fd(&self) -> RawFd {
        self.file.raw_fd()
    }
}

fn faulty(change: impl FnOnce(&mut Config)) -> (Fixture, Arc<Plan>) {
    let plan = Arc::new(Plan {
        fault: AtomicU64::new(0),
        every: AtomicU64::new(1),
        calls: AtomicU64::new(0),
    });
    let wrapped = Arc::clone(&plan);
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), SMALLEST);
    change(&mut config);
    let generations = Arc::new(Generations::new());
    let wrap = move |file| -> Box<dyn Storage> {
        Box::new(Faulty {
            file,
            plan: Arc::clone(&wrapped),
        })
    };
    let extension =
        Extension::open_with(&config, Arc::clone(&generations), Arc::new(wrap), false).unwrap();
    (
        Fixture {
            extension,
            generations,
            directory,
        },
        plan,
    )
}

fn state(f: &Fixture) -> String {
    f.extension.device_statistics()[0].state.clone()
}

/// Reads, inserts and writes at random, and asserts that every hit is right. Returns the number of hits.
fn churn(f: &Fixture, versions: &mut [u32], steps: u64, seed: u64) -> u64 {
    let mut hits = 0;
    for step in 0..steps {
        let random = crate::common::page::mix64(seed << 32 | step);
        let n = random as usize % versions.len();
        if random >> 40 & 15 == 0 {
            versions[n] += 1;
            f.write(page(1, n as u32), versions[n], 8192);
        } else {
            match f.read(page(1, n as u32), versions[n], 8192) {
                ReadOutcome::Hit => hits += 1,
                ReadOutcome::Miss(_) => _ = f.insert(page(1, n as u32), versions[n], 8192),
            }
        }
        if step % 20 == 0 {
            f.pump();
        }
    }
    f.pump();
    hits
}

#[test]
fn whatever_goes_wrong_now_and_then_a_hit_is_the_right_page() {
    for fault in ALL {
        let (f, plan) = faulty(|_| {});
        let mut versions = vec![0; 1200];
        plan.set(fault, 13);
        churn(&f, &mut versions, 6000, 1);
        let s = f.extension.statistics();
        match fault {
            Fault::None | Fault::ShortRead => {
                assert_eq!((s.device_errors, s.failed_proofs), (0, 0))
            }
            Fault::ReadError | Fault::EndOfFile | Fault::WriteError | Fault::DiskFull => {
                assert!(
                    s.device_errors > 0 && s.failed_proofs == 0,
                    "{fault:?} {s:?}"
                );
            }
            _ => assert!(s.failed_proofs > 0, "{fault:?} {s:?}"),
        }
        // The device recovers once the cause is gone.
        plan.set(Fault::None, 1);
        f.extension
            .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
        f.pump();
        f.extension
            .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
        f.pump();
        assert_eq!(state(&f), "active", "{fault:?}");
        assert!(churn(&f, &mut versions, 6000, 2) > 500, "{fault:?}");
        f.check_books();
    }
}

#[test]
fn the_faults_are_noticed_without_the_proof() {
    for fault in [
        Fault::FlippedBit,
        Fault::MisdirectedRead,
        Fault::LostWrite,
        Fault::MisdirectedWrite,
    ] {
        let (f, plan) = faulty(|_| {});
        f.extension
            .shared
            .store
            .canary
            .proof
            .store(true, Ordering::Relaxed);
        plan.set(fault, 3);
        let wrong = (0..200).filter(|&n| {
            f.insert(page(1, n), 1, 16384);
            f.pump();
            let mut buffer = vec![0; 16384];
            f.extension.read(page(1, n), Group::NORMAL, &mut buffer) == ReadOutcome::Hit
                && buffer != content(page(1, n), 1, 16384)
        });
        assert!(wrong.count() > 0, "{fault:?}");
    }
}

#[test]
fn a_device_that_cannot_be_read_is_given_up_and_taken_back() {
    let (f, plan) = faulty(|_| {});
    for n in 0..60 {
        f.insert(page(1, n), 1, 4096);
    }
    f.pump();
    plan.set(Fault::ReadError, 1);
    for n in 0..8 {
        assert_eq!(
            f.read(page(1, n), 1, 4096),
            ReadOutcome::Miss(MissReason::DeviceError)
        );
    }
    assert!(state(&f).contains("Input/output error"), "{}", state(&f));
    assert_eq!(
        f.read(page(1, 9), 1, 4096),
        ReadOutcome::Miss(MissReason::DeviceFailed)
    );
    assert!(
        f.extension
            .locate(page(1, 9), Group::NORMAL, 4096, 0)
            .is_none()
    );
    assert_eq!(f.insert(page(1, 99), 1, 4096), InsertOutcome::Unsuitable);
    f.pump();
    let s = f.extension.statistics();
    assert_eq!((s.pages_cached, s.purged, s.device_errors), (0, 60, 8));
    // A failed probe changes nothing.
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    f.pump();
    assert!(state(&f).starts_with("failed"));
    plan.set(Fault::None, 1);
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    f.pump();
    assert_eq!(state(&f), "active");
    assert_eq!(
        f.read(page(1, 9), 1, 4096),
        ReadOutcome::Miss(MissReason::Absent)
    );
    assert_eq!(f.insert(page(1, 9), 2, 4096), InsertOutcome::Admitted);
    f.pump();
    assert_eq!(f.read(page(1, 9), 2, 4096), ReadOutcome::Hit);
    f.check_books();
}

#[test]
fn a_full_disk_fails_the_device_and_no_page_is_lost_track_of() {
    let (f, plan) = faulty(|_| {});
    f.insert(page(1, 1), 1, 4096);
    f.pump();
    plan.set(Fault::DiskFull, 1);
    f.insert(page(1, 2), 1, 4096);
    assert_eq!(
        f.read(page(1, 2), 1, 4096),
        ReadOutcome::Hit,
        "staged pages are served"
    );
    f.pump();
    assert!(state(&f).contains("No space left"), "{}", state(&f));
    assert!(matches!(f.read(page(1, 2), 1, 4096), ReadOutcome::Miss(_)));
    f.pump();
    f.check_books();
    assert_eq!(f.extension.statistics().pages_cached, 0);
}

#[test]
fn the_other_device_goes_on() {
    let second = tempfile::tempdir().unwrap();
    let (f, plan) = faulty(|c| c.devices.push(device(second.path(), "other", SMALLEST)));
    for n in 0..200 {
        f.insert(page(1, n), 1, 4096);
        f.extension.with_writers(|writers| writers.reverse());
        f.pump();
    }
    // Both devices share the plan; only one reports a failure.
    f.extension.shared.store.devices[0]
        .health
        .fail("pulled out");
    let hits = (0..200)
        .filter(|&n| f.read(page(1, n), 1, 4096) == ReadOutcome::Hit)
        .count();
    assert!((50..150).contains(&hits), "{hits}");
    f.pump();
    assert_eq!(f.extension.statistics().pages_cached, hits as u64);
    for n in 0..200 {
        f.insert(page(1, n), 1, 4096);
        f.pump();
    }
    assert!((0..200).all(|n| f.read(page(1, n), 1, 4096) == ReadOutcome::Hit));
    f.check_books();
    plan.set(Fault::None, 1);
}

#[test]
fn a_sweep_finds_entries_that_insertions_move_about() {
    let f = inline(|c| {
        c.nominal_page = 65536;
        c.instances = 1;
    });
    // As many pages as the directory takes.
    let filled = (0..).take_while(|n| {
        f.insert(page(1, *n), 1, 1024);
        f.pump();
        f.extension.statistics().evicted < 100
    });
    let filled = filled.count() as u32;
    let shared = &f.extension.shared;
    let device = &shared.store.devices[0];
    let left = || device.table.cached().0;
    let (before, next, calls) = (left(), Cell::new(filled + 1), Cell::new(0));
    let insert_some = || {
        // Into buckets that are not swept yet: some of their entries move to swept ones.
        for n in next.get()..next.get() + 20 {
            f.insert(page(1, n), 1, 1024);
        }
        next.set(next.get() + 20);
        calls.set(calls.get() + 1);
    };
    let buckets = shared.instances[0].0.lock().directory.buckets();
    let removed = sweep_in_pieces(shared, device, |_| true, left, 4, insert_some);
    assert_eq!(left(), 0);
    assert!(before > 100 && (before / 2..=before).contains(&removed));
    // One piece of a second round: entries were left by the first.
    assert_eq!(calls.get(), buckets.div_ceil(4) + 1);
}

/// Sets a flag when it goes out of scope, so that a thread that waits for the flag ends after a panic, too.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_device_fails_again_and_again_while_pages_are_inserted() {
    let second = tempfile::tempdir().unwrap();
    let f = inline(|c| {
        c.devices.push(device(second.path(), "other", SMALLEST));
        c.nominal_page = 65536;
        c.instances = 1;
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                // A server reads before it inserts, so it does not starve the writer of the lock.
                if f.insert(page(1, n), 1, 1024) == InsertOutcome::StagingFull {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let _stop = SetAtEnd(&stop);
        let begun = std::time::Instant::now();
        let has_purged = || f.extension.statistics().purged > 0;
        // The first rounds may pass before the other thread has begun.
        for _ in (0..).take_while(|n| *n < 10 || !has_purged() && begun.elapsed().as_secs() < 20) {
            (0..3).for_each(|_| _ = f.extension.pump());
            f.extension.shared.store.devices[0]
                .health
                .fail("pulled out");
            f.extension.with_writers(|writers| _ = writers[0].step());
            f.extension
                .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
            f.extension.with_writers(|writers| _ = writers[0].step());
        }
    });
    assert!(f.extension.statistics().purged > 0);
    f.pump();
    f.check_books();
}

#[test]
fn a_truncated_file_is_noticed_and_extended() {
    let f = inline(|_| {});
    for n in 0..100 {
        f.insert(page(1, n), 1, 16384);
        f.pump();
    }
    let path = f.directory.path().join("cache");
    let length = std::fs::metadata(&path).unwrap().len();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(DATA)
        .unwrap();
    for n in 0..8 {
        assert_eq!(
            f.read(page(1, n), 1, 16384),
            ReadOutcome::Miss(MissReason::DeviceError)
        );
    }
    assert!(state(&f).contains("shorter"), "{}", state(&f));
    f.pump();
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    f.pump();
    assert_eq!(state(&f), "active");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
    f.insert(page(1, 1), 1, 16384);
    f.pump();
    assert_eq!(f.read(page(1, 1), 1, 16384), ReadOutcome::Hit);
}

#[test]
fn a_deleted_file_is_mentioned_and_made_anew_when_it_fails() {
    let f = inline(|_| {});
    f.insert(page(1, 1), 1, 16384);
    f.pump();
    let path = f.directory.path().join("cache");
    std::fs::remove_file(&path).unwrap();
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_check());
    f.pump();
    assert!(
        state(&f).contains("active; the cache file was deleted"),
        "{}",
        state(&f)
    );
    assert_eq!(f.read(page(1, 1), 1, 16384), ReadOutcome::Hit);
    f.extension.shared.store.devices[0]
        .health
        .fail("something else");
    f.pump();
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    f.pump();
    assert!(path.exists());
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_check());
    f.pump();
    assert_eq!(state(&f), "active");
}

#[test]
fn a_panic_in_the_writer_leaves_a_server_that_misses() {
    struct Bomb(File, Arc<AtomicBool>);
    impl Storage for Bomb {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            Storage::read_at(&self.0, buffer, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            assert!(!self.1.load(Ordering::SeqCst), "boom");
            Storage::write_at(&self.0, bytes, offset)
        }
        fn facts(&self) -> io::Result<(u64, u64)> {
            self.0.facts()
        }
        fn raw_fd(&self) -> RawFd {
            self.0.raw_fd()
        }
    }
    let armed = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&armed);
    let directory = tempfile::tempdir().unwrap();
    let generations = Arc::new(Generations::new());
    let wrap = move |file| -> Box<dyn Storage> { Box::new(Bomb(file, Arc::clone(&switch))) };
    let config = config(directory.path(), SMALLEST);
    let extension =
        Extension::open_with(&config, Arc::clone(&generations), Arc::new(wrap), true).unwrap();
    let f = Fixture {
        extension,
        generations,
        directory,
    };
    let wait_until = |is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_so()
    };
    f.insert(page(2, 1), 1, 16384);
    assert!(wait_until(&|| f.extension.device_statistics()[0].pages == 1));
    armed.store(true, Ordering::SeqCst);
    f.insert(page(1, 1), 1, 16384);
    assert!(wait_until(&|| !f.extension.device_statistics()[0].active));
    assert!(
        wait_until(&|| f.extension.device_statistics()[0].pages == 0),
        "entries of a device that is not used again"
    );
    assert!(
        state(&f).contains("internal error in its writer (boom)"),
        "{}",
        state(&f)
    );
    f.read(page(1, 1), 1, 16384);
    assert_eq!(f.insert(page(1, 2), 1, 16384), InsertOutcome::Unsuitable);
    let begun = Instant::now();
    drop(f.extension);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(!f.directory.path().join("cache").exists());
}

/// Breaks one invariant, which `validate` must report.
fn plant(what: &str, break_it: impl FnOnce(&Fixture)) {
    let f = inline(|c| c.instances = 1);
    for n in 0..900 {
        f.insert(page(1, n), 1, 16384);
        if n % 8 == 0 {
            f.pump();
        }
    }
    f.pump();
    for n in 900..910 {
        f.insert(page(1, n), 1, 16384);
    }
    let figures = f.extension.validate().unwrap();
    assert!(figures.staged == 10 && figures.frames == 10 && figures.segments > 4);
    break_it(&f);
    let found = f.extension.validate().unwrap_err();
    assert!(found.iter().any(|found| found.contains(what)), "{found:?}");
}

#[test]
fn each_planted_fault_is_found() {
    let state = |f: &Fixture, act: fn(&mut crate::instance::InstanceState)| {
        act(&mut f.extension.shared.instances[0].0.lock());
    };
    plant("entries of a directory", |f| {
        state(f, |state| state.directory.forget_one_entered());
    });
    plant("segment 3: counted", |f| {
        f.extension.shared.store.devices[0].table.born(3, 16, 16);
    });
    plant("units of a device", |f| {
        f.extension.shared.store.devices[0].table.born(3, 16, 16);
    });
    plant("is listed, and has no entry", |f| {
        let mut state = f.extension.shared.instances[0].0.lock();
        let (slot, _) = state.find(&f.extension.shared.store, page(1, 905)).unwrap();
        state.directory.remove(slot);
    });
    plant("removals", |f| {
        let instance = &f.extension.shared.instances[0].0;
        instance.set_removals(instance.removals() + 1);
    });
    plant("frames of staged pages", |f| {
        let filling = f.extension.shared.store.staging.allocate(4096).unwrap();
        std::mem::forget(filling);
    });
    plant("entry of free frame", |f| {
        let shared = &f.extension.shared;
        let state = shared.instances[0].0.lock();
        let (_, entry) = state.find(&shared.store, page(1, 905)).unwrap();
        drop(shared.store.staging.collected(entry.location));
    });
    plant("is in 2 states", |f| {
        f.extension
            .with_writers(|writers| writers[0].log.parts_mut().0.list_twice());
    });
    plant("is in 0 states", |f| {
        f.extension
            .with_writers(|writers| writers[0].log.parts_mut().0.lose_one());
    });
    plant("is Sorting, and listed as Full", |f| {
        f.extension
            .with_writers(|writers| writers[0].log.parts_mut().0.mistake_one());
    });
    plant("is unknown there", |f| {
        f.extension
            .with_writers(|writers| writers[0].log.parts_mut().1.records_mut().clear());
    });
    plant("overlap", |f| {
        f.extension.with_writers(|writers| {
            let records = writers[0].log.parts_mut().1.records_mut();
            let first = records[0];
            records.push(first);
        });
    });
    plant("above the highest page", |f| {
        state(f, |state| state.lower_highest(FileId(1)));
    });
}

#[test]
fn what_compaction_moves_is_read_whatever_the_bound_on_reads() {
    let run = |bound: Option<Duration>| {
        let f = inline(|c| {
            c.nominal_page = 4096;
            c.read_timeout = bound;
        });
        f.extension
            .shared
            .store
            .canary
            .compaction
            .store(true, Ordering::Relaxed);
        // Every other page is evicted, so that segments are emptied and half of their contents move.
        for n in 0..4000 {
            f.insert(page(1, n), 1, 16384);
            if n % 16 == 15 {
                f.pump();
            }
            if n % 2 == 0 {
                f.write(page(1, n / 2), 2, 16384);
            }
        }
        f.pump();
        f.check_books();
        let s = f.extension.statistics();
        let direct = f.extension.device_statistics()[0].direct_io;
        (direct, s.reinserted, s.pages_cached, s.failed_proofs)
    };
    let (direct, reinserted, ..) = run(None);
    assert!(reinserted > 100, "{reinserted}");
    if direct {
        assert_eq!(run(Some(Duration::from_secs(1))), run(None));
    }
}
