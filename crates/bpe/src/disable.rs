//! `bpe disable`: switches the extension off and undoes everything `bpe enable` did.
//!
//! Switching off comes first and takes effect at once. Later steps go on after one has failed, so
//! that as much as possible is undone; running it again does the rest.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interface::untrusted::one_line;

use crate::cluster::look;
use crate::cluster::rolling::{self, Change, Pace, Step};
use crate::connection::{self, plain};
use crate::digest::Part;
use crate::enable::Places;
use crate::failure::{Exit, Failure};
use crate::library::FILE_NAME;
use crate::maintenance::{Maintenance, check_rights};
use crate::pool;
use crate::process::Process;
use crate::quote::{sql_name, sql_value};
use crate::record::{Place, Record};
use crate::server::{Flavour, Server};
use crate::server_options::{SNIPPET, ServerOptions, is_on};
use crate::size::human;
use crate::terminal::say;
use crate::told::Told;
use crate::views;
use crate::{disk, leftover, library, persistence, servers_file, snippet, terminal, told};

#[derive(clap::Args)]
pub struct Args {
    /// Leave bpe.so in the server's plugin_dir
    #[arg(long)]
    keep_library: bool,
    /// Folder that was given to `bpe enable --conf-dir`
    #[arg(long, value_name = "FOLDER")]
    conf_dir: Option<PathBuf>,
    /// Folder that was given to `bpe enable --state-dir`
    #[arg(long, value_name = "FOLDER", env = "BPE_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Disable it on all servers of a cluster, one after the other: replicas first, the primary last. FILE names them, as for
    /// `bpe console --servers`
    #[arg(long, value_name = "FILE", conflicts_with = "connection")]
    all: Option<PathBuf>,
    #[command(flatten)]
    pace: Pace,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    connection: connection::Args,
}

/// The same on all servers of a cluster.
struct All<'a> {
    file: &'a Path,
    args: &'a Args,
}

impl Change for All<'_> {
    fn is_on(&self) -> bool {
        false
    }

    fn back(&self) -> String {
        format!(
            "bpe enable --all {} --path PATH --size SIZE",
            self.file.display()
        )
    }

    fn plan(&self, server: &mut Server, _: usize) -> Result<Step<'_>, Failure> {
        check_rights(server)?;
        let there = There::look(
            server,
            self.args.conf_dir.as_deref(),
            self.args.state_dir.as_deref(),
        )?;
        let is_nothing = there.is_nothing();
        let lines: Vec<_> = there
            .describe(self.args.keep_library)
            .iter()
            .map(|line| format!("  - {line}"))
            .collect();
        let text = match is_nothing {
            true => "The extension is not on this server; nothing to undo.".to_owned(),
            false => format!("This will be undone:\n{}", lines.join("\n")),
        };
        Ok(Step {
            text,
            is_nothing,
            carry_out: Box::new(move |server, told, _| {
                concluded(&undo(server, &there, self.args.keep_library, told))
            }),
        })
    }
}

/// All that `bpe disable` would undo on a server.
pub struct Undo(There);

impl Undo {
    /// Looks what there is.
    ///
    /// # Errors
    /// When the account may not look, or not undo it.
    pub fn plan(server: &mut Server, places: &Places) -> Result<Self, Failure> {
        check_rights(server)?;
        There::look(
            server,
            places.conf_dir.as_deref(),
            places.state_dir.as_deref(),
        )
        .map(Self)
    }

    pub fn is_nothing(&self) -> bool {
        self.0.is_nothing()
    }

    /// A line for each thing that will be undone.
    pub fn describe(&self) -> Vec<String> {
        self.0.describe(false)
    }

    /// Tells what it was made from, part by part.
    pub fn seen(&self, tell: &mut dyn FnMut(Part, &dyn Debug)) {
        let there = &self.0;
        tell(Part::Server, &(&there.place, there.process.is_some()));
        let rows = (there.loaded, there.plugin_row, there.function_row);
        tell(Part::Plugin, &(rows, &there.views));
        tell(Part::Settings, &(&there.variables, &there.persisted));
        tell(Part::Pool, &there.pool_now);
        tell(Part::Files, &(&there.snippet, there.left()));
        tell(Part::Record, &there.record.clone().map(Record::nameless));
    }

    /// Undoes it.
    ///
    /// # Errors
    /// What could not be undone; everything else was.
    pub fn apply(&self, server: &mut Server, told: &mut dyn Told) -> Result<(), Failure> {
        concluded(&undo(server, &self.0, false, told))
    }
}

