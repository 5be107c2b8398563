//! Handles Ctrl-C and other termination signals: the demonstration ends at once, and leaves no process, mount or temporary
//! file behind.
//!
//! A dedicated thread waits for the signal, because the main thread may be in a call that takes minutes. It ends the
//! children (servers and sysbench first, then the volume, which unmounts), removes the registered directories, and ends the
//! process. SIGKILL cannot be handled. After it, the children's parent-death signals do the same, except for the files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Directories to remove and, before that, to unmount. The only lock here.
static LEFT_BEHIND: Mutex<LeftBehind> = Mutex::new(LeftBehind {
    mounts: Vec::new(),
    folders: Vec::new(),
});

struct LeftBehind {
    mounts: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// Timeout for each kind of children to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Starts the thread that waits for signals.
///
/// # Errors
/// The signals cannot be caught.
pub fn install() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch Ctrl-C")?;
    std::thread::Builder::new()
        .name("interrupt".into())
        .spawn(move || {
            let Some(signal) = signals.forever().next() else {
                return;
            };
            INTERRUPTED.store(true, Ordering::SeqCst);
            eprintln!("\nStopping: ending the servers, unmounting the volume, removing its files.");
            private_server::process::end_all(END_TIMEOUT);
            clean();
            eprintln!("Nothing is left running or mounted.");
            std::process::exit(128 + signal);
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Never returns after a signal: the interrupt thread ends the process.
pub fn park_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Registers a mount point for cleanup after a signal.
pub fn will_mount(mountpoint: &Path) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(|e| e.into_inner());
    left.mounts.push(mountpoint.to_owned());
}

/// Registers a directory for removal after a signal.
pub fn will_fill(folder: &Path) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(|e| e.into_inner());
    left.folders.push(folder.to_owned());
}

/// Unregisters a directory: it is complete and stays.
pub fn keep(folder: &Path) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(|e| e.into_inner());
    left.folders.retain(|one| one != folder);
}

fn clean() {
    let left = LEFT_BEHIND.lock().unwrap_or_else(|e| e.into_inner());
    for mountpoint in &left.mounts {
        unmount_if_mounted(mountpoint);
    }
    for folder in &left.folders {
        // The main thread may still be writing a file.
        for _ in 0..3 {
            if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
                break;
            }
        }
    }
}

/// Unmounts a volume if its process did not, or if a killed run left it.
pub fn unmount_if_mounted(mountpoint: &Path) {
    for _ in 0..5 {
        if !is_mounted(mountpoint) {
            return;
        }
        for program in ["fusermount3", "umount"] {
            let mut command = Command::new(program);
            match program {
                "fusermount3" => command.args(["-u", "-z"]),
                _ => command.arg("-l"),
            };
            let done = command
                .arg(mountpoint)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if done.is_ok_and(|status| status.success()) {
                break;
            }
        }
    }
}

/// Whether a file system is mounted exactly there.
pub fn is_mounted(mountpoint: &Path) -> bool {
    let Ok(absolute) = std::path::absolute(mountpoint) else {
        return false;
    };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        line.split(' ')
            .nth(1)
            .is_some_and(|place| Path::new(&unescaped(place)) == absolute)
    })
}

/// Decodes the kernel's octal escapes of blanks and other characters.
fn unescaped(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let code = (bytes[i] == b'\\')
            .then(|| text.get(i + 1..i + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_from_folders() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
        assert_eq!(unescaped(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescaped(r"/end\04"), r"/end\04");
    }
}
