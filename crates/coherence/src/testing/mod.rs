//! Switches that tests use. A build for a server contains none of them.
//!
//! - `canary`: removes one rule of the protocol ([`canary!`](crate::canary!)). A test must then detect the fault.
//! - `sync_point`: delays a thread at a named point, so that others run in between.
//! - `failpoint`: simulated death of the process at a store of the persisted state.
//! - `os_for_tests`: the operating system of the unit tests.

/// Whether a test build removes a rule of [`canary`]; `false` in every other build.
#[macro_export]
macro_rules! canary {
    ($rule:literal) => {{
        #[cfg(debug_assertions)]
        let is_removed = $crate::canary::is_removed($rule);
        #[cfg(not(debug_assertions))]
        let is_removed = false;
        is_removed
    }};
}

/// Point at which a test can delay the thread; empty in builds other than for tests.
macro_rules! sync_point {
    ($moment:literal) => {{
        #[cfg(any(test, debug_assertions))]
        $crate::sync_point::at($moment);
    }};
}

#[cfg(debug_assertions)]
pub mod canary;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod failpoint;
#[cfg(test)]
pub(crate) mod os_for_tests;
#[cfg(any(test, debug_assertions))]
pub mod sync_point;
