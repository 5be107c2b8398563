//! State after a power loss while many clients write, sync, truncate, punch holes and rename. Each sector must have its
//! last synced contents, or something written later. A change that no sync covers must not have become durable.
//!
//! Every write has a stamp, which fills its sectors, and two times of a common clock: before its submission and after
//! its completion. So have syncs and the power loss. Two events whose intervals overlap may have happened in either
//! order; the order of all others is known. `BPE_SEED` repeats a run, as far as threads are repeatable.

mod aio;
mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use aio::{Aligned, Context, SECTOR};
use cloud_volume::{Options, Profile};
use common::Trial;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

const FILES: usize = 3;
const WRITERS: usize = 4;
/// Sectors per file.
const SECTORS: usize = 512;
/// Sectors of the longest write: more than a database page.
const LONGEST: usize = 48;
const ROUNDS: u64 = 40;

/// The common clock.
static CLOCK: AtomicU64 = AtomicU64::new(1);

fn now() -> u64 {
    CLOCK.fetch_add(1, SeqCst)
}

/// From just before the submission until just after the completion.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u64,
    end: u64,
}

fn during<R>(act: impl FnOnce() -> R) -> (Span, R) {
    let begin = now();
    let result = act();
    (Span { begin, end: now() }, result)
}

impl Span {
    fn precedes(self, other: Span) -> bool {
        self.end < other.begin
    }
}

/// New contents of some sectors: a stamp, or zeros of a hole or of a truncated part (0).
#[derive(Clone, Copy, Debug)]
struct Change {
    span: Span,
    stamp: u64,
    first: usize,
    sectors: usize,
    /// Durable on completion.
    synchronous: bool,
    /// Direct, without waiting by the kernel.
    asynchronous: bool,
}

impl Change {
    fn covers(&self, sector: usize) -> bool {
        (self.first..self.first + self.sectors).contains(&sector)
    }
}

/// A file under its current name, and the history of its changes.
struct Subject {
    name: Mutex<String>,
    direct: File,
    buffered: File,
    synchronous: File,
    changes: Mutex<Vec<Change>>,
    syncs: Mutex<Vec<Span>>,
}

impl Subject {
    fn new(trial: &Trial, name: &str) -> Subject {
        let open = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let opened = options.custom_flags(flags).open(trial.path(name));
            opened.unwrap()
        };
        Subject {
            name: Mutex::new(name.into()),
            direct: open(libc::O_DIRECT),
            buffered: open(0),
            synchronous: open(libc::O_DSYNC | libc::O_DIRECT),
            changes: Mutex::default(),
            syncs: Mutex::default(),
        }
    }

    fn note(&self, span: Span, stamp: u64, first: usize, sectors: usize) {
        self.push(Change {
            span,
            stamp,
            first,
            sectors,
            synchronous: false,
            asynchronous: false,
        });
    }

    fn push(&self, change: Change) {
        self.changes.lock().unwrap().push(change);
    }

    fn sync(&self, file: &File) {
        let (span, result) = during(|| file.sync_data());
        result.unwrap();
        self.syncs.lock().unwrap().push(span);
    }

    fn path(&self, trial: &Trial) -> std::path::PathBuf {
        trial.path(&self.name.lock().unwrap())
    }
}

