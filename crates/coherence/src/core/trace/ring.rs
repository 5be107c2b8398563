//! Bounded ring between the hooks, which record page reads and writes, and the client, which drains them.
//!
//! A hook claims the next place with one compare-and-swap and fills it with two stores. It does not allocate, lock or wait.
//!
//! # Order
//! Places are numbered from 0. This number is the event's sequence number, so the ring is totally ordered. The second word of a
//! place publishes it: it contains the low half of the number. A place with the number of the previous lap is not filled yet.
//! If all places are unacknowledged, the event is counted as lost and gets no number.
//!
//! # Draining
//! Reading does not free places; the client's acknowledgement does. A client that misses an answer can therefore repeat the
//! request.

use crate::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// Size of a record, as in a trace file.
pub const RECORD_BYTES: usize = 16;

/// One page read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub file: u32,
    /// Position in the file, in pages of the file's page size.
    pub page: u32,
    /// Whether the page is written, not read.
    pub write: bool,
}

#[derive(Default)]
struct Place {
    /// File in the low half, page in the high half.
    what: AtomicU64,
    /// Operation and number of pages in the low half, sequence number in the high half.
    stamp: AtomicU64,
}

/// Bounded ring of page reads and writes.
pub struct Ring {
    places: Box<[Place]>,
    /// Number of the next event. `Relaxed` everywhere: it assigns places and publishes no content.
    head: CachePadded<AtomicU64>,
    /// Events below this number are acknowledged; their places are free.
    tail: CachePadded<AtomicU64>,
    /// Statistic, as `page_sizes`: `Relaxed` everywhere.
    lost: CachePadded<AtomicU64>,
    /// Bit `n`: pages of `1 << n` bytes were recorded.
    page_sizes: AtomicU32,
}

fn stamp(event: Event, number: u64) -> u64 {
    const ONE_PAGE: u64 = 1 << 8;
    u64::from(event.write) | ONE_PAGE | number << 32
}

impl Ring {
    /// Creates a ring of `places`, rounded up to a power of two. Touches the memory here, so that hooks take no page faults.
    pub fn new(places: usize) -> Ring {
        let places = places.next_power_of_two();
        Ring {
            places: (0..places as u64)
                .map(|number| Place {
                    what: AtomicU64::new(0),
                    // Stamp of the lap before the first.
                    stamp: AtomicU64::new(number.wrapping_sub(places as u64) << 32),
                })
                .collect(),
            head: CachePadded::default(),
            tail: CachePadded::default(),
            lost: CachePadded::default(),
            page_sizes: AtomicU32::new(0),
        }
    }

    fn place(&self, number: u64) -> &Place {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Records an event, or counts it as lost.
    pub fn push(&self, event: Event, page_size: u32) {
        let mut number = self.head.0.load(Ordering::Relaxed);
        loop {
            // Acquire: pairs with `acknowledge`. The reader no longer uses the place.
            let tail = self.tail.0.load(Ordering::Acquire);
            if number < tail {
                // `number` is outdated. The tail's writer had read a head at least as large, which this thread now reads too.
                number = self.head.0.load(Ordering::Relaxed);
                continue;
            }
            if number - tail >= self.places.len() as u64 {
                self.lost.0.fetch_add(1, Ordering::Relaxed);
                return;
            }
            match self.head.0.compare_exchange_weak(
                number,
                number + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => number = now,
            }
        }
        let size = 1 << page_size.trailing_zeros().min(31);
        if self.page_sizes.load(Ordering::Relaxed) & size == 0 {
            self.page_sizes.fetch_or(size, Ordering::Relaxed);
        }
        let place = self.place(number);
        let what = u64::from(event.file) | u64::from(event.page) << 32;
        if canary!("stamp-first") {
            place.stamp.store(stamp(event, number), Ordering::SeqCst);
        }
        place.what.store(what, Ordering::Relaxed);
        // Release: pairs with `records`. A reader that sees this number sees the event.
        place.stamp.store(stamp(event, number), Ordering::Release);
    }

    /// Frees the places of all events below `number`. Callers must not overlap.
    pub fn acknowledge(&self, number: u64) {
        let number = number.min(self.head.0.load(Ordering::Relaxed));
        // Release: pairs with `push`. This thread's reads of the places precede it.
        self.tail.0.fetch_max(number, Ordering::Release);
    }

    /// Returns at most `most` records from the oldest unacknowledged one on, and the number of the first. Stops at a place that
    /// a hook has claimed but not filled. Must not overlap [`acknowledge`](Self::acknowledge).
    pub fn records(&self, most: usize) -> (u64, Vec<u8>) {
        // Relaxed: only `acknowledge` writes the tail, and its caller is this function's caller.
        let first = self.tail.0.load(Ordering::Relaxed);
        let claimed = self.head.0.load(Ordering::Relaxed) - first;
        let most = most.min(claimed as usize);
        let mut bytes = Vec::with_capacity(most * RECORD_BYTES);
        for number in first..first + most as u64 {
            let place = self.place(number);
            // Acquire: pairs with the last store in `push`.
            let stamp = place.stamp.load(Ordering::Acquire);
            if (stamp >> 32) as u32 != number as u32 {
                break;
            }
            bytes.extend_from_slice(&place.what.load(Ordering::Relaxed).to_le_bytes());
            bytes.extend_from_slice(&stamp.to_le_bytes());
        }
        (first, bytes)
    }

    /// Number of the next event, which is the number of events recorded.
    pub fn next_number(&self) -> u64 {
        self.head.0.load(Ordering::Relaxed)
    }

    /// Number of events lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.0.load(Ordering::Relaxed)
    }

