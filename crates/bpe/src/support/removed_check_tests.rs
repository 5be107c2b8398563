//! Mutation test of this crate: removes each check in [`CHECKS`] in turn, and requires that a unit test fails.
//!
//! The environment variable `BPE_LEFT_OUT` removes one check from a run of this test program.

use std::process::Command;

use interface::canary::CHECKS;

#[test]
fn each_removed_check_fails_a_test() {
    let tests = std::env::current_exe().unwrap();
    let run = |check: &str, names: &str| {
        let output = Command::new(&tests)
            .arg(names)
            .env("BPE_LEFT_OUT", check)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let is_root = rustix::process::geteuid().is_root();
    let mut unnoticed = Vec::new();
    for (check, names) in CHECKS {
        // Only root can create files of another user.
        if *names == "files::" && !is_root {
            continue;
        }
        let (code, said) = run(check, names);
        if (code, said.contains("test result: FAILED")) != (Some(101), true) {
            unnoticed.push(*check);
        }
    }
    assert!(unnoticed.is_empty(), "nothing notices: {unnoticed:?}");
}
