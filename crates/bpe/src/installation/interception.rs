//! Whether the hooks can intercept a server's calls: predicts the plugin's verdict from outside the process.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use interface::in_use::{aio_contexts, is_io_uring};
use interface::{InUse, Refusal, Verdict};

use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::connect::state::state;
use crate::support::elf::Symbols;
use crate::support::failure::Failure;

/// What a plugin that was loaded on a running server does not do for io_uring.
pub const UNTRACKED: &str =
    "asynchronous reads are neither served nor counted until the server's next start";

/// The verdict on a server.
pub enum Answer {
    /// The hooks see all of its calls.
    Works(Verdict),
    /// The extension is, or would be, passive.
    Refused(Refusal),
    /// The plugin is loaded and reports why it is passive.
    Passive(String),
}

/// Judges a server by its executable and by the I/O interfaces that its process uses. A loaded plugin has judged the server
/// already.
///
/// # Errors
/// A message: the executable cannot be read.
pub fn of(server: &mut Server, process: &Process) -> Result<Answer, String> {
    let symbols = Symbols::of(&process.executable())?;
    let loaded = state(server).unwrap_or_default();
    let in_use = match loaded.0.as_str() {
        "passive" => {
            let everything = InUse::by_variable(true);
            return Ok(match judged(&symbols, everything) {
                Err(refusal) if refusal.to_string() == loaded.1 => Answer::Refused(refusal),
                _ => Answer::Passive(loaded.1),
            });
        }
        "" => in_use(process, native_aio(server)),
        // The extension's bounded reads would look like the server's use of libaio.
        _ => InUse::NOTHING,
    };
    Ok(match judged(&symbols, in_use) {
        Ok(verdict) => Answer::Works(verdict),
        Err(refusal) => Answer::Refused(refusal),
    })
}

fn judged(symbols: &Symbols, in_use: InUse) -> Result<Verdict, Refusal> {
    let verdict = symbols.judge()?;
    verdict.with(in_use)?;
    Ok(verdict)
}

/// Whether InnoDB's variable enables native asynchronous I/O.
pub fn native_aio(server: &mut Server) -> bool {
    let value = server.variable("innodb_use_native_aio").ok().flatten();
    matches!(value.as_deref(), Some("ON" | "1"))
}

/// The interfaces that the process uses. Without the permission to inspect it, InnoDB's variable decides.
fn in_use(process: &Process, native_aio: bool) -> InUse {
    let unknown = if native_aio { None } else { Some(false) };
    InUse {
        libaio: uses_libaio(process).or(unknown),
        io_uring: uses_io_uring(process).or(unknown),
    }
}

fn uses_libaio(process: &Process) -> Option<bool> {
    let maps = fs::read(format!("/proc/{}/maps", process.pid)).ok()?;
    Some(
        aio_contexts(&String::from_utf8_lossy(&maps))
            .next()
            .is_some(),
    )
}

/// Whether the process has an io_uring open; `None` without the permission to inspect it.
pub fn uses_io_uring(process: &Process) -> Option<bool> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.pid)).ok()?;
    Some(entries.flatten().any(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| is_io_uring(target.as_os_str().as_bytes()))
    }))
}

/// The refusal as a failure of a command that changed nothing.
pub fn failure(refusal: &Refusal) -> Failure {
    Failure::refused(format!("{}; nothing was changed", refusal.missing)).advise(refusal.remedy)
}
