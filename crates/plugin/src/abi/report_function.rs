//! The SQL function `bpe_report(name)`, a loadable function of the same library.
//!
//! `CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'`. The interface of loadable functions is the same in both
//! servers. On a server without the function, the variable of the same name returns the reports (`report_variable`).
//!
//! The privilege is checked when a report is generated, and not when a statement is prepared, as InnoDB does for its tables
//! in `information_schema`. So a dump that reads the columns of the views does not need it, and a prepared statement does
//! not keep a revoked privilege.

use std::ffi::{CString, c_char, c_int, c_uchar, c_uint, c_ulong};
use std::panic::{AssertUnwindSafe, catch_unwind};

use interface::untrusted::visible_json;
use serde_json::Value;

use super::privilege::ReadsReport;
use crate::reports::diagnostics::DIAGNOSTICS;
use crate::reports::report;

/// Generates a report.
type Report = fn() -> Value;

/// All reports, by name. [`Diagnostics::answer`](crate::reports::diagnostics::Diagnostics::answer) handles the names with
/// arguments.
pub const REPORTS: [(&str, Report); 8] = [
    ("summary", report::summary),
    ("status", super::status::report),
    ("instances", report::instances),
    ("devices", report::devices),
    ("files", report::file_table),
    ("rules", report::rules),
    ("suspended", report::suspended_files),
    ("latency", report::latencies),
];

const STRING_RESULT: c_int = 0;
const MESSAGE_BYTES: usize = 512;

/// `UDF_INIT`.
#[repr(C)]
pub struct Init {
    maybe_null: bool,
    decimals: c_uint,
    max_length: c_ulong,
    ptr: *mut c_char,
    const_item: bool,
    extension: *mut c_char,
}

/// `UDF_ARGS`.
#[repr(C)]
pub struct Arguments {
    count: c_uint,
    kinds: *mut c_int,
    values: *mut *mut c_char,
    lengths: *mut c_ulong,
    maybe_null: *mut c_char,
}

/// Checks the arguments when a statement is prepared.
///
/// # Safety
/// Called by the server only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpe_report_init(
    init: *mut Init,
    arguments: *mut Arguments,
    message: *mut c_char,
) -> bool {
    // SAFETY: the server's own structures; `message` has room for 512 bytes.
    unsafe {
        if (*arguments).count != 1 || *(*arguments).kinds != STRING_RESULT {
            let text =
                CString::new(format!("bpe_report() takes one of {}", names())).unwrap_or_default();
            let bytes = text.as_bytes_with_nul();
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr().cast(),
                message,
                bytes.len().min(MESSAGE_BYTES),
            );
            return true;
        }
        (*init).maybe_null = true;
        (*init).max_length = 16 * 1024 * 1024;
        (*init).const_item = false;
        (*init).ptr = std::ptr::null_mut();
    }
    false
}

/// Returns the report as JSON; null for an unknown name. Without the privilege the statement fails.
///
/// # Safety
/// Called by the server only, after [`bpe_report_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpe_report(
    init: *mut Init,
    arguments: *mut Arguments,
    _result: *mut c_char,
    length: *mut c_ulong,
    is_null: *mut c_uchar,
    error: *mut c_uchar,
) -> *mut c_char {
    // SAFETY: the server's own structures.
    unsafe {
        free(init);
        let value = *(*arguments).values;
        let name = (!value.is_null())
            .then(|| std::slice::from_raw_parts(value.cast::<u8>(), *(*arguments).lengths as usize))
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        let Some(granted) = ReadsReport::of_current_session(name.unwrap_or_default()) else {
            (*error, *is_null) = (1, 1);
            return std::ptr::null_mut();
        };
        match name.and_then(|name| text_of(&granted, name)) {
            Some(text) => {
                *length = text.as_bytes().len() as c_ulong;
                (*init).ptr = text.into_raw();
                (*init).ptr
            }
            None => {
                *is_null = 1;
                std::ptr::null_mut()
            }
        }
    }
}

/// Returns the report as JSON; `None` for an unknown name.
pub fn text_of(_granted: &ReadsReport, name: &str) -> Option<CString> {
    let report = catch_unwind(AssertUnwindSafe(|| answer(name)));
    let json = report.ok().flatten()?.to_string();
    CString::new(&*visible_json(&json)).ok()
}

/// Returns the report without a privilege check: for [`text_of`], and for fuzzing.
pub fn answer(name: &str) -> Option<Value> {
    match REPORTS.iter().find(|(known, _)| *known == name) {
        Some((_, report)) => Some(report()),
        None => DIAGNOSTICS.answer(name),
    }
}

/// The names of [`REPORTS`], for messages.
fn names() -> String {
    REPORTS.map(|(name, _)| format!("'{name}'")).join(", ")
}

/// Frees the text of the last row.
///
/// # Safety
/// Called by the server only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpe_report_deinit(init: *mut Init) {
    // SAFETY: the server's own structure.
    unsafe { free(init) };
}

/// # Safety
/// `init.ptr` must be null or come from `CString::into_raw`.
unsafe fn free(init: *mut Init) {
    // SAFETY: the caller's promise.
    unsafe {
        let text = (*init).ptr;
        (*init).ptr = std::ptr::null_mut();
        if !text.is_null() {
            drop(CString::from_raw(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> Option<String> {
        let text = text_of(&ReadsReport::for_tests(), name)?;
        text.into_string().ok()
    }

    #[test]
    fn known_names_give_json_and_others_null() {
        assert_eq!(REPORTS.map(|(name, _)| name), interface::reports::PLAIN);
        for (name, _) in REPORTS {
            let first = if ["summary", "latency"].contains(&name) {
                '{'
            } else {
                '['
            };
            assert!(
                text(name).is_some_and(|text| text.starts_with(first)),
                "{name}"
            );
        }
        assert_eq!(text("nonsense"), None);
    }

    #[test]
    fn without_privilege_there_is_no_report() {
        let mut init = Init {
            maybe_null: false,
            decimals: 0,
            max_length: 0,
            ptr: std::ptr::null_mut(),
            const_item: false,
            extension: std::ptr::null_mut(),
        };
        let name = "summary";
        let (mut kind, mut value, mut length) = (
            STRING_RESULT,
            name.as_ptr() as *mut c_char,
            name.len() as c_ulong,
        );
        let mut arguments = Arguments {
            count: 1,
            kinds: &mut kind,
            values: &mut value,
            lengths: &mut length,
            maybe_null: std::ptr::null_mut(),
        };
        let (mut bytes, mut null, mut error) = (0, 0, 0);
        // SAFETY: the structures are those of a server. Without a server, no privilege is granted.
        unsafe {
            let (init, arguments) = (&mut init, &mut arguments);
            assert!(!bpe_report_init(init, arguments, std::ptr::null_mut()));
            let result = std::ptr::null_mut();
            let text = bpe_report(init, arguments, result, &mut bytes, &mut null, &mut error);
            assert!(text.is_null());
            bpe_report_deinit(init);
        }
        assert_eq!((null, error), (1, 1));
    }
}
