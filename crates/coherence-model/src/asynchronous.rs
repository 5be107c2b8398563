//! Asynchronous I/O in both servers' ways: other threads harvest the requests, each of which owns its buffer and page locks.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::iovec;

use crate::calls;
use crate::coverage::{Reached, reached};
use crate::kernel::{self, IoEvent, Iocb, PREAD, PREADV, PWRITE, PWRITEV, exact};
use crate::operations::{read_rest, write_rest};
use crate::random::{below, one_in};
use crate::world::{Buffer, Pages, User, world};

/// Action on completion of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Read,
    /// Read of a page that is being freed: any contents are valid.
    ReadAhead,
    Write,
    /// Write of a compressed page: the rest of the page becomes a hole.
    WriteCompressed,
}

/// A request of the server. Begins with the kernel's iocb.
#[repr(C)]
pub struct Request {
    iocb: Iocb,
    pub fd: c_int,
    offset: i64,
    length: usize,
    vector: [iovec; 2],
    vectored: bool,
    purpose: Purpose,
    buffer: Buffer,
    pages: Arc<Pages>,
    _user: User,
}

impl Request {
    /// A request for the first `length` bytes of the pages. The buffer of a write contains its bytes.
    pub fn new(
        user: User,
        pages: Arc<Pages>,
        length: usize,
        buffer: Buffer,
        purpose: Purpose,
        vectored: bool,
    ) -> Box<Request> {
        let none = iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut request = Box::new(Request {
            iocb: Iocb::default(),
            fd: pages.file.fd(),
            offset: pages.offset() as i64,
            length,
            vector: [none; 2],
            vectored,
            purpose,
            buffer,
            pages,
            _user: user,
        });
        let half = length / 2;
        let (start, middle) = (request.buffer.at(0), request.buffer.at(half));
        request.vector = [
            iovec {
                iov_base: start,
                iov_len: half,
            },
            iovec {
                iov_base: middle,
                iov_len: length - half,
            },
        ];
        request.prepare();
        request
    }

    fn is_read(&self) -> bool {
        matches!(self.purpose, Purpose::Read | Purpose::ReadAhead)
    }

    fn prepare(&mut self) {
        let opcode = match (self.is_read(), self.vectored) {
            (true, false) => PREAD,
            (true, true) => PREADV,
            (false, false) => PWRITE,
            (false, true) => PWRITEV,
        };
        let (buffer, length) = if self.vectored {
            (self.vector.as_ptr() as u64, 2)
        } else {
            (self.buffer.at(0) as u64, self.length as u64)
        };
        self.iocb = Iocb {
            opcode,
            fd: self.fd,
            buffer,
            length,
            offset: self.offset,
            ..Iocb::default()
        };
    }

    /// Whether the server's request is unmodified.
    fn is_as_made(&self) -> bool {
        (self.iocb.fd, self.iocb.offset, self.iocb.rw_flags) == (self.fd, self.offset, 0)
            && self.iocb.data == 0
    }
}

/// Submits all requests at once.
#[allow(clippy::vec_box, reason = "the kernel keeps their addresses")]
pub fn submit(requests: Vec<Box<Request>>) {
    let context = world().contexts[below(2)];
    let mut waiting: Vec<*mut Request> = requests.into_iter().map(Box::into_raw).collect();
    while !waiting.is_empty() {
        let mut list: Vec<*mut Iocb> = waiting.iter().map(|request| request.cast()).collect();
        let (count, first) = (list.len() as i64, list.as_mut_ptr());
        let by_syscall = one_in(4);
        if by_syscall {
            reached(Reached::SubmitsBySyscall);
        }
        // SAFETY: our own requests, which live until the harvest.
        let submit = || unsafe {
            if by_syscall {
                submit_by_syscall(context, count, first)
            } else {
                calls::io_submit(context, count, first)
            }
        };
        let result = kernel::as_the_server(submit);
        let accepted = match result {
            refused if refused == -libc::EAGAIN => {
                if !exact() {
                    std::thread::yield_now();
                }
                0
            }
            failed if failed < 0 => {
                world().violated(None, &format!("io_submit returned {failed}"));
                return; // the requests are lost, and so is the run
            }
            accepted => accepted as usize,
        };
        waiting.drain(..accepted);
        for &request in &waiting {
            // SAFETY: not accepted, so still ours.
            let request = unsafe { &mut *request };
            if !request.is_as_made() {
                world().violated(
                    Some(&request.pages.file),
                    "a request that was not accepted was not given back as it was",
                );
            }
            request.prepare();
        }
    }
}

