//! Disables a check of the command deliberately, so that a test can prove that the other tests notice it.
//!
//! Builds with debug assertions have the switches: the environment variable `BPE_LEFT_OUT` names one of [`CHECKS`]. In every
//! other build [`canary!`] is the constant `false`. The plugin's rules have separate switches
//! (`crates/coherence/src/testing/canary.rs`).

use std::sync::OnceLock;

/// Each check, and a substring of the names of the unit tests that notice its absence.
pub const CHECKS: &[(&str, &str)] = &[
    ("peer", "connect::trust"),
    ("way-to-the-socket", "connect::socket_path"),
    ("owners-on-the-way", "files::"),
    ("writers-on-the-way", "files::"),
    ("links-on-the-way", "files::"),
    ("rows-of-an-answer", "variables_have_a_bound"),
    ("bytes-of-an-answer", "endless_answers_end"),
    ("password-in-clear", "connect::protocol"),
    ("unseen-characters", "change::"),
    ("control-characters", "quote::"),
    ("sql-literals", "quote::"),
    ("long-option-lines", "quote::"),
    ("shell-words", "quote::"),
    ("foreign-option-file", "snippet::"),
    ("owner-of-leftovers", "stale_files::"),
    ("lock-of-leftovers", "stale_files::"),
    ("owner-of-secrets", "private_file::"),
    ("readers-of-secrets", "private_file::"),
    ("weak-tokens", "console::token"),
    ("wrong-tokens", "console::token"),
    ("host", "console::guard"),
    ("origin", "console::guard"),
    ("burst-of-refusals", "console::refusals"),
    ("share-of-an-address", "console::connections"),
    ("places-of-holders", "console::connections"),
    ("plan-that-was-shown", "change::digest"),
];

/// Whether a check is disabled.
#[macro_export]
macro_rules! canary {
    ($check:literal) => {
        cfg!(debug_assertions) && $crate::canary::is($check)
    };
}

/// Whether the environment names this check.
///
/// # Panics
/// The check is not in [`CHECKS`].
#[doc(hidden)]
pub fn is(check: &str) -> bool {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    assert!(CHECKS.iter().any(|(name, _)| *name == check), "{check}");
    let named = NAMED.get_or_init(|| std::env::var("BPE_LEFT_OUT").ok());
    named.as_deref() == Some(check)
}
