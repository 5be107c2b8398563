//! The switch: what it would change, and doing it.
//!
//! Where the plugin is not installed, "on" is `bpe enable`; and "off" with `uninstall` is `bpe disable`. Otherwise the
//! switch sets global variables ([`set`]), which takes effect at once, and lasts until the server's next start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Console;
use super::error::Refusal;
use super::events::Level;
use super::tasks::{Task, Work};
use super::watched::Watched;
use crate::connection::plain;
use crate::enable::{self, Change, Places};
use crate::failure::{Exit, Failure};
use crate::server::Server;
use crate::told::Told;
use crate::{disable, size};

pub mod set;
pub mod settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    On,
    Off,
}

/// What a page asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub action: Action,
    #[serde(default)]
    pub path: Option<String>,
    /// Bytes, or text such as `100G`.
    #[serde(default)]
    pub size: Option<Value>,
    /// With "off": undo all that `bpe enable` did.
    #[serde(default)]
    pub uninstall: bool,
}

/// What a page is shown before it is done.
#[derive(Debug, Default, Serialize)]
pub struct Preview {
    pub changes: Vec<Change>,
    pub warnings: Vec<String>,
    pub refused: Option<String>,
}

/// How it will be done.
enum Way {
    Enable(Box<enable::Plan>),
    Disable(Box<disable::Undo>),
    Set(set::Plan),
    Nothing,
}

struct Plan {
    preview: Preview,
    way: Way,
}

impl Plan {
    fn make(server: &mut Server, request: &Request, places: &Places) -> Result<Self, Failure> {
        let path = request.path.as_deref().map(checked).transpose()?;
        let size = request.size.as_ref().map(bytes).transpose()?;
        let state = server
            .plugin_state()
            .map_err(|error| Failure::new(Exit::Connect, plain(&error)))?;
        // In any other state than this one `enable` says what to do.
        let installed = state.as_deref() == Some("ACTIVE");
        match (request.action, installed) {
            (Action::On, false) => {
                let missing = |what: &str| {
                    Failure::usage(format!("the {what} is missing")).advise(
                        "name a folder on a fast local disk, and how much of it the cache may take",
                    )
                };
                let path = path.ok_or_else(|| missing("path"))?;
                let size = size.ok_or_else(|| missing("size"))?;
                let plan = enable::plan(server, path, size, places)?;
                Ok(Self {
                    preview: Preview {
                        changes: plan.as_table(),
                        warnings: plan.warnings(),
                        refused: None,
                    },
                    way: Way::Enable(Box::new(plan)),
                })
            }
            (Action::Off, _) if request.uninstall => {
                let undo = disable::Undo::plan(server, places)?;
                let lines = undo.describe();
                let changes = lines
                    .iter()
                    .map(|line| Change::new(line, "", "", "as it was before `bpe enable`"));
                Ok(Self {
                    preview: Preview {
                        changes: if undo.is_nothing() {
                            Vec::new()
                        } else {
                            changes.collect()
                        },
                        ..Preview::default()
                    },
                    way: if undo.is_nothing() {
                        Way::Nothing
                    } else {
                        Way::Disable(Box::new(undo))
                    },
                })
            }
            (Action::Off, false) => Ok(Self {
                preview: Preview {
                    warnings: vec![
                        "the extension is not on this server: there is nothing to switch off"
                            .to_owned(),
                    ],
                    ..Preview::default()
                },
                way: Way::Nothing,
            }),
            (action, true) => {
                let plan = set::Plan::make(server, action == Action::On, path, size, places)?;
                Ok(Self {
                    preview: Preview {
                        changes: plan.as_table(),
                        warnings: plan.warnings.clone(),
                        refused: None,
                    },
                    way: Way::Set(plan),
                })
            }
        }
    }

    fn carry_out(self, server: &mut Server, told: &mut dyn Told) -> Result<(), Failure> {
        match self.way {
            Way::Enable(plan) => enable::apply(server, *plan, told),
            Way::Disable(undo) => {
                told.steps(&["undo what `bpe enable` did"]);
                told.begin(0);
                undo.apply(server, told)
            }
            Way::Set(plan) => plan.apply(server, told),
            Way::Nothing => Ok(()),
        }
    }
}

/// What would be done. Refusals are part of it, as they belong on the same form.
///
/// # Errors
/// When the server cannot be asked.
pub fn preview(watched: &Watched, request: &Request, places: &Places) -> Result<Preview, Refusal> {
    let mut server = watched.open()?;
    match Plan::make(&mut server, request, places) {
        Ok(plan) => Ok(plan.preview),
        Err(failure) if failure.exit == Exit::Connect => Err(failure.into()),
        Err(failure) => Ok(Preview {
            refused: Some(as_on_a_form(&failure.to_string())),
            ..Preview::default()
        }),
    }
}

/// A message of the command in a page's words: there a field is no option.
fn as_on_a_form(text: &str) -> String {
    text.replace("--path ", "path ").replace("--size ", "size ")
}

