//! Finds a target by its name.

/// Runs a target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = fuzz_targets::TARGETS.iter().find(|target| target.0 == name);
    target.expect("a target of this name").1(bytes);
}
