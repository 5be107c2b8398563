//! Several writes of a device under way at once, by the kernel's asynchronous I/O.
//!
//! Direct I/O only: the rest would be done while it is submitted. Where there is no queue, a writer makes one write
//! after the other. Submitting may wait for the device, as any write may; it is done by the device's writer alone.
//!
//! What is submitted goes to the kernel in batches: a disk is then notified once for several requests, which on a virtual
//! machine is a good part of what a request costs.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::kernel::{Event, count_context, ring_bytes, uncount_context};
use crate::memory::{add_bounce_bytes, sub_bounce_bytes};

/// Bytes that a writer collects before it writes.
pub(crate) const CHUNK: usize = 256 << 10;
/// Writes under way at most.
pub(crate) const DEPTH: usize = 16;
/// Reads under way at most, besides.
pub(crate) const READS: usize = 4;
/// Slots of both: those of reads come after those of writes.
const SLOTS: usize = DEPTH + READS;

/// Some memory that is written.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub start: *const u8,
    pub bytes: usize,
}

pub(crate) trait Queue: Send {
    /// Takes on to write these parts, one after the other, at `offset`. It is begun at the latest with [`begin`](Queue::begin) or
    /// [`land`](Queue::land), which also tells if that fails. `slot` (below `DEPTH`) is told when the write has landed; until
    /// then it must not be used for another.
    ///
    /// # Safety
    /// The memory stays as it is until the write has landed.
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64);

    /// Takes on to read, likewise; `slot` is from `DEPTH` on, below `DEPTH + READS`. False: this queue does not read.
    ///
    /// # Safety
    /// The memory is left alone until the read has landed.
    unsafe fn read(&mut self, _slot: usize, _memory: *mut u8, _bytes: usize, _offset: u64) -> bool {
        false
    }

    /// Begins what was submitted.
    fn begin(&mut self) {}

    /// Adds the slots whose requests have landed, with the bytes written or read, in any order. Waits for so many of them, but
    /// not longer than this.
    fn land(&mut self, wanted: usize, wait: Duration, landed: &mut Vec<(usize, io::Result<usize>)>);
}

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITEV` of linux/aio_abi.h.
const PREAD: u16 = 0;
const PWRITEV: u16 = 8;

/// The longest sleep in place of a wait that the kernel refuses.
const MOST_SLEEP: Duration = Duration::from_millis(100);

/// A context of the kernel.
pub(crate) struct KernelQueue {
    fd: RawFd,
    context: libc::c_ulong,
    /// What was submitted and not begun.
    submitted: Vec<libc::iocb>,
    /// Of each slot of writes.
    vectors: [Vec<libc::iovec>; DEPTH],
    /// What the kernel has not begun.
    refused: Vec<(usize, io::Error)>,
    /// Counted of its ring: how many processors there are may change.
    ring: u64,
}

// SAFETY: control blocks and vectors point to what the caller of `submit` or `read` keeps until it has landed, on whatever
// thread; of the queue's own they point to memory of the vectors, which does not move with it.
unsafe impl Send for KernelQueue {}

impl KernelQueue {
    /// Bytes of its ring of events, which the kernel maps.
    pub fn ring() -> u64 {
        ring_bytes(SLOTS)
    }

    /// For a file that is open for direct I/O, and stays open. `None`: the kernel has none to give.
    pub fn new(fd: RawFd) -> Option<KernelQueue> {
        let mut context: libc::c_ulong = 0;
        count_context();
        // SAFETY: asks for a context; the kernel writes its number.
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
            // SAFETY: valid control blocks and vectors, which the kernel copies; the memory that they name stays until they
            // have landed, say the callers of `submit` and `read`.
            let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, first) };
            let error = io::Error::last_os_error();
            let done = match usize::try_from(begun) {
                Ok(begun) if begun > 0 => begun.min(rest.len()),
                _ if error.kind() == io::ErrorKind::Interrupted => 0,
                // It is the first of them that cannot be begun.
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

    fn land(
        &mut self,
        wanted: usize,
        wait: Duration,
        landed: &mut Vec<(usize, io::Result<usize>)>,
    ) {
        self.begin();
        let refused = self.refused.drain(..);
        landed.extend(refused.map(|(slot, error)| (slot, Err(error))));
        let least = if landed.is_empty() && !wait.is_zero() {
            wanted as libc::c_long
        } else {
            0
        };
        let mut events = [Event::default(); SLOTS];
        let mut time = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: room for as many events as are asked for.
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
        // An interruption (signals are blocked) is as good as a wait that was too short. Whoever refuses the call altogether does
        // not wait, and the writer must not spin.
        let count = usize::try_from(count).unwrap_or_else(|_| {
            let error = io::Error::last_os_error();
            if least > 0 && error.kind() != io::ErrorKind::Interrupted {
                std::thread::sleep(wait.min(MOST_SLEEP));
            }
            0
        });
        landed.extend(events[..count.min(SLOTS)].iter().map(|event| {
            let result = usize::try_from(event.result)
                .map_err(|_| io::Error::from_raw_os_error(event.result.unsigned_abs() as i32));
            (event.data as usize, result)
        }));
    }
}

impl Drop for KernelQueue {
    /// Waits for what is under way.
    fn drop(&mut self) {
        // SAFETY: the context is ours, and not used any more.
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
        // A context is named by the address of its ring.
        let start = format!("{:08x}-", queue.context);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        let range = line.split(' ').next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        assert_eq!(to - from, KernelQueue::ring());
        assert!(crate::memory::bounce_bytes() >= to - from);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_is_refused_is_told_and_what_was_submitted_with_it_is_done() {
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
        let mut landed = Vec::new();
        // SAFETY: the arrays live until all has landed.
        unsafe {
            queue.submit(0, &[part], 0);
            // No offset of a file.
            queue.submit(1, &[part], u64::MAX - 4096);
            queue.submit(2, &[part, part], 8192);
        }
        while landed.len() < 3 {
            queue.land(1, Duration::from_secs(60), &mut landed);
        }
        landed.sort_by_key(|&(slot, _)| slot);
        let told: Vec<_> = landed.drain(..).map(|(_, result)| result.ok()).collect();
        assert_eq!(told, [Some(4096), None, Some(8192)]);
        // SAFETY: as above.
        assert!(unsafe { queue.read(DEPTH, read.as_mut_ptr(), read.len(), 12288) });
        queue.begin();
        while landed.is_empty() {
            queue.land(1, Duration::from_secs(60), &mut landed);
        }
        assert_eq!(landed[0].0, DEPTH);
        assert_eq!((landed[0].1.as_ref().ok(), read), (Some(&4096), bytes));
    }
}
