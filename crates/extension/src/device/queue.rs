//! Several writes of a device under way at once, by the kernel's asynchronous I/O.
//!
//! Direct writes only: others would be made while they are submitted. Where there is no queue, a writer makes one write
//! after the other. Submitting may wait for the device, as any write may; it is done by the device's writer alone.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::bounded::{Event, count_context, uncount_context};

/// Writes under way at most.
pub(crate) const DEPTH: usize = 16;

/// Some memory that is written.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub start: *const u8,
    pub bytes: usize,
}

pub(crate) trait Queue: Send {
    /// Begins to write these parts, one after the other, at `offset`. `slot` (below `DEPTH`) is told when the write has
    /// landed; until then it must not be used for another.
    ///
    /// # Safety
    /// The memory stays as it is until the write has landed.
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) -> io::Result<()>;

    /// Adds the slots whose writes have landed, with the bytes written, in any order. Waits for the first, but not longer
    /// than this.
    fn land(&mut self, wait: Duration, landed: &mut Vec<(usize, io::Result<usize>)>);
}

/// `IOCB_CMD_PWRITEV` of linux/aio_abi.h.
const PWRITEV: u16 = 8;

/// A context of the kernel.
pub(crate) struct KernelQueue {
    fd: RawFd,
    context: libc::c_ulong,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors are only used within `submit`.
unsafe impl Send for KernelQueue {}

impl KernelQueue {
    /// For a file that is open for direct writes, and stays open. `None`: the kernel has none to give.
    pub fn new(fd: RawFd) -> Option<KernelQueue> {
        let mut context: libc::c_ulong = 0;
        count_context();
        // SAFETY: asks for a context; the kernel writes its number.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) };
        if result != 0 {
            uncount_context();
            return None;
        }
        Some(KernelQueue {
            fd,
            context,
            vectors: Vec::new(),
        })
    }
}

impl Queue for KernelQueue {
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) -> io::Result<()> {
        self.vectors.clear();
        self.vectors.extend(parts.iter().map(|part| libc::iovec {
            iov_base: part.start.cast_mut().cast(),
            iov_len: part.bytes,
        }));
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = slot as u64;
        block.aio_lio_opcode = PWRITEV;
        block.aio_fildes = self.fd as u32;
        block.aio_buf = self.vectors.as_ptr() as u64;
        block.aio_nbytes = self.vectors.len() as u64;
        block.aio_offset = offset as i64;
        let list: [*mut libc::iocb; 1] = [&raw mut block];
        loop {
            // SAFETY: a valid control block and vectors, which the kernel copies; the memory that they name stays until the
            // write has landed, says the caller.
            let result =
                unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) };
            if result == 1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn land(&mut self, wait: Duration, landed: &mut Vec<(usize, io::Result<usize>)>) {
        let mut events = [Event::default(); DEPTH];
        let mut time = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: room for as many events as are asked for.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                libc::c_long::from(!wait.is_zero()),
                DEPTH,
                events.as_mut_ptr(),
                &raw mut time,
            )
        };
        // An interruption (signals are blocked) is as good as a wait that was too short.
        let count = usize::try_from(count).unwrap_or(0);
        landed.extend(events[..count.min(DEPTH)].iter().map(|event| {
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
    }
}
