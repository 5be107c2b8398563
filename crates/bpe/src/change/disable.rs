//! `bpe disable`: switches the extension off and undoes everything `bpe enable` did.
//!
//! Switching off comes first and takes effect at once. A failed step does not stop later ones, so that as much as
//! possible is undone. A second run completes the rest.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use interface::variables::{BYPASS, BYPASS_TIMEOUT, WARM_IO_CAPACITY};

use crate::change::digest::Topic;
use crate::change::enable::{self, Locations};
use crate::change::{Kind, Plan, Row, Run, Step, pool, title, views};
use crate::connect::maintenance::check_rights;
use crate::connect::plain;
use crate::connect::process::Process;
use crate::connect::server::{Flavour, Server};
use crate::installation::install_state::{InstallState, StateFile};
use crate::installation::library::FILE_NAME;
use crate::installation::server_options::{SNIPPET, ServerOptions, is_on};
use crate::installation::{disk, library, persistence, snippet, stale_files};
use crate::support::failure::Failure;
use crate::support::quote::{sql_name, sql_value};

/// Where a stopped server may have left cache files.
#[derive(Default)]
struct CacheLocation {
    folders: Vec<PathBuf>,
    memory: PathBuf,
}

impl CacheLocation {
    fn of(
        server: &Server,
        process: &Process,
        record: Option<&InstallState>,
        variables: &BTreeMap<String, String>,
    ) -> Self {
        let options = ServerOptions::read(process, server.flavour, server.version);
        let value = |name: &str| {
            let known = variables.get(name).map(String::as_str);
            let given = known
                .or(process.option(name))
                .or(options.values(name).last());
            given.unwrap_or_default().to_owned()
        };
        let mut folders = disk::split(&value("bpe_path")).unwrap_or_default();
        folders.extend(record.iter().flat_map(|record| record.folders.clone()));
        folders.sort();
        folders.dedup();
        Self {
            folders,
            memory: persistence::folder(Some(&value("bpe_persist_path"))),
        }
    }

    fn left(&self, process: &Process) -> Vec<PathBuf> {
        stale_files::find(process, &self.folders, &self.memory)
    }
}

