//! What `enable` will change on this server, worked out before anything is touched.

use std::fmt::{self, Debug};
use std::fs;
use std::path::{Path, PathBuf};

use interface::tables::Rules;
use interface::untrusted::one_line;

use super::checks::{self, ByHand, Copy, Permanence};
use super::wish::{Args, TABLES, Wish};
use crate::connection::plain;
use crate::digest::Part;
use crate::failure::Failure;
use crate::maintenance::will_lift_read_only;
use crate::pool::{Pool, expected_memory};
use crate::process::Process;
use crate::record::{Place, Record};
use crate::server::{Flavour, Server, Support, is_denied, support};
use crate::server_options;
use crate::size::human;
use crate::snippet::{self, Snippet};
use crate::state;
use crate::views;

/// Variables whose change builds the cache anew.
const REBUILDING: [&str; 3] = ["bpe_path", "bpe_size", "bpe_instances"];

/// One variable to set.
#[derive(Debug, Clone)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// Its value now; None while the plugin is not loaded.
    pub before: Option<String>,
}

impl Setting {
    /// Whether the server has another value now. Rules are the same however they are written.
    fn differs(&self) -> bool {
        let rules = |text: &str| Rules::parse(text, false);
        match &self.before {
            Some(before) if *before == self.value => false,
            Some(before) if self.name == TABLES => {
                rules(before).is_err() || rules(before) != rules(&self.value)
            }
            _ => true,
        }
    }
}

pub struct Plan {
    pub process: Option<Process>,
    pub place: Place,
    pub record: Record,
    pub title: String,
    pub copy: Option<Copy>,
    pub folders: Vec<PathBuf>,
    pub lift_read_only: bool,
    pub install: bool,
    pub stale_plugin_row: bool,
    pub create_function: bool,
    pub make_views: bool,
    /// All wished settings and bpe_enabled, last.
    pub settings: Vec<Setting>,
    pub pool: Pool,
    /// The size it has, which is smaller where we lowered it before.
    pub pool_now: u64,
    pub lower_pool: bool,
    pub expected_memory: u64,
    pub permanence: Permanence,
    /// The option file for the settings, with the pool as it is expected to be.
    pub option_file: String,
    /// What is kept over a restart, in words; None if nothing is, and a note says why.
    pub kept: Option<String>,
    /// Nothing but the permanent part differs from what is there.
    pub permanent_differs: bool,
    /// The server was told to switch it on, and that failed: the extension waits, and says why it failed then.
    pub has_failed: bool,
    pub notes: Vec<String>,
}

impl Plan {
    pub(super) fn make(server: &mut Server, wish: &Wish, args: &Args) -> Result<Self, Failure> {
        let mut notes = Vec::new();
        match support(server.flavour, server.version) {
            Support::Tested => {}
            Support::Expected => notes.push(format!(
                "{} {} is expected to work, but this project does not test its series regularly",
                server.flavour, server.version
            )),
            Support::No => {
                return Err(Failure::refused(format!(
                    "{} {} is not supported; nothing was changed",
                    server.flavour, server.version
                ))
                .advise("MariaDB 10.5 or MySQL 8.0, or newer, is required"));
            }
        }
        let process = Process::find(server);
        let place = Place::of(
            server,
            process.as_ref().ok(),
            args.places.state_dir.as_deref(),
        )?;
        let mut record = place.read()?.unwrap_or_default();
        let wish = wish.with_bytes(server, process.as_ref().ok(), &record, &mut notes)?;
        let wish = &wish.with_tables(server)?;
        let title = title(server, process.as_ref().ok());
        record.server.clone_from(&title);

        let failed = |error: mysql::Error| Failure::refused(plain(&error));
        let state = server.plugin_state().map_err(failed)?;
        let loaded = match state.as_deref() {
            None => false,
            Some("ACTIVE") => true,
            Some(other) => {
                return Err(Failure::refused(format!(
                    "plugin bpe is on the server already, but {other}; nothing was changed"
                ))
                .advise("restart the server, then run `bpe enable` again"));
            }
        };
        if let Ok(process) = &process {
            checks::can_be_followed(server, process, &mut notes)?;
        }
        let copy = checks::library(server, &process, args, loaded, &mut notes)?;
        let data = server.variable("datadir")?.unwrap_or_default();
        let folders = match &process {
            Ok(process) => {
                let copied = checks::is_copied(server)?;
                checks::check_paths(process, wish, &data, copied, &mut notes)?
            }
            Err(_) => Vec::new(),
        };
        let row = server
            .value("SELECT dl FROM mysql.plugin WHERE name = 'bpe'")
            .map_err(failed)?;
        let create_function = server
            .value("SELECT bpe_report('summary')")
            // Without the privilege it is there all the same.
            .is_err_and(|error| !is_denied(&error));

        let make_views = args.views && wants_views(server, &mut record, &mut notes)?;

        let now = server.variables("bpe\\_%")?;
        let settings: Vec<_> = wish
            .settings
            .iter()
            .map(|(name, value)| (*name, value.clone()))
            .chain([("bpe_enabled", "ON".to_owned())])
            .map(|(name, value)| Setting {
                name,
                value,
                before: now.get(name).cloned(),
            })
            .collect();

        let mut pool = Pool::of(server)?;
        let pool_now = pool.size;
        // Lowered by us before and not touched since: count from what it was.
        if let Some(original) = record.original(pool.size) {
            pool.size = original;
        }
        let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
        let expected_memory = expected_memory(wish.size, page_size);
        if wish.size < pool.size {
            notes.push(format!(
                "a cache of {} is smaller than the buffer pool of {} and will help little",
                human(wish.size),
                human(pool.size)
            ));
        }

        let permanence = checks::permanence(server, &process, args, &mut notes);
        let data = Path::new(&data);
        let kept = match &process {
            Ok(process) => checks::kept(process, wish.size, data, &now, &mut notes),
            Err(_) => None,
        };
        let mut plan = Self {
            place,
            record,
            title,
            copy,
            folders,
            lift_read_only: will_lift_read_only(server)?,
            install: !loaded,
            stale_plugin_row: !loaded && row.is_some(),
            create_function,
            make_views,
            settings,
            pool,
            pool_now,
            lower_pool: !args.keep_pool,
            expected_memory,
            permanence,
            option_file: String::new(),
            kept,
            permanent_differs: true,
            has_failed: loaded && state::state(server)?.0 == "failed",
            notes,
            process: process.ok(),
        };
        plan.option_file = plan.option_file(server.flavour)?;
        plan.permanent_differs = plan.differs_permanently(server)?;
        Ok(plan)
    }

