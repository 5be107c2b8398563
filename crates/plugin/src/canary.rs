//! Leaves out rules of coherence on purpose, so that a test can show that the other tests would notice.
//!
//! Compiled with the feature `canary` only. The environment variable `BPE_CANARY` of the server names the rule to leave
//! out: `writes` (a write drops nothing).

use std::sync::OnceLock;

/// Whether the rule is to be left out.
pub fn leaves_out(rule: &str) -> bool {
    static RULES: OnceLock<String> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let rules = std::env::var("BPE_CANARY").unwrap_or_default();
        crate::journal::warning(&format!(
            "this library was built to be wrong, for tests only; it leaves out: {rules}"
        ));
        rules
    });
    rules.split(',').any(|named| named == rule)
}
