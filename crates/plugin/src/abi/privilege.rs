//! Reports need the `PROCESS` privilege, as InnoDB's own do (`information_schema.INNODB_BUFFER_PAGE`).
//!
//! The server decides, with its own `check_global_access`: it knows roles, definers of routines, and its internal threads.
//! It also raises error 1227 in its own words.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::messages::{self, lookup};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::KNOWN;

/// `PROCESS_ACL`, the same bit in both servers.
const PROCESS: u64 = 1 << 8;

/// Proof that the server granted a session the right to read reports. Reports cannot be made without it.
pub struct ReadsReports(());

impl ReadsReports {
    /// Asks the server whether the session has `PROCESS`. `None`: its statement has error 1227 now.
    ///
    /// # Safety
    /// `thd` must be null or the session of the calling thread.
    pub unsafe fn of(thd: *mut c_void) -> Option<ReadsReports> {
        // SAFETY: the caller's promise.
        match unsafe { is_granted(thd) } {
            Some(true) => Some(ReadsReports(())),
            Some(false) => None,
            None => {
                if !KNOWN.privilege_refusal_logged.swap(true, Ordering::SeqCst) {
                    Linux.error(
                        "reports are refused: this server exports no function that checks privileges",
                    );
                }
                messages::access_denied("PROCESS");
                None
            }
        }
    }

    /// As [`of`](Self::of), for the session of the calling thread. Loadable functions are not given theirs.
    pub fn of_current_session() -> Option<ReadsReports> {
        // SAFETY: the server's own answer for this thread, or null.
        unsafe { ReadsReports::of(current_session()) }
    }

    #[cfg(test)]
    pub fn for_tests() -> ReadsReports {
        ReadsReports(())
    }
}

/// `None` if the server cannot be asked. `Some(false)`: the server raised the error.
///
/// # Safety
/// `thd` must be null or the session of the calling thread.
unsafe fn is_granted(thd: *mut c_void) -> Option<bool> {
    type MariaDb = unsafe extern "C" fn(*mut c_void, u64, bool) -> bool;
    type MySql = unsafe extern "C" fn(*mut c_void, u64) -> bool;
    if thd.is_null() {
        return None;
    }
    let mariadb = lookup(&[c"_Z19check_global_accessP3THD11privilege_tb"]);
    let mysql = lookup(&[
        c"_Z19check_global_accessP3THDj",
        c"_Z19check_global_accessP3THDm",
    ]);
    // SAFETY: MariaDB's `check_global_access(THD *, privilege_t, bool no_errors)` and MySQL's `check_global_access(THD *,
    // Access_bitmask)`. MySQL's bit mask has 32 or 64 bits, in a register in either width. Both return true for a refusal.
    let refused = unsafe {
        if !mariadb.is_null() {
            std::mem::transmute::<*mut c_void, MariaDb>(mariadb)(thd, PROCESS, false)
        } else if !mysql.is_null() {
            std::mem::transmute::<*mut c_void, MySql>(mysql)(thd, PROCESS)
        } else {
            return None;
        }
    };
    Some(!refused)
}

/// The session that the calling thread works for; null if there is none, or the server exports no way to it.
fn current_session() -> *mut c_void {
    type Function = unsafe extern "C" fn() -> *mut c_void;
    let function = lookup(&[c"_current_thd", c"_Z19thd_get_current_thdv"]);
    // SAFETY: MariaDB's `THD *_current_thd()`, MySQL's `THD *thd_get_current_thd()`; and of older MySQL `thread_local THD *current_thd`, whose address for this thread dlsym gives.
    unsafe {
        if !function.is_null() {
            return std::mem::transmute::<*mut c_void, Function>(function)();
        }
        let variable = lookup(&[c"current_thd"]).cast::<*mut c_void>();
        if variable.is_null() {
            std::ptr::null_mut()
        } else {
            *variable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_server_refuses() {
        // No server: nothing can be asked. An address that is not null must not be followed.
        let thd = std::ptr::dangling_mut::<u64>().cast();
        // SAFETY: without a server it is not used.
        assert!(unsafe { ReadsReports::of(thd) }.is_none());
        assert!(ReadsReports::of_current_session().is_none());
    }
}