    /// Tells what it was made from, part by part; nothing that changes by itself is among it.
    pub fn seen(&self, tell: &mut dyn FnMut(Part, &dyn Debug)) {
        tell(Part::Server, &(&self.place, self.process.is_some()));
        let stamp = |path: &Path| {
            let meta = fs::metadata(path).ok()?;
            Some((meta.len(), meta.modified().ok()))
        };
        let library = self.copy.as_ref();
        let library = library.map(|copy| (copy, stamp(&copy.from), stamp(&copy.place)));
        tell(
            Part::Plugin,
            &(
                library,
                (self.install, self.stale_plugin_row, self.create_function),
                (self.make_views, self.lift_read_only),
            ),
        );
        tell(Part::Settings, &self.settings);
        let pool = (self.pool, self.pool_now, self.lower_pool);
        tell(Part::Pool, &(pool, self.expected_memory));
        let there = match (&self.permanence, &self.process) {
            (Permanence::Snippet { path, .. }, Some(process)) => snippet::there(process, path),
            _ => None,
        };
        let permanent = (&self.permanence, self.permanent_differs, there);
        tell(Part::Files, &(&self.folders, permanent));
        tell(Part::Record, &self.record.clone().nameless());
    }

    /// Settings that differ from what the server has.
    pub fn changes(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| setting.differs())
    }

    /// Whether a running cache must be built anew, empty.
    pub fn rebuilds(&self) -> bool {
        self.was_on()
            && self
                .changes()
                .any(|setting| REBUILDING.contains(&setting.name))
    }

    fn was_on(&self) -> bool {
        let is_on = |s: &Setting| s.name == "bpe_enabled" && s.before.as_deref() == Some("ON");
        self.settings.iter().any(is_on)
    }

    /// Whether it is on in name alone, so that to switch it on needs switching off before.
    pub fn tries_again(&self) -> bool {
        self.has_failed && self.was_on()
    }

    pub fn is_empty(&self) -> bool {
        self.copy.is_none()
            && !self.install
            && !self.create_function
            && !self.make_views
            && !self.permanent_differs
            && self.changes().next().is_none()
            && !self.tries_again()
    }

    /// The snippet for this plan, with the pool as it came to be.
    pub fn snippet(&self, pool_after: Option<u64>) -> Snippet {
        let early_load = match &self.permanence {
            Permanence::Snippet { early_load, .. } | Permanence::ByHand { early_load, .. } => {
                early_load.clone()
            }
        };
        Snippet {
            settings: self
                .settings
                .iter()
                .map(|setting| (setting.name.to_owned(), setting.value.clone()))
                .collect(),
            pool_before: pool_after.map(|_| self.pool.size),
            pool_after,
            pool_max: self.pool.max_to_keep(),
            early_load_before: early_load,
            native_aio_off: self.record.native_aio_off,
            server: self
                .process
                .as_ref()
                .map(snippet::of_server)
                .unwrap_or_default(),
        }
    }

    /// # Errors
    /// A value cannot be written into an option file, or the server would read another one.
    fn option_file(&self, flavour: Flavour) -> Result<String, Failure> {
        let lowered = self.pool.lowered_for(self.expected_memory);
        let lowered = lowered.filter(|_| self.lower_pool);
        let snippet = self.snippet(self.record.pool_after.or(lowered));
        let text = snippet.proven_text(flavour);
        let (text, _) =
            text.map_err(|why| Failure::refused(format!("{why}; nothing was changed")))?;
        Ok(text)
    }

    fn differs_permanently(&self, server: &mut Server) -> Result<bool, Failure> {
        if let (Permanence::Snippet { path, .. }, Some(process)) = (&self.permanence, &self.process)
        {
            let wanted = self.snippet(self.record.pool_after).text(server.flavour);
            if snippet::there(process, path) != wanted.ok() {
                return Ok(true);
            }
        }
        if server.flavour == Flavour::MySql {
            let persisted = persisted(server)?;
            return Ok(self.settings.iter().any(|setting| {
                !persisted
                    .iter()
                    .any(|(name, value)| name == setting.name && *value == setting.value)
            }));
        }
        Ok(false)
    }
}

