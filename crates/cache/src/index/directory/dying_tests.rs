//! State of a directory after a crash in the middle of a change.
//!
//! One test stops at each single store of many changes. The other test repeatedly kills a process that changes a
//! directory in shared memory, and so covers every instruction. Both compare the surviving entries with the entries
//! before and after the interrupted change.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use super::Rule;
use crate::common::memory::Mapped;
use crate::common::page::{FileId, PageId, mix64};
use crate::index::directory::{Directory, Entry, Kind};

thread_local! {
    /// Stores that remain until this thread stops.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Whether the thread attempted a store after that.
    static DIED: Cell<bool> = const { Cell::new(false) };
    static DISABLED: Cell<Option<Rule>> = const { Cell::new(None) };
}

pub(in crate::index::directory) fn is_dead() -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    DIED.set(left == 0);
    left == 0
}

pub(in crate::index::directory) fn is_disabled(rule: Rule) -> bool {
    DISABLED.get() == Some(rule)
}

/// Makes change number `index` of a sequence, determined by the seed and the directory. Allocates no memory.
fn change(directory: &mut Directory, seed: u64, index: u64) {
    let random = mix64(seed ^ mix64(index + 1));
    let number = (random >> 16) as u32 % (2 * directory.capacity() as u32);
    let key = directory.key(PageId::new(FileId(number % 7), number));
    // Each entry differs from all others in every field.
    let new = Entry {
        check: mix64(random) as u32,
        location: random as u32,
        kind: Kind::raw(1024 << (random >> 60 & 3)),
        clock: (random >> 58 & 3) as u8,
    };
    match (random >> 8 & 15, directory.find(key)) {
        (0, _) => {
            let mut evictable = directory.on_devices(number % directory.buckets() as u32);
            let removed = evictable.next().map(|(slot, _)| directory.remove(slot));
            std::hint::black_box(removed);
        }
        (1, _) => directory.sweep(number as usize % directory.buckets(), 1, |entry| {
            entry.check.is_multiple_of(4)
        }),
        (2..5, Some(slot)) => drop(std::hint::black_box(directory.remove(slot))),
        (5..8, Some(slot)) => {
            let clock = new.clock;
            let entry = directory.get(slot);
            directory.replace(slot, Entry { clock, ..entry });
        }
        (_, Some(slot)) => directory.replace(slot, new),
        (_, None) => drop(std::hint::black_box(directory.insert(
            key,
            new,
            crate::Group::NORMAL,
        ))),
    }
}

/// Entries by identity. The clock is irrelevant.
type Entries = BTreeMap<u64, Entry>;

fn entries(directory: &Directory) -> Result<Entries, String> {
    let mut entries = Entries::new();
    let mut twice = None;
    directory.for_each(|slot, entry| {
        let entry = Entry { clock: 0, ..entry };
        if let Some(other) = entries.insert(directory.identity_at(slot), entry) {
            twice = Some(format!("two entries of one page: {other:?} and {entry:?}"));
        }
    });
    twice.map_or(Ok(entries), Err)
}

/// Checks the entries that survived a crash between two states.
fn judge(before: &Entries, after: &Entries, survived: &Directory) -> Result<(), String> {
    let survived = entries(survived)?;
    for (page, entry) in &survived {
        if before.get(page) != Some(entry) && after.get(page) != Some(entry) {
            return Err(format!(
                "{entry:?} was never entered for its page, or had gone"
            ));
        }
    }
    let untouched = |(page, entry): &(&u64, &Entry)| after.get(page) == Some(entry);
    let lost = before
        .iter()
        .filter(untouched)
        .filter(|(page, _)| !survived.contains_key(page));
    match lost.count() {
        0 | 1 => Ok(()),
        more => Err(format!(
            "{more} entries are lost that nothing was to happen to"
        )),
    }
}

/// A private copy of another directory.
fn copy(of: &Directory) -> Directory {
    let mut buckets = Mapped::new(of.buckets.len()).expect("memory");
    buckets.clone_from_slice(&of.buckets);
    Directory {
        buckets,
        used: of.used,
        gone: of.gone,
        tags: None,
    }
}