/// Begins to do it, beside the thread that answers requests.
///
/// # Errors
/// When somebody else is changing the server, or it is refused before anything is changed.
pub fn begin(
    console: &Arc<Console>,
    watched: &Arc<Watched>,
    request: &Request,
) -> Result<Task, Refusal> {
    let changing = watched.begin_change().ok_or_else(being_changed)?;
    let mut server = watched.open_to_change()?;
    let plan = Plan::make(&mut server, request, &console.places).map_err(|mut failure| {
        failure.what = as_on_a_form(&failure.what);
        failure.advice = failure.advice.map(|advice| as_on_a_form(&advice));
        failure
    })?;
    let title = match (request.action, request.uninstall) {
        (Action::On, _) => "Switching on",
        (Action::Off, false) => "Switching off",
        (Action::Off, true) => "Uninstalling",
    };
    let mut work = Work::begin(
        &console.tasks,
        watched,
        format!("{title}: {}", watched.name),
    );
    let task = work.task().clone();
    let (watched, places) = (Arc::clone(watched), console.places.clone());
    std::thread::Builder::new()
        .name("switch".into())
        .spawn(move || {
            let result = plan.carry_out(&mut server, &mut work);
            drop(server);
            let result = result.map_err(|failure| after_failure(&watched, &places, failure));
            match &result {
                Ok(()) => watched.note(Level::Info, format!("{title}: done")),
                Err(failure) => {
                    watched.note(Level::Error, format!("{title} failed: {}", failure.what))
                }
            }
            watched.forget_details();
            work.end(result);
            drop(changing);
        })
        .map_err(|error| Refusal::from(Failure::step(format!("cannot start a thread: {error}"))))?;
    Ok(task)
}

/// Sets variables of the extension.
///
/// # Errors
/// When somebody else is changing the server, or in the server's own words.
pub fn change_settings(
    watched: &Arc<Watched>,
    wanted: &Map<String, Value>,
) -> Result<settings::Applied, Refusal> {
    let _changing = watched.begin_change().ok_or_else(being_changed)?;
    let mut server = watched.open_to_change()?;
    let applied = settings::apply(&mut server, wanted);
    watched.forget_details();
    let applied = applied?;
    let names: Vec<_> = wanted.keys().map(String::as_str).collect();
    watched.note(
        Level::Info,
        format!("settings changed: {}", names.join(", ")),
    );
    Ok(applied)
}

fn being_changed() -> Refusal {
    Refusal::conflict("this server is being changed already").advise("wait until that is done")
}

/// Says in what state a failure has left the server.
fn after_failure(watched: &Watched, places: &Places, mut failure: Failure) -> Failure {
    match watched.open() {
        Err(_) => {
            watched.look_for_remains(places.clone());
            failure.what.push_str("\n  The server is gone.");
            failure.advice = Some(
                "start it again: what was only set is gone with it, and when it answers, the event log says what else \
                 remains of this change and how to undo it"
                    .to_owned(),
            );
            failure
        }
        Ok(mut server) => {
            let state = server.status("bpe\\_state").unwrap_or_default();
            let state = state
                .get("bpe_state")
                .map_or("not installed", String::as_str);
            failure
                .what
                .push_str(&format!("\n  The extension is {state} now."));
            failure
        }
    }
}

/// After an interrupted change, when the server is there again: what of it remains.
pub fn note_remains(watched: &Watched, server: &mut Server, places: &Places) {
    match disable::Undo::plan(server, places) {
        Ok(undo) if undo.is_nothing() => {
            watched.note(Level::Info, "nothing remains of the interrupted change".to_owned());
        }
        Ok(undo) => watched.note(
            Level::Warning,
            format!(
                "of the interrupted change something remains; switching on again completes it, uninstalling (or `bpe \
                 disable`) undoes it: {}",
                undo.describe().join("; ")
            ),
        ),
        Err(failure) => watched.note(
            Level::Warning,
            format!("cannot find out what remains of the interrupted change: {}", failure.what),
        ),
    }
}

/// A text that is safe between quotes under every sql_mode.
pub fn checked(text: &str) -> Result<&str, Failure> {
    if text.contains('\\') || text.chars().any(char::is_control) {
        return Err(Failure::usage(
            "a value must not have backslashes or control characters",
        ));
    }
    Ok(text)
}

/// A number of bytes, or text such as `100G`.
pub fn bytes(value: &Value) -> Result<u64, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "`{value}` is not a size: give bytes, or text such as \"100G\""
        ))
    };
    match value {
        Value::Number(number) => number.as_u64().ok_or_else(wrong),
        Value::String(text) => size::parse(text).map_err(Failure::usage),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_numbers_or_text() {
        assert_eq!(bytes(&json!(4096)).unwrap(), 4096);
        assert_eq!(bytes(&json!("1G")).unwrap(), 1 << 30);
        for wrong in [
            json!(-1),
            json!(1.5),
            json!("much"),
            json!(null),
            json!([1]),
        ] {
            assert!(bytes(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_cannot_leave_their_quotes() {
        assert!(checked("/mnt/o'brien:/mnt/東京").is_ok());
        assert!(
            checked("a\\' OR 1").is_err() && checked("a\nb").is_err() && checked("a\0").is_err()
        );
    }

    #[test]
    fn requests_are_understood_or_refused() {
        let parse = |value: Value| serde_json::from_value::<Request>(value);
        let request = parse(json!({"action": "on", "path": "/mnt", "size": "1G"})).unwrap();
        assert_eq!((request.action, request.uninstall), (Action::On, false));
        for wrong in [
            json!({}),
            json!({"action": "maybe"}),
            json!({"action": "on", "pth": "/"}),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
