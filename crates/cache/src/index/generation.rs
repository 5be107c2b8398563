//! Generations: how an insertion detects that its bytes are outdated.
//!
//! Each stripe is one atomic word: a generation, the number of writes in flight, and whether two writes have overlapped
//! since none was in flight. The hash of owner and page number selects the stripe. Two pages on one stripe can only
//! make the cache miss an insertion, never keep a stale page.
//!
//! The proof that no stale page is admitted also needs the instance lock. A write increments the generation *first*,
//! and takes the lock to drop the entry *afterwards*. An insertion compares generations while it holds the lock. If the
//! insertion's critical section comes first, the drop removes its entry. If it comes second, the lock makes the
//! incremented generation visible to it.

use crate::common::page::mix64;
use crate::common::sync::{AtomicU64, Ordering};

const STRIPES: usize = if cfg!(checker) {
    32
} else if cfg!(miri) {
    512
} else {
    16 * 1024
};
/// Low bits: writes in flight.
const WRITERS: u64 = (1 << 23) - 1;
/// Two writes of the stripe have overlapped, and at least one of them is still in flight.
const OVERLAP: u64 = 1 << 23;
const GENERATION: u64 = 1 << 24;

/// Generations and writes in flight, striped by a hash of owner and page. `owner` is the caller's number of the file
/// object; it stays the same when the object's `FileId` changes. One per process, shared by every `Extension` in it.
pub struct Generations {
    stripes: Box<[AtomicU64]>,
}

/// Stripe and generation at the beginning of a read or at the end of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadTicket {
    stripe: u32,
    generation: u64,
}

impl Default for Generations {
    fn default() -> Self {
        Generations::new()
    }
}

impl Generations {
    pub fn new() -> Generations {
        Generations {
            stripes: (0..STRIPES).map(|_| AtomicU64::new(GENERATION)).collect(),
        }
    }

    /// Bytes of memory held.
    pub(crate) const BYTES: u64 = (STRIPES * size_of::<AtomicU64>()) as u64;

    fn stripe(owner: u32, page: u32) -> usize {
        mix64((u64::from(owner) << 32) | u64::from(page)) as usize % STRIPES
    }

    /// Visits the stripe of each page. A range of at least as many pages as stripes visits every stripe once.
    fn each(&self, owner: u32, first: u32, pages: u32, mut visit: impl FnMut(usize, &AtomicU64)) {
        if pages as usize >= STRIPES {
            self.stripes
                .iter()
                .enumerate()
                .for_each(|(i, word)| visit(i, word));
        } else {
            for n in 0..pages {
                let i = Self::stripe(owner, first.wrapping_add(n));
                visit(i, &self.stripes[i]);
            }
        }
    }

    /// `None` while a write is in flight on the stripe: then the bytes of the read must not be offered.
    pub fn begin_read(&self, owner: u32, page: u32) -> Option<ReadTicket> {
        let stripe = Self::stripe(owner, page);
        let word = self.stripes[stripe].load(Ordering::SeqCst);
        (word & WRITERS == 0).then_some(ReadTicket {
            stripe: stripe as u32,
            generation: word / GENERATION,
        })
    }

    /// Records a write of these pages before it is forwarded. Call before `Extension::invalidate`, which precedes the
    /// write.
    pub fn begin_write(&self, owner: u32, first: u32, pages: u32) {
        self.each(owner, first, pages, |_, word| {
            update(word, |w| {
                let overlap = if w & WRITERS != 0 { OVERLAP } else { 0 };
                (w.wrapping_add(GENERATION) | overlap) + 1
            });
        });
    }

    /// Records the end of a write, successful or not. For a single page it returns the ticket for inserting the written
    /// bytes if the write succeeded. It returns `None` if another write overlapped, because the order of the two is
    /// unknown.
    pub fn end_write(&self, owner: u32, first: u32, pages: u32) -> Option<ReadTicket> {
        let mut ticket = None;
        self.each(owner, first, pages, |i, word| {
            let before = update(word, |w| match w & WRITERS {
                0 => w,
                1 => (w & !OVERLAP) - 1,
                _ => w - 1,
            });
            ticket = (before & WRITERS == 1 && before & OVERLAP == 0).then_some(ReadTicket {
                stripe: i as u32,
                generation: before / GENERATION,
            });
        });
        if pages == 1 { ticket } else { None }
    }

