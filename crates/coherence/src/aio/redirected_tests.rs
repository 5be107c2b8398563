//! A read that is pointed at the cache file: what the kernel is given, and what the server gets back.

use std::os::fd::AsRawFd;

use super::*;
use crate::rules_tests::Served;

const PAGE: usize = 16384;
const CONTEXT: usize = 0x3_0000;

#[repr(align(4096))]
struct Buffer([u8; PAGE]);

#[test]
fn the_kernel_reads_a_cached_page_from_its_place_in_the_cache_file() {
    let served = Served::new();
    served.core.requests.disarm_all();
    for number in [3, 4] {
        served.cached(number);
    }
    served.active.extension.pump();
    served.core.entering_harvest(CONTEXT);
    for number in [3, 4] {
        let mut buffer = Box::new(Buffer([0; PAGE]));
        // SAFETY: numbers, for which zero is a value.
        let mut iocb: Box<Iocb> = Box::new(unsafe { std::mem::zeroed() });
        (iocb.opcode, iocb.fd) = (PREAD, served.file.as_raw_fd());
        (iocb.buffer, iocb.length) = (buffer.0.as_mut_ptr() as u64, PAGE as u64);
        iocb.offset = i64::from(number) * PAGE as i64;
        iocb.data = 77;
        let request = &raw mut *iocb;
        let by = Submission {
            mode: served.core.switch().mode(),
            context: CONTEXT,
            redirects: true,
        };
        let real = || {
            // SAFETY: the request lives, and is the kernel's now.
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
            (iocb.fd, iocb.offset),
            (served.file.as_raw_fd(), i64::from(number) * PAGE as i64)
        );
        let header = u32::from_be_bytes(buffer.0[4..8].try_into().unwrap());
        assert_eq!((header, buffer.0[PAGE - 1]), (number, 1));
    }
}
