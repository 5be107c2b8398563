//! Reads and writes of pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::iovec;

use super::{errno, punch, read_rest, write_rest};
use crate::asynchronous::{self, Purpose, Request};
use crate::calls;
use crate::coverage::{Reached, reached};
use crate::random::{below, one_in};
use crate::world::{Buffer, File, Pages, User, world};

/// Begins a request on some file, and locks pages for it.
pub fn some_pages(most: usize) -> Option<(User, Arc<Pages>)> {
    let user = world().slot().file().enter()?;
    let pages = user.0.some_pages(most)?;
    Some((user, pages))
}

/// Reads one page, and verifies every byte.
pub fn read_page(file: &File, offset: usize, length: usize, how: &str) {
    let mut buffer = Buffer::for_file(file, length);
    let fd = file.fd();
    let checked = one_in(30);
    let start = buffer.at(0);
    // SAFETY: our own buffer.
    let got = unsafe {
        if checked {
            calls::pread64_checked(fd, start, length, offset as i64, length)
        } else {
            calls::pread64(fd, start, length, offset as i64)
        }
    };
    if got > length as isize {
        return world().violated(
            Some(file),
            &format!("a read of {length} bytes brought {got}"),
        );
    }
    let done = usize::try_from(got).unwrap_or(0);
    if read_rest(file, fd, buffer.bytes(), offset, done) {
        world().note(file, format_args!("{how} of {length} at {offset}"));
        file.check(how, offset, buffer.bytes());
    }
}

pub fn read() {
    let Some((user, pages)) = some_pages(1) else {
        return;
    };
    reached(Reached::Reads);
    read_page(&user.0, pages.offset(), pages.bytes(), "read");
}

/// Flushes all writes of a file to the disk.
pub fn flush() {
    if let Some(user) = world().slot().file().enter() {
        flush_file(&user.0);
    }
}

/// Flushes this file.
pub fn flush_file(file: &File) {
    reached(Reached::Flushes);
    // SAFETY: the file's own descriptor.
    let result = unsafe {
        if one_in(4) {
            calls::fsync(file.fd())
        } else {
            calls::fdatasync(file.fd())
        }
    };
    if result != 0 {
        world().violated(Some(file), "a flush that has succeeded says it has failed");
    }
    world().note(file, format_args!("flushed"));
}

/// Submits one or several requests together.
pub fn read_async() {
    let mut requests = Vec::new();
    let vectored = one_in(40);
    for _ in 0..1 + below(3) {
        let Some((user, pages)) = some_pages(1) else {
            continue;
        };
        asynchronous::count(Purpose::Read, vectored);
        let buffer = Buffer::for_file(&user.0, pages.bytes());
        let length = pages.bytes();
        world().note(
            &pages.file,
            format_args!("submits a read at {}", pages.offset()),
        );
        requests.push(Request::new(
            user,
            pages,
            length,
            buffer,
            Purpose::Read,
            vectored && length > 4096,
        ));
    }
    asynchronous::submit(requests);
}

/// New contents for some pages, which the model expects from now on.
pub fn new_contents(file: &File, offset: usize, length: usize) -> Buffer {
    file.expect(offset, length, file.new_stamp());
    let mut buffer = Buffer::for_file(file, length);
    file.compose(offset, buffer.bytes());
    buffer
}

pub fn write() {
    let Some((user, pages)) = some_pages(1) else {
        return;
    };
    reached(Reached::Writes);
    write_pages(&user.0, pages.offset(), pages.bytes());
}

/// Writes pages that the caller has locked.
pub fn write_pages(file: &File, offset: usize, length: usize) {
    let mut buffer = new_contents(file, offset, length);
    write_rest(file, file.fd(), buffer.bytes(), offset, 0);
    world().note(file, format_args!("wrote {length} at {offset}"));
}

pub fn write_async() {
    let mut requests = Vec::new();
    let vectored = one_in(12);
    for _ in 0..1 + below(3) {
        let Some((user, pages)) = some_pages(1) else {
            continue;
        };
        let file = Arc::clone(&user.0);
        let whole = pages.bytes();
        let (length, purpose) = if compresses(&file) && one_in(8) {
            reached(Reached::CompressedWrites);
            (
                4096 * (1 + below(whole / 4096 - 1)),
                Purpose::WriteCompressed,
            )
        } else {
            (whole, Purpose::Write)
        };
        asynchronous::count(purpose, vectored);
        world().note(
            &file,
            format_args!("submits a write of {length} at {}", pages.offset()),
        );
        let buffer = new_contents(&file, pages.offset(), length);
        requests.push(Request::new(
            user,
            pages,
            length,
            buffer,
            purpose,
            vectored && length > 4096,
        ));
    }
    asynchronous::submit(requests);
}

