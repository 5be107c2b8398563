//! Concurrent writes of a device through the kernel's asynchronous I/O.
//!
//! Direct I/O only: otherwise the kernel does the work during the submission. Without a queue, a writer makes one write at a
//! time. A submission may block on the device, as any write may, so only the device's writer submits.
//!
//! Requests go to the kernel in batches. The disk is then notified once for several requests. On a virtual machine the
//! notification is a large part of a request's cost.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::kernel::{Event, count_context, ring_bytes, uncount_context};
use crate::common::memory::{add_bounce_bytes, sub_bounce_bytes};

/// Bytes that a writer collects before it writes.
pub(crate) const CHUNK: usize = 256 << 10;
/// Limit of writes in flight.
pub(crate) const DEPTH: usize = 16;
/// Limit of reads in flight, in addition.
pub(crate) const READS: usize = 4;
/// Slots of both: the reads' slots follow the writes' slots.
const SLOTS: usize = DEPTH + READS;

/// A piece of memory to be written.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub start: *const u8,
    pub bytes: usize,
}

pub(crate) trait Queue: Send {
    /// Accepts a write of these parts, contiguously from `offset` on. It starts at the next [`begin`](Queue::begin) or
    /// [`complete`](Queue::complete) at the latest; `complete` also reports a failed start, and returns `slot` (below `DEPTH`)
    /// when the write has completed. Until then the slot must not be reused.
    ///
    /// # Safety
    /// The memory must not change until the write has completed.
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64);

    /// Accepts a read, likewise; `slot` is in `DEPTH..DEPTH + READS`. False: this queue does not read.
    ///
    /// # Safety
    /// Nothing else may use the memory until the read has completed.
    unsafe fn read(&mut self, _slot: usize, _memory: *mut u8, _bytes: usize, _offset: u64) -> bool {
        false
    }

    /// Starts the submitted requests.
    fn begin(&mut self) {}

    /// Appends the completed slots in any order, with the bytes written or read. Waits for `wanted` of them, but no longer than
    /// `wait`.
    fn complete(
        &mut self,
        wanted: usize,
        wait: Duration,
        completed: &mut Vec<(usize, io::Result<usize>)>,
    );
}

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITEV` of linux/aio_abi.h.
const PREAD: u16 = 0;
const PWRITEV: u16 = 8;

/// Longest sleep in place of a wait that the kernel refuses.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// A context of the kernel's asynchronous I/O.
pub(crate) struct KernelQueue {
    fd: RawFd,
    context: libc::c_ulong,
    /// Submitted requests that are not started.
    submitted: Vec<libc::iocb>,
    /// One vector for each write slot.
    vectors: [Vec<libc::iovec>; DEPTH],
    /// Requests that the kernel refused to start.
    refused: Vec<(usize, io::Error)>,
    /// Ring bytes that were counted: the number of processors may change.
    ring: u64,
}

// SAFETY: control blocks and vectors point to memory that the caller of `submit` or `read` keeps until it has completed, on any
// thread. Pointers into the queue's own memory point to the heap of `vectors`, which does not move with the queue.
unsafe impl Send for KernelQueue {}

impl KernelQueue {
    /// Bytes of its event ring, which the kernel maps.
    pub fn ring() -> u64 {
        ring_bytes(SLOTS)
    }

    /// For a file that is open for direct I/O and stays open. `None`: the kernel refuses a context.
    pub fn new(fd: RawFd) -> Option<KernelQueue> {
        let mut context: libc::c_ulong = 0;
        count_context();
        // SAFETY: requests a context; the kernel writes its number.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, SLOTS, &raw mut context) };
        if result != 0 {
            uncount_context();
            return None;
        }
        let ring = Self::ring();
        add_bounce_bytes(ring);
        Some(KernelQueue {
            fd,
            context,
            submitted: Vec::with_capacity(SLOTS),
            vectors: std::array::from_fn(|_| Vec::new()),
            refused: Vec::new(),
            ring,
        })
    }

    fn take_on(&mut self, slot: usize, opcode: u16, buffer: u64, length: usize, offset: u64) {
        debug_assert!(self.submitted.len() < SLOTS);
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = slot as u64;
        block.aio_lio_opcode = opcode;
        block.aio_fildes = self.fd as u32;
        block.aio_buf = buffer;
        block.aio_nbytes = length as u64;
        block.aio_offset = offset as i64;
        self.submitted.push(block);
    }
}

impl Queue for KernelQueue {
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) {
        let vectors = &mut self.vectors[slot];
        vectors.clear();
        vectors.extend(parts.iter().map(|part| libc::iovec {
            iov_base: part.start.cast_mut().cast(),
            iov_len: part.bytes,
        }));
        let (start, count) = (vectors.as_ptr() as u64, vectors.len());
        self.take_on(slot, PWRITEV, start, count, offset);
    }

    unsafe fn read(&mut self, slot: usize, memory: *mut u8, bytes: usize, offset: u64) -> bool {
        debug_assert!((DEPTH..SLOTS).contains(&slot));
        self.take_on(slot, PREAD, memory as u64, bytes, offset);
        true
    }

    fn begin(&mut self) {
        let mut list = [std::ptr::null_mut(); SLOTS];
        for (at, block) in list.iter_mut().zip(&mut self.submitted) {
            *at = std::ptr::from_mut(block);
        }
        let mut rest = &list[..self.submitted.len().min(SLOTS)];
        while !rest.is_empty() {
            let (count, first) = (rest.len() as libc::c_long, rest.as_ptr());
            // SAFETY: valid control blocks and vectors, which the kernel copies. The callers of `submit` and `read` keep the
            // memory that they name until they have completed.
            let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, first) };
            let error = io::Error::last_os_error();
            let done = match usize::try_from(begun) {
                Ok(begun) if begun > 0 => begun.min(rest.len()),
                _ if error.kind() == io::ErrorKind::Interrupted => 0,
                // The error concerns the first of them.
                _ => {
                    let at = self.submitted.len() - rest.len();
                    let slot = self.submitted[at].aio_data as usize;
                    self.refused.push((slot, error));
                    1
                }
            };
            rest = &rest[done..];
        }
        self.submitted.clear();
    }

    fn complete(
        &mut self,
        wanted: usize,
        wait: Duration,
        completed: &mut Vec<(usize, io::Result<usize>)>,
    ) {
        self.begin();
        let refused = self.refused.drain(..);
        completed.extend(refused.map(|(slot, error)| (slot, Err(error))));
        let least = if completed.is_empty() && !wait.is_zero() {
            wanted as libc::c_long
        } else {
            0
        };
        let mut events = [Event::default(); SLOTS];
        let mut time = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: there is room for as many events as requested.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                SLOTS,
                events.as_mut_ptr(),
                &raw mut time,
            )
        };
        // An interruption (signals are blocked) is equivalent to a shorter wait. If the kernel refuses the call altogether, it
        // does not wait, and the writer must not spin.
        let count = usize::try_from(count).unwrap_or_else(|_| {
            let error = io::Error::last_os_error();
            if least > 0 && error.kind() != io::ErrorKind::Interrupted {
                std::thread::sleep(wait.min(MAX_SLEEP));
            }
            0
        });
        completed.extend(events[..count.min(SLOTS)].iter().map(|event| {
            let result = usize::try_from(event.result)
                .map_err(|_| io::Error::from_raw_os_error(event.result.unsigned_abs() as i32));
            (event.data as usize, result)
        }));
    }
}

impl Drop for KernelQueue {
    /// Waits for all requests in flight.
    fn drop(&mut self) {
        // SAFETY: the context belongs to this queue and is not used afterwards.
        unsafe {
            libc::syscall(libc::SYS_io_destroy, self.context);
        }
        uncount_context();
        sub_bounce_bytes(self.ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_ring_has_the_bytes_that_are_counted() {
        let file = tempfile::tempfile().unwrap();
        let Some(queue) = KernelQueue::new(file.as_raw_fd()) else {
            return;
        };
        // The number of a context is the address of its ring.
        let start = format!("{:08x}-", queue.context);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        let range = line.split(' ').next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        assert_eq!(to - from, KernelQueue::ring());
        assert!(crate::common::memory::bounce_bytes() >= to - from);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn refused_request_is_reported_and_others_complete() {
        let file = tempfile::tempfile().unwrap();
        let Some(mut queue) = KernelQueue::new(file.as_raw_fd()) else {
            return;
        };
        let bytes = [7u8; 4096];
        let part = Part {
            start: bytes.as_ptr(),
            bytes: bytes.len(),
        };
        let mut read = [0u8; 4096];
        let mut completed = Vec::new();
        // SAFETY: the arrays live until all has completed.
        unsafe {
            queue.submit(0, &[part], 0);
            // Not a valid file offset.
            queue.submit(1, &[part], u64::MAX - 4096);
            queue.submit(2, &[part, part], 8192);
        }
        while completed.len() < 3 {
            queue.complete(1, Duration::from_secs(60), &mut completed);
        }
        completed.sort_by_key(|&(slot, _)| slot);
        let told: Vec<_> = completed.drain(..).map(|(_, result)| result.ok()).collect();
        assert_eq!(told, [Some(4096), None, Some(8192)]);
        // SAFETY: as above.
        assert!(unsafe { queue.read(DEPTH, read.as_mut_ptr(), read.len(), 12288) });
        queue.begin();
        while completed.is_empty() {
            queue.complete(1, Duration::from_secs(60), &mut completed);
        }
        assert_eq!(completed[0].0, DEPTH);
        assert_eq!((completed[0].1.as_ref().ok(), read), (Some(&4096), bytes));
    }
}