/// The plan of `bpe disable` for the server. A plan without steps means that the extension is not installed.
///
/// # Errors
/// The account lacks the privileges to inspect or undo it.
pub fn plan(
    server: &mut Server,
    locations: &Locations,
    keep_library: bool,
) -> Result<Plan, Failure> {
    check_rights(server)?;
    let failed = |error: mysql::Error| Failure::refused(plain(&error));
    let process = Process::find(server).ok().map(Arc::new);
    let known = process.as_deref();
    let place = StateFile::of(server, known, locations.state_dir.as_deref())?;
    let record = place.read()?;
    let loaded = server.plugin_state().map_err(failed)?.is_some();
    let mut has_row = |table: &str, name: &str| {
        let sql = format!("SELECT COUNT(*) FROM mysql.{table} WHERE name = '{name}'");
        let count = server.value(&sql).map_err(failed)?;
        Ok::<_, Failure>(count.is_some_and(|count| count != "0"))
    };
    let plugin_row = has_row("plugin", "bpe")?;
    let function_row = has_row("func", "bpe_report")?;
    let views = views::Present::read(server).map_err(failed)?.ours;
    let all_persisted: BTreeMap<_, _> = match server.flavour {
        Flavour::MySql => enable::persisted(server)?.into_iter().collect(),
        Flavour::MariaDb => BTreeMap::new(),
    };
    let persisted = all_persisted.keys().filter(|name| name.starts_with("bpe_"));
    let persisted: Vec<_> = persisted.cloned().collect();
    let pool_persisted = all_persisted
        .get("innodb_buffer_pool_size")
        .and_then(|size| size.parse().ok());
    let snippet = known.and_then(|process| {
        find_snippet(
            server,
            process,
            record.as_ref(),
            locations.conf_dir.as_deref(),
        )
    });
    let variables = server.variables("bpe\\_%")?;
    let cache = known
        .map(|process| CacheLocation::of(server, process, record.as_ref(), &variables))
        .unwrap_or_default();
    let pool_now = server.number("innodb_buffer_pool_size")?.unwrap_or(0);
    // Cache files of an earlier process. While the plugin is loaded they are in use.
    let left = match known.filter(|_| !loaded) {
        Some(process) => cache.left(process),
        None => Vec::new(),
    };

    let mut plan =
        Plan::new(Kind::Remove, title(server, known)).with_record(place.clone(), record.clone());
    let digest = &mut plan.digest;
    digest.add(Topic::Server, &(&place, known.is_some()));
    digest.add(Topic::Plugin, &((loaded, plugin_row, function_row), &views));
    // Those that `bpe warm` and `bpe compare` set for a time do not count.
    let settings = variables.iter().filter(|(name, _)| {
        let of_a_time = [&BYPASS, &BYPASS_TIMEOUT, &WARM_IO_CAPACITY];
        of_a_time.iter().all(|one| one.name != name.as_str())
    });
    digest.add(Topic::Settings, &(settings.collect::<Vec<_>>(), &persisted));
    digest.add(Topic::Pool, &pool_now);
    digest.add(Topic::Files, &(&snippet, &left));
    digest.add(Topic::Record, &record.clone().map(InstallState::nameless));
    let is_nothing = record.is_none()
        && !(loaded || plugin_row || function_row)
        && views.is_empty()
        && persisted.is_empty()
        && snippet.is_none()
        && left.is_empty();
    if is_nothing {
        return Ok(plan);
    }

    if loaded {
        plan.add(switch_off());
    }
    let prepare = Step::new("prepare the session", Vec::new(), |run| run.maintain());
    plan.add(prepare.needed());
    let native_aio_off = record.as_ref().is_some_and(|record| record.native_aio_off);
    // A persisted size would apply at the next start, whatever the current size. A size persisted by the administrator stays.
    let is_ours = |record: &&InstallState| {
        record.has_persisted() && pool_persisted.is_some_and(|size| record.original(size).is_some())
    };
    if let Some(record) = record.as_ref().filter(is_ours) {
        plan.add(persisted_pool(record.pool_persisted_before.clone()));
    }
    match pool::original(record.as_ref(), pool_now) {
        Ok(Some(before)) => plan.add(pool::restore(pool_now, before)),
        Ok(None) => {}
        Err(why) => plan
            .notes
            .push(format!("innodb_buffer_pool_size stays as it is: {why}")),
    }
    if !persisted.is_empty() {
        plan.add(no_longer_persisted(persisted));
    }
    if let (Some(path), Some(process)) = (snippet, process.clone()) {
        plan.add(remove_snippet(process, path, native_aio_off));
    }
    if !views.is_empty() {
        let record = record.as_ref();
        let with_schema = record.is_none_or(|record| !record.schema_was_there);
        plan.add(drop_views(&views, with_schema));
    }
    if function_row {
        plan.add(drop_function());
    }
    let is_gone = Arc::new(AtomicBool::new(!loaded));
    if loaded || plugin_row {
        plan.add(uninstall(loaded, Arc::clone(&is_gone)));
    }
    let recorded = record.unwrap_or_default();
    if let Some(process) = &process {
        if let Some(path) = recorded.library.filter(|_| !keep_library) {
            let is_gone = Arc::clone(&is_gone);
            let flavour = server.flavour;
            plan.add(remove_library(Arc::clone(process), path, flavour, is_gone));
        }
        plan.add(remove_cache(Arc::clone(process), cache, &left, is_gone));
        if !recorded.folders.is_empty() {
            plan.add(remove_folders(Arc::clone(process), recorded.folders));
        }
    }
    plan.at_end(move |run| conclude(run, process.as_deref()));
    Ok(plan)
}