fn concluded(failures: &[String]) -> Result<(), Failure> {
    if failures.is_empty() {
        return Ok(());
    }
    let text: Vec<_> = failures.iter().map(|line| format!("\n  {line}")).collect();
    Err(
        Failure::step(format!("not everything could be undone:{}", text.concat()))
            .advise("fix what the messages say and run `bpe disable` again"),
    )
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.all {
        let nodes = look::nodes(&servers_file::read(file)?)?;
        let change = All { file, args: &args };
        return Ok(rolling::run(&nodes, &args.pace, args.yes, &change)?.into());
    }
    let mut server = Server::connect(&args.connection)?;
    check_rights(&mut server)?;
    let there = There::look(
        &mut server,
        args.conf_dir.as_deref(),
        args.state_dir.as_deref(),
    )?;
    say!(
        "{} {} at {}",
        server.flavour,
        server.version,
        server.address
    );
    if there.is_nothing() {
        say!("The extension is not on this server; nothing to undo.");
        return Ok(Exit::Ok.into());
    }
    say!("This will be undone:");
    for line in there.describe(args.keep_library) {
        say!("  - {}", one_line(&line));
    }
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
                )
                .into());
            }
        }
    }
    // What is lifted for it is put back.
    let mut told = told::Terminal::catching_signals()?;
    let failures = undo(&mut server, &there, args.keep_library, &mut told);
    concluded(&failures)?;
    let process = Process::find(&mut server).ok();
    match process.and_then(|process| switched_on_elsewhere(&server, &process)) {
        Some(place) => say!(
            "Disabled now. The server's next start switches it on again, as {place} sets bpe_enabled: take that out."
        ),
        None => say!("Disabled; the server is as it was before `bpe enable`."),
    }
    Ok(Exit::Ok.into())
}

/// What of the extension is on the server.
struct There {
    place: Place,
    record: Option<Record>,
    loaded: bool,
    plugin_row: bool,
    function_row: bool,
    views: Vec<String>,
    persisted: Vec<String>,
    /// As the server sees it.
    snippet: Option<PathBuf>,
    process: Option<Process>,
    pool_now: Option<u64>,
    /// Those of the extension.
    variables: BTreeMap<String, String>,
    cache: Cache,
}

/// Where files of the cache may be that the server has left when it stopped.
#[derive(Default)]
struct Cache {
    folders: Vec<PathBuf>,
    memory: PathBuf,
}

impl Cache {
    fn of(
        server: &mut Server,
        process: &Process,
        record: Option<&Record>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
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
        Ok(Self {
            folders,
            memory: persistence::folder(Some(&value("bpe_persist_path"))),
        })
    }

    fn left(&self, process: &Process) -> Vec<PathBuf> {
        leftover::find(process, &self.folders, &self.memory)
    }
}

impl There {
    fn look(
        server: &mut Server,
        conf_dir: Option<&Path>,
        state_dir: Option<&Path>,
    ) -> Result<Self, Failure> {
        let failed = |error: mysql::Error| Failure::refused(plain(&error));
        let process = Process::find(server).ok();
        let place = Place::of(server, process.as_ref(), state_dir)?;
        let record = place.read()?;
        let loaded = server.plugin_state().map_err(failed)?.is_some();
        let has = |value: Option<String>| value.is_some_and(|count| count != "0");
        let plugin_row = has(server
            .value("SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe'")
            .map_err(failed)?);
        let function_row = has(server
            .value("SELECT COUNT(*) FROM mysql.func WHERE name = 'bpe_report'")
            .map_err(failed)?);
        let views = views::Present::look(server).map_err(failed)?.ours;
        let persisted = if server.flavour == Flavour::MySql {
            server
                .pairs(
                    "SELECT VARIABLE_NAME, '' FROM performance_schema.persisted_variables \
                     WHERE VARIABLE_NAME LIKE 'bpe\\_%'",
                )
                .map_err(failed)?
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        } else {
            Vec::new()
        };
        let snippet = process
            .as_ref()
            .and_then(|process| find_snippet(server, process, record.as_ref(), conf_dir));
        let variables = server.variables("bpe\\_%")?;
        let cache = match &process {
            Some(process) => Cache::of(server, process, record.as_ref(), &variables)?,
            None => Cache::default(),
        };
        Ok(Self {
            place,
            record,
            loaded,
            plugin_row,
            function_row,
            views,
            persisted,
            snippet,
            process,
            pool_now: server.number("innodb_buffer_pool_size")?,
            variables,
            cache,
        })
    }

