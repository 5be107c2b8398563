//! Many threads against a model that knows the current version of every page.
//!
//! The threads use a small extension whose segments are reclaimed all the time. They read, write, make changes without
//! an observed end, drop files, and change the switches. Admissions are deliberately late, when the page may have been
//! written again. A hit must be a version that the page had between the beginning and the end of the read. The test
//! must detect three canaries, each of which disables a part of the protocol.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use parking_lot::RwLock;

use super::*;
use crate::{Compression, Group, Located, Statistics};

struct Model {
    extension: Extension,
    generations: Arc<Generations>,
    files: Vec<File>,
    next_file: AtomicU32,
    cache: std::fs::File,
    violations: AtomicU64,
    hits: AtomicU64,
}

/// A data file: pages of one length. Its index is its owner number; its `FileId` changes when it is dropped.
struct File {
    length: usize,
    id: RwLock<FileId>,
    pages: Vec<Page>,
}

/// The lock blocks reads of a page during a write, like InnoDB's latch. One read in eight ignores it.
#[derive(Default)]
struct Page {
    lock: RwLock<()>,
    version: AtomicU32,
}

/// Bytes of a read or write, inserted later.
struct Late {
    page: PageId,
    bytes: Vec<u8>,
    ticket: crate::ReadTicket,
    source: Source,
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = crate::common::page::mix64(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (self.0 >> 32) as usize % below
    }
}

impl Model {
    fn new(lengths: &[usize], bytes: u64, compression: Compression, directory: &Path) -> Model {
        let generations = Arc::new(Generations::new());
        let c = Config {
            compression,
            nominal_page: 4096,
            ..config(directory, SMALLEST)
        };
        let extension = Extension::open(c, Arc::clone(&generations)).unwrap();
        let pages_of = |length: usize| (bytes as usize / lengths.len() / length).clamp(8, 3000);
        let files = (0..).zip(lengths).map(|(n, &length)| File {
            length,
            id: RwLock::new(FileId(n)),
            pages: std::iter::repeat_with(Page::default)
                .take(pages_of(length))
                .collect(),
        });
        Model {
            files: files.collect(),
            next_file: AtomicU32::new(lengths.len() as u32),
            cache: std::fs::File::open(directory.join("cache")).unwrap(),
            generations,
            extension,
            violations: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    fn run(&self, threads: u64, steps: usize) {
        std::thread::scope(|scope| {
            for seed in 0..threads {
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut late = Vec::new();
                    for _ in 0..steps {
                        self.step(&mut random, &mut late);
                    }
                });
            }
        });
    }

    fn step(&self, random: &mut Random, late: &mut Vec<Late>) {
        let owner = random.next(self.files.len());
        let file = &self.files[owner];
        // Skewed, so that several threads use some pages at once.
        let near = random
            .next(file.pages.len())
            .min(random.next(file.pages.len()))
            .min(random.next(file.pages.len()));
        match random.next(100) {
            0..56 => self.read(owner as u32, file, near, random, late),
            56..64 => self.read_unlocked(file, near),
            64..72 => self.read_located(file, near),
            72..90 => self.write(owner as u32, file, near, random, late),
            90..94 => self.write_range(owner as u32, file, near, random),
            94..96 => self.write_unseen(owner as u32, file, near),
            96..97 if random.next(40) == 0 => self.drop_file(owner as u32, file),
            _ => {}
        }
        if late.len() > random.next(8) {
            let l = late.swap_remove(random.next(late.len()));
            self.extension
                .insert(l.page, Group::NORMAL, &l.bytes, l.ticket, l.source);
        }
    }