/// Submits as a libaio that is linked into the server.
///
/// # Safety
/// As for `io_submit`.
unsafe fn submit_by_syscall(context: usize, count: i64, requests: *mut *mut Iocb) -> i32 {
    let (context, requests) = (context as i64, requests as i64);
    // SAFETY: the caller's promise.
    match unsafe { calls::syscall(libc::SYS_io_submit, context, count, requests, 0, 0, 0) } {
        result if result < 0 => {
            let errno = std::io::Error::last_os_error().raw_os_error();
            -errno.unwrap_or(libc::EIO)
        }
        accepted => accepted as i32,
    }
}

/// Handles an event as the server would.
fn complete(event: &IoEvent) {
    // SAFETY: every request was made by `submit` and completes once.
    let mut request = unsafe { Box::from_raw(event.request as *mut Request) };
    let file = Arc::clone(&request.pages.file);
    if !request.is_as_made() {
        world().violated(Some(&file), "a request was not given back as it was");
    }
    let (fd, offset, length, purpose) = (
        request.fd,
        request.offset as usize,
        request.length,
        request.purpose,
    );
    let done = usize::try_from(event.result).unwrap_or(0);
    if done > length {
        world().violated(
            Some(&file),
            &format!("a request of {length} bytes brought {done}"),
        );
        return;
    }
    let bytes = &mut request.buffer.bytes()[..length];
    match purpose {
        Purpose::Read | Purpose::ReadAhead => {
            if read_rest(&file, fd, bytes, offset, done) && purpose == Purpose::Read {
                file.check("asynchronous read", offset, bytes);
            }
        }
        Purpose::Write | Purpose::WriteCompressed => {
            if event.result < 0 {
                crate::operations::compare_with_file(&file, fd, offset, length);
            }
            write_rest(&file, fd, bytes, offset, done);
        }
    }
    if purpose == Purpose::WriteCompressed {
        crate::operations::punch(&file, offset + length, file.page_size() - length);
    }
    world().note(
        &file,
        format_args!("completed {purpose:?} at {offset}, result {}", event.result),
    );
}

/// In the exact mode: harvests completed requests, in one of the two servers' ways.
pub fn harvest_some() {
    let context = world().contexts[below(2)];
    if kernel::taken(context) > 0 {
        harvest(context, one_in(2), Some(Duration::ZERO));
    }
}

/// One call of a harvester: MySQL's with a time limit, MariaDB's through `syscall`.
fn harvest(context: usize, directly: bool, limit: Option<Duration>) -> i64 {
    let mut events = [IoEvent::default(); 8];
    let mut time = limit.map(|limit| libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let timeout = time
        .as_mut()
        .map_or(std::ptr::null_mut(), |time| time as *mut libc::timespec);
    // SAFETY: our own buffers.
    let got = unsafe {
        if directly {
            i64::from(calls::io_getevents(
                context,
                1,
                events.len() as i64,
                events.as_mut_ptr(),
                timeout,
            ))
        } else {
            calls::syscall(
                libc::SYS_io_getevents,
                context as i64,
                1,
                events.len() as i64,
                events.as_mut_ptr() as i64,
                timeout as i64,
                0,
            )
        }
    };
    for event in events.iter().take(usize::try_from(got).unwrap_or(0)) {
        complete(event);
    }
    got
}

/// Body of a harvester thread: the first context uses a time limit, the second none.
pub fn harvester(number: usize) {
    let context = world().contexts[number];
    let limit = (number == 0).then_some(Duration::from_millis(5));
    loop {
        let got = harvest(context, number == 0, limit);
        if got < 0 {
            return; // destroyed
        }
        if number == 0
            && got == 0
            && world().stop.load(Ordering::SeqCst)
            && CLOSING.load(Ordering::SeqCst)
        {
            return;
        }
    }
}

/// All workers have ended: the next harvests are the last.
pub static CLOSING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Counts a request by its kind.
pub fn count(purpose: Purpose, vectored: bool) {
    reached(match (purpose, vectored) {
        (Purpose::Read | Purpose::ReadAhead, false) => Reached::AsyncReads,
        (Purpose::Read | Purpose::ReadAhead, true) => Reached::VectoredReads,
        (_, false) => Reached::AsyncWrites,
        (_, true) => Reached::AsyncVectoredWrites,
    });
}