    fn is_nothing(&self) -> bool {
        self.record.is_none()
            && !self.loaded
            && !self.plugin_row
            && !self.function_row
            && self.views.is_empty()
            && self.persisted.is_empty()
            && self.snippet.is_none()
            && self.left().is_empty()
    }

    /// Files of the cache of a process before. While the plugin is loaded they are in use.
    fn left(&self) -> Vec<PathBuf> {
        let process = self.process.as_ref().filter(|_| !self.loaded);
        process
            .map(|process| self.cache.left(process))
            .unwrap_or_default()
    }

    /// What becomes of the pool, in words.
    fn pool(&self) -> Option<String> {
        let Some(record) = &self.record else {
            return Some(
                "innodb_buffer_pool_size stays as it is: no record of what it was before"
                    .to_owned(),
            );
        };
        let before = record.pool_before.filter(|_| record.pool_after.is_some())?;
        let now = self.pool_now?;
        if now == before {
            // It came back with a restart.
            return None;
        }
        Some(match record.original(now) {
            Some(original) => format!("innodb_buffer_pool_size back to {}", human(original)),
            None => {
                "innodb_buffer_pool_size stays as it is: it has been changed since `bpe enable`"
                    .to_owned()
            }
        })
    }

    fn library(&self, keep: bool) -> Option<&Path> {
        let record = self.record.as_ref().filter(|_| !keep)?;
        record.library.as_deref()
    }

    fn describe(&self, keep_library: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if self.loaded {
            lines.push("bpe_enabled = OFF, at once".to_owned());
        }
        lines.extend(self.pool());
        if !self.persisted.is_empty() {
            lines.push(format!("RESET PERSIST {}", self.persisted.join(", ")));
        }
        if let Some(path) = &self.snippet {
            let off = self
                .record
                .as_ref()
                .is_some_and(|record| record.native_aio_off);
            let more = if off {
                "; from the next start innodb_use_native_aio is what it was without it"
            } else {
                ""
            };
            lines.push(format!("remove {}{more}", path.display()));
        }
        if !self.views.is_empty() {
            lines.push(format!("drop the views bpe.{}", self.views.join(", bpe.")));
        }
        if self.function_row {
            lines.push("drop the function bpe_report".to_owned());
        }
        if self.loaded || self.plugin_row {
            lines.push("uninstall the plugin bpe".to_owned());
        }
        for path in self.left() {
            lines.push(format!("remove {}, of the cache", path.display()));
        }
        if let Some(path) = self.library(keep_library) {
            lines.push(format!("remove {}", path.display()));
        }
        lines
    }
}

/// What `bpe enable` did not write, and so is not undone.
fn switched_on_elsewhere(server: &Server, process: &Process) -> Option<String> {
    // It wins over the files.
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
    record: Option<&Record>,
    conf_dir: Option<&Path>,
) -> Option<PathBuf> {
    let options = ServerOptions::read(process, server.flavour, server.version);
    let candidates = [
        record.and_then(|record| record.snippet.clone()),
        conf_dir.map(|folder| folder.join(SNIPPET)),
        // With a suffix it would be that of another server, which reads the same folder.
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

/// Tells what was done, and keeps what did not work.
struct Undoing<'a> {
    told: &'a mut dyn Told,
    failures: Vec<String>,
}

impl Undoing<'_> {
    fn done(&mut self, what: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.line(what),
            Err(why) => self.failures.push(format!("{what}: NOT done: {why}")),
        }
    }

    fn line(&mut self, text: &str) {
        self.told.line(&format!("  {}", text.trim_start()));
    }
}