/// Crashes at each store of `changes` changes. Returns the number of crashes.
fn die_at_each_store(capacity: u64, changes: u64, seed: u64) -> Result<u64, String> {
    let mut directory = Directory::new(capacity).expect("memory");
    let mut deaths = 0;
    for index in 0..changes {
        let old = copy(&directory);
        change(&mut directory, seed, index);
        let (before, after) = (entries(&old)?, entries(&directory)?);
        for stores in 0.. {
            let mut dying = copy(&old);
            LEFT.set(stores);
            DIED.set(false);
            change(&mut dying, seed, index);
            LEFT.set(u64::MAX);
            judge(&before, &after, &dying).map_err(|fault| {
                format!("change {index}, seed {seed}, death after {stores} stores: {fault}")
            })?;
            if !DIED.get() {
                break;
            }
            deaths += 1;
        }
    }
    Ok(deaths)
}

#[test]
fn a_death_at_any_store_leaves_what_was_entered() {
    let changes = if cfg!(miri) { 20 } else { 3000 };
    for capacity in [10, 60, 500] {
        let deaths = die_at_each_store(capacity, changes, 7).expect("nothing wrong survives");
        assert!(deaths > changes, "{deaths}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "the same as above")]
fn a_rule_that_is_left_out_is_noticed() {
    for rule in [Rule::MarkLast, Rule::ClearBefore, Rule::ClearFirst] {
        DISABLED.set(Some(rule));
        let found = die_at_each_store(60, 3000, 7);
        DISABLED.set(None);
        assert!(found.is_err(), "{rule:?}");
    }
}

/// Maximum number of changes before the process exits, should the kill fail.
const MAX_CHANGES: u64 = 1 << 20;

/// Changes a directory in shared memory, counts completed changes in `made`, and never returns. Call it in a forked
/// process; it allocates no memory.
fn change_until_killed(directory: &mut Directory, seed: u64, made: &AtomicU64) -> ! {
    let first = made.load(Ordering::SeqCst);
    for index in first..first + MAX_CHANGES {
        change(directory, seed, index);
        compiler_fence(Ordering::SeqCst);
        made.store(index + 1, Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    }
    // SAFETY: ends this process without running the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Kills `deaths` processes, one after the other, in the middle of changes to the same directory.
fn kill_again_and_again(capacity: u64, deaths: u64, seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut directory = Directory::new(capacity).expect("memory");
    directory.buckets = Mapped::shared(directory.buckets.len()).expect("memory");
    let made: Mapped<[u64; 8]> = Mapped::shared(1).expect("memory");
    // SAFETY: aligned and zeroed, lives as long as `made`, and is only used as this.
    let made = unsafe { &*made.as_ptr().cast::<AtomicU64>() };
    for death in 0..deaths {
        let mut replayed = copy(&directory);
        let first = made.load(Ordering::SeqCst);
        // SAFETY: the child allocates nothing, takes no lock, and ends without returning.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(format!("fork: {}", std::io::Error::last_os_error())),
            0 => change_until_killed(&mut directory, seed, made),
            _ => {}
        }
        let begun = Instant::now();
        while made.load(Ordering::SeqCst) == first && begun.elapsed() < Duration::from_secs(10) {
            std::hint::spin_loop();
        }
        let until = Instant::now() + Duration::from_nanos(random.u64(0..60_000));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        // SAFETY: our own child; no other code waits for it.
        let ended = unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0)
        };
        assert_eq!(ended, child);
        // Repeat the completed changes in private memory, where no crash happens.
        let complete = made.load(Ordering::SeqCst);
        (first..complete).for_each(|index| change(&mut replayed, seed, index));
        let before = entries(&replayed)?;
        change(&mut replayed, seed, complete);
        let after = entries(&replayed)?;
        judge(&before, &after, &directory)
            .map_err(|fault| format!("death {death} at change {complete}, seed {seed}: {fault}"))?;
        // As the next process finds it.
        directory.used = 0;
        let mut used = 0;
        directory.for_each(|_, _| used += 1);
        directory.used = used;
        made.store(complete + 1, Ordering::SeqCst);
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "no other processes")]
fn a_killed_process_leaves_what_was_entered() {
    let requested = std::env::var("BPE_DEATHS").ok().map(|text| text.parse());
    let deaths = requested.map_or(600, |deaths| {
        deaths.expect("BPE_DEATHS: a number of deaths")
    });
    for capacity in [10, 60, 500] {
        let seed = fastrand::u64(..);
        println!("{} deaths, {capacity} pages, seed {seed}", deaths / 3);
        kill_again_and_again(capacity, deaths / 3, seed).expect("nothing wrong survives");
    }
}
