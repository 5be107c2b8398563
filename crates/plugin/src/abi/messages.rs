//! Errors and warnings for the client.

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};

use coherence::os::Os as _;
use interface::Untrusted;

use crate::platform::Linux;
use crate::platform::server::lookup;

/// `ER_UNKNOWN_ERROR`: a message of the plugin, with SQLSTATE HY000.
const ERROR_NUMBER: u32 = 1105;
const WARNING_LEVEL: c_int = 1;

/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`.
const ACCESS_DENIED: u32 = 1227;

/// Raises an error in the current statement. If the server exports no function for that, the statement fails with the
/// server's own "wrong value" message. The reason is then in the error log and in `Bpe_state_reason`.
pub fn error(text: &str) {
    Linux.error(text);
    if let Ok(text) = CString::new(format!("bpe: {}", Untrusted::new(text))) {
        raise(ERROR_NUMBER, &text);
    }
}

/// Raises the server's error for a missing privilege. Needed where the server exports no privilege check.
pub fn access_denied(privilege: &str) {
    let text = format!(
        "Access denied; you need (at least one of) the {privilege} privilege(s) for this operation"
    );
    if let Ok(text) = CString::new(text) {
        raise(ACCESS_DENIED, &text);
    }
}

fn raise(number: u32, text: &CStr) {
    type Print = unsafe extern "C" fn(u32, *const c_char, c_ulong, ...);
    let symbol = lookup(&[c"my_printf_error", c"_Z15my_printf_errorjPKciz"]);
    if !symbol.is_null() {
        // SAFETY: both servers' `my_printf_error(uint, const char *format, myf flags, ...)`. The flags are an integer,
        // passed in a register in either width.
        unsafe {
            let print = std::mem::transmute::<*mut c_void, Print>(symbol);
            print(number, c"%s".as_ptr(), 0, text.as_ptr());
        }
    }
}

/// Raises a warning in the current statement, and logs it.
///
/// # Safety
/// `thd` must be the session that the server handed to a callback that is still running.
pub unsafe fn warning(thd: *mut c_void, text: &str) {
    type Push = unsafe extern "C" fn(*mut c_void, c_int, u32, *const c_char);
    Linux.warning(text);
    let symbol = lookup(&[
        c"_Z12push_warningP3THDN21Sql_state_errno_level18enum_warning_levelEjPKc",
        c"_Z12push_warningP3THDN13Sql_condition19enum_severity_levelEjPKc",
    ]);
    let Ok(text) = CString::new(format!("bpe: {}", Untrusted::new(text))) else {
        return;
    };
    if !symbol.is_null() && !thd.is_null() {
        // SAFETY: both servers' `push_warning(THD *, level, uint, const char *)`; level 1 is a warning in both.
        unsafe {
            let push = std::mem::transmute::<*mut c_void, Push>(symbol);
            push(thd, WARNING_LEVEL, ERROR_NUMBER, text.as_ptr());
        }
    }
}
