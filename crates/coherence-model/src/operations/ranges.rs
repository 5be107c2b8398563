//! Changes of a part of a file: zeros, holes, growth, truncation.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pages::{read_page, some_pages};
use super::{count_identity, errno, punch, write_rest};
use crate::asynchronous::{self, Purpose, Request};
use crate::calls;
use crate::content::ZERO;
use crate::coverage::{Reached, reached};
use crate::random::{below, one_in};
use crate::world::{Buffer, File, Overlap, Pages, Slot, User, world};

fn zeros(length: usize) -> Buffer {
    let mut buffer = Buffer::new(length);
    buffer.bytes().fill(0);
    buffer
}

pub fn write_zeros() {
    let Some((user, pages)) = some_pages(12) else {
        return;
    };
    reached(Reached::ZeroWrites);
    let file = &user.0;
    file.expect(pages.offset(), pages.bytes(), ZERO);
    write_rest(
        file,
        file.fd(),
        zeros(pages.bytes()).bytes(),
        pages.offset(),
        0,
    );
    world().note(
        file,
        format_args!("zeros, {} at {}", pages.bytes(), pages.offset()),
    );
}

pub fn make_hole() {
    let Some((user, pages)) = some_pages(12) else {
        return;
    };
    reached(Reached::Holes);
    punch(&user.0, pages.offset(), pages.bytes());
    world().note(
        &user.0,
        format_args!("hole, {} at {}", pages.bytes(), pages.offset()),
    );
}

pub fn zero_range() {
    let Some((user, pages)) = some_pages(12) else {
        return;
    };
    let file = &user.0;
    let (mode, offset, length) = (
        libc::FALLOC_FL_ZERO_RANGE,
        pages.offset() as i64,
        pages.bytes() as i64,
    );
    // SAFETY: plain arguments.
    let result = unsafe { calls::fallocate64(file.fd(), mode, offset, length) };
    if result == 0 {
        file.expect(pages.offset(), pages.bytes(), ZERO);
    } else if errno() != libc::EOPNOTSUPP {
        world().violated(
            Some(file),
            &format!("zeroing a range failed with errno {}", errno()),
        );
    }
    reached(Reached::ZeroedRanges);
    world().note(file, format_args!("zeroed range, {length} at {offset}"));
}

/// Locks a page for concurrent reads and changes.
fn page_to_overlap() -> Option<(User, Arc<Pages>)> {
    let (user, mut pages) = some_pages(1)?;
    let (overlap, alone) = (Overlap::begin()?, Arc::get_mut(&mut pages)?);
    alone.overlap = Some(overlap);
    Some((user, pages))
}

/// Overwrites a freed page with zeros during its read-ahead. The contents of that read are irrelevant, but later reads must be
/// correct.
pub fn overlap_zero_write() {
    let Some((user, pages)) = page_to_overlap() else {
        return;
    };
    reached(Reached::OverlappedZeroWrites);
    let file = Arc::clone(&user.0);
    let length = pages.bytes();
    world().note(
        &file,
        format_args!("zero write and read ahead at {}", pages.offset()),
    );
    file.expect(pages.offset(), length, ZERO);
    let read = |user: User| {
        let buffer = Buffer::for_file(&file, length);
        Request::new(
            user,
            Arc::clone(&pages),
            length,
            buffer,
            Purpose::ReadAhead,
            false,
        )
    };
    let write = |user: User| {
        Request::new(
            user,
            Arc::clone(&pages),
            length,
            zeros(length),
            Purpose::Write,
            false,
        )
    };
    let Some(other) = file.enter() else {
        return;
    };
    if one_in(2) {
        asynchronous::submit(vec![write(user)]);
        asynchronous::submit(vec![read(other)]);
    } else {
        asynchronous::submit(vec![read(user)]);
        asynchronous::submit(vec![write(other)]);
    }
}

/// Punches a hole into freed pages during the read-ahead of one of them.
pub fn overlap_hole() {
    let Some((user, pages)) = page_to_overlap() else {
        return;
    };
    reached(Reached::OverlappedHoles);
    let file = Arc::clone(&user.0);
    let Some(_puncher) = file.enter() else {
        return;
    };
    let length = pages.bytes();
    let buffer = Buffer::for_file(&file, length);
    let request = Request::new(
        user,
        Arc::clone(&pages),
        length,
        buffer,
        Purpose::ReadAhead,
        false,
    );
    world().note(
        &file,
        format_args!("hole and read ahead at {}", pages.offset()),
    );
    asynchronous::submit(vec![request]);
    punch(&file, pages.offset(), length);
}