    fn check_hit(&self, page: PageId, bytes: &[u8], versions: std::ops::RangeInclusive<u32>) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        let version = version_of(bytes);
        if !versions.contains(&version) || bytes != content(page, version, bytes.len()) {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, owner: u32, file: &File, n: usize, random: &mut Random, late: &mut Vec<Late>) {
        let id = file.id.read();
        let page = PageId::new(*id, n as u32);
        let _lock = file.pages[n].lock.read();
        let version = file.pages[n].version.load(Ordering::SeqCst);
        let ticket = self.generations.begin_read(owner, page.page);
        // Not always aligned.
        let shift = if random.next(4) == 0 { 8 } else { 0 };
        let mut memory = vec![0; file.length + 4096 + 8];
        let start = memory.as_ptr().align_offset(4096) + shift;
        let buffer = &mut memory[start..start + file.length];
        if self.extension.read(page, Group::NORMAL, buffer) == ReadOutcome::Hit {
            self.check_hit(page, buffer, version..=version);
        } else if let Some(ticket) = ticket {
            let bytes = content(page, version, file.length);
            if random.next(3) > 0 {
                self.extension
                    .insert(page, Group::NORMAL, &bytes, ticket, Source::Read);
            } else {
                late.push(Late {
                    page,
                    bytes,
                    ticket,
                    source: Source::Read,
                });
            }
        }
    }

    fn read_unlocked(&self, file: &File, n: usize) {
        let id = file.id.read();
        let page = PageId::new(*id, n as u32);
        let before = file.pages[n].version.load(Ordering::SeqCst);
        let mut buffer = vec![0; file.length];
        if self.extension.read(page, Group::NORMAL, &mut buffer) == ReadOutcome::Hit {
            self.check_hit(
                page,
                &buffer,
                before..=file.pages[n].version.load(Ordering::SeqCst),
            );
        }
    }

    fn read_located(&self, file: &File, n: usize) {
        let id = file.id.read();
        let page = PageId::new(*id, n as u32);
        let before = file.pages[n].version.load(Ordering::SeqCst);
        let Some(located) = self.extension.locate(page, Group::NORMAL, file.length, 0) else {
            return;
        };
        let Located { offset, length, .. } = located;
        let mut read = vec![0; length as usize];
        let mut bytes = vec![0; file.length];
        let is_read = self.cache.read_exact_at(&mut read, offset).is_ok();
        // SAFETY: no read fills the memory; a page in staging is present.
        let copy = unsafe { located.bytes() }.filter(|_| length == 0);
        let lent = located.buffer().map(|_| copy.unwrap_or(&read));
        if lent.is_none() {
            bytes.copy_from_slice(&read);
        }
        if !is_read {
            self.extension.release_failed(located, 0);
        } else if self.extension.prove_page(&located, lent, &mut bytes) {
            self.check_hit(
                page,
                &bytes,
                before..=file.pages[n].version.load(Ordering::SeqCst),
            );
        }
    }

    fn write(&self, owner: u32, file: &File, n: usize, random: &mut Random, late: &mut Vec<Late>) {
        let id = file.id.read();
        let page = PageId::new(*id, n as u32);
        let _lock = file.pages[n].lock.write();
        self.generations.begin_write(owner, page.page, 1);
        let was_cached = self.extension.invalidate(*id, page.page, 1);
        let version = file.pages[n].version.fetch_add(1, Ordering::SeqCst) + 1;
        if random.next(8) == 0 {
            std::thread::yield_now();
        }
        let Some(ticket) = self.generations.end_write(owner, page.page, 1) else {
            return;
        };
        let bytes = content(page, version, file.length);
        let source = Source::Write { was_cached };
        match random.next(8) {
            0 => {}
            1..4 => late.push(Late {
                page,
                bytes,
                ticket,
                source,
            }),
            _ => {
                _ = self
                    .extension
                    .insert(page, Group::NORMAL, &bytes, ticket, source)
            }
        }
    }

    fn write_range(&self, owner: u32, file: &File, n: usize, random: &mut Random) {
        let id = file.id.read();
        let pages = &file.pages[n..file.pages.len().min(n + 1 + random.next(6))];
        let _locks: Vec<_> = pages.iter().map(|page| page.lock.write()).collect();
        // One in four covers all pages beyond, like a truncation.
        let count = pages.len() as u32;
        self.generations.begin_write(owner, n as u32, count);
        self.extension.invalidate(
            *id,
            n as u32,
            if random.next(4) == 0 { u32::MAX } else { count },
        );
        pages
            .iter()
            .for_each(|page| _ = page.version.fetch_add(1, Ordering::SeqCst));
        self.generations.end_write(owner, n as u32, count);
    }