fn removed(what: &str, path: &Path, why: &str) -> Row {
    Row::new(what, path.display().to_string(), "removed", why)
}

fn execute(run: &mut Run<'_>, what: &str, sql: &str) -> Result<(), Failure> {
    let result = run.server.execute(sql);
    run.done(
        what,
        result.map_err(|error| format!("{} ({sql})", plain(&error))),
    )
}

fn switch_off() -> Step {
    let row = Row::new("bpe_enabled", "", "OFF", "at once");
    Step::new("switch off", vec![row], |run| {
        execute(
            run,
            "extension switched off",
            "SET GLOBAL bpe_enabled = OFF",
        )
    })
}

/// Restores the persisted pool size; a size persisted by the administrator is not ours.
fn persisted_pool(before: Option<String>) -> Step {
    Step::new("put the persisted size back", Vec::new(), move |run| {
        let sql = match &before {
            Some(value) => format!("SET PERSIST innodb_buffer_pool_size = {}", sql_value(value)),
            None => "RESET PERSIST IF EXISTS innodb_buffer_pool_size".to_owned(),
        };
        execute(run, "persisted innodb_buffer_pool_size put back", &sql)
    })
}

fn no_longer_persisted(names: Vec<String>) -> Step {
    let rows = names
        .iter()
        .map(|name| Row::new(name, "persisted", "not persisted", ""));
    Step::new("persist nothing", rows.collect(), move |run| {
        names.iter().try_for_each(|name| {
            let sql = format!("RESET PERSIST IF EXISTS {}", sql_name(name));
            execute(run, &format!("{name} no longer persisted"), &sql)
        })
    })
}

fn remove_snippet(process: Arc<Process>, path: PathBuf, native_aio_off: bool) -> Step {
    let why = match native_aio_off {
        true => "from the next start innodb_use_native_aio is what it was without it",
        false => "",
    };
    let row = removed("option file", &path, why);
    Step::new("remove the option file", vec![row], move |run| {
        let result = snippet::remove(&process, &path);
        run.done(format!("{} removed", path.display()), result)
    })
}

fn drop_views(views: &[String], with_schema: bool) -> Step {
    let row = Row::new(
        "views",
        format!("bpe.{}", views.join(", bpe.")),
        "removed",
        "",
    );
    Step::new("drop the views", vec![row], move |run| {
        let result = views::remove(run.server, with_schema);
        if result == Ok(views::Schema::Kept) {
            run.tell("schema bpe stays: other things are in it");
        }
        run.done("views of schema bpe dropped", result.map(drop))
    })
}

fn drop_function() -> Step {
    let row = Row::new("function bpe_report", "", "removed", "");
    Step::new("drop the function bpe_report", vec![row], |run| {
        // After a start without the library, only the row exists.
        let result = run.server.execute("DROP FUNCTION IF EXISTS bpe_report");
        let row = "DELETE FROM mysql.func WHERE name = 'bpe_report'";
        let result = result.and_then(|()| run.server.execute(row));
        run.done(
            "function bpe_report dropped",
            result.map_err(|error| plain(&error)),
        )
    })
}

/// Sets `is_gone` when the server has uninstalled the plugin. While a statement still uses it, the server still lists
/// the plugin, which serves nothing.
fn uninstall(loaded: bool, is_gone: Arc<AtomicBool>) -> Step {
    let row = Row::new("plugin bpe", "installed", "not installed", "");
    Step::new("uninstall the plugin", vec![row], move |run| {
        if !loaded {
            let sql = "DELETE FROM mysql.plugin WHERE name = 'bpe'";
            return execute(run, "row in mysql.plugin removed", sql);
        }
        let result = run.server.execute("UNINSTALL PLUGIN bpe");
        is_gone.store(result.is_ok(), Ordering::SeqCst);
        let warnings = run.server.warnings();
        if !warnings.is_empty() {
            run.tell(format!("the server says: {warnings}"));
        }
        run.done("plugin uninstalled", result.map_err(|error| plain(&error)))
    })
}

