//! Asynchronous requests from submission to the event that the server receives: property 9.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::kernel::LENGTH;
use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};
use crate::async_io::{IoEvent, Iocb, Submission};
use crate::core::requests::{PREAD, PWRITE};

pub const CONTEXT: usize = 0x1_0000;
/// Limit on the wait for a cache disk.
const BOUND: Duration = Duration::from_secs(1);

#[repr(C, align(4096))]
struct Buffer(UnsafeCell<[u8; LENGTH]>);

/// A request of the server, which reuses it.
pub struct Own {
    iocb: UnsafeCell<Iocb>,
    buffer: Buffer,
    page: AtomicU32,
    /// Number of the page's versions at submission.
    first: AtomicU32,
    /// 1 from the submission until the server receives the event.
    waits: AtomicU32,
}

// SAFETY: all threads of a schedule run in one thread of the host.
unsafe impl Sync for Own {}

impl Own {
    pub fn new() -> Box<Own> {
        // SAFETY: numbers, for which zero is a value.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    fn key(&self) -> *mut Iocb {
        self.iocb.get()
    }

    fn word(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    /// Prepares the request for one page, as the server does.
    fn prepare(&self, world: World, fd: i32, page: usize, version: Option<u32>) {
        let inode = world.kernel().inode_of(fd);
        // SAFETY: the server owns the request until it submits it.
        let (iocb, buffer) = unsafe { (&mut *self.key(), &mut *self.buffer.0.get()) };
        // SAFETY: numbers, for which zero is a value.
        *iocb = unsafe { std::mem::zeroed() };
        (iocb.opcode, iocb.fd) = (if version.is_some() { PWRITE } else { PREAD }, fd);
        (iocb.buffer, iocb.length) = (self.buffer.0.get() as u64, LENGTH as u64);
        (iocb.offset, iocb.data) = ((page * LENGTH) as i64, self.word());
        if let Some(version) = version {
            *buffer = super::kernel::content(inode, page, version);
        }
        self.page.store(page as u32, Ordering::SeqCst);
        let first = world.kernel().versions(inode, page);
        self.first.store(first as u32, Ordering::SeqCst);
    }
}

impl World {
    /// Submits requests for pages of a descriptor. Returns the number of accepted ones.
    pub fn submit(&self, fd: i32, pages: &[(usize, usize)]) -> usize {
        for &(own, page) in pages {
            self.own[own].prepare(*self, fd, page, None);
        }
        let list: Vec<usize> = pages.iter().map(|(own, _)| *own).collect();
        self.submit_prepared(&list)
    }

    pub fn submit_write(&self, fd: i32, own: usize, page: usize) {
        let version = self.kernel().new_version();
        self.own[own].prepare(*self, fd, page, Some(version));
        self.submit_prepared(&[own]);
    }

    fn submit_prepared(&self, list: &[usize]) -> usize {
        let _inside = self.kernel().enter();
        let list: Vec<*mut Iocb> = list
            .iter()
            .map(|own| {
                self.own[*own].waits.store(1, Ordering::SeqCst);
                self.own[*own].key()
            })
            .collect();
        let mode = self.core.switch().mode();
        let real = || self.kernel().submit(&list);
        let accepted = if mode.is_off() {
            real()
        } else {
            let by = Submission {
                mode,
                context: CONTEXT,
            };
            self.core.submit(by, &list, real, real)
        };
        usize::try_from(accepted).unwrap_or(0)
    }

    /// Harvests as `io_getevents`, but without waiting.
    pub fn harvest(&self) {
        let _inside = self.kernel().enter();
        if self.core.switch().mode().is_off() {
            self.kernel()
                .events()
                .iter()
                .for_each(|event| self.tell(event));
            return;
        }
        self.core.entering_harvest(CONTEXT);
        let submit = |_: usize, request: *mut Iocb| self.kernel().submit(&[request]);
        let mut events = self.kernel().events();
        let kept = self
            .core
            .harvested(&mut events, &submit, || unreachable!("nothing panics"));
        events[..kept].iter().for_each(|event| self.tell(event));
        if let Some(event) = self.core.expire_reads(CONTEXT, 8, &submit) {
            self.tell(&event);
        }
    }

    /// Delivers an event to the server.
    fn tell(&self, event: &IoEvent) {
        let own = self
            .own
            .iter()
            .find(|own| own.key() as u64 == event.request);
        let own = own.expect("a request of the server");
        assert_eq!(event.data, own.word(), "the server's own word");
        assert_eq!(own.waits.swap(0, Ordering::SeqCst), 1, "told twice");
        assert_eq!(event.result, LENGTH as i64);
        // SAFETY: the request is complete.
        let (iocb, bytes) = unsafe { (&*own.key(), &*own.buffer.0.get()) };
        assert_eq!(
            iocb.data,
            own.word(),
            "the request is the server's as it was"
        );
        let page = own.page.load(Ordering::SeqCst) as usize;
        let first = own.first.load(Ordering::SeqCst) as usize;
        self.check(self.kernel().inode_of(iocb.fd), page, bytes, first);
        seen("told", 1);
    }

