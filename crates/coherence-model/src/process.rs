//! What a process of the model needs before it begins.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::calls;

/// A context for asynchronous requests.
///
/// # Errors
/// The kernel gives none.
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

/// The lines that the plugin writes to the server's error log go to a file.
///
/// # Errors
/// The file cannot be made.
pub fn redirect_errors(path: &Path) -> anyhow::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::create(path)?;
    // SAFETY: descriptors of our own.
    let redirected = unsafe { libc::dup2(file.as_raw_fd(), 2) };
    ensure!(redirected == 2, "the error log cannot be redirected");
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}\n{}", std::backtrace::Backtrace::force_capture())
    }));
    Ok(())
}

/// From here on the same program runs at the addresses that it always has: requests are found by those of their memory, which hang on the
/// alignment of what was allocated before. Where the kernel or a container forbids that, an exact run is repeated only mostly.
///
/// # Errors
/// The program cannot be started anew.
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
