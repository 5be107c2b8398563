//! Request of a page, the preview it shows, and the plan to execute.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages::{as_on_a_form, failure_on_a_form, on_a_form};
use super::values::{bytes, checked};
use crate::change::digest::Topic;
use crate::change::enable::{self, DesiredOptions, Locations};
use crate::change::{Kind, Plan, Row, disable, switch};
use crate::connect::plain;
use crate::connect::server::Server;
use crate::console::error::Refusal;
use crate::console::watched::Watched;
use crate::support::failure::{Exit, Failure};
use crate::support::size::CacheSize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    On,
    Off,
}

impl Action {
    /// The title of a task. `uninstall` as in [`Request`].
    pub fn title(self, uninstall: bool) -> &'static str {
        match (self, uninstall) {
            (Self::On, _) => "Switching on",
            (Self::Off, false) => "Switching off",
            (Self::Off, true) => "Uninstalling",
        }
    }
}

/// Request of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub action: Action,
    #[serde(default)]
    pub path: Option<String>,
    /// Bytes, or text such as `100G`.
    #[serde(default)]
    pub size: Option<Value>,
    /// With "off": undo everything that `bpe enable` did.
    #[serde(default)]
    pub uninstall: bool,
    /// Digest of the confirmed plan, which the executed plan must match. Without it, the plan is executed unseen.
    #[serde(default)]
    pub digest: Option<String>,
}

/// What a page is shown before it is done.
#[derive(Debug, Default, Serialize)]
pub struct Preview {
    pub changes: Vec<Row>,
    pub warnings: Vec<String>,
    pub refused: Option<String>,
    /// To be sent with the confirmation; none where it is refused.
    pub digest: Option<String>,
}

/// A plan that is another one than was shown.
#[derive(Debug, Serialize)]
pub struct Changed {
    pub plan: Preview,
    pub differs: Vec<Topic>,
}

/// Makes the plan without changing anything.
///
/// # Errors
/// Why the change is impossible, or the server does not answer.
pub fn make(
    server: &mut Server,
    request: &Request,
    locations: &Locations,
) -> Result<Plan, Failure> {
    let path = request.path.as_deref().map(checked).transpose()?;
    let size = request.size.as_ref().map(bytes).transpose()?;
    let state = server
        .plugin_state()
        .map_err(|error| Failure::new(Exit::Connect, plain(&error)))?;
    // In every other state, `enable` reports the right action.
    let installed = state.as_deref() == Some("ACTIVE");
    let mut plan = match (request.action, installed) {
        (Action::On, false) => {
            let missing = |what: &str| {
                Failure::usage(format!("the {what} is missing")).advise(
                    "name a folder on a fast local disk, and how much of it the cache may take",
                )
            };
            let path = path.ok_or_else(|| missing("path"))?;
            let size = size.ok_or_else(|| missing("size"))?;
            let request = enable::Request {
                path: Some(path.to_owned()),
                size: Some(CacheSize::Bytes(size)),
                ..enable::Request::default()
            };
            enable::plan(server, &DesiredOptions::of(&request)?, locations)?
        }
        (Action::Off, _) if request.uninstall => disable::plan(server, locations, false)?,
        (Action::Off, false) => {
            let mut plan = Plan::new(Kind::Set, String::new());
            plan.notes.push(
                "the extension is not on this server: there is nothing to switch off".to_owned(),
            );
            plan
        }
        (action, true) => switch::plan(server, action == Action::On, path, size, locations)?,
    };
    let asked = (request.action, &request.path, size, request.uninstall);
    plan.digest.add(Topic::Request, &asked);
    plan.add_text_to_digest();
    plan.notes = on_a_form(std::mem::take(&mut plan.notes));
    Ok(plan)
}

impl Preview {
    fn of(plan: &Plan) -> Self {
        Self {
            changes: plan.rows().cloned().collect(),
            warnings: plan.notes.clone(),
            refused: None,
            digest: Some(plan.digest.text()),
        }
    }
}

/// The plan as a page shows it. Contains refusals, because they appear on the same form.
///
/// # Errors
/// The server does not answer.
pub fn preview(
    watched: &Watched,
    request: &Request,
    locations: &Locations,
) -> Result<Preview, Refusal> {
    let mut server = watched.open()?;
    let plan = make(&mut server, request, locations);
    match plan.map_err(|failure| server.without_answer(failure)) {
        Ok(plan) => Ok(Preview::of(&plan)),
        Err(failure) if failure.exit == Exit::Connect => Err(failure.into()),
        Err(failure) => Ok(refused(&failure)),
    }
}

fn refused(failure: &Failure) -> Preview {
    Preview {
        refused: Some(as_on_a_form(&failure.to_string())),
        ..Preview::default()
    }
}

/// Checks that the plan still matches the shown one.
///
/// # Errors
/// It differs, or is no longer possible; contains the current plan.
pub fn tied(plan: Result<Plan, Failure>, shown: Option<&str>) -> Result<Plan, Refusal> {
    let Some(shown) = shown else {
        return plan.map_err(|failure| failure_on_a_form(failure).into());
    };
    let changed = match plan {
        Ok(plan) => {
            let differs = plan.digest.differing(shown);
            if differs.is_empty() {
                return Ok(plan);
            }
            let plan = Preview::of(&plan);
            Changed { plan, differs }
        }
        Err(failure) if failure.exit == Exit::Connect => return Err(failure.into()),
        Err(failure) => Changed {
            plan: refused(&failure),
            differs: vec![Topic::Plan],
        },
    };
    Err(Refusal::conflict(
        "the plan is no longer the one that was shown: the server, or what it takes to change it, has been changed \
         meanwhile; nothing was done",
    )
    .advise("check the plan as it is now, and confirm that")
    .with(serde_json::to_value(changed).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_such_as_the_plugin_takes() {
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
