//! InnoDB's file operations, one at a time.

mod looks;
mod names;
mod pages;
mod ranges;
mod replaced;
mod ring;
mod warm;

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::calls;
use crate::coverage::{Reached, reached};
use crate::kernel::{exact, minutes_pass};
use crate::random::{below, depth, one_in};
use crate::world::{Alone, Buffer, File, Slot, world};

pub use names::{create, create_all, open, rename_path, unlink};
pub use pages::{flush_file, write_pages};
pub use ranges::grow_by;
pub use replaced::{OTHERS, Others};
pub use ring::ARE_USED as RINGS_ARE_USED;
#[cfg(debug_assertions)]
pub use warm::write_what_was_read;

type Operation = fn();

/// Operations with their relative frequencies.
const OPERATIONS: &[(u32, Operation)] = &[
    (4600, pages::read),
    (1800, pages::read_async),
    (1300, pages::write),
    (900, pages::write_async),
    (60, pages::write_vectored),
    (60, pages::read_vectored),
    (90, pages::write_compressed),
    (60, pages::read_header),
    (40, pages::read_block),
    (3, pages::read_in_another_length),
    (60, ranges::write_zeros),
    (60, ranges::make_hole),
    (30, ranges::zero_range),
    (40, ranges::overlap_zero_write),
    (40, ranges::overlap_hole),
    (60, ranges::extend),
    (12, ranges::truncate),
    (80, ring::submit),
    (40, names::probe),
    (10, names::write_by_second_name),
    (20, names::rename),
    (20, names::exchange),
    (8, names::replace),
    (8, names::truncate_table),
    (16, names::drop_and_create),
    (40, names::reopen),
    (12, replaced::change_outside),
    (16, replaced::write_unfollowed),
    (6, replaced::empty),
    (6, replaced::import),
    (60, pages::flush),
    (30, looks::set_times),
    (300, looks::look),
    (400, warm::load),
];

/// Operations that other threads run outside the exact mode.
const EXACT: &[(u32, Operation)] = &[
    (2600, crate::asynchronous::harvest_some),
    (300, crate::switching::pump),
    (4, crate::switching::off_or_on),
    (30, crate::switching::on_again),
    (6, crate::switching::bypass),
    (60, crate::switching::serve_again),
    (60, crate::switching::let_a_minute_pass),
];

/// Read-locked inside each operation, so that a writer knows that no operation is active. Only with several threads.
pub static INSIDE: RwLock<()> = RwLock::new(());

/// Makes changes of whole files rare, so that their cached pages stay and the next process can recover them.
pub static IS_CALM: AtomicBool = AtomicBool::new(false);

/// Runs one random operation.
pub fn step() {
    let _inside = (!exact()).then(|| INSIDE.read());
    let world = world();
    world.operations.fetch_add(1, Ordering::Relaxed);
    close_what_is_quiet();
    let shares = |list: &[(u32, Operation)]| list.iter().map(|(share, _)| *share).sum::<u32>();
    let all = shares(OPERATIONS) + if exact() { shares(EXACT) } else { 0 };
    let mut chosen = below(all as usize) as u32;
    for (share, operation) in OPERATIONS.iter().chain(EXACT) {
        if chosen < *share {
            if *share < 60 && IS_CALM.load(Ordering::Relaxed) && !one_in(50) {
                return pages::read();
            }
            return operation();
        }
        chosen -= share;
    }
}

/// Continues a read after its first `done` bytes, as the servers do. Returns false if the run is over.
pub fn read_rest(file: &File, fd: c_int, bytes: &mut [u8], offset: usize, mut done: usize) -> bool {
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: our own buffer.
        let got = unsafe {
            calls::pread64(
                fd,
                rest.as_mut_ptr().cast(),
                rest.len(),
                (offset + done) as i64,
            )
        };
        match got {
            0 => {
                world().violated(Some(file), &format!("the file ended at {}", offset + done));
                return false;
            }
            // The server would give up; the model retries.
            got if got < 0 => {
                if errno() != libc::EIO {
                    world().violated(
                        Some(file),
                        &format!("a read at {offset} failed with errno {}", errno()),
                    );
                    return false;
                }
            }
            got => done += got as usize,
        }
        if world().stopping() {
            return false;
        }
    }
    true
}

/// Continues a write after its first `done` bytes.
pub fn write_rest(file: &File, fd: c_int, bytes: &[u8], offset: usize, mut done: usize) {
    while done < bytes.len() {
        let rest = &bytes[done..];
        // SAFETY: our own buffer.
        let put = unsafe {
            calls::pwrite64(fd, rest.as_ptr().cast(), rest.len(), (offset + done) as i64)
        };
        if put >= 0 {
            done += put as usize;
        } else if errno() == libc::EIO {
            // The page is still dirty, so it is written again completely. Until then, the file's contents count.
            done = 0;
            compare_with_file(file, fd, offset, bytes.len());
        } else {
            return world().violated(
                Some(file),
                &format!("a write at {offset} failed with errno {}", errno()),
            );
        }
    }
}