/// Whether pages of the file may be written short, followed by a hole.
fn compresses(file: &File) -> bool {
    file.page_size() > 4096
}

/// Writes as a bulk load: up to an extent of pages in one call.
pub fn write_vectored() {
    let Some((user, pages)) = some_pages(16) else {
        return;
    };
    reached(Reached::VectoredWrites);
    let file = &user.0;
    let mut buffer = new_contents(file, pages.offset(), pages.bytes());
    let each = file.page_size();
    let vector: Vec<iovec> = (0..pages.count)
        .map(|n| iovec {
            iov_base: buffer.at(n * each),
            iov_len: each,
        })
        .collect();
    let (count, offset) = (vector.len() as i32, pages.offset() as i64);
    // SAFETY: our own buffers.
    let put = unsafe { calls::pwritev64(file.fd(), vector.as_ptr(), count, offset) };
    world().note(
        file,
        format_args!("wrote {} pages at {offset} at once: {put}", pages.count),
    );
    if put != pages.bytes() as isize {
        world().violated(
            Some(file),
            &format!("a vectored write returned {put}, errno {}", errno()),
        );
    }
}

/// Reads as a program outside the server, which must always find the data file complete.
pub fn read_vectored() {
    let Some((user, pages)) = some_pages(4) else {
        return;
    };
    reached(Reached::VectoredReads);
    let file = &user.0;
    let mut buffer = Buffer::new(pages.bytes());
    let vector = [iovec {
        iov_base: buffer.at(0),
        iov_len: pages.bytes(),
    }];
    // SAFETY: our own buffer.
    let got = unsafe { libc::preadv64(file.fd(), vector.as_ptr(), 1, pages.offset() as i64) };
    if got == pages.bytes() as isize {
        file.check(
            "read of the data file itself",
            pages.offset(),
            buffer.bytes(),
        );
    } else {
        world().violated(
            Some(file),
            &format!("a vectored read returned {got}, errno {}", errno()),
        );
    }
}

/// Writes as page compression: a short write, then a hole behind it.
pub fn write_compressed() {
    let Some((user, pages)) = some_pages(1) else {
        return;
    };
    let file = &user.0;
    if !compresses(file) {
        return;
    }
    reached(Reached::CompressedWrites);
    let length = 4096 * (1 + below(pages.bytes() / 4096 - 1));
    write_pages(file, pages.offset(), length);
    punch(file, pages.offset() + length, pages.bytes() - length);
}

/// Reads the beginning of page 0, as when a file is opened.
pub fn read_header() {
    let Some(user) = world().slot().file().enter() else {
        return;
    };
    let file = &user.0;
    let length = if file.direct.load(Ordering::Relaxed) {
        4096
    } else {
        1024
    };
    let length = if one_in(2) {
        length
    } else {
        65536.min(file.size() / 4096 * 4096)
    };
    let count = length.div_ceil(file.page_size());
    if length == 0 || count > file.pages() {
        return;
    }
    let Some(_pages) = file.lock(0, count) else {
        return;
    };
    if length <= file.size() {
        reached(Reached::OddReads);
        read_page(file, 0, length, "read of the header");
    }
}

/// Reads many pages at once, as import and recovery do.
pub fn read_block() {
    let Some((user, pages)) = some_pages(64) else {
        return;
    };
    reached(Reached::OddReads);
    read_page(&user.0, pages.offset(), pages.bytes(), "read of a block");
}

/// Reads so often with another length that the page size is learned anew.
pub fn read_in_another_length() {
    let Some(user) = world().slot().file().enter() else {
        return;
    };
    let file = &user.0;
    let length = file.page_size() * 2;
    if length > 65536 || file.size() < 4 * length {
        return;
    }
    reached(Reached::Relearned);
    let before = file.identity();
    for _ in 0..100 {
        let first = 2 * (1 + below(file.size() / length - 1));
        let Some(pages) = file.lock(first, 2) else {
            continue;
        };
        if (first + 2) * file.page_size() <= file.size() {
            read_page(file, pages.offset(), length, "read in another length");
        }
    }
    super::count_identity(before, file);
}