/// Whether the views are to be made; what stands in their way is no failure.
fn wants_views(
    server: &mut Server,
    record: &mut Record,
    notes: &mut Vec<String>,
) -> Result<bool, Failure> {
    let present = views::Present::look(server).map_err(|error| Failure::refused(plain(&error)))?;
    if let Some(obstacle) = present.obstacle() {
        notes.push(format!("no views are made: {obstacle}"));
        return Ok(false);
    }
    if present.ours.is_empty() {
        record.schema_was_there = present.schema;
    }
    Ok(!present.is_complete())
}

/// What MySQL has persisted, by name.
pub fn persisted(server: &mut Server) -> Result<Vec<(String, String)>, Failure> {
    server
        .pairs("SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.persisted_variables")
        .map_err(|error| {
            Failure::refused(format!(
                "cannot read persisted variables: {}",
                plain(&error)
            ))
        })
}

fn title(server: &Server, process: Option<&Process>) -> String {
    let mut title = format!(
        "{} {} at {}",
        server.flavour, server.version, server.address
    );
    if let Some(process) = process {
        title.push_str(&format!(
            " (process {}, user {})",
            process.pid,
            process.user_name()
        ));
    }
    title
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", one_line(&self.title))?;
        for note in &self.notes {
            writeln!(f, "  note: {}", one_line(note))?;
        }
        if self.is_empty() {
            return writeln!(f, "Already enabled with these settings; nothing to change.");
        }
        writeln!(f, "This will change:")?;
        let mut step = |text: String| writeln!(f, "  - {}", one_line(&text));
        for folder in &self.folders {
            step(format!(
                "make the folder {} for the server's user",
                folder.display()
            ))?;
        }
        if let Some(copy) = &self.copy {
            step(format!(
                "{} {} by {}",
                if copy.replaces { "replace" } else { "write" },
                copy.place.display(),
                copy.from.display()
            ))?;
        }
        if self.lift_read_only {
            step("super_read_only: off for a moment, then on again".to_owned())?;
        }
        if self.install {
            step("install the plugin bpe on the running server".to_owned())?;
        }
        if self.create_function {
            step("create the function bpe_report".to_owned())?;
        }
        if self.make_views {
            step(format!("make the views {}", views::list()))?;
        }
        for setting in self.changes() {
            let shown = match (setting.name, setting.value.parse()) {
                ("bpe_size", Ok(bytes)) => format!("{} ({})", setting.value, human(bytes)),
                _ => setting.value.clone(),
            };
            let before = match setting.before.as_deref() {
                None | Some("") => String::new(),
                Some(before) => format!(" (was {before})"),
            };
            step(format!("SET GLOBAL {} = {shown}{before}", setting.name))?;
        }
        if self.tries_again() {
            step("switch it off and on again, as it could not be switched on before".to_owned())?;
        } else if self.rebuilds() {
            step("the cache is rebuilt and starts empty".to_owned())?;
        }
        if self.lower_pool {
            step(match self.pool.lowered_for(self.expected_memory) {
                Some(lowered) => format!(
                    "innodb_buffer_pool_size: {} lowered by about {} for what the extension takes \
                     (at most 4 %)",
                    human(self.pool.size),
                    human(self.pool.size - lowered)
                ),
                None => format!(
                    "innodb_buffer_pool_size stays at {}: the server changes it in steps of {}, \
                     more than 4 % of it; the extension takes about {} besides",
                    human(self.pool.size),
                    human(self.pool.step),
                    human(self.expected_memory)
                ),
            })?;
        }
        step(match &self.permanence {
            Permanence::Snippet { path, .. } => {
                format!("write {} so that a restart keeps it", path.display())
            }
            Permanence::ByHand { why, .. } => {
                format!("say what to write into an option file so that a restart keeps it ({why})")
            }
        })?;
        for line in self.option_file.lines() {
            writeln!(f, "      {}", one_line(line))?;
        }
        if let (Some(kept), Permanence::Snippet { .. }) = (&self.kept, &self.permanence) {
            writeln!(
                f,
                "From the server's next start on, what is cached is kept over restarts: {kept}."
            )?;
        }
        writeln!(
            f,
            "The server goes on running. `bpe disable` undoes all of it."
        )
    }
}