/// Undoes everything; returns what did not work.
fn undo(
    server: &mut Server,
    there: &There,
    keep_library: bool,
    told: &mut dyn Told,
) -> Vec<String> {
    let mut undoing = Undoing {
        told,
        failures: Vec::new(),
    };
    let run = |server: &mut Server, sql: &str| {
        server
            .execute(sql)
            .map_err(|error| format!("{} ({sql})", plain(&error)))
    };
    if there.loaded {
        let result = run(server, "SET GLOBAL bpe_enabled = OFF");
        undoing.done("extension switched off", result);
    }
    let maintenance = match Maintenance::begin(server) {
        Ok(maintenance) => maintenance,
        Err(why) => {
            undoing.done("session prepared", Err(why));
            return undoing.failures;
        }
    };
    if let Some(record) = &there.record {
        restore_pool(server, record, &mut undoing);
    }
    for name in &there.persisted {
        let result = run(
            server,
            &format!("RESET PERSIST IF EXISTS {}", sql_name(name)),
        );
        undoing.done(&format!("{name} no longer persisted"), result);
    }
    if let (Some(path), Some(process)) = (&there.snippet, &there.process) {
        undoing.done(
            &format!("{} removed", path.display()),
            snippet::remove(process, path),
        );
    }
    if !there.views.is_empty() {
        let with_schema = there
            .record
            .as_ref()
            .is_none_or(|record| !record.schema_was_there);
        let result = views::remove(server, with_schema);
        if result == Ok(views::Schema::Kept) {
            undoing.line("schema bpe stays: other things are in it");
        }
        undoing.done("views of schema bpe dropped", result.map(drop));
    }
    if there.function_row {
        // The row alone is there after a start without the library.
        let result = run(server, "DROP FUNCTION IF EXISTS bpe_report")
            .and_then(|()| run(server, "DELETE FROM mysql.func WHERE name = 'bpe_report'"));
        undoing.done("function bpe_report dropped", result);
    }
    let mut is_loaded = false;
    if there.loaded {
        let result = run(server, "UNINSTALL PLUGIN bpe");
        is_loaded = result.is_err();
        let warnings = server.warnings();
        undoing.done("plugin uninstalled", result);
        if !warnings.is_empty() {
            undoing.line(&format!("  the server says: {warnings}"));
        }
    } else if there.plugin_row {
        let result = run(server, "DELETE FROM mysql.plugin WHERE name = 'bpe'");
        undoing.done("row in mysql.plugin removed", result);
    }
    if let (Some(path), Some(process)) = (there.library(keep_library), &there.process) {
        // The server's next start would look for it in vain.
        let result = if is_loaded {
            Err("the plugin is still installed".to_owned())
        } else {
            remove_library(server, process, path)
        };
        undoing.done(&format!("{} removed", path.display()), result);
    }
    // What was left by a process before and is not in use.
    if let Some(process) = there.process.as_ref().filter(|_| !is_loaded) {
        for path in there.cache.left(process) {
            undoing.done(
                &format!("{} removed", path.display()),
                leftover::remove(process, &path),
            );
        }
    }
    if let (Some(record), Some(process)) = (&there.record, &there.process) {
        for folder in &record.folders {
            // Only an empty one: other servers may have their cache there.
            if process.remove_directory(folder).is_ok() {
                undoing.done(&format!("{} removed", folder.display()), Ok(()));
            }
        }
    }
    if let Err(why) = maintenance.end(server) {
        undoing.done("super_read_only", Err(why));
    }
    if there.process.is_none() {
        undoing.line(&format!(
            "  note: the server runs elsewhere, so its files were not checked: remove {FILE_NAME} \
             from its plugin_dir and {SNIPPET} from its option files if you put them there"
        ));
    }
    if undoing.failures.is_empty() {
        if let Err(why) = there.place.remove() {
            undoing.failures.push(why);
        }
    }
    undoing.failures
}

/// Removes `bpe.so`, if it is there and the extension's.
fn remove_library(server: &Server, process: &Process, path: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (folder, name) = process.directory_of(path)?;
    if folder.entry(name).map_err(text)?.is_some() {
        library::check(path, server.flavour, None)?;
    }
    folder.remove_file_or_link(name).map_err(text)
}

fn restore_pool(server: &mut Server, record: &Record, undoing: &mut Undoing<'_>) {
    let Some(before) = record.pool_before.filter(|_| record.pool_after.is_some()) else {
        return;
    };
    // A size that the administrator has persisted is none of ours.
    if server.flavour == Flavour::MySql && record.has_persisted() {
        let sql = match &record.pool_persisted_before {
            Some(value) => format!("SET PERSIST innodb_buffer_pool_size = {}", sql_value(value)),
            None => "RESET PERSIST IF EXISTS innodb_buffer_pool_size".to_owned(),
        };
        let result = server.execute(&sql).map_err(|error| plain(&error));
        undoing.done("persisted innodb_buffer_pool_size put back", result);
    }
    let now = server.number("innodb_buffer_pool_size").ok().flatten();
    match now.map(|now| (now, record.original(now))) {
        Some((now, _)) if now == before => {}
        Some((_, Some(original))) => {
            let result = pool::resize(server, original).map(drop);
            undoing.done(
                &format!("innodb_buffer_pool_size is {} again", human(original)),
                result,
            );
        }
        _ => undoing
            .line("innodb_buffer_pool_size stays as it is: it has been changed since `bpe enable`"),
    }
}
