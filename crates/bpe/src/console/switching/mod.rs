//! The switch: what it would change, and doing it.
//!
//! Where the plugin is not installed, "on" is `bpe enable`; and "off" with `uninstall` is `bpe disable`. Otherwise the
//! switch sets global variables ([`set`]), which takes effect at once, and lasts until the server's next start.

use std::cell::Cell;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Console;
use super::error::Refusal;
use super::events::Level;
use super::tasks::{Task, Work};
use super::watched::Watched;
use crate::connection::{Address, plain};
use crate::digest::{Digest, Part};
use crate::enable::{self, Change, Places};
use crate::failure::{Exit, Failure};
use crate::journal::Reopen;
use crate::server::Server;
use crate::told::Told;
use crate::{disable, size};

pub mod set;
pub mod settings;

/// How long the first byte of a server is waited for.
const GREETING: Duration = Duration::from_secs(3);

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

struct Plan {
    preview: Preview,
    way: Way,
    digest: Digest,
}

impl Plan {
    fn make(server: &mut Server, request: &Request, places: &Places) -> Result<Self, Failure> {
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

    fn carry_out(
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
    fn leaves_something(&self) -> bool {
        matches!(self.way, Way::Enable(_) | Way::Disable(_))
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
        Err(failure) if failure.exit == Exit::Connect || server.lost().is_some() => {
            Err(without_answer(failure).into())
        }
        Err(failure) => Ok(refused(&failure)),
    }
}

fn refused(failure: &Failure) -> Preview {
    Preview {
        refused: Some(as_on_a_form(&failure.to_string())),
        ..Preview::default()
    }
}

fn without_answer(mut failure: Failure) -> Failure {
    failure.exit = Exit::Connect;
    failure
}

/// Sees that what would be done is what was shown.
///
/// # Errors
/// It is not, or cannot be done any more; with the plan as it is now.
fn tied(plan: Result<Plan, Failure>, shown: Option<&str>) -> Result<Plan, Refusal> {
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
        "what would be done is no longer what was shown: the server, or what it takes to change it, has been changed \
         meanwhile; nothing was done",
    )
    .advise("look at the plan as it is now, and confirm that")
    .with(serde_json::to_value(changed).unwrap_or_default()))
}

/// A message of the command in a page's words: there a field is no option.
fn as_on_a_form(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        said.push_str(before);
        // Whole words alone: `--state-dir` and the like are options of the console, too.
        let begins = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        let field = ["--path", "--size"].into_iter().find(|name| {
            begins
                && option.strip_prefix(name).is_some_and(|after| {
                    !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_')
                })
        });
        let length = field.map_or(2, str::len);
        said.push_str(&option[if field.is_some() { 2 } else { 0 }..length]);
        rest = &option[length..];
    }
    said.push_str(rest);
    said
}

/// The same for several.
fn on_a_form(texts: Vec<String>) -> Vec<String> {
    texts.iter().map(|text| as_on_a_form(text)).collect()
}