/// After a failed write, the file's contents are unknown, but a read must return exactly those contents.
pub fn compare_with_file(file: &File, fd: c_int, offset: usize, length: usize) {
    if length != file.page_size() || !one_in(3) {
        return;
    }
    let (mut real, mut read) = (Buffer::new(length), Buffer::new(length));
    // SAFETY: our own buffers.
    let got = unsafe {
        let got = libc::pread64(fd, real.at(0), length, offset as i64);
        (got, calls::pread64(fd, read.at(0), length, offset as i64))
    };
    if got == (length as isize, length as isize) && real.bytes() != read.bytes() {
        let text = format!(
            "after a failed write, a read of {length} at {offset} is not what the file has"
        );
        world().violated(Some(file), &text);
    }
}

pub fn errno() -> c_int {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Punches a hole, and expects zeros there. The caller has locked the pages.
pub fn punch(file: &File, offset: usize, length: usize) {
    const MODE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain arguments.
    let result = unsafe { calls::fallocate64(file.fd(), MODE, offset as i64, length as i64) };
    if result == 0 {
        file.expect(offset, length, crate::content::ZERO);
    } else if errno() != libc::EOPNOTSUPP {
        world().violated(Some(file), &format!("a hole failed with errno {}", errno()));
    }
}

/// Counts the operation if the file's identity has changed.
fn count_identity(before: Option<u32>, file: &File) {
    if before.is_some() && before != file.identity() {
        reached(Reached::Identities);
    }
}

/// One minute, nanoseconds.
const MINUTE: i64 = 60_000_000_000;

/// Sets the clock of file timestamps, in test builds only. Returns its previous offset.
fn set_file_time_by(nanoseconds: i64) -> i64 {
    #[cfg(debug_assertions)]
    if exact() && minutes_pass() {
        let set_by = &bpe_plugin::platform::clock::TEST_CLOCK.set_by;
        return set_by.swap(nanoseconds, Ordering::SeqCst);
    }
    nanoseconds
}

/// Closes an unused file.
fn close(file: &File) {
    let fd = file.fd.swap(-1, Ordering::SeqCst);
    let mut set_by = 0;
    if exact() {
        // The plugin checks whether the file has changed recently. The result must not depend on the host's speed or on delays
        // of this thread.
        if !one_in(3) {
            // SAFETY: the file's own descriptor.
            unsafe { calls::futimens(fd, std::ptr::null()) };
            set_by = -MINUTE;
        } else if minutes_pass() {
            set_by = MINUTE;
        } else {
            std::thread::sleep(Duration::from_millis(40));
        }
    }
    let before = set_file_time_by(set_by);
    // SAFETY: the file's own descriptor.
    let result = unsafe { calls::close(fd) };
    set_file_time_by(before);
    if result != 0 {
        world().violated(Some(file), &format!("close failed with errno {}", errno()));
    }
}

/// Closes files that were unlinked with requests in flight.
pub fn close_what_is_quiet() {
    let quiet: Vec<Arc<File>> = {
        let Some(mut closing) = world().closing.try_lock() else {
            return;
        };
        closing.extract_if_quiet()
    };
    for file in quiet {
        world().note(&file, format_args!("closed at last"));
        close(&file);
    }
}

trait ExtractIfQuiet {
    fn extract_if_quiet(&mut self) -> Vec<Arc<File>>;
}

impl ExtractIfQuiet for Vec<Arc<File>> {
    fn extract_if_quiet(&mut self) -> Vec<Arc<File>> {
        let (quiet, busy) = std::mem::take(self)
            .into_iter()
            .partition(|file| file.users() == 0);
        *self = busy;
        quiet
    }
}

/// Runs an action on a slot whose names may be changed, and on its file without requests in flight.
fn alone_with_names<R>(act: impl FnOnce(&Slot, Alone) -> R) -> Option<R> {
    let slot = world().slot();
    let ddl = slot.ddl()?;
    let alone = slot.file().alone()?;
    let result = act(slot, alone);
    drop(ddl);
    Some(result)
}

/// Waits briefly, so that the file system's timestamps advance.
fn let_time_pass() {
    if depth() == 0 && one_in(3) {
        std::thread::sleep(std::time::Duration::from_millis(if one_in(8) {
            30
        } else {
            1
        }));
    }
}
