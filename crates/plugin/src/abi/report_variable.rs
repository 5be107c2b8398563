//! The session variable `bpe_report`: reports for servers without `CREATE FUNCTION bpe_report`.
//!
//! `SET SESSION bpe_report = 'files'; SELECT @@SESSION.bpe_report`. The check of the value makes the report, and the server
//! assigns that text. The server copies it, and frees the copy with the next value or with the session. Like the function,
//! the variable requires privileges and returns null for an unknown name.

use std::ffi::{CStr, c_char, c_void};

use super::privilege::ReadsReport;
use super::report_function;
use crate::platform::server::lookup;

/// Returns the value that the server assigns after `SET bpe_report = name`; null for an unknown name.
///
/// # Errors
/// The server cannot allocate memory for it.
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

/// Copies the text into memory of the server, which is valid until the statement ends.
///
/// # Errors
/// The server does not export `thd_strmake`.
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
