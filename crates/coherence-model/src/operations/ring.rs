//! I/O through io_uring, whose completions the hooks do not observe.

use std::sync::atomic::{AtomicBool, Ordering};

use super::pages::{new_contents, some_pages};
use super::punch;
use crate::calls;
use crate::content::ZERO;
use crate::coverage::{Reached, reached};
use crate::kernel::{
    self, Ring, Sqe, URING_FALLOCATE, URING_READ, URING_READV, URING_WRITE, URING_WRITEV,
};
use crate::random::{below, one_in};
use crate::world::{Buffer, world};

/// Whether io_uring is used. The next process does not trust files written through it, which would soon be all files.
pub static ARE_USED: AtomicBool = AtomicBool::new(true);

/// Submits a batch of requests in a new ring.
pub fn submit() {
    if !ARE_USED.load(Ordering::Relaxed) {
        return;
    }
    const ENTRIES: usize = 4;
    let mut parts = Vec::new();
    for _ in 0..1 + below(ENTRIES - 1) {
        let Some((user, pages)) = some_pages(1) else {
            continue;
        };
        let file = &user.0;
        let length = pages.bytes();
        let kind = below(5);
        let mut buffer = match kind {
            0 | 1 => new_contents(file, pages.offset(), length),
            _ => Buffer::for_file(file, length),
        };
        let vector = Box::new(libc::iovec {
            iov_base: buffer.at(0),
            iov_len: length,
        });
        let sqe = Sqe {
            fd: file.fd(),
            offset: pages.offset() as u64,
            ..Sqe::default()
        };
        let by_vector = |opcode| Sqe {
            opcode,
            address: &raw const *vector as u64,
            length: 1,
            ..sqe
        };
        let plain = |opcode, address: u64| Sqe {
            opcode,
            address,
            length: length as u32,
            ..sqe
        };
        let start = vector.iov_base as u64;
        let sqe = match kind {
            0 => by_vector(URING_WRITEV),
            1 => plain(URING_WRITE, start),
            2 => by_vector(URING_READV),
            3 => plain(URING_READ, start),
            _ => Sqe {
                opcode: URING_FALLOCATE,
                address: length as u64,
                length: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
                ..sqe
            },
        };
        reached(match kind {
            0 | 1 => Reached::RingWrites,
            2 | 3 => Reached::RingReads,
            _ => Reached::RingHoles,
        });
        world().note(
            file,
            format_args!("request {kind} through a ring at {}", pages.offset()),
        );
        parts.push((sqe, kind, vector, buffer, pages, user));
    }
    let start = below(1 << 20) as u32;
    let mut requests = [Sqe::default(); ENTRIES];
    for (n, part) in parts.iter().enumerate() {
        requests[(start as usize + n) % ENTRIES] = part.0;
    }
    let mut mask = ENTRIES as u32 - 1;
    let mut ring = Ring {
        head: std::ptr::null_mut(),
        tail: std::ptr::null_mut(),
        mask: &raw mut mask,
        entries: std::ptr::null_mut(),
        flags: std::ptr::null_mut(),
        dropped: std::ptr::null_mut(),
        array: std::ptr::null_mut(),
        requests: requests.as_mut_ptr(),
        pending_head: start,
        pending_tail: start.wrapping_add(parts.len() as u32),
    };
    // SAFETY: our own ring.
    unsafe {
        calls::io_uring_submit(&raw mut ring);
        if one_in(8) {
            calls::io_uring_queue_init(8, &raw mut ring, 0);
        }
    }
    while !parts.is_empty() {
        let (sqe, kind, _vector, mut buffer, pages, user) = parts.swap_remove(below(parts.len()));
        let file = &user.0;
        let result = kernel::ring_does(&sqe);
        let (offset, length) = (pages.offset(), pages.bytes());
        match kind {
            4 if result == 0 => file.expect(offset, length, ZERO),
            4 => punch(file, offset, length),
            0 | 1 if result != length as i64 => {
                super::write_rest(file, file.fd(), buffer.bytes(), offset, 0)
            }
            2 | 3 if result == length as i64 => {
                file.check("read through a ring", offset, buffer.bytes())
            }
            _ => {}
        }
    }
}
