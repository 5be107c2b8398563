//! Asynchronous direct writes with the kernel's native interface, like those of databases.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub const SECTOR: usize = 512;

/// Memory for direct I/O of whole sectors.
pub struct Aligned {
    memory: *mut u8,
    layout: Layout,
}

impl Aligned {
    pub fn new(sectors: usize) -> Aligned {
        let layout = Layout::from_size_align(sectors * SECTOR, 4096).unwrap();
        assert!(sectors > 0);
        // SAFETY: the layout has a size above 0.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Aligned { memory, layout }
    }

    /// Fills the first `sectors` with `stamp`.
    pub fn fill(&mut self, sectors: usize, stamp: u64) {
        for word in self.bytes_mut()[..sectors * SECTOR].chunks_mut(8) {
            word.copy_from_slice(&stamp.to_le_bytes());
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this much initialised memory belongs to us, and no code writes to it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory, self.layout.size()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this much initialised memory belongs to us, and the exclusive borrow prevents other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used afterwards.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

/// The kernel's `struct iocb` on a little-endian host (linux/aio_abi.h).
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    flags_of_write: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

const PWRITE: u16 = 1;

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// An I/O context for a number of requests at a time.
pub struct Context(libc::c_ulong);

impl Context {
    pub fn new(requests: u32) -> Context {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, which is alive.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, requests, &mut context) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        Context(context)
    }

    /// Submits writes of (stamp, first sector, sectors) all at once and waits for all of them.
    pub fn write(&self, file: &File, pieces: &[(u64, usize, usize)]) {
        let buffers: Vec<Aligned> = pieces
            .iter()
            .map(|(stamp, _, sectors)| {
                let mut buffer = Aligned::new(*sectors);
                buffer.fill(*sectors, *stamp);
                buffer
            })
            .collect();
        let mut controls: Vec<Control> = pieces
            .iter()
            .zip(&buffers)
            .map(|((_, first, sectors), buffer)| Control {
                opcode: PWRITE,
                descriptor: file.as_raw_fd() as u32,
                buffer: buffer.memory as u64,
                bytes: (sectors * SECTOR) as u64,
                offset: (first * SECTOR) as i64,
                ..Control::default()
            })
            .collect();
        let pointers: Vec<*mut Control> = controls.iter_mut().map(|c| c as *mut _).collect();
        let mut submitted = 0;
        while submitted < pieces.len() {
            let rest = &pointers[submitted..];
            // SAFETY: the control blocks, and the buffers they point to, live until all are completed below.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.0, rest.len(), rest.as_ptr()) };
            assert!(taken > 0, "{}", io::Error::last_os_error());
            submitted += taken as usize;
        }
        let mut answered = 0;
        let mut events = vec![Event::default(); pieces.len()];
        while answered < pieces.len() {
            let rest = &mut events[answered..];
            let none = std::ptr::null::<libc::timespec>();
            // SAFETY: the buffer has room for that many events.
            let got = unsafe {
                let (least, most) = (1 as libc::c_long, rest.len() as libc::c_long);
                let (context, room) = (self.0, rest.as_mut_ptr());
                libc::syscall(libc::SYS_io_getevents, context, least, most, room, none)
            };
            if got < 0 {
                let error = io::Error::last_os_error();
                assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
                continue;
            }
            answered += got as usize;
        }
        let written: i64 = events.iter().map(|event| event.result).sum();
        let whole: usize = pieces.iter().map(|(_, _, sectors)| sectors * SECTOR).sum();
        assert!(
            events.iter().all(|event| event.result > 0),
            "a write failed"
        );
        assert_eq!(written as usize, whole);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it has no requests in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
