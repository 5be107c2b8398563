//! The bounded ring between the hooks, which note page reads and writes, and the client who drains them.
//!
//! A hook claims the next place with one compare-and-swap and fills it with two stores; it allocates nothing, takes no
//! lock and never waits. Places are numbered from 0 on, and this number is the event's sequence number, so that the
//! ring is in total order by itself. A place is published by its second word, which holds the low half of the number: a
//! place that still holds the number of a lap before is not filled yet. When all places are taken and not yet
//! acknowledged, the event is counted as lost and has no number.
//!
//! Reading takes nothing out: places are given back when the client acknowledges that it has them. An answer that never
//! arrived is asked for again.

use crate::sync::{Alone, AtomicU32, AtomicU64, Ordering};

/// Bytes of a record, as in a trace file.
pub const RECORD_BYTES: usize = 16;

/// One page read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the file.
    pub file: u32,
    /// Place in the file, in pages of the file's own size.
    pub page: u32,
    /// Written rather than read.
    pub write: bool,
}

#[derive(Default)]
struct Place {
    /// File in the low half, page in the high half.
    what: AtomicU64,
    /// Operation and number of pages in the low half, sequence number in the high half.
    stamp: AtomicU64,
}

/// The ring.
pub struct Ring {
    places: Box<[Place]>,
    /// Number of the next event. `Relaxed` everywhere: it says which place is whose, not what is in it.
    head: Alone<AtomicU64>,
    /// Events below this are acknowledged, their places are free.
    tail: Alone<AtomicU64>,
    /// A figure, as `page_sizes`: `Relaxed` everywhere.
    lost: Alone<AtomicU64>,
    /// Bit `n`: there were pages of `1 << n` bytes.
    page_sizes: AtomicU32,
}

fn stamp(event: Event, number: u64) -> u64 {
    const ONE_PAGE: u64 = 1 << 8;
    u64::from(event.write) | ONE_PAGE | number << 32
}

impl Ring {
    /// A ring of `places`, a power of two. The memory is touched here, so that no hook has to.
    pub fn new(places: usize) -> Ring {
        let places = places.next_power_of_two();
        Ring {
            places: (0..places as u64)
                .map(|number| Place {
                    what: AtomicU64::new(0),
                    // As if of the lap before the first.
                    stamp: AtomicU64::new(number.wrapping_sub(places as u64) << 32),
                })
                .collect(),
            head: Alone::default(),
            tail: Alone::default(),
            lost: Alone::default(),
            page_sizes: AtomicU32::new(0),
        }
    }

    fn place(&self, number: u64) -> &Place {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Notes an event, or counts it as lost.
    pub fn push(&self, event: Event, page_size: u32) {
        let mut number = self.head.0.load(Ordering::Relaxed);
        loop {
            // Acquire: of `acknowledge`. Whoever read the place is done with it.
            let tail = self.tail.0.load(Ordering::Acquire);
            if number < tail {
                // Our number has grown old. The tail's writer saw a head that was no less, and so do we now.
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
        if left_out!("stamp-first") {
            place.stamp.store(stamp(event, number), Ordering::SeqCst);
        }
        place.what.store(what, Ordering::Relaxed);
        // Release: to `records`. Who sees this number sees the event.
        place.stamp.store(stamp(event, number), Ordering::Release);
    }

    /// Frees the places of all events below `number`. One caller at a time.
    pub fn acknowledge(&self, number: u64) {
        let number = number.min(self.head.0.load(Ordering::Relaxed));
        // Release: to `push`. Our reads of the places come before it.
        self.tail.0.fetch_max(number, Ordering::Release);
    }

    /// The records from the oldest one that is not acknowledged, at most `most` of them, and the number of the first.
    /// Ends early at an event whose hook has claimed its place but not yet filled it. Not to be called beside
    /// [`acknowledge`](Self::acknowledge).
    pub fn records(&self, most: usize) -> (u64, Vec<u8>) {
        // Relaxed: the tail is written by `acknowledge` alone, which whoever calls this has called.
        let first = self.tail.0.load(Ordering::Relaxed);
        let claimed = self.head.0.load(Ordering::Relaxed) - first;
        let most = most.min(claimed as usize);
        let mut bytes = Vec::with_capacity(most * RECORD_BYTES);
        for number in first..first + most as u64 {
            let place = self.place(number);
            // Acquire: of the last store in `push`.
            let stamp = place.stamp.load(Ordering::Acquire);
            if (stamp >> 32) as u32 != number as u32 {
                break;
            }
            bytes.extend_from_slice(&place.what.load(Ordering::Relaxed).to_le_bytes());
            bytes.extend_from_slice(&stamp.to_le_bytes());
        }
        (first, bytes)
    }

    /// Number of the next event: how many were noted.
    pub fn next_number(&self) -> u64 {
        self.head.0.load(Ordering::Relaxed)
    }

    /// Events for which there was no place.
    pub fn lost(&self) -> u64 {
        self.lost.0.load(Ordering::Relaxed)
    }

    /// Sizes of the pages seen so far, bytes.
    pub fn page_sizes(&self) -> Vec<u32> {
        let seen = self.page_sizes.load(Ordering::Relaxed);
        (0..32)
            .filter(|bit| seen & 1 << bit != 0)
            .map(|bit| 1 << bit)
            .collect()
    }

    /// Memory, bytes.
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

    /// File, page, operation, pages, zero, sequence number.
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
    fn what_is_not_acknowledged_is_given_again_and_a_full_ring_counts() {
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
        ring.acknowledge(1); // an old one changes nothing
        for page in 10..14 {
            ring.push(event(1, page, false), 16384);
        }
        assert_eq!((ring.next_number(), ring.lost()), (7, 3));
        let (first, bytes) = ring.records(9);
        assert_eq!(first, 3);
        let pages: Vec<_> = decode(&bytes).iter().map(|r| (r.1, r.5)).collect();
        assert_eq!(pages, [(3, 3), (10, 4), (11, 5), (12, 6)]);
        ring.acknowledge(u64::MAX); // no further than there are events
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
                // What a thread that is seen finished has done is seen, too, only with this.
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
