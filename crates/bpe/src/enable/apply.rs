//! Does what the plan says, step by step; when a step fails, puts back what was done.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::checks::Permanence;
use super::plan::{Plan, by_hand};
use crate::connection::plain;
use crate::failure::Failure;
use crate::files::Replaced;
use crate::journal::{Connection, Journal, Reopen, connected};
use crate::library;
use crate::maintenance::Maintenance;
use crate::pool;
use crate::process::Process;
use crate::quote::{readable, sql_value};
use crate::server::{Flavour, Server, error_code};
use crate::size::human;
use crate::state::wait_until_active;
use crate::told::Told;
use crate::views;

mod permanent;

/// How long statements that use a plugin that was uninstalled are waited for.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Of a variable that the server does not have.
const UNKNOWN_VARIABLE: u16 = 1193;

/// Runs the plan. On failure everything done so far is undone, over another connection where this one was lost, and the
/// message says how that went. `reopen` logs in as before.
pub fn apply(
    server: &mut Server,
    plan: Plan,
    told: &mut dyn Told,
    reopen: Reopen<'_>,
) -> Result<(), Failure> {
    let mut run = Run {
        journal: Journal::default(),
        server,
        plan,
        told,
        replaced: Vec::new(),
        begun: 0,
    };
    let mut maintenance = match Maintenance::begin(run.server) {
        Ok(maintenance) => maintenance,
        Err(why) => return Err(Failure::step(format!("{why}; nothing was changed"))),
    };
    let result = run.steps();
    let Run {
        journal,
        server,
        told,
        replaced,
        begun,
        ..
    } = run;
    let connection = match &result {
        Ok(()) if server.lost().is_none() => Connection::Kept,
        _ => connected(server, reopen),
    };
    let resumed = if connection.is_another() {
        maintenance.resume(server)
    } else {
        Ok(())
    };
    let result = match result {
        Ok(()) => {
            // The files of before were kept for undoing only.
            for file in replaced {
                file.done();
            }
            Ok(())
        }
        Err(mut failure) => {
            for text in connection.in_words().into_iter().chain(resumed.err()) {
                failure.what.push_str(&format!("\n  {text}"));
            }
            Err(undone(failure, journal, server, &connection, told, begun))
        }
    };
    match (maintenance.end(server), result) {
        (Ok(()), result) => result,
        (Err(why), Ok(())) => Err(Failure::step(why)),
        (Err(why), Err(mut failure)) => {
            failure.what.push_str(&format!("\n  {why}"));
            Err(failure)
        }
    }
}

/// Adds to the failure what was put back. `begun`: the step that failed.
fn undone(
    mut failure: Failure,
    journal: Journal,
    server: &mut Server,
    connection: &Connection,
    told: &mut dyn Told,
    begun: usize,
) -> Failure {
    let is_over = !connection.leaves_a_statement();
    let all = journal.roll_back(server, connection);
    for Ok(text) | Err(text) in all.iter().map(|undone| &undone.result) {
        failure.what.push_str(&format!("\n  {text}"));
    }
    for step in 0..begun {
        // One that only looked is as true as all the others.
        let only_looked = all.iter().all(|undone| undone.step != step);
        let mut of_step = all
            .iter()
            .filter(|undone| only_looked || undone.step == step);
        let wholly = of_step.all(|undone| undone.result.is_ok());
        told.undone(step, is_over && wholly);
    }
    failure.what.push_str(
        if is_over && all.iter().all(|undone| undone.result.is_ok()) {
            "\n  The server is as it was before."
        } else {
            "\n  Not everything could be put back; `bpe disable` tries again."
        },
    );
    failure
}

struct Run<'a> {
    server: &'a mut Server,
    plan: Plan,
    journal: Journal,
    told: &'a mut dyn Told,
    /// Files that were written in place of others.
    replaced: Vec<Rc<Replaced>>,
    /// Number of the step under way.
    begun: usize,
}

/// Tells a line.
macro_rules! tell {
    ($run:expr, $($argument:tt)*) => { $run.told.line(&format!($($argument)*)) };
}

