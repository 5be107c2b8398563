//! The kernel's asynchronous I/O, as far as bounded reads and queues share it: contexts, how a read is submitted, the ring.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::in_pages;

/// Slots of the process at most.
pub(crate) const MOST_SLOTS: usize = 256;

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    pub data: u64,
    request: u64,
    pub result: i64,
    result2: i64,
}

/// Contexts of the kernel's asynchronous I/O that were made here: those of the slots, which are kept for the life of the
/// process, and those of writers. A count: `Relaxed`
/// everywhere.
static CONTEXTS: AtomicUsize = AtomicUsize::new(0);

/// Contexts of the kernel's asynchronous I/O that the extension has set up in this process, as against those of others in it.
pub fn aio_contexts() -> usize {
    CONTEXTS.load(Ordering::Relaxed)
}

/// A context is about to be made: it must never look like somebody else's.
pub(crate) fn count_context() {
    CONTEXTS.fetch_add(1, Ordering::Relaxed);
}

/// A context that was counted was not made, or was given back.
pub(crate) fn uncount_context() {
    CONTEXTS.fetch_sub(1, Ordering::Relaxed);
}

/// `IOCB_CMD_PREAD` of linux/aio_abi.h.
const PREAD: u16 = 0;

/// What the kernel is asked to read, and where to.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    pub context: libc::c_ulong,
    pub fd: RawFd,
    /// In memory of a slot, which stays where it is until the read was answered.
    pub memory: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// Submits a read. It returns when the disk has a free request.
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
        // SAFETY: a valid control block, which the kernel copies; the memory it names belongs to a slot and stays where it
        // is until the read was answered.
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

/// Bytes of the ring of events that the kernel maps for a context of so many requests: it has room for twice as many, or
/// eight a processor if that is more, and two more.
pub(crate) fn ring_bytes(requests: usize) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let events = (processors * 4).max(requests) * 2 + 2;
    // In front of them is a header as long as an event.
    in_pages(((events + 1) * size_of::<Event>()) as u64)
}
