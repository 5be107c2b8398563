//! Tests `bpe-lab volume`: mount, control, and its end by signal or by force.

#[path = "../../cloud-volume/tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

fn volume() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpe-lab"));
    command.arg("volume");
    command
}

struct Mounted {
    process: Child,
    folder: tempfile::TempDir,
}

impl Mounted {
    fn start(options: &[&str]) -> Option<Mounted> {
        if !common::fuse() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("backing")).unwrap();
        fs::create_dir(folder.path().join("volume")).unwrap();
        fs::write(folder.path().join("backing/file"), "contents").unwrap();
        let process = Self::spawn(folder.path(), options)?;
        Some(Mounted { process, folder })
    }

    fn spawn(folder: &Path, options: &[&str]) -> Option<Child> {
        let mut process = volume()
            .arg("mount")
            .args([folder.join("backing"), folder.join("volume")])
            .arg("--control")
            .arg(folder.join("control"))
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        if line.contains(" is mounted at ") {
            return Some(process);
        }
        let output = process.wait_with_output().unwrap();
        common::skip(&String::from_utf8_lossy(&output.stderr));
        None
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("volume/file")
    }

    fn control(&self, command: &[&str]) -> Output {
        volume()
            .arg("control")
            .arg(self.folder.path().join("control"))
            .args(command)
            .output()
            .unwrap()
    }

    fn says(&self, command: &[&str]) -> String {
        let output = self.control(command);
        let said = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}{complaint}");
        said.trim().to_string()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.process);
        rustix::process::kill_process(id, signal).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::TERM);
            let _ = self.process.wait();
        }
    }
}

#[test]
fn a_signal_unmounts() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(mut mounted) = Mounted::start(&[]) else {
            return;
        };
        assert_eq!(fs::read(mounted.file()).unwrap(), b"contents");
        mounted.signal(signal);
        assert!(mounted.process.wait().unwrap().success());
        assert!(!mounted.file().exists());
        assert!(!mounted.folder.path().join("control").exists());
        assert!(mounted.folder.path().join("backing/file").exists());
    }
}

#[test]
fn removed_or_replaced_control_socket_delays_nothing() {
    for replaced in [false, true] {
        let Some(mut mounted) = Mounted::start(&[]) else {
            return;
        };
        let control = mounted.folder.path().join("control");
        fs::remove_file(&control).unwrap();
        let other = replaced.then(|| UnixListener::bind(&control).unwrap());
        mounted.signal(Signal::TERM);
        let patience = Instant::now() + Duration::from_secs(30);
        let ended = loop {
            if let Some(status) = mounted.process.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= patience {
                mounted.signal(Signal::KILL); // or the test would hang as well
                panic!("it does not end (replaced: {replaced})");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success());
        assert!(!mounted.file().exists());
        // A foreign file at the socket's path stays.
        assert_eq!(control.exists(), other.is_some());
    }
}

#[test]
fn mount_ends_with_killed_process_and_can_be_repeated() {
    let Some(mut mounted) = Mounted::start(&[]) else {
        return;
    };
    mounted.signal(Signal::KILL);
    mounted.process.wait().unwrap();
    // The guard needs a moment. An endless wait is a failure.
    let patience = Instant::now() + Duration::from_secs(30);
    while fs::read_dir(mounted.folder.path().join("volume")).is_err() {
        assert!(Instant::now() < patience, "the dead mount is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!mounted.file().exists());
    // The old socket does not block the new mount.
    mounted.process = Mounted::spawn(mounted.folder.path(), &[]).unwrap();
    assert_eq!(fs::read(mounted.file()).unwrap(), b"contents");
}

#[test]
fn the_volume_takes_commands() {
    let Some(mut mounted) = Mounted::start(&["--unlimited", "--forget-unsynced"]) else {
        return;
    };
    assert!(mounted.says(&["profile"]).starts_with("iops=none"));
    let changed = mounted.says(&["profile", "default", "iops=123", "jitter=1ms:tail"]);
    assert!(
        changed.starts_with("iops=123 bandwidth=125000000 latency=500"),
        "{changed}"
    );
    assert_eq!(mounted.says(&["profile"]), changed);

    fs::read(mounted.file()).unwrap();
    let statistics: cloud_volume::Statistics =
        serde_json::from_str(&mounted.says(&["statistics"])).unwrap();
    assert_eq!((statistics.reads, statistics.writes), (1, 0));

    mounted.says(&["fault", "eio", "op=write", "suffix=.ibd"]);
    let failing = mounted.folder.path().join("volume/a.ibd");
    assert!(fs::write(&failing, "x").is_err());
    mounted.says(&["clear-faults"]);
    fs::write(&failing, "x").unwrap();
    assert_eq!(mounted.says(&["power-loss"]), "1 files reverted");
    assert_eq!(fs::read(&failing).unwrap(), b"");

    for wrong in [&["profile", "iops=0"][..], &["explode"], &["stall", "long"]] {
        let output = mounted.control(wrong);
        assert!(
            !output.status.success() && !output.stderr.is_empty(),
            "{wrong:?}"
        );
    }
    mounted.says(&["unmount"]);
    assert!(mounted.process.wait().unwrap().success());
    let output = mounted.control(&["statistics"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no volume answers"));
}

#[test]
fn mistakes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["mount", "/does/not/exist", path], "/does/not/exist"),
        (&["mount", path, "/does/not/exist"], "mountpoint"),
        (&["mount", path, path, "--latency", "5"], "0.5ms"),
        (&["mount", path, path, "--iops", "0"], "above 0"),
    ];
    for (arguments, expected) in cases {
        let output = volume().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
