//! Preparation of a process of the model.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::calls;

/// Sets up a context for asynchronous requests.
///
/// # Errors
/// The kernel cannot create one.
pub fn set_up_context() -> anyhow::Result<usize> {
    let mut context = 0usize;
    // SAFETY: the kernel fills the number in.
    let result = unsafe { calls::io_setup(256, &raw mut context) };
    ensure!(
        result == 0,
        "io_setup: {}",
        std::io::Error::from_raw_os_error(-result)
    );
    Ok(context)
}

/// Redirects the plugin's lines for the server's error log to a file.
///
/// # Errors
/// The file cannot be created.
pub fn redirect_errors(path: &Path) -> anyhow::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::create(path)?;
    // SAFETY: our own descriptors.
    let redirected = unsafe { libc::dup2(file.as_raw_fd(), 2) };
    ensure!(redirected == 2, "the error log cannot be redirected");
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}\n{}", std::backtrace::Backtrace::force_capture())
    }));
    Ok(())
}

/// Restarts the program without address randomization, unless it already runs so. Requests are found by their addresses, which
/// depend on the alignment of earlier allocations. Where the kernel or a container forbids this, an exact run repeats only
/// mostly.
///
/// # Errors
/// The program cannot be restarted.
pub fn stay_at_fixed_addresses() -> anyhow::Result<()> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: plain arguments.
    let now = unsafe { libc::personality(ASK) };
    if now < 0 || now & libc::ADDR_NO_RANDOMIZE != 0 {
        return Ok(());
    }
    // SAFETY: the same.
    let refused =
        unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } < 0;
    if refused {
        return Ok(());
    }
    let error = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).context("the program cannot be started anew")
}
