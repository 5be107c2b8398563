//! Tests small lock-free parts of the product under loom, which explores weak memory orders. Compiles the original sources with
//! loom's atomics ([`sync`]). `checks/interleavings` tests larger parts, with sequential consistency.
//!
//! Limitation: loom runs each thread in program order. If a processor may reorder a load after a later store, loom detects it
//! only where plain memory is read ([`loom::cell`]).

pub mod sync;

/// Removes no rule here: these tests weaken orderings instead.
macro_rules! canary {
    ($rule:literal) => {
        false
    };
}

#[path = "../../../crates/cache/src/index/generation.rs"]
mod generation;
#[path = "../../../crates/cache/src/common/memory.rs"]
mod memory;
#[path = "../../../crates/cache/src/common/page.rs"]
mod page;
#[path = "../../../crates/coherence/src/core/trace/ring.rs"]
mod ring;
#[path = "../../../crates/cache/src/instance/staging.rs"]
mod staging;
#[path = "../../../crates/cache/src/common/violations.rs"]
mod violations;
mod statistics {
    #[derive(Default)]
    pub(crate) struct CachePadded<T>(pub T);
}
/// The sources import from this room of the crate `cache`.
mod common {
    pub(crate) use crate::{memory, page, statistics, sync, violations};
}

use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Mutex};
use loom::thread::spawn;

use generation::Generations;
use page::{FileId, MAX_PAGE, PageId};
use ring::{Event, RECORD_BYTES, Ring};
use staging::{Frame, Staging};

/// One thread records events, another reads them: events are complete, and none is lost.
pub fn ring() {
    fn take(ring: &Ring) -> usize {
        let (first, bytes) = ring.records(2);
        let records = bytes.chunks_exact(RECORD_BYTES);
        for record in records.clone() {
            let word = |at: usize| record[at..at + 4].try_into().map(u32::from_le_bytes);
            let (file, page) = (word(0).expect("four"), word(4).expect("four"));
            assert!((1..3).contains(&file) && page == file * 100, "torn");
        }
        ring.acknowledge(first + records.len() as u64);
        records.len()
    }
    let event = |file| Event {
        file,
        page: file * 100,
        write: false,
    };
    let ring = Arc::new(Ring::new(2));
    let noting = Arc::clone(&ring);
    let noting = spawn(move || {
        noting.push(event(1), 16384);
        noting.push(event(2), 16384);
    });
    // Last, and not in this thread: loom would miss that it may run later.
    let reading = Arc::clone(&ring);
    let reading = spawn(move || take(&reading));
    noting.join().expect("no panic");
    let told = reading.join().expect("no panic");
    assert_eq!(told + take(&ring), 2);
}

/// A read with a late insertion, beside a write that first removes the entry: in the end, the entry equals the file.
pub fn generations() {
    struct World {
        generations: Generations,
        /// The page in the data file, and the instance with its entry.
        file: AtomicU32,
        entry: Mutex<Option<u32>>,
    }
    let world = Arc::new(World {
        generations: Generations::new(),
        file: AtomicU32::new(1),
        entry: Mutex::new(None),
    });
    let reader = Arc::clone(&world);
    let reader = spawn(move || {
        let Some(ticket) = reader.generations.begin_read(1, 7) else {
            return;
        };
        let bytes = reader.file.load(Relaxed);
        let mut entry = reader.entry.lock().expect("no panic");
        if reader.generations.is_current(ticket) {
            *entry = Some(bytes);
        }
    });
    world.generations.begin_write(1, 7, 1);
    *world.entry.lock().expect("no panic") = None;
    world.file.store(2, Relaxed);
    world.generations.end_write(1, 7, 1);
    reader.join().expect("no panic");
    let cached = *world.entry.lock().expect("no panic");
    assert!(cached.is_none_or(|bytes| bytes == 2), "an old page");
}

/// A reader pins a frame that another thread removes, releases and refills: no thread writes to it during the read.
pub fn pins() {
    struct World {
        staging: Staging,
        /// The entry, guarded by its instance's lock.
        entry: Mutex<Option<Frame>>,
        /// Represents the frame's bytes: loom detects concurrent accesses.
        bytes: UnsafeCell<u32>,
    }
    // SAFETY: loom checks accesses to the cell.
    unsafe impl Sync for World {}
    let staging = Staging::new(MAX_PAGE as u64).expect("memory");
    let page = PageId {
        file: FileId(1),
        page: 7,
    };
    let contents = vec![0; MAX_PAGE];
    let mut filling = staging.allocate(MAX_PAGE).expect("a frame");
    filling.fill(page, &contents, 0);
    let frame = filling.stage();
    let world = Arc::new(World {
        staging,
        entry: Mutex::new(Some(frame)),
        bytes: UnsafeCell::new(1),
    });
    let reader = Arc::clone(&world);
    let reader = spawn(move || {
        let entry = reader.entry.lock().expect("no panic");
        let Some(pinned) = entry.map(|frame| reader.staging.pin(frame)) else {
            return;
        };
        drop(entry);
        // SAFETY: loom checks accesses to the cell.
        let read = reader.bytes.with(|bytes| unsafe { *bytes });
        assert_eq!(read, 1);
        drop(pinned);
    });
    *world.entry.lock().expect("no panic") = None;
    drop(world.staging.collected(frame));
    if let Some(filling) = world.staging.allocate(MAX_PAGE) {
        // SAFETY: as above.
        world.bytes.with_mut(|bytes| unsafe { *bytes = 2 });
        drop(filling);
    }
    reader.join().expect("no panic");
}
