//! Offers to write `innodb_use_native_aio=OFF` where the server's native asynchronous I/O cannot be followed.
//!
//! The server reads the option only when it starts, and this command restarts nothing: what can be done is to write it, and to
//! say so. `bpe enable` goes on after the restart; `bpe disable` removes the file, and so takes the option back.

use std::path::Path;
use std::process::ExitCode;

use interface::Refusal;
use interface::untrusted::one_line;

use super::checks::{self, Permanence};
use super::wish::Args;
use crate::failure::{Exit, Failure};
use crate::interception::{self, Answer};
use crate::process::Process;
use crate::record::Place;
use crate::server::Server;
use crate::server_options::ServerOptions;
use crate::terminal::say;
use crate::{snippet, terminal};

const OPTION: &str = "innodb_use_native_aio";
const NEXT: &str = "Restart the server, then run `bpe enable` again.";

/// Offers the option where the server is refused for want of it, and it can be written. `None`: nothing to offer.
///
/// # Errors
/// The option could not be written; nothing was changed.
pub fn offer(server: &mut Server, args: &Args) -> Result<Option<ExitCode>, Failure> {
    let Ok(process) = Process::find(server) else {
        return Ok(None);
    };
    let refusal = match interception::of(server, &process) {
        Ok(Answer::Refused(refusal)) if refusal.is_for_native_aio() => refusal,
        _ => return Ok(None),
    };
    let mut notes = Vec::new();
    let process = Ok(process);
    let permanence = checks::permanence(server, &process, args, &mut notes);
    match (permanence, process) {
        (Permanence::Snippet { path, .. }, Ok(process)) => {
            write(server, args, &process, &path, &refusal).map(Some)
        }
        _ => Ok(None),
    }
}

fn write(
    server: &mut Server,
    args: &Args,
    process: &Process,
    path: &Path,
    refusal: &Refusal,
) -> Result<ExitCode, Failure> {
    say!(
        "{} {} at {}",
        server.flavour,
        server.version,
        server.address
    );
    say!("{}.", refusal.missing);
    say!("{}.", refusal.remedy);
    let there = snippet::there(process, path);
    let shown = one_line(&path.to_string_lossy());
    let Some(text) = snippet::without_native_aio(there.as_deref(), &snippet::of_server(process))
    else {
        say!("{shown} says {OPTION} = OFF already. {NEXT}");
        if let Some(note) = overridden(server, process, path) {
            say!("note: {}", one_line(&note));
        }
        return Ok(Exit::No.into());
    };
    say!("This will change:");
    say!("  - write {OPTION} = OFF into {shown}");
    say!("The server goes on running, and is not restarted. `bpe disable` undoes it.");
    if !args.yes {
        match terminal::confirm("Continue?") {
            Some(true) => {}
            Some(false) => {
                say!("Nothing was changed.");
                return Ok(Exit::No.into());
            }
            None => {
                return Err(Failure::usage(
                    "there is no terminal to ask on: add --yes to proceed without asking",
                ));
            }
        }
    }
    let place = Place::of(server, Some(process), args.places.state_dir.as_deref())?;
    let before = place.read()?;
    let mut record = before.clone().unwrap_or_default();
    if record.server.is_empty() {
        record.server = format!(
            "{} {} at {}",
            server.flavour, server.version, server.address
        );
    }
    record.native_aio_off = true;
    record.snippet = Some(path.to_path_buf());
    place.write(&record).map_err(Failure::step)?;
    if let Err(why) = snippet::write(process, path, &text) {
        let put_back = match before {
            Some(before) => place.write(&before),
            None => place.remove(),
        };
        let what = format!("cannot write {shown}: {why}");
        return Err(Failure::step(match put_back {
            Ok(()) => format!("{what}; nothing was changed"),
            Err(why) => format!("{what}; {why}"),
        }));
    }
    say!("  wrote {shown}");
    if let Some(note) = overridden(server, process, path) {
        say!("note: {}", one_line(&note));
    }
    say!("Not enabled yet. {NEXT}");
    Ok(Exit::No.into())
}

/// What would win over the option at the next start.
fn overridden(server: &Server, process: &Process, path: &Path) -> Option<String> {
    if process.option(OPTION).is_some() {
        return Some(format!(
            "{OPTION} stands on the server's command line and wins at the next start: change it there"
        ));
    }
    let options = ServerOptions::read(process, server.flavour, server.version);
    options.overridden_by(OPTION, path).map(|file| {
        format!(
            "{} sets {OPTION} after {} is read and wins at the next start: change it there",
            file.display(),
            path.display()
        )
    })
}