    fn write_unseen(&self, owner: u32, file: &File, n: usize) {
        let id = file.id.read();
        let _lock = file.pages[n].lock.write();
        self.generations.bump(owner, n as u32, 1);
        self.extension.invalidate(*id, n as u32, 1);
        file.pages[n].version.fetch_add(1, Ordering::SeqCst);
    }

    /// Version numbers continue, so that no old version can pass for a new one.
    fn drop_file(&self, owner: u32, file: &File) {
        let mut id = file.id.write();
        self.generations.bump(owner, 0, u32::MAX);
        self.extension.forget_file(*id, 0);
        self.extension.clear_forgotten(Duration::ZERO);
        *id = FileId(self.next_file.fetch_add(1, Ordering::SeqCst));
        file.pages
            .iter()
            .for_each(|page| _ = page.version.fetch_add(1, Ordering::SeqCst));
    }

    /// Call after all threads have ended.
    fn check_books(&self) {
        while self.extension.statistics().pages_staged > 0 || self.extension.staged_bytes() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let s = self.extension.statistics();
        assert_eq!(
            s.pages_cached,
            self.extension
                .device_statistics()
                .iter()
                .map(|d| d.pages)
                .sum::<u64>()
        );
        assert_eq!((s.failed_proofs, s.device_errors), (0, 0));
    }
}

const MIXED: [usize; 9] = [1024, 2048, 4096, 8192, 16384, 16384, 16384, 32768, 65536];

fn everything_was_tried(s: &Statistics, compaction: bool) -> bool {
    let tried = [
        s.hits - s.hits_staged,
        s.hits_staged,
        s.hits_located,
        s.stale_offers,
        s.invalidated,
        s.evicted,
    ];
    tried.iter().all(|&n| n > 0) && (s.reinserted > 0 || !compaction)
}

/// `compaction`: segments are always emptied, never reopened, which is rare otherwise.
fn trial(lengths: &[usize], compression: Compression, compaction: bool, steps: usize) {
    let directory = tempfile::tempdir().unwrap();
    let model = Model::new(lengths, 24 << 20, compression, directory.path());
    let canary = &model.extension.shared.store.canary;
    canary.compaction.store(compaction, Ordering::Relaxed);
    // On a busy host the writer needs time to catch up before the cache is full.
    for _ in 0..50 {
        model.run(4, steps);
        model.check_books();
        if everything_was_tried(&model.extension.statistics(), compaction) {
            break;
        }
    }
    let s = model.extension.statistics();
    assert_eq!(model.violations.load(Ordering::Relaxed), 0);
    assert_eq!(model.hits.load(Ordering::Relaxed), s.hits);
    assert!(everything_was_tried(&s, compaction), "{s:?}");
}

#[test]
fn no_old_page_is_ever_served_mixed_lengths() {
    trial(&MIXED, Compression::Off, false, 12_000);
}

#[test]
fn no_old_page_is_ever_served_compressed() {
    trial(&MIXED, Compression::Lz4, false, 12_000);
}

#[test]
fn no_old_page_is_ever_served_compacted() {
    trial(&MIXED, Compression::Off, true, 12_000);
    trial(&MIXED, Compression::Lz4, true, 12_000);
}

#[test]
fn no_old_page_is_ever_served_one_length() {
    trial(&[16384; 3], Compression::Off, false, 12_000);
}

fn canary(switch: impl Fn(&Canary)) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let model = Model::new(&[4096; 2], 1 << 20, Compression::Off, directory.path());
    switch(&model.extension.shared.store.canary);
    for _ in 0..50 {
        model.run(4, 1000);
        if model.violations.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    model.violations.load(Ordering::Relaxed)
}

#[test]
fn the_model_notices_insertion_without_comparing_generations() {
    assert!(canary(|c| c.generation.store(true, Ordering::Relaxed)) > 0);
}

#[test]
fn the_model_notices_writes_without_invalidation() {
    assert!(canary(|c| c.invalidation.store(true, Ordering::Relaxed)) > 0);
}
