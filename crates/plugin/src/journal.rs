//! Lines in the server's error log.
//!
//! Both servers point standard error at their error log; a line is written with one `write`, so that it is not torn.

use std::fmt::Write as _;

/// How urgent a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the record.
    Note,
    /// Something works less well than it could.
    Warning,
    /// Something asked for is not done.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Note => "Note",
            Level::Warning => "Warning",
            Level::Error => "ERROR",
        }
    }
}

/// Writes one line to the error log. Never fails, never blocks longer than a write to standard error does.
pub fn line(level: Level, text: &str) {
    let mut line = String::with_capacity(text.len() + 48);
    let mut now: libc::time_t = 0;
    // SAFETY: plain C calls on memory we own.
    let tm = unsafe {
        libc::time(&mut now);
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut tm);
        tm
    };
    let _ = writeln!(
        line,
        "{:04}-{:02}-{:02} {:2}:{:02}:{:02} 0 [{}] bpe: {}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        level.name(),
        text.replace('\n', " ")
    );
    // SAFETY: the buffer is valid for its length; standard error may be closed, then nothing happens.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// A line for the record.
pub fn note(text: &str) {
    line(Level::Note, text);
}

/// A warning.
pub fn warning(text: &str) {
    line(Level::Warning, text);
}

/// An error.
pub fn error(text: &str) {
    line(Level::Error, text);
}