/// One client: changes files at random until `stop` is set.
fn write(subjects: &[Subject], trial: &Trial, mut random: fastrand::Rng, stop: &AtomicBool) {
    let context = Context::new(8);
    let mut buffer = Aligned::new(LONGEST);
    while !stop.load(SeqCst) {
        let subject = &subjects[random.usize(..FILES)];
        let first = random.usize(..SECTORS);
        let sectors = random.usize(1..=LONGEST.min(SECTORS - first));
        let offset = (first * SECTOR) as u64;
        let length = (sectors * SECTOR) as u64;
        let zeros = |span, first, sectors| subject.note(span, 0, first, sectors);
        match random.u32(..100) {
            0..40 => {
                let stamp = now();
                buffer.fill(sectors, stamp);
                let (file, synchronous) = match random.u32(..8) {
                    0..4 => (&subject.direct, false),
                    4..7 => (&subject.buffered, false),
                    _ => (&subject.synchronous, true),
                };
                let data = &buffer.bytes()[..sectors * SECTOR];
                let (span, result) = during(|| file.write_all_at(data, offset));
                result.unwrap();
                subject.push(Change {
                    span,
                    stamp,
                    first,
                    sectors,
                    synchronous,
                    asynchronous: false,
                });
            }
            40..65 => {
                // Several at a time, which may overlap.
                let pieces: Vec<(u64, usize, usize)> = (0..random.usize(1..=8))
                    .map(|_| {
                        let first = random.usize(..SECTORS);
                        let longest = LONGEST.min(SECTORS - first);
                        (now(), first, random.usize(1..=longest))
                    })
                    .collect();
                let (span, ()) = during(|| context.write(&subject.direct, &pieces));
                for (stamp, first, sectors) in pieces {
                    subject.push(Change {
                        span,
                        stamp,
                        first,
                        sectors,
                        synchronous: false,
                        asynchronous: true,
                    });
                }
            }
            65..70 => {
                let (span, result) = during(|| subject.buffered.set_len(offset));
                result.unwrap();
                zeros(span, first, SECTORS - first);
            }
            70..75 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (span, result) = during(|| fallocate(&subject.direct, punch, offset, length));
                result.unwrap();
                zeros(span, first, sectors);
            }
            75..80 => {
                let zero = FallocateFlags::ZERO_RANGE;
                let (span, result) = during(|| fallocate(&subject.buffered, zero, offset, length));
                result.unwrap();
                zeros(span, first, sectors);
            }
            80..85 => {
                fallocate(&subject.direct, FallocateFlags::empty(), offset, length).unwrap();
            }
            85..90 => {
                let mut name = subject.name.lock().unwrap();
                let new = format!("{} {}", name.split(' ').next().unwrap(), now());
                if random.bool() {
                    fs::write(trial.path(&new), "replaced").unwrap();
                }
                fs::rename(trial.path(&name), trial.path(&new)).unwrap();
                *name = new;
            }
            90..93 => {
                // With a separate descriptor, whose file may have another name by then.
                if let Ok(file) = File::open(subject.path(trial)) {
                    subject.sync(&file);
                }
            }
            93..96 => subject.sync(&subject.buffered),
            _ => subject.sync(&subject.direct),
        }
    }
}

/// Why `stamp` in `sector` is wrong after the power loss at `loss`, if it is.
fn wrong(subject: &Subject, sector: usize, stamp: u64, loss: Span, torn: bool) -> Option<String> {
    let changes = subject.changes.lock().unwrap();
    let syncs = subject.syncs.lock().unwrap();
    let before: Vec<&Change> = changes.iter().filter(|c| c.covers(sector)).collect();
    let durable = |change: &Change| {
        change.synchronous && change.span.precedes(loss)
            || syncs
                .iter()
                .any(|sync| change.span.precedes(*sync) && sync.precedes(loss))
    };
    // Several changes may have produced the same zeros.
    let candidates: Vec<&&Change> = before.iter().filter(|c| c.stamp == stamp).collect();
    if candidates.is_empty() {
        return Some(format!("stamp {stamp} was never written there"));
    }
    let mut reasons = Vec::new();
    for candidate in candidates {
        let newer = before.iter().find(|later| {
            candidate.span.precedes(later.span) && (durable(later) || loss.precedes(later.span))
        });
        // A synchronous write may make everything written to the file before it durable.
        let could_be_durable = candidate.span.begin == 0
            || candidate.span.end > loss.begin
            || syncs.iter().any(|sync| sync.end > candidate.span.begin)
            || changes
                .iter()
                .any(|change| change.synchronous && change.span.end > candidate.span.begin);
        match newer {
            Some(newer) => reasons.push(format!("{candidate:?} is older than {newer:?}")),
            None if !torn && !could_be_durable => {
                reasons.push(format!("{candidate:?} was not synced, but is there"));
            }
            None => return None,
        }
    }
    Some(format!("{reasons:?}; syncs: {syncs:?}"))
}

/// Whether the kernel may have cached `cached` while the volume has `stored`. The kernel does not revalidate its pages
/// when an asynchronous direct write ends, so a concurrent change leaves its own contents cached (open(2): do not mix
/// the two).
fn may_be_cached(subject: &Subject, sector: usize, cached: u64, stored: u64) -> bool {
    let changes = subject.changes.lock().unwrap();
    let of = |stamp| {
        let those = changes.iter();
        those.filter(move |c| c.stamp == stamp && c.covers(sector))
    };
    of(stored).filter(|write| write.asynchronous).any(|write| {
        of(cached).any(|c| !c.span.precedes(write.span) && !write.span.precedes(c.span))
    })
}