/// The lines a user must write where no snippet can be.
pub fn by_hand(flavour: Flavour, snippet: &Snippet, place: &ByHand) -> String {
    let mut text = match snippet.text(flavour) {
        Ok(text) => text,
        Err(why) => {
            return format!("write its settings into an option file of the server's: {why}");
        }
    };
    if let Some(suffix) = &place.suffix {
        for group in ["mariadb", "mysqld"] {
            let named = format!("[{group}{}]\n", one_line(suffix));
            text = text.replace(&format!("[{group}]\n"), &named);
        }
    }
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("    {}", one_line(line)))
        .collect();
    format!(
        "write this into {} (or any option file that the server reads):\n{}{}",
        match (&place.file, flavour) {
            (Some(file), _) => one_line(&file.to_string_lossy()),
            (None, Flavour::MariaDb) =>
                format!("/etc/mysql/mariadb.conf.d/{}", server_options::SNIPPET),
            (None, Flavour::MySql) =>
                format!("/etc/mysql/mysql.conf.d/{}", server_options::SNIPPET),
        },
        lines.join("\n"),
        match flavour {
            Flavour::MariaDb => "",
            // Else each start says that it exists already.
            Flavour::MySql =>
                "\n  and then keep it from being loaded a second time: SET SESSION sql_log_bin = OFF; DELETE FROM mysql.plugin WHERE name = 'bpe'",
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_differ_by_their_meaning() {
        let setting = |name, before: &str| Setting {
            name,
            value: "exclude a.b, limit 5% c.*".to_owned(),
            before: Some(before.to_owned()),
        };
        assert!(!setting(TABLES, "exclude a.b;  limit 5 % `c`.*").differs());
        assert!(setting(TABLES, "exclude a.b").differs());
        assert!(setting(TABLES, "no rules").differs());
        assert!(setting("bpe_path", "exclude a.b;limit 5% c.*").differs());
    }

    #[test]
    fn lines_to_write_by_hand_name_file_and_groups() {
        let snippet = Snippet {
            settings: vec![("bpe_enabled".to_owned(), "ON".to_owned())],
            pool_before: None,
            pool_after: None,
            pool_max: None,
            early_load_before: None,
            native_aio_off: false,
            server: String::new(),
        };
        let place = ByHand {
            file: Some("/etc/my.cnf".into()),
            suffix: Some(".two".to_owned()),
        };
        let maria = by_hand(Flavour::MariaDb, &snippet, &place);
        assert!(maria.contains("write this into /etc/my.cnf"), "{maria}");
        assert!(maria.contains("[mariadb.two]"), "{maria}");
        let forged = ByHand {
            file: Some("/etc/my.cnf\nforged".into()),
            suffix: Some("]\nforged".to_owned()),
        };
        let shown = by_hand(Flavour::MariaDb, &snippet, &forged);
        assert!(
            !shown.lines().any(|line| line.starts_with("forged")),
            "{shown}"
        );
        assert!(!maria.contains("mysql.plugin"), "{maria}");
        let mysql = by_hand(Flavour::MySql, &snippet, &ByHand::default());
        assert!(
            mysql.contains("/etc/mysql/mysql.conf.d/zz-bpe.cnf"),
            "{mysql}"
        );
        assert!(mysql.contains("[mysqld]\n"), "{mysql}");
        assert!(mysql.contains("DELETE FROM mysql.plugin"), "{mysql}");
    }
}
