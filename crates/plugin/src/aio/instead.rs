//! The server's own read, made in place of one that was pointed at a cache file.

use std::ffi::c_int;
use std::time::Instant;

use super::requests::{IoEvent, Iocb, Purpose, Request, Words, begin, follow, take};
use crate::coherence::{self, Target};
use crate::files;
use crate::linux::Linux;
use crate::os::{Errno, Os as _};
use crate::switch;

/// How a request is handed to the kernel: as `io_submit` does.
pub type Submit<'a> = &'a dyn Fn(usize, *mut Iocb) -> c_int;

/// Submits the server's own request, as it was, to its own context, in place of one that was pointed at a cache file. Whether
/// the kernel has taken it; if so, the server's event is that of this request. No lock may be held.
pub fn submit_own(request: *mut Iocb, target: Target, context: usize, submit: Submit<'_>) -> bool {
    // SAFETY: the server waits for this request and does not touch it, since it was given no event of it.
    follow_own(unsafe { &*request }, target, context);
    let taken = submit(context, request) == 1;
    if !taken {
        drop(take(request as usize)); // it was read only, so there is nothing to undo
    }
    taken
}

/// Follows a read of the data file that is submitted by ourselves; it needs not be.
pub fn follow_own(iocb: &Iocb, target: Target, context: usize) {
    let guard = switch::active();
    let (Some(active), Some(pending)) = (&*guard, begin(context)) else {
        return;
    };
    let ticket = switch::generations().begin_read(target.file.owner, target.page.page);
    let Some(ticket) = ticket else { return };
    let request = Request {
        purpose: Purpose::Missed {
            target,
            ticket,
            started: Instant::now(),
        },
        context,
        submitted: None,
        words: Words::of(iocb),
        length: iocb.length as usize,
        epoch: active.epoch,
        pending,
    };
    drop(follow(iocb, request));
}

/// A read that was made in place of one from a cache file.
pub fn count_data_read(fd: c_int, started: Instant) {
    if let (Some(active), Some(file)) = (&*switch::active(), files::of_descriptor(fd)) {
        coherence::count_data_read(active, file, started);
    }
}

/// Makes the server's own read in place of one that was redirected.
pub fn read_instead(event: &mut IoEvent, words: &Words, length: usize) {
    // SAFETY: the server's own read, with its own arguments.
    let result = unsafe { Linux.read(words.fd, words.buffer as *mut u8, length, words.offset) };
    event.result = match result {
        Ok(bytes) => bytes as i64,
        Err(Errno(errno)) => -i64::from(errno),
    };
}
