//! `process::end_all` is final for the process, so it needs a separate test program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use private_server::process;

#[test]
fn end_all_ends_the_hard_ones_first_and_admits_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    let mut hard = Command::new("sleep");
    hard.arg("60");
    let mut hard = process::spawn(hard, libc::SIGKILL).unwrap();
    // On SIGTERM the gentle child records whether the hard one still runs.
    let mut gentle = Command::new("sh");
    gentle.arg("-c").arg(format!(
        "trap 'grep -c \"State:.Z\" /proc/{}/status > {}; exit' TERM; while :; do sleep 0.05; done",
        hard.id(),
        note.display()
    ));
    gentle.stdout(Stdio::null());
    let mut gentle = process::spawn(gentle, libc::SIGTERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));

    let start = Instant::now();
    process::end_all(Duration::from_secs(10));
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(!hard.wait().unwrap().success());
    gentle.wait().unwrap();
    assert_eq!(std::fs::read_to_string(note).unwrap().trim(), "1");

    let refused = process::spawn(Command::new("true"), libc::SIGKILL).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Interrupted);
}
