//! What a process of the model needs before it begins.

use std::path::Path;

use anyhow::ensure;

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
