//! Shared code of the tests: a volume in a temporary directory, and fio.
//!
//! Without FUSE or fio a test prints `skipped:` and the reason. With `BPE_REQUIRE_ALL=1` that is a failure.
#![allow(dead_code)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cloud_volume::{CloudVolume, Options, Volume};

/// Prints why a test does not run. Bypasses the test runner's capture.
pub fn skip(reason: &str) {
    if std::env::var_os("BPE_REQUIRE_ALL").is_some_and(|value| value == "1") {
        panic!("required by BPE_REQUIRE_ALL: {reason}");
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("test");
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {reason}");
}

/// Whether FUSE is available.
pub fn fuse() -> bool {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            skip(&format!("/dev/fuse cannot be opened: {error}"));
            false
        }
    }
}

/// Whether fio is installed.
pub fn fio_installed() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        skip("fio is not installed");
    }
    found
}

/// A mounted volume and its directories. Unmounted and removed when dropped.
pub struct Trial {
    // In this order: unmount, then remove.
    pub volume: Volume,
    pub folder: tempfile::TempDir,
}

impl Trial {
    /// `None`, after printing the reason, if FUSE is unavailable.
    pub fn mount(options: Options) -> Option<Trial> {
        if !fuse() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (backing, mountpoint) = (folder.path().join("backing"), folder.path().join("volume"));
        std::fs::create_dir(&backing).unwrap();
        std::fs::create_dir(&mountpoint).unwrap();
        match CloudVolume::mount_with(&backing, &mountpoint, options) {
            Ok(volume) => Some(Trial { volume, folder }),
            Err(error) => {
                skip(&error.to_string());
                None
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.volume.mountpoint().join(name)
    }

    pub fn backing(&self, name: &str) -> PathBuf {
        self.volume.backing().join(name)
    }
}

/// A buffer of one page, aligned for direct I/O.
#[repr(align(4096))]
pub struct Page(pub [u8; 16384]);

impl Page {
    pub fn of(byte: u8) -> Box<Page> {
        Box::new(Page([byte; 16384]))
    }
}

pub fn open_direct(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap()
}

/// Runs fio in `directory` and returns its first job.
pub fn fio(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new("fio")
        .args(["--name=t", "--group_reporting", "--output-format=json"])
        .arg(format!("--directory={}", directory.display()))
        .args(arguments)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "fio {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Messages may precede the document.
    let document = &text[text.find('{').expect("fio printed no JSON")..];
    let report: serde_json::Value = serde_json::from_str(document).unwrap();
    report["jobs"][0].clone()
}
