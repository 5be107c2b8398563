//! What a page asks for, what it is shown, and how that will be done.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::set;
use super::values::{bytes, checked};
use super::words::{as_on_a_form, failure_on_a_form, on_a_form};
use crate::connection::plain;
use crate::console::error::Refusal;
use crate::console::watched::Watched;
use crate::digest::{Digest, Part};
use crate::disable;
use crate::enable::{self, Change, Places};
use crate::failure::{Exit, Failure};
use crate::journal::Reopen;
use crate::server::Server;
use crate::told::Told;

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
    /// That of the plan that was shown and confirmed: what would be done now must be the same. Without it, it is done
    /// unseen.
    #[serde(default)]
    pub digest: Option<String>,
}

/// What a page is shown before it is done.
#[derive(Debug, Default, Serialize)]
pub struct Preview {
    pub changes: Vec<Change>,
    pub warnings: Vec<String>,
    pub refused: Option<String>,
    /// To be sent with the confirmation; none where it is refused.
    pub digest: Option<String>,
}

/// A plan that is another one than was shown.
#[derive(Debug, Serialize)]
pub struct Changed {
    pub plan: Preview,
    pub differs: Vec<Part>,
}

/// How it will be done.
enum Way {
    Enable(Box<enable::Plan>),
    Disable(Box<disable::Undo>),
    Set(Box<set::Plan>),
    Nothing,
}

pub struct Plan {
    preview: Preview,
    way: Way,
    digest: Digest,
}

impl Plan {
    /// Looks at the server, and changes nothing.
    ///
    /// # Errors
    /// What cannot be done, or that the server does not answer.
    pub fn make(server: &mut Server, request: &Request, places: &Places) -> Result<Self, Failure> {
        let (preview, way) = Self::work_out(server, request, places)?;
        let mut digest = Digest::default();
        let size = request.size.as_ref().map(bytes).transpose()?;
        let asked = (request.action, &request.path, size, request.uninstall);
        digest.add(Part::Request, &asked);
        digest.add(Part::Plan, &(&preview.changes, &preview.warnings));
        match &way {
            Way::Enable(plan) => plan.seen(&mut |part, what| digest.add(part, &what)),
            Way::Disable(undo) => undo.seen(&mut |part, what| digest.add(part, &what)),
            Way::Set(plan) => plan.seen(&mut digest),
            Way::Nothing => {}
        }
        let preview = Preview {
            digest: Some(digest.text()),
            ..preview
        };
        Ok(Self {
            preview,
            way,
            digest,
        })
    }

    /// What is said, and how it will be done.
    fn work_out(
        server: &mut Server,
        request: &Request,
        places: &Places,
    ) -> Result<(Preview, Way), Failure> {
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
                let preview = Preview {
                    changes: plan.as_table(),
                    warnings: on_a_form(plan.warnings()),
                    ..Preview::default()
                };
                Ok((preview, Way::Enable(Box::new(plan))))
            }
            (Action::Off, _) if request.uninstall => {
                let undo = disable::Undo::plan(server, places)?;
                if undo.is_nothing() {
                    return Ok((Preview::default(), Way::Nothing));
                }
                let lines = undo.describe();
                let changes = lines
                    .iter()
                    .map(|line| Change::new(line, "", "", "as it was before `bpe enable`"));
                let preview = Preview {
                    changes: changes.collect(),
                    ..Preview::default()
                };
                Ok((preview, Way::Disable(Box::new(undo))))
            }
            (Action::Off, false) => {
                let preview = Preview {
                    warnings: vec![
                        "the extension is not on this server: there is nothing to switch off"
                            .to_owned(),
                    ],
                    ..Preview::default()
                };
                Ok((preview, Way::Nothing))
            }
            (action, true) => {
                let plan = set::Plan::make(server, action == Action::On, path, size, places)?;
                let preview = Preview {
                    changes: plan.as_table(),
                    warnings: on_a_form(plan.warnings.clone()),
                    ..Preview::default()
                };
                Ok((preview, Way::Set(Box::new(plan))))
            }
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// Why not, and what was put back.
    pub fn carry_out(
        self,
        server: &mut Server,
        told: &mut dyn Told,
        reopen: Reopen<'_>,
    ) -> Result<(), Failure> {
        match self.way {
            Way::Enable(plan) => enable::apply(server, *plan, told, reopen),
            Way::Disable(undo) => {
                told.steps(&["undo what `bpe enable` did"]);
                told.begin(0);
                undo.apply(server, told)
            }
            Way::Set(plan) => plan.apply_or_reopen(server, told, reopen),
            Way::Nothing => Ok(()),
        }
    }

    /// Whether more than variables is changed, of which something remains when the server ends meanwhile.
    pub fn leaves_something(&self) -> bool {
        matches!(self.way, Way::Enable(_) | Way::Disable(_))
    }
}

/// What would be done. Refusals are part of it, as they belong on the same form.
///
/// # Errors
/// When the server cannot be asked.
pub fn preview(watched: &Watched, request: &Request, places: &Places) -> Result<Preview, Refusal> {
    let mut server = watched.open()?;
    let plan = Plan::make(&mut server, request, places);
    match plan.map_err(|failure| server.without_answer(failure)) {
        Ok(plan) => Ok(plan.preview),
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

/// Sees that what would be done is what was shown.
///
/// # Errors
/// It is not, or cannot be done any more; with the plan as it is now.
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
            let plan = plan.preview;
            Changed { plan, differs }
        }
        Err(failure) if failure.exit == Exit::Connect => return Err(failure.into()),
        Err(failure) => Changed {
            plan: refused(&failure),
            differs: vec![Part::Plan],
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
