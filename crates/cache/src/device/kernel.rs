//! Kernel asynchronous I/O shared by bounded reads and queues: contexts, submission of a read, size of the event ring.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::memory::in_pages;

/// Limit of slots in the process.
pub(crate) const MAX_SLOTS: usize = 256;

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    pub data: u64,
    request: u64,
    pub result: i64,
    result2: i64,
}

/// Contexts of the kernel's asynchronous I/O that this module has counted: those of the slots, which live as long as the
/// process, and those of writers. A count: `Relaxed` everywhere.
static CONTEXTS: AtomicUsize = AtomicUsize::new(0);

/// Contexts of the kernel's asynchronous I/O that the extension holds in this process; other components may hold more.
pub fn aio_contexts() -> usize {
    CONTEXTS.load(Ordering::Relaxed)
}

/// Counts a context before it is created, so that it is never mistaken for a foreign one.
pub(crate) fn count_context() {
    CONTEXTS.fetch_add(1, Ordering::Relaxed);
}

/// Call when a counted context was not created or has been destroyed.
pub(crate) fn uncount_context() {
    CONTEXTS.fetch_sub(1, Ordering::Relaxed);
}

/// `IOCB_CMD_PREAD` of linux/aio_abi.h.
const PREAD: u16 = 0;

/// Source and destination of a kernel read.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    pub context: libc::c_ulong,
    pub fd: RawFd,
    /// Memory of a slot, which does not move until the read completes.
    pub memory: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// Submits a read. Returns when the disk has a free request.
pub(crate) fn submit(destination: &Destination, flags: u32) -> io::Result<()> {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut block: libc::iocb = unsafe { std::mem::zeroed() };
    block.aio_lio_opcode = PREAD;
    block.aio_fildes = destination.fd as u32;
    block.aio_buf = destination.memory;
    block.aio_nbytes = destination.bytes;
    block.aio_offset = destination.offset as i64;
    block.aio_rw_flags = flags as _;
    let list: [*mut libc::iocb; 1] = [&raw mut block];
    loop {
        // SAFETY: a valid control block, which the kernel copies. The memory that it names belongs to a slot and does not move
        // until the read completes.
        let result =
            unsafe { libc::syscall(libc::SYS_io_submit, destination.context, 1, list.as_ptr()) };
        if result == 1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Bytes of the event ring that the kernel maps for a context of this many requests. It has room for twice as many events,
/// or eight per processor if that is more, plus two.
pub(crate) fn ring_bytes(requests: usize) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let events = (processors * 4).max(requests) * 2 + 2;
    // A header as long as an event precedes them.
    in_pages(((events + 1) * size_of::<Event>()) as u64)
}
