//! Writes whose end may pass unobserved, and reads of the same page that are submitted later and complete earlier.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::core::requests::{PREAD, PWRITE, PWRITEV, Vector};
use crate::read_write::read_write_tests::{Served, page};

const PAGE: usize = 16384;
/// Contexts of the server's writers and of its readers.
const CONTEXTS: [usize; 2] = [0x1_0000, 0x2_0000];

#[repr(align(4096))]
struct Buffer([u8; PAGE]);

/// Freed page 3 is overwritten during its read-ahead; the kernel executes the read first.
struct Overlapping {
    served: Served,
    write: Box<Iocb>,
    read: Box<Iocb>,
    buffer: Box<Buffer>,
}

impl Overlapping {
    /// `learned`: the file's page size is known.
    fn new(learned: bool) -> Overlapping {
        let served = Served::new();
        served.core.requests.disarm_all();
        if learned {
            served.read_while(1, || ());
        }
        let mut buffer = Box::new(Buffer([0; PAGE]));
        let request = |opcode: i16, buffer: &mut Buffer| {
            // SAFETY: all fields are integers, for which zero is valid.
            let mut iocb: Box<Iocb> = Box::new(unsafe { std::mem::zeroed() });
            (iocb.opcode, iocb.fd) = (opcode, served.file.as_raw_fd());
            (iocb.buffer, iocb.length) = (buffer.0.as_mut_ptr() as u64, PAGE as u64);
            iocb.offset = 3 * PAGE as i64;
            iocb
        };
        let mut overlapping = Overlapping {
            write: request(PWRITE, &mut buffer),
            read: request(PREAD, &mut buffer),
            served,
            buffer,
        };
        overlapping.submit_write();
        overlapping.served.core.entering_harvest(CONTEXTS[1]);
        let read = &raw mut *overlapping.read;
        overlapping.submit(CONTEXTS[1], read);
        overlapping.buffer.0.copy_from_slice(&page(3, 1));
        overlapping.harvest(read);
        overlapping
    }

    fn submit(&self, context: usize, request: *mut Iocb) {
        let by = Submission {
            mode: self.served.core.switch().mode(),
            context,
        };
        let accepted = self.served.core.submit(by, &[request], || 1, || 1);
        assert_eq!(accepted, 1);
    }

    fn submit_write(&mut self) {
        let write = &raw mut *self.write;
        self.submit(CONTEXTS[0], write);
    }

    fn harvest(&self, request: *mut Iocb) {
        let mut events = [IoEvent {
            data: 0,
            request: request as u64,
            result: PAGE as i64,
            result2: 0,
        }];
        let submit = |_: usize, _: *mut Iocb| unreachable!("nothing is read in place of another");
        let panicked = || unreachable!("nothing panics");
        assert_eq!(
            self.served.core.harvested(&mut events, &submit, panicked),
            1
        );
    }

    /// Whether a read of the page uses the data file, and then its page is cached.
    fn is_kept(&self) -> bool {
        let (_, asked) = self.served.read_while(3, || ());
        assert!(asked, "what was read before the write stays in the cache");
        let (_, asked) = self.served.read_while(3, || ());
        !asked
    }
}

#[test]
fn read_during_untracked_write_is_not_admitted() {
    for learned in [true, false] {
        let mut overlapping = Overlapping::new(learned);
        assert!(!overlapping.is_kept(), "the write is under way");
        // Its context is armed in the meantime.
        overlapping.served.core.entering_harvest(CONTEXTS[0]);
        let write = &raw mut *overlapping.write;
        overlapping.harvest(write);
        assert!(overlapping.is_kept());
    }
}

#[test]
fn a_write_has_ended_when_its_request_is_used_anew() {
    let mut overlapping = Overlapping::new(true);
    overlapping.write.offset = 5 * PAGE as i64;
    overlapping.submit_write();
    assert!(overlapping.is_kept());
}

#[test]
fn a_write_whose_end_is_not_seen_is_given_up_after_a_while() {
    for learned in [true, false] {
        let overlapping = Overlapping::new(learned);
        overlapping
            .served
            .core
            .end_unobserved_writes(Duration::from_secs(60));
        assert!(!overlapping.is_kept());
        overlapping
            .served
            .core
            .end_unobserved_writes(Duration::ZERO);
        assert!(overlapping.is_kept());
    }
}

/// A vector is not a page: its bytes are neither admitted nor read.
#[test]
fn a_vectored_write_ends_when_it_is_seen_to() {
    let served = Served::new();
    served.core.requests.disarm_all();
    served.read_while(3, || ());
    served.core.entering_harvest(CONTEXTS[0]);
    let mut half = vec![0u8; PAGE / 2];
    let entry = Vector {
        base: half.as_mut_ptr() as u64,
        length: PAGE / 2,
    };
    let vector = [entry];
    // SAFETY: all fields are integers, for which zero is valid.
    let mut iocb: Box<Iocb> = Box::new(unsafe { std::mem::zeroed() });
    (iocb.opcode, iocb.fd) = (PWRITEV, served.file.as_raw_fd());
    (iocb.buffer, iocb.length) = (vector.as_ptr() as u64, 1);
    iocb.offset = 3 * PAGE as i64;
    let overlapping = Overlapping {
        served,
        write: iocb,
        // SAFETY: as above.
        read: Box::new(unsafe { std::mem::zeroed() }),
        buffer: Box::new(Buffer([0; PAGE])),
    };
    let write = &raw const *overlapping.write;
    overlapping.submit(CONTEXTS[0], write.cast_mut());
    assert!(!overlapping.is_kept());
    overlapping.harvest(write.cast_mut());
    assert!(overlapping.is_kept());
}