    /// Page sizes recorded so far, bytes.
    pub fn page_sizes(&self) -> Vec<u32> {
        let seen = self.page_sizes.load(Ordering::Relaxed);
        (0..32)
            .filter(|bit| seen & 1 << bit != 0)
            .map(|bit| 1 << bit)
            .collect()
    }

    /// Memory use, bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Ring>() + size_of_val(&*self.places)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(file: u32, page: u32, write: bool) -> Event {
        Event { file, page, write }
    }

    /// Decodes records: file, page, operation, pages, zero, sequence number.
    fn decode(bytes: &[u8]) -> Vec<(u32, u32, u8, u8, u16, u32)> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        bytes
            .chunks_exact(RECORD_BYTES)
            .map(|r| {
                let zero = u16::from_le_bytes([r[10], r[11]]);
                (
                    word(&r[..4]),
                    word(&r[4..8]),
                    r[8],
                    r[9],
                    zero,
                    word(&r[12..]),
                )
            })
            .collect()
    }

    #[test]
    fn a_place_is_as_large_as_a_record() {
        assert_eq!(size_of::<Place>(), RECORD_BYTES);
    }

    #[test]
    fn records_are_those_of_a_trace_file() {
        let ring = Ring::new(4);
        ring.push(event(7, 0x0102_0304, false), 16384);
        ring.push(event(8, 5, true), 4096);
        let (first, bytes) = ring.records(100);
        assert_eq!(first, 0);
        assert_eq!(
            decode(&bytes),
            [(7, 0x0102_0304, 0, 1, 0, 0), (8, 5, 1, 1, 0, 1)]
        );
        assert_eq!(ring.page_sizes(), [4096, 16384]);
    }

    #[test]
    fn unacknowledged_events_repeat_and_full_ring_counts() {
        let ring = Ring::new(4);
        assert!(ring.records(9).1.is_empty());
        for page in 0..6 {
            ring.push(event(1, page, false), 16384);
        }
        assert_eq!((ring.next_number(), ring.lost()), (4, 2));
        let (_, bytes) = ring.records(3);
        assert_eq!(bytes.len(), 3 * RECORD_BYTES);
        assert_eq!(
            ring.records(3).1,
            bytes,
            "again, as nothing was acknowledged"
        );
        ring.acknowledge(3);
        ring.acknowledge(1); // an outdated number changes nothing
        for page in 10..14 {
            ring.push(event(1, page, false), 16384);
        }
        assert_eq!((ring.next_number(), ring.lost()), (7, 3));
        let (first, bytes) = ring.records(9);
        assert_eq!(first, 3);
        let pages: Vec<_> = decode(&bytes).iter().map(|r| (r.1, r.5)).collect();
        assert_eq!(pages, [(3, 3), (10, 4), (11, 5), (12, 6)]);
        ring.acknowledge(u64::MAX); // limited to the number of events
        ring.push(event(1, 20, true), 16384);
        assert_eq!(decode(&ring.records(9).1)[0].5, 7);
    }

    #[test]
    fn many_threads_lose_nothing_unseen_and_keep_their_order() {
        const THREADS: u32 = 4;
        const EACH: u32 = if cfg!(miri) { 200 } else { 100_000 };
        let ring = Ring::new(256);
        let mut got = Vec::new();
        std::thread::scope(|scope| {
            let pushing: Vec<_> = (0..THREADS)
                .map(|file| {
                    let ring = &ring;
                    scope.spawn(move || {
                        for page in 0..EACH {
                            ring.push(event(file, page, page % 3 == 0), 16384);
                        }
                    })
                })
                .collect();
            loop {
                let over = pushing.iter().all(|thread| thread.is_finished());
                // `is_finished` alone does not synchronize: this fence makes the thread's stores visible.
                std::sync::atomic::fence(Ordering::Acquire);
                let (first, bytes) = ring.records(100);
                let records = decode(&bytes);
                ring.acknowledge(first + records.len() as u64);
                if over && records.is_empty() {
                    break;
                }
                got.extend(records);
            }
        });
        assert_eq!(
            got.len() as u64 + ring.lost(),
            u64::from(THREADS) * u64::from(EACH)
        );
        assert!(!got.is_empty());
        let mut last = [None; THREADS as usize];
        for (index, &(file, page, write, pages, zero, number)) in got.iter().enumerate() {
            assert_eq!(number as usize, index, "no gap, no order but this");
            assert_eq!((write != 0, pages, zero), (page % 3 == 0, 1, 0), "torn");
            assert!(last[file as usize] < Some(page), "a thread's own order");
            last[file as usize] = Some(page);
        }
    }
}
