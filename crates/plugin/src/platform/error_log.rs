//! Lines in the server's error log.
//!
//! MySQL accepts messages through `my_plugin_log_message`. They reach every sink (JSON, `performance_schema.error_log`), and
//! `log_error_verbosity` applies. The function needs the plugin's handle, which is valid from [`ErrorLog::open`] to
//! [`ErrorLog::close`].
//!
//! MariaDB's error log is one text file, to which standard error points. On MariaDB, and on MySQL outside that time, a line
//! goes to standard error in the format of the server's own lines. A single `write` keeps it in one piece.
//!
//! Each line begins with a [code](interface::codes).
//!
//! Cost: MySQL formats a line in 16 KiB on the caller's stack and takes its log's locks.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use coherence::os::Level;
use interface::Untrusted;
use interface::codes::code_of;
use parking_lot::RwLock;

use crate::platform::server::lookup;

/// Maximum line length, characters: texts name tables, files and rules, and repeat values set by other accounts.
const MAX_LINE: usize = 4000;

/// Timeout of [`close`](ErrorLog::close) for messages that MySQL is writing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes the plugin's messages. Lock: a leaf, outside of MySQL's log locks. Writers of messages share it.
pub struct ErrorLog {
    /// The argument of the plugin's initialisation; null outside the plugin's life.
    plugin: AtomicPtr<c_void>,
    writing: RwLock<()>,
}

/// The error log of this server.
pub static ERROR_LOG: ErrorLog = ErrorLog::new();

impl ErrorLog {
    const fn new() -> ErrorLog {
        ErrorLog {
            plugin: AtomicPtr::new(std::ptr::null_mut()),
            writing: RwLock::new(()),
        }
    }

    /// Call when the server initialises the plugin.
    pub fn open(&self, plugin: *mut c_void) {
        self.plugin.store(plugin, Ordering::SeqCst);
    }

    /// Call before the plugin is unloaded: the server frees its handle.
    pub fn close(&self) {
        self.plugin.store(std::ptr::null_mut(), Ordering::SeqCst);
        // A disk that blocks the log's writer must not block the server's shutdown.
        drop(self.writing.try_write_for(CLOSE_TIMEOUT));
    }

    /// Writes one line to the error log. Never fails, and blocks no longer than the server's own lines.
    pub fn line(&self, level: Level, text: &str) {
        let code = code_of(text);
        let text = format!("{code}: {}", Untrusted::new(text).cut_at(MAX_LINE));
        if !self.by_the_server(level, &text) {
            to_standard_error(level, &text);
        }
    }

    /// Returns whether MySQL accepted the message.
    fn by_the_server(&self, level: Level, text: &str) -> bool {
        type Log = unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_char, ...) -> c_int;
        let _shared = self.writing.read_recursive();
        let mut plugin = self.plugin.load(Ordering::SeqCst);
        if plugin.is_null() {
            return false;
        }
        let function = lookup(&[c"_Z21my_plugin_log_messagePPv16plugin_log_levelPKcz"]);
        let (false, Ok(text)) = (function.is_null(), CString::new(text)) else {
            return false;
        };
        let level = match level {
            Level::Error => 0,
            Level::Warning => 1,
            Level::Note => 2,
        };
        // SAFETY: MySQL's `int my_plugin_log_message(MYSQL_PLUGIN *, plugin_log_level, const char *format, ...)` with the handle that the
        // server keeps until the plugin's end, after which it is null here.
        let failed = unsafe {
            let log = std::mem::transmute::<*mut c_void, Log>(function);
            log(&mut plugin, level, c"%s".as_ptr(), text.as_ptr())
        };
        failed == 0
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Note => "Note",
        Level::Warning => "Warning",
        Level::Error => "ERROR",
    }
}

fn to_standard_error(level: Level, text: &str) {
    let mut line = String::with_capacity(text.len() + 64);
    // SAFETY: plain C calls on local memory; all-zero values are valid for both structures.
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
    let _ = if crate::platform::server::server().0 == crate::platform::server::Flavour::MySql {
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
    // SAFETY: the buffer is valid for its length. If standard error is closed, the call fails harmlessly.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