/// What a step is called, and what it does.
type Step<'a> = (&'static str, fn(&mut Run<'a>) -> Result<(), Failure>);

impl<'a> Run<'a> {
    fn steps(&mut self) -> Result<(), Failure> {
        let steps = self.needed();
        let titles: Vec<_> = steps.iter().map(|(title, _)| *title).collect();
        self.told.steps(&titles);
        let count = steps.len();
        for (index, (_, step)) in steps.into_iter().enumerate() {
            self.told.begin(index);
            self.begun = index;
            self.journal.begin(index);
            step(self)?;
            if self.told.interrupted() {
                return Err(Failure::step("interrupted"));
            }
        }
        self.told.begin(count);
        self.conclude();
        Ok(())
    }

    /// The steps that change something on this server. The order matters.
    fn needed(&self) -> Vec<Step<'a>> {
        let plan = &self.plan;
        let steps: [(bool, Step<'a>); 10] = [
            (true, ("note what is there now", Self::note_record)),
            (!plan.folders.is_empty(), ("make folders", Self::folders)),
            (plan.copy.is_some(), ("write the library", Self::library)),
            (plan.install, ("install the plugin", Self::install)),
            (
                plan.create_function,
                ("create the function bpe_report", Self::function),
            ),
            (true, ("set and switch on", Self::settings)),
            (true, ("see that it is active", Self::check_active)),
            (plan.lower_pool, ("lower the buffer pool", Self::pool)),
            (
                !matches!(plan.permanence, Permanence::ByHand { .. })
                    || self.server.flavour == Flavour::MySql,
                ("make it permanent", Self::permanent),
            ),
            (plan.make_views, ("make the views", Self::views)),
        ];
        steps
            .into_iter()
            .filter_map(|(needed, step)| needed.then_some(step))
            .collect()
    }

    fn sql(&mut self, sql: &str) -> Result<(), Failure> {
        self.server
            .execute(sql)
            .map_err(|error| Failure::step(format!("{} failed: {}", readable(sql), plain(&error))))
    }

    /// Undo by one statement.
    fn undo_sql(&mut self, undone: impl Into<String>, sql: String) {
        self.journal.note(undone, move |server: &mut Server| {
            match server.execute(&sql) {
                // The plugin is gone, and its variables with it.
                Err(error) if error_code(&error) != UNKNOWN_VARIABLE => Err(plain(&error)),
                _ => Ok(()),
            }
        });
    }

    /// Does it by one statement, undone by another; also where it failed and may have been done.
    fn sql_and_undo(
        &mut self,
        sql: &str,
        undone: impl Into<String>,
        undo: String,
    ) -> Result<(), Failure> {
        let result = self.sql(sql);
        if result.is_ok() || self.server.is_outcome_unknown() {
            self.undo_sql(undone, undo);
        }
        result
    }

    /// The record is written first, so that `disable` can clean up even after this process died.
    fn note_record(&mut self) -> Result<(), Failure> {
        let before = self.plan.place.read()?;
        let place = self.plan.place.clone();
        // What remains is undone by `bpe disable`, which goes by the record.
        self.journal.note_needed(
            "record of previous values put back",
            move |_| match before {
                Some(record) => place.write(&record),
                None => place.remove(),
            },
        );
        self.write_record()
    }

    fn write_record(&self) -> Result<(), Failure> {
        self.plan
            .place
            .write(&self.plan.record)
            .map_err(|why| Failure::step(why).advise("name another folder with --state-dir"))
    }

    fn folders(&mut self) -> Result<(), Failure> {
        let Some(process) = self.plan.process.clone() else {
            return Ok(());
        };
        for folder in self.plan.folders.clone() {
            process
                .make_directory(&folder)
                .map_err(|why| Failure::step(format!("cannot make {}: {why}", folder.display())))?;
            let (made, maker) = (folder.clone(), process.clone());
            self.journal
                .note_needed(format!("folder {} removed", folder.display()), move |_| {
                    maker.remove_directory(&made)
                });
            self.plan.record.folders.push(folder.clone());
            tell!(self, "  made {}", folder.display());
        }
        if !self.plan.folders.is_empty() {
            self.write_record()?;
        }
        Ok(())
    }

    fn library(&mut self) -> Result<(), Failure> {
        let (Some(copy), Some(process)) = (self.plan.copy.clone(), self.plan.process.clone())
        else {
            return Ok(());
        };
        let failed =
            |why: String| Failure::step(format!("cannot write {}: {why}", copy.place.display()));
        let library = library::read(&copy.from).map_err(|error| failed(error.to_string()))?;
        let old = self
            .replace(&process, &copy.place, &library)
            .map_err(failed)?;
        let undo = move |_: &mut Server| old.put_back().map_err(|error| error.to_string());
        if copy.replaces {
            self.journal.note("previous library put back", undo);
        } else {
            self.plan.record.library = Some(copy.place.clone());
            self.journal.note_needed("library removed", undo);
        }
        self.write_record()?;
        tell!(self, "  wrote {}", copy.place.display());
        Ok(())
    }

    /// Writes a file of the server in a directory that only root may change. What was there is kept until everything is done.
    fn replace(
        &mut self,
        process: &Process,
        path: &Path,
        contents: &[u8],
    ) -> Result<Rc<Replaced>, String> {
        let (folder, name) = process.directory_of(path)?;
        let replaced = folder.replace(name, contents, 0o644);
        let replaced = replaced.map_err(|error| error.to_string())?;
        let replaced = Rc::new(replaced);
        self.replaced.push(Rc::clone(&replaced));
        Ok(replaced)
    }

    /// A plugin that was uninstalled stays until the last statement that uses it has ended. MariaDB may crash if it is installed while it
    /// goes (docs/reliability.md).
    fn wait_until_gone(&mut self) -> Result<(), Failure> {
        const GOING: &str = "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe' \
                             AND PLUGIN_STATUS NOT IN ('ACTIVE', 'DISABLED', 'INACTIVE')";
        let begin = Instant::now();
        loop {
            let left = self.server.value(GOING);
            let left = left.map_err(|error| Failure::step(plain(&error)))?;
            if left.as_deref() == Some("0") {
                return Ok(());
            }
            if begin.elapsed() > GONE_WITHIN {
                return Err(Failure::step(
                    "the plugin was uninstalled, and a statement still uses it",
                )
                .advise("run this again when that has ended; SHOW PROCESSLIST shows it"));
            }
            // Not often: the question holds the plugin, too.
            std::thread::sleep(Duration::from_secs(2));
        }
    }

    fn install(&mut self) -> Result<(), Failure> {
        if !self.plan.install {
            return Ok(());
        }
        if self.plan.stale_plugin_row {
            // Left by a start without the library; INSTALL would stumble over it.
            self.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        }
        let sql = match self.server.flavour {
            Flavour::MariaDb => "INSTALL SONAME 'bpe'",
            Flavour::MySql => "INSTALL PLUGIN bpe SONAME 'bpe.so'",
        };
        self.wait_until_gone()?;
        let result = self.sql(sql).map_err(|failure| {
            failure.advise(
                "the server's error log says more; on another host, copy bpe.so into its \
                 plugin_dir first",
            )
        });
        if result.is_ok() || self.server.is_outcome_unknown() {
            self.journal
                .note("plugin uninstalled", |server: &mut Server| {
                    let state = server.plugin_state();
                    match state.and_then(|state| match state {
                        Some(_) => server.execute("UNINSTALL PLUGIN bpe"),
                        None => server.execute("DELETE FROM mysql.plugin WHERE name = 'bpe'"),
                    }) {
                        Err(error) => Err(plain(&error)),
                        Ok(()) => Ok(()),
                    }
                });
        }
        result?;
        tell!(self, "  plugin installed");
        Ok(())
    }

    fn function(&mut self) -> Result<(), Failure> {
        if !self.plan.create_function {
            return Ok(());
        }
        self.sql("DROP FUNCTION IF EXISTS bpe_report")?;
        // After a start without the library MySQL knows no such function, but the row is there.
        self.sql("DELETE FROM mysql.func WHERE name = 'bpe_report'")?;
        self.sql_and_undo(
            "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'",
            "function bpe_report dropped",
            "DROP FUNCTION IF EXISTS bpe_report".to_owned(),
        )?;
        tell!(self, "  function bpe_report created");
        Ok(())
    }

    fn settings(&mut self) -> Result<(), Failure> {
        let mut changes: Vec<_> = self.plan.changes().cloned().collect();
        if self.plan.tries_again() {
            // There is nothing to put back: it was not on.
            self.sql("SET GLOBAL bpe_enabled = OFF")?;
            changes.retain(|setting| setting.name != "bpe_enabled");
            changes.extend(self.plan.settings.last().cloned());
        } else if self.plan.rebuilds() {
            // Off and on, as only switching on says at once what is wrong with the new settings.
            self.sql_and_undo(
                "SET GLOBAL bpe_enabled = OFF",
                "bpe_enabled = ON again",
                "SET GLOBAL bpe_enabled = ON".to_owned(),
            )?;
            changes.extend(self.plan.settings.last().cloned());
        }
        for setting in changes {
            let previous = setting.before.clone();
            // bpe_enabled after a rebuild.
            let unchanged = previous.as_ref() == Some(&setting.value);
            let result = self
                .sql(&format!(
                    "SET GLOBAL {} = {}",
                    setting.name,
                    sql_value(&setting.value)
                ))
                .map_err(|failure| {
                    failure.advise(
                        "fix what the message says; `bpe doctor` with the same --path and --size checks everything",
                    )
                });
            if result.is_err() && !self.server.is_outcome_unknown() {
                return result;
            }
            match previous {
                Some(_) if unchanged => self.undo_sql(
                    "switched off to change the settings back",
                    format!("SET GLOBAL {} = OFF", setting.name),
                ),
                Some(previous) => self.undo_sql(
                    format!("{} = {previous} again", setting.name),
                    format!("SET GLOBAL {} = {}", setting.name, sql_value(&previous)),
                ),
                // A freshly installed plugin goes as a whole; what it holds on disk goes first.
                None if setting.name == "bpe_enabled" => self.undo_sql(
                    "bpe_enabled = OFF again",
                    "SET GLOBAL bpe_enabled = OFF".to_owned(),
                ),
                None => {}
            }
            result?;
            tell!(self, "  {} = {}", setting.name, setting.value);
        }
        Ok(())
    }

    fn check_active(&mut self) -> Result<(), Failure> {
        wait_until_active(self.server).map_err(|failure| {
            failure.advise("`bpe doctor` with the same --path and --size checks everything")
        })
    }

    fn pool(&mut self) -> Result<(), Failure> {
        let plan = &mut self.plan;
        if !plan.lower_pool {
            return Ok(());
        }
        let status = self.server.status("bpe\\_memory\\_bytes")?;
        let used = status
            .get("bpe_memory_bytes")
            .and_then(|text| text.parse().ok())
            .unwrap_or(plan.expected_memory);
        let now = self.server.number("innodb_buffer_pool_size")?.unwrap_or(0);
        let Some(wanted) = plan.pool.lowered_for(used) else {
            tell!(
                self,
                "  innodb_buffer_pool_size stays at {}: its smallest step is {}, more than 4 %",
                human(plan.pool.size),
                human(plan.pool.step)
            );
            return Ok(());
        };
        if wanted == now {
            // Lowered so far by an `enable` before this one: `disable` must still know what it was.
            if now != plan.pool.size {
                plan.record.lower(plan.pool.size, now);
                self.write_record()?;
            }
            return Ok(());
        }
        plan.record.lower(plan.pool.size, wanted);
        self.write_record()?;
        let reached = match pool::resize(self.server, wanted) {
            Ok(reached) => reached,
            Err(why) if self.server.lost().is_some() || self.server.is_outcome_unknown() => {
                self.undo_pool(now);
                return Err(Failure::step(format!(
                    "innodb_buffer_pool_size could not be lowered: {why}"
                )));
            }
            Err(why) => {
                // The extension works without it; the pool is a matter of memory alone.
                tell!(
                    self,
                    "  innodb_buffer_pool_size could not be lowered: {why}"
                );
                self.server
                    .number("innodb_buffer_pool_size")?
                    .unwrap_or(now)
            }
        };
        let plan = &mut self.plan;
        if reached == plan.pool.size {
            plan.record.pool_before = None;
            plan.record.pool_after = None;
        } else {
            plan.record.lower(plan.pool.size, reached);
            tell!(
                self,
                "  innodb_buffer_pool_size lowered from {} to {}",
                human(plan.pool.size),
                human(reached)
            );
            self.undo_pool(now);
        }
        self.write_record()
    }

    fn undo_pool(&mut self, before: u64) {
        self.journal.note(
            format!("innodb_buffer_pool_size is {} again", human(before)),
            move |server| pool::resize(server, before).map(drop),
        );
    }

    /// The extension works without them: what goes wrong here is said, and nothing else.
    fn views(&mut self) -> Result<(), Failure> {
        if !self.plan.make_views {
            return Ok(());
        }
        let with_schema = !self.plan.record.schema_was_there;
        match views::create(self.server) {
            Ok(()) => {
                tell!(
                    self,
                    "  views made: {}; an account that reads them needs SELECT on bpe.* and PROCESS on *.*",
                    views::list()
                );
                self.journal
                    .note("views dropped", move |server: &mut Server| {
                        views::remove(server, with_schema).map(drop)
                    });
            }
            Err(why) => tell!(
                self,
                "  warning: the views of schema bpe could not be created: {why}\n  \
                 the extension works without them; `bpe views create` tries again"
            ),
        }
        Ok(())
    }

    fn conclude(&mut self) {
        if let Permanence::ByHand { why, place, .. } = &self.plan.permanence {
            tell!(self, "  note: {why}");
            let snippet = self.plan.snippet(self.plan.record.pool_after);
            tell!(
                self,
                "  to keep it over a restart, {}",
                by_hand(self.server.flavour, &snippet, place)
            );
        }
        let status = self.server.status("bpe%").unwrap_or_default();
        let mode = status.get("bpe_load_mode").map_or("", String::as_str);
        tell!(self, "Enabled. `bpe status` shows its figures.");
        if mode == "runtime" && self.server.is_mariadb() {
            tell!(
                self,
                "Loaded on the running server: if it uses io_uring, only synchronous reads are served until its next \
                 start."
            );
        }
    }
}
