//! Verifies that unit tests detect each check that is left out on purpose.

use std::process::Command;

use interface::canary::CHECKS;

#[test]
fn each_check_that_is_left_out_is_noticed() {
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
