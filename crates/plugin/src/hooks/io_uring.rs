//! io_uring, on a server that already used it when this library was loaded.
//!
//! The servers harvest completions without an interceptable call, so nothing is served here. Writes drop the affected pages
//! at submission, and reads pass. Offsets are those of liburing 2.0 to 2.9 (`struct io_uring` begins with `struct
//! io_uring_sq`).

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use coherence::core::requests::{Vector, vector_bytes};
use coherence::files::DataFile;
use coherence::page_request::Completion;
use coherence::switch::Mode;

use crate::intercept::untracked::ASYNC_IO;
use crate::platform::CORE;

/// The beginning of liburing's `struct io_uring`.
#[repr(C)]
pub struct Ring {
    head: *mut u32,
    tail: *mut u32,
    mask: *mut u32,
    entries: *mut u32,
    flags: *mut u32,
    dropped: *mut u32,
    array: *mut u32,
    requests: *mut Request,
    pending_head: u32,
    pending_tail: u32,
}

/// The kernel's `struct io_uring_sqe`.
#[repr(C)]
pub struct Request {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
    offset: u64,
    address: u64,
    length: u32,
    rest: [u32; 9],
}

const READV: u8 = 1;
const WRITEV: u8 = 2;
const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
const FALLOCATE: u8 = 17;
const READ: u8 = 22;
const WRITE: u8 = 23;
const SPLICE: u8 = 30;

/// Applies the rules to the requests that are about to be submitted.
///
/// # Safety
/// `ring` must be a valid ring whose submission the calling thread may make.
pub unsafe fn before_submit(mode: Mode, ring: *const Ring) {
    ASYNC_IO.io_uring_seen.store(true, Ordering::Relaxed);
    if !mode.tracks() || coherence::canary!("rings") {
        return;
    }
    // SAFETY: the caller's promise; liburing keeps the pending requests between head and tail.
    unsafe {
        let Some(ring) = ring.as_ref() else { return };
        let Some(&mask) = ring.mask.as_ref() else {
            return;
        };
        let mut index = ring.pending_head;
        let mut left = mask.wrapping_add(1);
        while index != ring.pending_tail && left != 0 {
            let request = &*ring.requests.add((index & mask) as usize);
            track(mode, request);
            index = index.wrapping_add(1);
            left -= 1;
        }
    }
}

/// # Safety
/// `request` must be one that the server is about to submit.
unsafe fn track(mode: Mode, request: &Request) {
    const REGISTERED_FILE: u8 = 1;
    if request.flags & REGISTERED_FILE != 0 {
        return; // not used for data files
    }
    let Some(file) = CORE.files.of_descriptor(request.fd) else {
        return;
    };
    if mode.records() {
        // SAFETY: the caller's promise.
        unsafe { record(mode, request, file) };
    }
    let length = match request.opcode {
        // SAFETY: the server's own vector.
        WRITEV => unsafe {
            vector_bytes(request.address as *const Vector, request.length as c_int)
        },
        WRITE | WRITE_FIXED => request.length as usize,
        // `address` holds the length. The pages are dropped in either case.
        FALLOCATE => request.address as usize,
        SPLICE => {
            CORE.change_untracked(file, || ());
            return;
        }
        _ => return,
    };
    drop(CORE.begin_write(file, length, request.offset as i64, Completion::Unobserved));
}

/// Records a read or a write.
///
/// # Safety
/// As for [`track`].
unsafe fn record(mode: Mode, request: &Request, file: &'static DataFile) {
    // The server's vectors have one entry.
    let (address, length) = match request.opcode {
        READV | WRITEV => {
            let vector = request.address as *const Vector;
            if request.length != 1 || vector.is_null() {
                return;
            }
            // SAFETY: the server's own vector.
            let entry = unsafe { &*vector };
            (entry.base, entry.length)
        }
        READ | READ_FIXED | WRITE | WRITE_FIXED => (request.address, request.length as usize),
        _ => return,
    };
    if length == 0 {
        return;
    }
    match request.opcode {
        READV | READ | READ_FIXED => {
            // Passes untouched.
            let _ = CORE.page_of_request(mode, file, length, request.offset as i64);
        }
        _ => {
            // SAFETY: the server's own buffer, which it keeps unchanged until the write has completed.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
            CORE.trace
                .record_write(file, Some(bytes), length, request.offset as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels_and_liburings() {
        assert_eq!(size_of::<Request>(), 64);
        assert_eq!(std::mem::offset_of!(Request, offset), 8);
        assert_eq!(std::mem::offset_of!(Ring, requests), 56);
        assert_eq!(std::mem::offset_of!(Ring, pending_head), 64);
    }
    /// A file with pages of 16 KiB. Its generations count while it is tracked.
    fn tracked(owner: u32) -> &'static DataFile {
        let file = Box::leak(Box::new(DataFile::new(owner, CORE.switch())));
        assert_eq!(file.page_of_read(16384, 16384), Some(1));
        file
    }

    fn request(opcode: u8, fd: c_int, address: u64, length: u32, offset: u64) -> Request {
        Request {
            opcode,
            flags: 0,
            priority: 0,
            fd,
            offset,
            address,
            length,
            rest: [0; 9],
        }
    }

    #[test]
    fn recorded_events_match_requests() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let ring = std::sync::Arc::new(coherence::trace::ring::Ring::new(16));
        CORE.trace.record_into(Some(std::sync::Arc::clone(&ring)));
        CORE.switch().start_recording(|| ());
        let mode = CORE.switch().mode();
        let file = tracked(77);
        let mut page = vec![1u8; 16384];
        page[4..8].copy_from_slice(&9u32.to_be_bytes());
        let address = page.as_ptr() as u64;
        let vector = Vector {
            base: address,
            length: 16384,
        };
        let one = &raw const vector as u64;
        let at = 9 * 16384;
        // SAFETY: buffers and vectors of this test, with valid lengths.
        unsafe {
            for (opcode, address, length) in [
                (READ, address, 16384),
                (READ_FIXED, address, 16384),
                (READV, one, 1),
                (WRITE, address, 16384),
                (WRITE_FIXED, address, 16384),
                (WRITEV, one, 1),
            ] {
                let before = ring.next_number();
                record(mode, &request(opcode, 3, address, length, at), file);
                assert_eq!(ring.next_number(), before + 1, "{opcode}");
            }
            let before = ring.next_number();
            for (opcode, address, length) in [
                (WRITE, address, 0),
                (WRITEV, one, 2),
                (WRITEV, 0, 1),
                (READV, 0, 0),
                (FALLOCATE, 16384, 0),
                (SPLICE, address, 16384),
                (0, address, 16384),
            ] {
                record(mode, &request(opcode, 3, address, length, at), file);
                assert_eq!(ring.next_number(), before, "{opcode}");
            }
        }
        CORE.switch().stop_recording();
        CORE.trace.record_into(None);
    }
}
