//! Child processes that cannot outlive this process.
//!
//! A child gets its own process group and a parent-death signal. A Ctrl-C at the terminal reaches only this process,
//! which then stops its children in order. Even after SIGKILL of this process no child remains.
//!
//! Linux sends the parent-death signal when the *thread* that forked ends, not the process. Test threads end early, so
//! one thread that lives as long as the process forks every child.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

type Job = (Command, Sender<io::Result<Child>>);

/// A child, as registered for [`end_all`]. The descriptor identifies the process even after its id is reused.
struct Known {
    pidfd: OwnedFd,
    death_signal: libc::c_int,
}

/// All children that may still run; `None` once [`end_all`] has begun. The only lock in this module.
static CHILDREN: Mutex<Option<Vec<Known>>> = Mutex::new(Some(Vec::new()));

/// Spawns `command` in its own process group. The kernel sends it `death_signal` (for example `libc::SIGKILL`) when
/// this process dies for any reason.
///
/// # Errors
/// Those of [`Command::spawn`].
pub fn spawn(mut command: Command, death_signal: libc::c_int) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, reply) in jobs {
                    // The caller may be gone; then the running child is dropped, and dies with this process.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        sender
    });
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, death_signal) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the signal was armed.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // Otherwise the child would inherit blocked signals across exec.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut children = CHILDREN.lock().unwrap_or_else(|e| e.into_inner());
    let Some(known) = children.as_mut() else {
        return Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "this process is stopping",
        ));
    };
    let (reply, answer) = channel();
    spawner
        .send((command, reply))
        .map_err(|_| io::Error::other("the spawner thread ended"))?;
    let child = answer
        .recv()
        .map_err(|_| io::Error::other("the spawner thread ended"))??;
    known.retain(|one| !has_ended(&one.pidfd, Duration::ZERO));
    let pid = Pid::from_child(&child);
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
        known.push(Known {
            pidfd,
            death_signal,
        });
    }
    Ok(child)
}

/// Ends every child of [`spawn`] that still runs, on behalf of a signal handler's thread. First it sends SIGKILL to the
/// children with that death signal, then the death signal to the others. So a file system ends after the server that
/// uses it. From here on `spawn` fails. Waits at most `limit` for each kind. Does not reap, because the owners of the
/// children may be doing so.
pub fn end_all(limit: Duration) {
    let known = CHILDREN
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .take()
        .unwrap_or_default();
    let (killed, gentle): (Vec<Known>, Vec<Known>) = known
        .into_iter()
        .partition(|one| one.death_signal == libc::SIGKILL);
    for kind in [killed, gentle] {
        for one in &kind {
            if let Some(signal) = Signal::from_named_raw(one.death_signal) {
                let _ = pidfd_send_signal(&one.pidfd, signal);
            }
        }
        let end = Instant::now() + limit;
        for one in &kind {
            has_ended(&one.pidfd, end.saturating_duration_since(Instant::now()));
        }
    }
}

/// Whether the process ends within `limit`. It may be a zombie then.
fn has_ended(pidfd: &OwnedFd, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Polling interval of a wait for a child.
const LOOK: Duration = Duration::from_millis(20);

/// Whether `child` has ended, without reaping it, so that its process id and group id stay reserved. Needs no
/// descriptor, which older kernels and some sandboxes do not provide.
pub fn has_exited(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    loop {
        match waitid(WaitId::Pid(Pid::from_child(child)), options) {
            Err(Errno::INTR) => {}
            Ok(status) => return status.is_some(),
            // No child remains to wait for.
            Err(_) => return true,
        }
    }
}

/// Waits until `child` ends, at most `limit`. Returns whether it has ended.
pub fn wait_at_most(child: &mut Child, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) => {}
            // An error means that no child remains to wait for.
            Ok(Some(_)) | Err(_) => return true,
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Sends `signal` to `child`, which must be unreaped.
pub fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child is ours and unreaped, so its pid cannot belong to another process.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Sends `gentle` to `child`, kills it if it still runs after `limit`, then reaps it.
pub fn end(child: &mut Child, gentle: libc::c_int, limit: Duration) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    signal(child, gentle);
    if !wait_at_most(child, limit) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Waits at most `limit` for the end of `child`, which must be unreaped. Then kills all remaining processes of its
/// group, itself included, and reaps it.
///
/// # Errors
/// Those of [`Child::wait`]; the group was killed nevertheless.
pub fn end_group(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    let end = Instant::now() + limit;
    while !has_exited(child) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(LOOK));
    }
    // SAFETY: the child is ours and unreaped, so its pid cannot be the group of other processes.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    // It may have left its group.
    let _ = child.kill();
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("30");
            spawn(command, libc::SIGKILL).unwrap()
        })
        .join()
        .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(child.try_wait().unwrap().is_none(), "the child died");
        end(&mut child, libc::SIGTERM, Duration::from_secs(5));
        assert!(matches!(child.try_wait(), Ok(Some(_))));
    }

    #[test]
    fn end_kills_what_ignores_the_gentle_signal() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; while :; do sleep 0.1; done"]);
        let mut child = spawn(command, libc::SIGKILL).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        end(&mut child, libc::SIGTERM, Duration::from_millis(300));
        assert!(matches!(child.try_wait(), Ok(Some(_))));
    }

    #[test]
    fn a_group_ends_as_a_whole() {
        let run = |script: &str, limit| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).arg(file.path());
            let mut child = spawn(command, libc::SIGKILL).unwrap();
            let status = end_group(&mut child, limit).unwrap();
            (status, std::fs::read_to_string(file.path()).unwrap())
        };
        let long = Duration::from_secs(30);
        let (status, pid) = run("sleep 30 & echo $! > \"$1\"; exit 3", long);
        assert_eq!(status.code(), Some(3));
        // Gone, or a zombie that is not reaped yet, a moment after the signal.
        let runs = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            state.is_ok_and(|text| !text.contains(") Z "))
        };
        let end = Instant::now() + Duration::from_secs(20);
        while runs() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!runs());
        let (status, _) = run("sleep 30", Duration::ZERO);
        assert!(!status.success());
    }

    #[test]
    fn that_a_child_has_exited_is_seen_without_reaping_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; exit 3"]);
        command.stdin(std::process::Stdio::piped());
        let mut child = spawn(command, libc::SIGKILL).unwrap();
        assert!(!has_exited(&child));
        drop(child.stdin.take());
        let end = Instant::now() + Duration::from_secs(20);
        while !has_exited(&child) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        assert!(has_exited(&child) && has_exited(&child));
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn a_child_that_has_left_its_group_ends_too() {
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("30");
            command
        };
        let mut other = spawn(sleep(), libc::SIGKILL).unwrap();
        let group = other.id() as libc::pid_t;
        let mut command = sleep();
        // SAFETY: the closure makes a single system call.
        unsafe {
            command.pre_exec(move || match libc::setpgid(0, group) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let mut child = spawn(command, libc::SIGKILL).unwrap();
        assert!(!end_group(&mut child, Duration::ZERO).unwrap().success());
        end(&mut other, libc::SIGTERM, Duration::from_secs(5));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let command = Command::new("/nonexistent/program");
        assert_eq!(
            spawn(command, libc::SIGKILL).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