/// Removes `bpe.so`, if it exists and is the extension's.
fn remove_library(
    process: Arc<Process>,
    path: PathBuf,
    flavour: Flavour,
    is_gone: Arc<AtomicBool>,
) -> Step {
    let row = removed("library", &path, "");
    Step::new("remove the library", vec![row], move |run| {
        let text = |error: io::Error| error.to_string();
        let remove = || {
            // Otherwise the server's next start would not find the library.
            if !is_gone.load(Ordering::SeqCst) {
                return Err("the plugin is still installed".to_owned());
            }
            let (folder, name) = process.directory_of(&path)?;
            if folder.entry(name).map_err(text)?.is_some() {
                library::check(&path, flavour, None)?;
            }
            folder.remove_file_or_link(name).map_err(text)
        };
        run.done(format!("{} removed", path.display()), remove())
    })
}

fn remove_cache(
    process: Arc<Process>,
    cache: CacheLocation,
    left: &[PathBuf],
    is_gone: Arc<AtomicBool>,
) -> Step {
    let rows = left
        .iter()
        .map(|path| removed("file of the cache", path, ""));
    Step::new("remove files of the cache", rows.collect(), move |run| {
        // Only after the uninstallation, because a loaded plugin uses its files.
        if !is_gone.load(Ordering::SeqCst) {
            return Ok(());
        }
        cache.left(&process).iter().try_for_each(|path| {
            let result = stale_files::remove(&process, path);
            run.done(format!("{} removed", path.display()), result)
        })
    })
}

fn remove_folders(process: Arc<Process>, folders: Vec<PathBuf>) -> Step {
    Step::new("remove folders", Vec::new(), move |run| {
        for folder in &folders {
            // Only if empty, because other servers may have a cache there.
            if process.remove_directory(folder).is_ok() {
                run.tell(format!("{} removed", folder.display()));
            }
        }
        Ok(())
    })
}

fn conclude(run: &mut Run<'_>, process: Option<&Process>) -> Result<(), Failure> {
    if process.is_none() {
        run.tell(format!(
            "note: the server runs elsewhere, so its files were not checked: remove {FILE_NAME} from its plugin_dir and \
             {SNIPPET} from its option files if you put them there"
        ));
    }
    match process.and_then(|process| switched_on_elsewhere(run.server, process)) {
        Some(place) => run.say(format!(
            "Disabled now. The server's next start switches it on again, as {place} sets bpe_enabled: take that out."
        )),
        None => run.say("Disabled; the server is as it was before `bpe enable`."),
    }
    Ok(())
}

/// The place, not written by `bpe enable`, that switches the extension on at the next start.
fn switched_on_elsewhere(server: &Server, process: &Process) -> Option<String> {
    // The command line overrides the option files.
    if let Some(value) = process.option("bpe_enabled") {
        return is_on(value).then(|| "its command line".to_owned());
    }
    let options = ServerOptions::read(process, server.flavour, server.version);
    let file = options.switched_on_by()?;
    Some(file.display().to_string())
}

fn find_snippet(
    server: &Server,
    process: &Process,
    record: Option<&InstallState>,
    conf_dir: Option<&Path>,
) -> Option<PathBuf> {
    let options = ServerOptions::read(process, server.flavour, server.version);
    let candidates = [
        record.and_then(|record| record.snippet.clone()),
        conf_dir.map(|folder| folder.join(SNIPPET)),
        // With a suffix, it would be the snippet of another server that reads the same directory.
        options
            .snippet_folder()
            .filter(|_| options.suffix.is_none())
            .map(|folder| folder.join(SNIPPET)),
    ];
    candidates
        .into_iter()
        .flatten()
        .find(|path| snippet::there(process, path).is_some())
}
