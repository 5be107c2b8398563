//! The session variable `bpe_report`: the reports of a server on which nobody has run `CREATE FUNCTION`.
//!
//! `SET SESSION bpe_report = 'files'; SELECT @@SESSION.bpe_report`. The report is made while the value is checked, and is what the
//! server then assigns: it copies the text, and frees the copy with the next value or with the session. Like the function it
//! needs privileges, and gives null for a name that is not known.

use std::ffi::{CStr, c_char, c_void};

use super::lookup;
use super::privilege::ReadsReport;
use super::report_function;

/// What the variable reads as after it was set to `name`, as the server takes it; null for a name that is not known.
///
/// # Errors
/// The server gives no memory for it.
///
/// # Safety
/// `thd` must be the session that the server handed to a callback that is still running.
pub unsafe fn value_of(
    granted: &ReadsReport,
    thd: *mut c_void,
    name: Option<&CStr>,
) -> Result<*const c_char, String> {
    let report = match name.and_then(|name| name.to_str().ok()) {
        Some("") => Some(c"".to_owned()),
        Some(name) => report_function::text_of(granted, name),
        None => None,
    };
    match report {
        // SAFETY: the caller's promise.
        Some(report) => unsafe { copy(thd, &report) },
        None => Ok(std::ptr::null()),
    }
}

/// The text in memory of the server's, which lasts until the statement ends.
///
/// # Errors
/// When the server does not export how to get that.
///
/// # Safety
/// `thd` must be the session that the server handed to a callback that is still running.
unsafe fn copy(thd: *mut c_void, text: &CStr) -> Result<*const c_char, String> {
    type Copy = unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> *mut c_char;
    let symbol = lookup(&[c"thd_strmake", c"_Z11thd_strmakeP3THDPKcm"]);
    if symbol.is_null() || thd.is_null() {
        return Err(
            "this server has no thd_strmake, so bpe_report is there as a function only: \
             CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'"
                .into(),
        );
    }
    // SAFETY: both servers' `thd_strmake(THD *, const char *, size_t)`, with the caller's promise.
    let copied = unsafe {
        let copy = std::mem::transmute::<*mut c_void, Copy>(symbol);
        copy(thd, text.as_ptr(), text.count_bytes())
    };
    if copied.is_null() {
        return Err("there is no memory for the report".into());
    }
    Ok(copied)
}
