//! Offers to write `innodb_use_native_aio=OFF` if the hooks cannot see the server's native asynchronous I/O.
//!
//! The server reads the option only at start, and this command restarts nothing. So it writes the option and asks for a
//! restart. `bpe enable` continues after the restart; `bpe disable` removes the file and thus the option.

use super::checks::{self, Permanence};
use super::options::Locations;
use super::steps;
use crate::change::{Kind, Plan, Row, Step, title};
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::install_state::StateFile;
use crate::installation::interception::{self, Answer};
use crate::installation::server_options::ServerOptions;
use crate::installation::snippet;
use crate::support::failure::Failure;

const OPTION: &str = "innodb_use_native_aio";
const NEXT: &str = "Restart the server, then run `bpe enable` again.";

/// Offers the option if it would make the server acceptable, and if it can be written. `None`: nothing to offer. A plan
/// without steps: the option is already set.
///
/// # Errors
/// The record cannot be read.
pub fn offer(server: &mut Server, locations: &Locations) -> Result<Option<Plan>, Failure> {
    let Ok(process) = Process::find(server) else {
        return Ok(None);
    };
    let refusal = match interception::of(server, &process) {
        Ok(Answer::Refused(refusal)) if refusal.is_for_native_aio() => refusal,
        _ => return Ok(None),
    };
    let process = Ok(process);
    let permanence = checks::permanence(server, &process, locations, &mut Vec::new());
    let (Permanence::Snippet { path, .. }, Ok(process)) = (permanence, process) else {
        return Ok(None);
    };
    let place = StateFile::of(server, Some(&process), locations.state_dir.as_deref())?;
    let name = title(server, Some(&process));
    let record = place.read()?;
    let new_record = record.is_none().then(|| steps::record_row(&place.path()));
    let mut plan = Plan::new(Kind::Install, name.clone()).with_record(place, record);
    plan.nothing = format!("{} says {OPTION} = OFF already. {NEXT}", path.display());
    plan.notes = vec![
        format!("{}.", refusal.missing),
        format!("{}.", refusal.remedy),
    ];
    let options = ServerOptions::read(&process, server.flavour, server.version);
    let overridden = checks::overridden_by_command_line(&process, OPTION);
    plan.notes
        .extend(overridden.or_else(|| checks::overridden_by_file(&options, OPTION, &path)));
    let there = snippet::there(&process, &path);
    let text = snippet::without_native_aio(there.as_deref(), &snippet::of_server(&process));
    let Some(text) = text else {
        return Ok(Some(plan));
    };
    let row = Row::new(
        "option file",
        "",
        path.display().to_string(),
        format!("{OPTION} = OFF from the server's next start on"),
    );
    let rows = new_record.into_iter().chain([row]).collect();
    plan.add(Step::new("write the option file", rows, move |run| {
        run.record(|record| {
            if record.server.is_empty() {
                record.server = name;
            }
            record.native_aio_off = true;
            record.snippet = Some(path.clone());
        })?;
        let undone = "option file put back";
        run.replace(&process, &path, text.as_bytes(), undone, false)?;
        run.tell(format!("wrote {}", path.display()));
        Ok(())
    }));
    plan.at_end(|run| {
        run.say(format!("Not enabled yet. {NEXT}"));
        Ok(())
    });
    Ok(Some(plan))
}
