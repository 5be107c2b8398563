//! Steps of a read and of a write that a test can do wrong ([`canary!`](crate::canary!)).
//!
//! In a build for a server each function is the rule that its name states.

use crate::files::DataFile;
use crate::files::file_rule::FileRule;
use crate::switch::{Bypass, Switch};
use cache::FileId;

/// Whether the table rules exclude the file.
#[inline(always)]
pub(super) fn is_excluded(file: &DataFile) -> bool {
    file.rule() == FileRule::Excluded && !canary!("exclude")
}

/// Takes the ticket of a read, and then reads.
#[inline(always)]
pub(super) fn ticket_then_read<T, R>(
    ticket: impl FnOnce() -> T,
    read: impl FnOnce() -> R,
) -> (T, R) {
    if canary!("ticket-after-read") {
        let result = read();
        return (ticket(), result);
    }
    (ticket(), read())
}

/// Whether the header of a hit is checked: always.
#[inline(always)]
pub(super) fn checks_header() -> bool {
    !canary!("checks")
}

/// Whether a write passes unprepared: never.
#[inline(always)]
pub(super) fn skips_write(switch: &Switch, file: &DataFile, offset: i64) -> bool {
    canary!("writes")
        || canary!("bypass-skips-writes") && switch.mode().bypass() != Bypass::Off
        || canary!("unlearned") && offset >= 0 && file.page_size() == 0
}

/// The file's identity after the generations have been incremented.
#[inline(always)]
pub(super) fn id_after(file: &DataFile, increment: impl FnOnce()) -> FileId {
    let early = canary!("id-before-bump").then(|| file.id());
    increment();
    early.unwrap_or_else(|| file.id())
}

/// Makes the server's call, and then stores the change stamp.
#[inline(always)]
pub(super) fn call_then_stamp<R>(real: impl FnOnce() -> R, stamp: impl FnOnce()) -> R {
    if canary!("stamp-before-call") {
        stamp();
        return real();
    }
    let result = real();
    stamp();
    result
}

/// Whether a write has succeeded and is complete.
#[inline(always)]
pub(super) fn is_complete(result: isize, length: usize) -> bool {
    result == length as isize || canary!("results")
}

/// Whether the highest LSN of a written page is kept: always.
#[inline(always)]
pub(super) fn keeps_lsn() -> bool {
    !canary!("lsn")
}