    /// Records a change of these pages whose completion the caller will not observe.
    pub fn bump(&self, owner: u32, first: u32, pages: u32) {
        self.each(owner, first, pages, |_, word| {
            update(word, |w| {
                let overlap = if w & WRITERS != 0 { OVERLAP } else { 0 };
                w.wrapping_add(GENERATION) | overlap
            });
        });
    }

    /// Whether no write of the stripe began after the ticket was issued.
    pub fn is_current(&self, ticket: ReadTicket) -> bool {
        let word = self.stripes[ticket.stripe as usize].load(Ordering::SeqCst);
        word / GENERATION == ticket.generation && word & WRITERS == 0
    }
}

fn update(word: &AtomicU64, change: impl Fn(u64) -> u64) -> u64 {
    // Relaxed, also for a failed exchange: the value only starts the next exchange.
    let mut old = word.load(Ordering::Relaxed);
    // SeqCst puts this word, the instance lock and the caller's own flags into one total order, which is easy to reason
    // about. The locked instruction costs the same anyway.
    while let Err(seen) =
        word.compare_exchange_weak(old, change(old), Ordering::SeqCst, Ordering::Relaxed)
    {
        old = seen;
    }
    debug_assert!(old & WRITERS != 0 || old & OVERLAP == 0);
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_makes_older_tickets_stale() {
        let g = Generations::new();
        let ticket = g.begin_read(1, 7).unwrap();
        assert!(g.is_current(ticket));
        g.begin_write(1, 7, 1);
        assert!(!g.is_current(ticket));
        assert_eq!(g.begin_read(1, 7), None);
        let written = g.end_write(1, 7, 1).unwrap();
        assert!(g.is_current(written));
        assert!(!g.is_current(ticket));
        assert_eq!(g.begin_read(1, 7), Some(written));
    }

    #[test]
    fn overlapping_writes_give_no_ticket_whichever_ends_last() {
        let g = Generations::new();
        g.begin_write(1, 7, 1);
        g.begin_write(1, 7, 1);
        assert_eq!(g.end_write(1, 7, 1), None);
        assert_eq!(g.end_write(1, 7, 1), None);
        g.begin_write(1, 7, 1);
        assert!(
            g.end_write(1, 7, 1).is_some(),
            "the overlap is forgotten once no write is in flight"
        );
    }

    #[test]
    fn a_bump_during_a_write_takes_its_ticket() {
        let g = Generations::new();
        g.begin_write(1, 7, 1);
        g.bump(1, 7, 1);
        assert_eq!(g.end_write(1, 7, 1), None);
        let ticket = g.begin_read(1, 7).unwrap();
        g.bump(1, 7, 1);
        assert!(!g.is_current(ticket));
    }

    #[test]
    fn ranges_move_every_page_and_leave_no_writer_behind() {
        for pages in [0, 1, 3, 200, STRIPES as u32, u32::MAX] {
            let g = Generations::new();
            let inside: Vec<_> = (0..pages.min(300))
                .map(|p| g.begin_read(4, 10 + p).unwrap())
                .collect();
            g.begin_write(4, 10, pages);
            assert!(inside.iter().all(|&t| !g.is_current(t)));
            assert_eq!(g.end_write(4, 10, pages).is_some(), pages == 1);
            assert!((0..400).all(|p| g.begin_read(4, p).is_some()));
        }
    }

    #[test]
    fn an_end_without_a_beginning_is_harmless() {
        let g = Generations::new();
        assert_eq!(g.end_write(1, 1, 1), None);
        g.begin_write(1, 1, 1);
        assert_eq!(g.begin_read(1, 1), None);
    }
}