    /// Completes all requests in flight, and delivers their events.
    pub fn drain(&self) {
        self.kernel().answer_from_now_on();
        for _ in 0..8 {
            self.harvest();
        }
        let waiting = self
            .own
            .iter()
            .filter(|own| own.waits.load(Ordering::SeqCst) != 0);
        assert_eq!(waiting.count(), 0, "the server was not told");
        assert!(!self.core.requests.expects_tags());
    }
}

/// On, with two pages on the cache disk, a descriptor, and a context that is harvested.
pub fn cached(engines: usize) -> World {
    let world = World::serving(engines, BOUND, 1);
    world.read(0, 1);
    world.read(0, 2);
    world.pump();
    world.harvest();
    world
}

/// Reads from a cache disk that misses its time limit, while the extension is switched off.
fn late_answers() {
    let world = cached(1);
    world.kernel().stop_answering();
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1)]);
                w.submit(0, &[(1, 2)]);
            },
            |w| (0..3).for_each(|_| w.harvest()),
            |w| {
                w.kernel().pass(2 * BOUND);
                w.kernel().answer_from_now_on();
            },
            |w| w.kill(),
        ],
    );
    world.drain();
    world.end();
}

/// The server reuses a request once it has the event, while the cache disk still writes into the lent memory.
fn used_again() {
    let world = cached(1);
    world.kernel().stop_answering();
    world.submit(0, &[(0, 1)]);
    side_by_side(
        world,
        [
            |w| {
                for _ in 0..3 {
                    w.harvest();
                    if w.own[0].waits.load(Ordering::SeqCst) == 0 {
                        w.submit(0, &[(0, 2)]);
                        w.submit(0, &[(1, 2)]);
                        break;
                    }
                }
                w.harvest();
            },
            |w| {
                w.kernel().pass(2 * BOUND);
                w.kernel().pass(2 * BOUND);
            },
            |w| {
                w.submit(0, &[(2, 2)]);
            },
        ],
    );
    world.drain();
    world.end();
}

/// Requests in flight while the extension is switched off and on, so that another extension is active when they end.
fn across_two() {
    let world = cached(2);
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1)]);
                w.submit_write(0, 1, 2);
                w.submit(0, &[(2, 1)]);
            },
            |w| (0..3).for_each(|_| w.harvest()),
            |w| {
                w.kill();
                w.on();
            },
        ],
    );
    world.drain();
    world.end();
}

/// The kernel accepts fewer requests than submitted, or none.
fn refusals() {
    let world = cached(1);
    world.kernel().accept_at_most(1);
    side_by_side(
        world,
        [
            |w| {
                let accepted = w.submit(0, &[(0, 1), (1, 2)]);
                seen("refused", 2 - accepted as u64);
                if accepted < 2 {
                    w.submit_prepared(&[1]);
                }
            },
            |w| (0..2).for_each(|_| w.harvest()),
            |w| w.write_unlatched(0, 2),
        ],
    );
    world.drain();
    world.end();
}

/// Requests beside writes of the same pages, with a cache disk that returns wrong data.
fn beside_writes() {
    let world = cached(1);
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1)]);
                w.submit_write(0, 1, 2);
            },
            |w| {
                w.kernel().spoil();
                (0..2).for_each(|_| w.harvest());
            },
            |w| {
                w.write_unlatched(0, 1);
                w.read_unlatched(0, 1);
            },
        ],
    );
    world.drain();
    world.end();
}

#[test]
fn each_request_ends_once_however_late_the_disk_answers() {
    let late = explore("late answers", late_answers);
    let again = explore("used again", used_again);
    println!("{late:?} {again:?}");
    assert!(late["told"] > 0 && late["cache reads"] > 0 && again["late"] > 0);
}

#[test]
fn what_is_refused_is_the_servers_own() {
    let seen = explore("refusals", refusals);
    assert!(seen["refused"] > 0 && seen["cache reads"] > 0);
}

#[test]
fn what_straddles_a_switching_off_and_on_ends_once() {
    let seen = explore("across two", across_two);
    assert!(seen["told"] > 0 && seen["cache reads"] > 0);
}

#[test]
fn requests_and_writes_beside_each_other() {
    let seen = explore("beside writes", beside_writes);
    assert!(seen["cache reads"] > 0 && seen["spoilt"] > 0);
}

#[test]
fn giving_up_what_the_kernel_does_not_have_yet_is_noticed() {
    is_noticed("overdue-before-submitted", late_answers);
}

#[test]
fn memory_that_is_free_when_a_read_is_given_up_is_noticed() {
    is_noticed("free-on-give-up", used_again);
}

#[test]
fn what_is_not_given_back_is_noticed() {
    is_noticed("giving-back", refusals);
}

#[test]
fn a_cache_disk_believed_is_noticed() {
    is_noticed("proof", beside_writes);
}