/// The same for all of a failure.
fn failure_on_a_form(mut failure: Failure) -> Failure {
    failure.what = as_on_a_form(&failure.what);
    failure.advice = failure.advice.map(|advice| as_on_a_form(&advice));
    failure
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
    let mut server = watched.open()?;
    let plan = Plan::make(&mut server, request, &console.places).map_err(|failure| {
        if server.lost().is_some() {
            without_answer(failure)
        } else {
            failure
        }
    });
    let plan = tied(plan, request.digest.as_deref())?;
    watched.wait_for_changes(&mut server)?;
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
            let remains = plan.leaves_something().then_some(places);
            let is_lost = Cell::new(false);
            let reopen = || {
                is_lost.set(true);
                watched.open_to_change()
            };
            let result = plan.carry_out(&mut server, &mut work, &reopen);
            is_lost.set(is_lost.get() || server.lost().is_some());
            drop(server);
            let result = result.map_err(|failure| {
                // What it was asked for last may still take effect.
                if let Some(places) = remains.as_ref().filter(|_| is_lost.get()) {
                    watched.look_for_remains(places.clone());
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
    let applied = settings::apply(&mut server, wanted, &|| watched.open_to_change());
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

/// Says in what state a failure has left the server, and whether it is gone. `remains`: where to look for what remains of
/// the change, if it was more than setting variables.
fn after_failure(
    watched: &Watched,
    remains: Option<Places>,
    mut failure: Failure,
) -> (Failure, bool) {
    match watched.open() {
        Err(no_answer) => {
            let then = if remains.is_some() {
                "; when it answers, the event log says what remains of this change and how to undo it"
            } else {
                ""
            };
            if let Some(places) = remains {
                watched.look_for_remains(places);
            }
            let is_gone = is_gone(&watched.target().address);
            if is_gone {
                failure.what.push_str("\n  The server is gone.");
                failure.advice = Some(format!(
                    "start it again: what was only set is gone with it{then}"
                ));
            } else {
                failure.what.push_str(&format!(
                    "\n  The server does not answer at the moment: {}",
                    no_answer.what
                ));
                failure.advice = Some(format!(
                    "see whether it is busy or still starting, or the connection to it is cut{then}"
                ));
            }
            (failure, is_gone)
        }
        Ok(mut server) => {
            let state = server.status("bpe\\_state").unwrap_or_default();
            let state = state
                .get("bpe_state")
                .map_or("not installed", String::as_str);
            failure
                .what
                .push_str(&format!("\n  The extension is {state} now."));
            (failure, false)
        }
    }
}

/// Whether nobody listens there, or hangs up at once: no server, and not one that is slow.
fn is_gone(address: &Address) -> bool {
    let greets = |mut stream: Box<dyn Read>| stream.read(&mut [0]);
    let greeting = match address {
        Address::Socket(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(GREETING))?;
            greets(Box::new(stream))
        }),
        Address::Tcp { host, port } => {
            TcpStream::connect((host.as_str(), *port)).and_then(|stream| {
                stream.set_read_timeout(Some(GREETING))?;
                greets(Box::new(stream))
            })
        }
    };
    match greeting {
        Ok(bytes) => bytes == 0,
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotFound
        ),
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
        // Gone again: it is looked for when it is back.
        Err(_) if server.value("SELECT 1").is_err() => watched.look_for_remains(places.clone()),
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
    fn a_slow_server_is_not_gone() {
        use std::net::TcpListener;
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Address::Socket(path.clone());
        assert!(is_gone(&socket), "no socket");
        let listener = UnixListener::bind(&path).unwrap();
        let slow = std::thread::spawn({
            let socket = socket.clone();
            move || is_gone(&socket)
        });
        let (silent, _) = listener.accept().unwrap();
        assert!(!slow.join().unwrap(), "nothing said for a while");
        drop((silent, listener));
        assert!(is_gone(&socket), "refused");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = Address::Tcp {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
        };
        let hanging_up = std::thread::spawn(move || drop(listener.accept()));
        assert!(is_gone(&tcp), "hung up");
        hanging_up.join().unwrap();
    }

    #[test]
    fn messages_name_fields_and_no_options() {
        for (said, shown) in [
            ("--path: it is empty", "path: it is empty"),
            ("--path /mnt: is no folder", "path /mnt: is no folder"),
            ("give a --size of at most 5", "give a size of at most 5"),
            (
                "with the same --path and --size",
                "with the same path and size",
            ),
            ("(--size), --path", "(size), path"),
            ("no more --size", "no more size"),
            // Neither an option of the form, nor an option at all.
            (
                "another folder with --state-dir",
                "another folder with --state-dir",
            ),
            ("--path-of --sizes", "--path-of --sizes"),
            ("/mnt/a--path --", "/mnt/a--path --"),
            ("---size", "---size"),
        ] {
            assert_eq!(as_on_a_form(said), shown, "{said}");
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
