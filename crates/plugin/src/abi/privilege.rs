//! Access control of the reports.
//!
//! Reports require the `PROCESS` privilege, like InnoDB's own (`information_schema.INNODB_BUFFER_PAGE`). Reports that load
//! the server, or that show more than InnoDB shows, also require the right to `SET GLOBAL`
//! ([`interface::reports::is_privileged`]).
//!
//! The server decides with its own `check_global_access`: it knows roles, definers of routines, and its internal threads. It
//! also raises error 1227 with its own text.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use coherence::os::Os as _;
use interface::reports::is_privileged;

use super::messages;
use crate::platform::Linux;
use crate::platform::server::lookup;

/// `PROCESS_ACL`, the same bit in both servers.
const PROCESS: u64 = 1 << 8;
/// `SUPER_ACL`, the same bit in both servers.
const SUPER: u64 = 1 << 15;
/// MySQL's right to `SET GLOBAL` apart from `SUPER`.
const SYSTEM_VARIABLES_ADMIN: &CStr = c"SYSTEM_VARIABLES_ADMIN";

/// The log has the message that this server exports no privilege check.
static REFUSAL_LOGGED: AtomicBool = AtomicBool::new(false);

/// Proof that the server granted a session the right to read one report. Every report requires it.
pub struct ReadsReport(());

impl ReadsReport {
    /// Checks with the server whether the session may read the report `name`. `None`: the statement now has error 1227.
    ///
    /// # Safety
    /// `thd` must be null or the session of the calling thread.
    pub unsafe fn of(thd: *mut c_void, name: &str) -> Option<ReadsReport> {
        // SAFETY: the caller's promise.
        let granted = unsafe {
            match is_granted(thd, PROCESS) {
                Some(true) if is_privileged(name) => may_set_global(thd),
                answer => answer,
            }
        };
        match granted {
            Some(true) => Some(ReadsReport(())),
            Some(false) => None,
            None => {
                if !REFUSAL_LOGGED.swap(true, Ordering::SeqCst) {
                    Linux.error(
                        "reports are refused: this server exports no function that checks privileges",
                    );
                }
                messages::access_denied("PROCESS");
                None
            }
        }
    }

    /// Like [`of`](Self::of), for the session of the calling thread. Loadable functions are not passed theirs.
    pub fn of_current_session(name: &str) -> Option<ReadsReport> {
        // SAFETY: the server's session of this thread, or null.
        unsafe { ReadsReport::of(current_session(), name) }
    }

    #[cfg(test)]
    pub fn for_tests() -> ReadsReport {
        ReadsReport(())
    }
}

/// Whether the session has the right to `SET GLOBAL`; as [`is_granted`].
///
/// # Safety
/// `thd` must be null or the session of the calling thread.
unsafe fn may_set_global(thd: *mut c_void) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        if has_global_grant(thd, SYSTEM_VARIABLES_ADMIN) {
            return Some(true);
        }
        is_granted(thd, SUPER)
    }
}

/// Whether MySQL has granted the session this dynamic privilege. MariaDB has none of these.
///
/// # Safety
/// `thd` must be null or the session of the calling thread.
unsafe fn has_global_grant(thd: *mut c_void, privilege: &CStr) -> bool {
    type Context = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> bool;
    type HasGrant = unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> u16;
    let context_of = lookup(&[c"_Z24thd_get_security_contextP3THDPP16Security_context"]);
    let has_grant = lookup(&[c"_ZN16Security_context16has_global_grantEPKcm"]);
    if thd.is_null() || context_of.is_null() || has_grant.is_null() {
        return false;
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: MySQL's `bool thd_get_security_context(THD *, Security_context **)`, which is true for a failure, and
    // `std::pair<bool, bool> Security_context::has_global_grant(const char *, size_t)`. The pair comes in one register, and its first
    // member, the lowest byte, says whether the privilege is granted.
    unsafe {
        let failed = std::mem::transmute::<*mut c_void, Context>(context_of)(thd, &mut context);
        if failed || context.is_null() {
            return false;
        }
        let has_grant = std::mem::transmute::<*mut c_void, HasGrant>(has_grant);
        let granted = has_grant(context, privilege.as_ptr(), privilege.count_bytes());
        granted & 0xff != 0
    }
}

/// Whether the session has this privilege. `None` if the server cannot be asked. `Some(false)`: the server raised the error.
///
/// # Safety
/// `thd` must be null or the session of the calling thread.
unsafe fn is_granted(thd: *mut c_void, privilege: u64) -> Option<bool> {
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
            std::mem::transmute::<*mut c_void, MariaDb>(mariadb)(thd, privilege, false)
        } else if !mysql.is_null() {
            std::mem::transmute::<*mut c_void, MySql>(mysql)(thd, privilege)
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
    // SAFETY: MariaDB's `THD *_current_thd()` and MySQL's `THD *thd_get_current_thd()`. Older MySQL has
    // `thread_local THD *current_thd`; `dlsym` returns its address for this thread.
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
        assert!(unsafe { ReadsReport::of(thd, "summary") }.is_none());
        assert!(ReadsReport::of_current_session("summary").is_none());
    }
}
