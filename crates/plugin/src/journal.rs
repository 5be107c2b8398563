//! Lines in the server's error log.
//!
//! Both servers point standard error at their error log; a line is written with one `write`, so that it is not torn.

use std::fmt::Write as _;

use interface::Untrusted;

use crate::os::Level;

/// Characters of a line: texts name tables, files and rules, and repeat what other accounts have set.
const LONGEST: usize = 4000;

fn name(level: Level) -> &'static str {
    match level {
        Level::Note => "Note",
        Level::Warning => "Warning",
        Level::Error => "ERROR",
    }
}

/// Writes one line to the error log, in the form of the server's own lines. Never fails, never blocks longer than a
/// write to standard error does.
pub fn line(level: Level, text: &str) {
    let mut line = String::with_capacity(text.len() + 64);
    let text = Untrusted::new(text).cut_at(LONGEST);
    // SAFETY: plain C calls on memory of our own; all-zero values are valid for both structures.
    let (local, utc, micros) = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        let (mut local, mut utc): (libc::tm, libc::tm) = std::mem::zeroed();
        libc::localtime_r(&now.tv_sec, &mut local);
        libc::gmtime_r(&now.tv_sec, &mut utc);
        (local, utc, now.tv_nsec / 1000)
    };
    let level = name(level);
    let date = |tm: &libc::tm| (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    let _ = if crate::abi::server().0 == crate::abi::Flavour::MySql {
        let (year, month, day) = date(&utc);
        let (hour, minute, second) = (utc.tm_hour, utc.tm_min, utc.tm_sec);
        writeln!(
            line,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z 0 [{level}] [bpe] {text}"
        )
    } else {
        let (year, month, day) = date(&local);
        let (hour, minute, second) = (local.tm_hour, local.tm_min, local.tm_sec);
        writeln!(
            line,
            "{year:04}-{month:02}-{day:02} {hour:2}:{minute:02}:{second:02} 0 [{level}] bpe: {text}"
        )
    };
    // SAFETY: the buffer is valid for its length; standard error may be closed, then nothing happens.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