/// Extends the file, in one of the servers' ways.
pub fn extend() {
    extend_one(world().slot());
}

pub fn extend_one(slot: &Slot) {
    let Some(user) = slot.file().enter() else {
        return;
    };
    let file = &user.0;
    let Some(growth) = file.grow() else {
        return;
    };
    grow_by(file, file.page_size() * (1 + below(12)));
    drop(growth);
}

/// Extends the file by this many bytes of zeros. The caller has the right to extend.
pub fn grow_by(file: &File, bytes: usize) {
    let size = file.size();
    let grown = (size + bytes).min(file.most_bytes);
    if grown == size {
        return;
    }
    reached(Reached::Extensions);
    let (from, more) = (size as i64, (grown - size) as i64);
    // SAFETY: plain arguments.
    let result = unsafe {
        match below(4) {
            0 => calls::fallocate64(file.fd(), 0, from, more),
            1 => calls::ftruncate64(file.fd(), grown as i64),
            2 => calls::posix_fallocate64(file.fd(), from, more),
            // Zeros of any length, in pieces.
            _ => {
                let unit = if file.direct.load(Ordering::Relaxed) {
                    4096
                } else {
                    1024
                };
                let first = (grown - size) / unit / 2 * unit;
                write_rest(file, file.fd(), zeros(first).bytes(), size, 0);
                write_rest(
                    file,
                    file.fd(),
                    zeros(grown - size - first).bytes(),
                    size + first,
                    0,
                );
                0
            }
        }
    };
    if result != 0 && is_not_supported(result) {
        // SAFETY: plain arguments.
        if unsafe { calls::ftruncate64(file.fd(), grown as i64) } != 0 {
            return world().violated(Some(file), "growing failed");
        }
    } else if result != 0 {
        return world().violated(
            Some(file),
            &format!("growing failed with errno {}", errno()),
        );
    }
    file.expect(size, grown - size, ZERO);
    file.set_size(grown);
    world().note(file, format_args!("grew from {size} to {grown}"));
}

/// Not every file system can allocate. `posix_fallocate64` returns its errno.
fn is_not_supported(result: c_int) -> bool {
    result == libc::EOPNOTSUPP || result < 0 && errno() == libc::EOPNOTSUPP
}

/// Truncates the file, as for undo logs, temporary and system tablespaces. Pages before the cut stay in use.
pub fn truncate() {
    let slot = world().slot();
    let Some(user) = slot.file().enter() else {
        return;
    };
    let file = &user.0;
    let Some(growth) = file.grow() else {
        return;
    };
    let (size, page) = (file.size(), file.page_size());
    let keep = (file.pages() / 2 + below(file.pages() / 2 + 1)).max(8);
    if keep * page >= size {
        return;
    }
    let Some(pages) = file.lock(keep, size / page - keep) else {
        return;
    };
    let before = file.identity();
    // Reads before and after, so that the pages are probably cached when they are cut off.
    let witnesses = [keep, keep + below(size / page - keep)];
    for witness in witnesses {
        read_page(file, witness * page, page, "read before a truncation");
    }
    file.set_size(keep * page);
    let length = (keep * page) as i64;
    let by_path = one_in(4);
    // SAFETY: plain arguments and our own path.
    let result: c_int = unsafe {
        match slot.ddl().filter(|_| by_path) {
            Some(_ddl) if Arc::ptr_eq(&slot.file(), file) => {
                reached(Reached::PathTruncations);
                calls::truncate64(slot.path().as_ptr(), length)
            }
            _ => {
                reached(Reached::Truncations);
                calls::ftruncate64(file.fd(), length)
            }
        }
    };
    if result != 0 {
        world().violated(
            Some(file),
            &format!("truncation failed with errno {}", errno()),
        );
    }
    file.expect(keep * page, file.most_bytes - keep * page, ZERO);
    count_identity(before, file);
    world().note(file, format_args!("truncated from {size} to {length}"));
    // As MariaDB rewrites undo logs: the file grows again at once.
    if one_in(2) {
        grow_by(file, size - keep * page);
        for witness in witnesses {
            read_page(file, witness * page, page, "read after a truncation");
        }
    }
    drop(pages);
    drop(growth);
}
