//! The switch of a server: shows the plan and executes it.
//!
//! If the plugin is not installed, "on" is `bpe enable`. "Off" with `uninstall` is `bpe disable`. Otherwise the switch
//! sets global variables ([`crate::change::switch`]), which takes effect at once and lasts until the server restarts.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::Refusal;
use super::events::Level;
use super::state::Console;
use super::task::Task;
use super::tasks::RunningTask;
use super::watched::Watched;
use crate::connect::server::Server;
use crate::support::failure::Failure;

mod failure_report;
mod messages;
mod plan;
pub mod settings;
pub mod tables;
mod values;

use failure_report::after_failure;
use messages::failure_on_a_form;
use plan::tied;

pub use failure_report::note_remains;
pub use plan::{Action, Preview, Request, preview};

/// Starts the change in another thread than the one that answers requests.
///
/// # Errors
/// Another change of the server is running, or the change is refused before it begins.
pub fn begin(
    console: &Arc<Console>,
    watched: &Arc<Watched>,
    request: &Request,
) -> Result<Task, Refusal> {
    let changing = watched.begin_change().ok_or_else(being_changed)?;
    let mut server = watched.open()?;
    let plan = plan::make(&mut server, request, &console.locations);
    let plan = plan.map_err(|failure| server.without_answer(failure));
    let plan = tied(plan, request.digest.as_deref())?;
    watched.wait_for_changes(&mut server);
    let title = request.action.title(request.uninstall);
    let mut work = RunningTask::begin(
        &console.tasks,
        watched,
        format!("{title}: {}", watched.name),
    );
    let task = work.task().clone();
    let (watched, locations) = (Arc::clone(watched), console.locations.clone());
    std::thread::Builder::new()
        .name("switch".into())
        .spawn(move || {
            let remains = plan.leaves_something().then_some(locations);
            let is_lost = Cell::new(false);
            let reopen = || {
                is_lost.set(true);
                watched.open_to_change()
            };
            let result = plan.carry_out(&mut server, &mut work, &reopen);
            is_lost.set(is_lost.get() || server.lost().is_some());
            drop(server);
            let result = result.map_err(|failure| {
                // The last statement may still take effect on the server.
                if let Some(locations) = remains.as_ref().filter(|_| is_lost.get()) {
                    watched.look_for_remains(locations.clone());
                }
                let sets_only = remains.is_none();
                let (failure, is_gone) =
                    after_failure(&watched, remains, failure_on_a_form(failure));
                if is_gone && sets_only {
                    work.all_undone();
                }
                failure
            });
            match &result {
                Ok(()) => watched.note(Level::Info, format!("{title}: done")),
                Err(failure) => {
                    watched.note(Level::Error, format!("{title} failed: {}", failure.what))
                }
            }
            watched.forget_details();
            // Release the right first: a page that sees the end may start the next change at once.
            drop(changing);
            work.end(result);
        })
        .map_err(|error| Refusal::from(Failure::step(format!("cannot start a thread: {error}"))))?;
    Ok(task)
}

/// Sets variables of the extension.
///
/// # Errors
/// Another change of the server is running, or the server's own error.
pub fn change_settings(
    watched: &Arc<Watched>,
    wanted: &Map<String, Value>,
) -> Result<settings::Applied, Refusal> {
    let names: Vec<_> = wanted.keys().map(String::as_str).collect();
    let note = format!("settings changed: {}", names.join(", "));
    set(watched, |_| Ok((wanted.clone(), note)))
}

/// Sets the rules for one table.
///
/// # Errors
/// As [`change_settings`].
pub fn change_table(
    watched: &Arc<Watched>,
    request: &tables::Request,
) -> Result<settings::Applied, Refusal> {
    set(watched, |server| {
        let wanted = tables::wanted(server, request)?;
        let rules: String = wanted.values().filter_map(Value::as_str).collect();
        let rules = if rules.is_empty() { "none" } else { &rules };
        let note = format!("rules for tables: {rules}");
        Ok((wanted, note))
    })
}

/// `wanted` returns the variables, and the event of their change.
fn set(
    watched: &Arc<Watched>,
    wanted: impl FnOnce(&mut Server) -> Result<(Map<String, Value>, String), Failure>,
) -> Result<settings::Applied, Refusal> {
    let _changing = watched.begin_change().ok_or_else(being_changed)?;
    let mut server = watched.open_to_change()?;
    let (wanted, note) = wanted(&mut server)?;
    let applied = settings::apply(&mut server, &wanted, &|| watched.open_to_change());
    watched.forget_details();
    let applied = applied?;
    watched.note(Level::Info, note);
    Ok(applied)
}

fn being_changed() -> Refusal {
    Refusal::conflict("this server is already being changed").advise("wait until that is done")
}
