//! Redirected reads: the request that the kernel gets, and the result that the server gets.

use std::os::fd::AsRawFd;

use super::*;
use crate::core::requests::PREAD;
use crate::read_write::read_write_tests::Served;

const PAGE: usize = 16384;
const CONTEXT: usize = 0x3_0000;

#[repr(align(4096))]
struct Buffer([u8; PAGE]);

#[test]
fn redirected_read_gets_page_from_cache_file() {
    let served = Served::new();
    served.core.requests.disarm_all();
    for number in [3, 4] {
        served.cached(number);
    }
    served.active.extension.pump();
    served.core.entering_harvest(CONTEXT);
    for number in [3, 4] {
        let mut asked = Asked::new(&served, number);
        let request = &raw mut *asked.iocb;
        let by = submission(&served);
        let real = || {
            // SAFETY: the request lives, and belongs to the kernel now.
            let given = unsafe { &*request };
            assert_ne!(given.fd, served.file.as_raw_fd(), "page {number}");
            // SAFETY: the buffer of the request has the length.
            let read = unsafe {
                let to = given.buffer as *mut libc::c_void;
                libc::pread(given.fd, to, given.length as usize, given.offset)
            };
            assert_eq!(read, PAGE as isize);
            1
        };
        assert_eq!(served.core.submit(by, &[request], real, || 1), 1);
        let mut events = [IoEvent {
            // SAFETY: as above.
            data: unsafe { (*request).data },
            request: request as u64,
            result: PAGE as i64,
            result2: 0,
        }];
        let submit = |_: usize, _: *mut Iocb| unreachable!("the cached page needs no second read");
        let panicked = || unreachable!("nothing panics");
        let kept = served.core.harvested(&mut events, &submit, panicked);
        assert_eq!(kept, 1);
        assert_eq!(events[0].data, 77);
        assert_eq!(
            (asked.iocb.fd, asked.iocb.offset),
            (served.file.as_raw_fd(), i64::from(number) * PAGE as i64)
        );
        let header = u32::from_be_bytes(asked.buffer.0[4..8].try_into().unwrap());
        assert_eq!((header, asked.buffer.0[PAGE - 1]), (number, 1));
    }
}

/// A read of a page, as the server submits it.
struct Asked {
    buffer: Box<Buffer>,
    iocb: Box<Iocb>,
}

impl Asked {
    fn new(served: &Served, number: u32) -> Asked {
        let mut buffer = Box::new(Buffer([0; PAGE]));
        // SAFETY: all fields are integers, for which zero is valid.
        let mut iocb: Box<Iocb> = Box::new(unsafe { std::mem::zeroed() });
        (iocb.opcode, iocb.fd) = (PREAD, served.file.as_raw_fd());
        (iocb.buffer, iocb.length) = (buffer.0.as_mut_ptr() as u64, PAGE as u64);
        iocb.offset = i64::from(number) * PAGE as i64;
        iocb.data = 77;
        Asked { buffer, iocb }
    }

    fn is_as_it_was(&self, served: &Served, number: u32) -> bool {
        let Iocb {
            data,
            fd,
            buffer,
            length,
            offset,
            ..
        } = *self.iocb;
        (data, fd, length) == (77, served.file.as_raw_fd(), PAGE as u64)
            && buffer == self.buffer.0.as_ptr() as u64
            && offset == i64::from(number) * PAGE as i64
    }
}

/// A server with this page in staging.
fn with_staged_page(number: u32) -> Served {
    let served = Served::new();
    served.core.requests.disarm_all();
    served.cached(number);
    served.core.entering_harvest(CONTEXT);
    served
}

fn submission(served: &Served) -> Submission {
    Submission {
        mode: served.core.switch().mode(),
        context: CONTEXT,
    }
}

#[test]
fn a_staged_page_was_copied_and_the_kernel_reads_nothing() {
    let served = with_staged_page(3);
    let mut asked = Asked::new(&served, 3);
    let request = &raw mut *asked.iocb;
    let real = || {
        // SAFETY: the request lives, and belongs to the kernel now.
        assert_eq!(unsafe { (*request).length }, 0);
        1
    };
    let by = submission(&served);
    assert_eq!(served.core.submit(by, &[request], real, || 1), 1);
    let mut events = [IoEvent {
        data: asked.iocb.data,
        request: request as u64,
        result: 0,
        result2: 0,
    }];
    let submit = |_: usize, _: *mut Iocb| unreachable!("the cached page needs no second read");
    let kept = served
        .core
        .harvested(&mut events, &submit, || unreachable!("nothing panics"));
    assert_eq!((kept, events[0].data), (1, 77));
    assert_eq!(events[0].result, PAGE as i64, "as if all of it was read");
    assert!(asked.is_as_it_was(&served, 3));
    let header = u32::from_be_bytes(asked.buffer.0[4..8].try_into().unwrap());
    assert_eq!((header, asked.buffer.0[PAGE - 1]), (3, 1));
}

#[test]
fn a_request_that_is_not_served_has_the_servers_length_again() {
    let served = with_staged_page(3);
    // The kernel does not accept it.
    let mut asked = Asked::new(&served, 3);
    let request = &raw mut *asked.iocb;
    let by = submission(&served);
    let refused = served.core.submit(by, &[request], || -libc::EAGAIN, || 0);
    assert_eq!(refused, -libc::EAGAIN);
    assert!(asked.is_as_it_was(&served, 3));
    // The page is written before the harvest, which requires the fallback read.
    let by = submission(&served);
    assert_eq!(served.core.submit(by, &[request], || 1, || 1), 1);
    assert!(!asked.is_as_it_was(&served, 3));
    let bytes = crate::read_write::read_write_tests::page(3, 9);
    served.write(&bytes, 3 * PAGE as i64, PAGE as isize);
    let mut events = [IoEvent {
        data: asked.iocb.data,
        request: request as u64,
        result: 0,
        result2: 0,
    }];
    let submitted = std::cell::Cell::new(0);
    let submit = |context: usize, own: *mut Iocb| {
        assert_eq!(context, CONTEXT);
        // SAFETY: the request lives.
        let Iocb { fd, length, .. } = unsafe { std::ptr::read(own) };
        assert_eq!((fd, length), (served.file.as_raw_fd(), PAGE as u64));
        submitted.set(submitted.get() + 1);
        1
    };
    let kept = served
        .core
        .harvested(&mut events, &submit, || unreachable!("nothing panics"));
    assert_eq!(
        (kept, submitted.get()),
        (0, 1),
        "the event is still to come"
    );
    assert!(asked.is_as_it_was(&served, 3));
}