/// The stamp of each sector; zeros beyond the end.
fn stamps(contents: &[u8]) -> Vec<u64> {
    assert!(contents.len() <= SECTORS * SECTOR && contents.len() % SECTOR == 0);
    let mut stamps: Vec<u64> = contents
        .chunks(SECTOR)
        .map(|sector| {
            let stamp = &sector[..8];
            assert!(sector.chunks(8).all(|word| word == stamp), "a torn sector");
            u64::from_le_bytes(stamp.try_into().unwrap())
        })
        .collect();
    stamps.resize(SECTORS, 0);
    stamps
}

#[test]
fn every_sector_is_as_synced_or_newer() {
    let seed = std::env::var("BPE_SEED").map_or_else(|_| fastrand::u64(..), |s| s.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    let options = Options {
        profile: Profile::unlimited(),
        forget_unsynced: true,
        ..Options::default()
    };
    let Some(trial) = Trial::mount(options) else {
        return;
    };
    let subjects: Vec<Subject> = (0..FILES)
        .map(|n| Subject::new(&trial, &format!("file-{n}")))
        .collect();
    let mut left = vec![vec![0; SECTORS]; FILES];
    for round in 0..ROUNDS {
        // The state after the last round is durable, and older than all events.
        for (subject, left) in subjects.iter().zip(&left) {
            let begin = Span { begin: 0, end: 0 };
            subject.changes.lock().unwrap().clear();
            subject.syncs.lock().unwrap().clear();
            for (sector, stamp) in left.iter().enumerate() {
                subject.note(begin, *stamp, sector, 1);
            }
        }
        let stop = AtomicBool::new(false);
        let time = Duration::from_micros(random.u64(1000..60_000));
        let (torn, tear) = (random.bool(), random.u64(..));
        // In half of the rounds the clients have stopped before, as on a host that loses power.
        let before = random.bool();
        let lose = || {
            let (loss, result) = during(|| match torn {
                true => trial.volume.power_loss_torn(tear),
                false => trial.volume.power_loss(),
            });
            result.unwrap();
            loss
        };
        let loss = std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                let (subjects, trial, stop) = (&subjects, &trial, &stop);
                let random = random.fork();
                scope.spawn(move || write(subjects, trial, random, stop));
            }
            std::thread::sleep(time);
            let loss = (!before).then(&lose);
            stop.store(true, SeqCst);
            loss
        });
        let loss = loss.unwrap_or_else(lose);
        for (subject, left) in subjects.iter().zip(&mut left) {
            // Includes everything after the loss.
            subject.direct.sync_data().unwrap();
            let path = subject.path(&trial);
            let contents = fs::read(&path).unwrap();
            let backing = trial.backing(path.file_name().unwrap().to_str().unwrap());
            let context = format!("seed {seed}, round {round}, {path:?}, {loss:?}, torn: {torn}");
            let stored = fs::read(&backing).unwrap();
            let mut direct = Aligned::new(SECTORS);
            let read = subject.direct.read_at(direct.bytes_mut(), 0).unwrap();
            assert!(stored == direct.bytes()[..read], "{context}");
            *left = stamps(&stored);
            // The kernel caches no older contents, for either kind of read.
            assert_eq!(contents.len(), stored.len(), "{context}");
            for (sector, (cached, stored)) in stamps(&contents).iter().zip(&*left).enumerate() {
                let same = cached == stored || may_be_cached(subject, sector, *cached, *stored);
                assert!(same, "{context}, sector {sector}: {cached}, not {stored}");
            }
            fadvise(&subject.buffered, 0, None, Advice::DontNeed).unwrap();
            assert!(stored == fs::read(&path).unwrap(), "{context}");
            for (sector, stamp) in left.iter().enumerate() {
                if let Some(wrong) = wrong(subject, sector, *stamp, loss, torn) {
                    panic!("{context}, sector {sector}: {wrong}");
                }
            }
        }
    }
    let statistics = trial.volume.statistics();
    assert_eq!(statistics.power_losses, ROUNDS);
}
