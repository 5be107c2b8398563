//! Switching an installed extension by global variables, with the buffer pool: lowered for the memory that the extension
//! takes, and put back when it is switched off. What the pool was is in the same record that `bpe enable` keeps, so that
//! `bpe disable` finds it.

use super::values::BUILT_FROM;
use crate::connection::plain;
use crate::digest::{Digest, Part};
use crate::enable::{self, Change, Places, pool_stays};
use crate::failure::Failure;
use crate::journal::{Journal, Moment, Reopen, connected};
use crate::maintenance::check_may_set;
use crate::pool::{self, Pool, expected_memory};
use crate::process::Process;
use crate::quote::{readable, shell, shell_path, sql_value};
use crate::record::{Place, Record};
use crate::server::Server;
use crate::size::human;
use crate::state::wait_until_active;
use crate::told::Told;

const UNTIL_RESTART: &str =
    "this holds until the server's next start, which follows its option files";

const NO_RECORD: &str = "there is no record here of its size without the extension, which may have been switched on \
                         from another host or by another user";

const STARTED_AGAIN: &str = "\n  The server has started again.";

/// What will be set.
pub struct Plan {
    on: bool,
    /// Name, value, value before: those that differ.
    settings: Vec<(&'static str, String, String)>,
    was_on: bool,
    pool: PoolChange,
    pub warnings: Vec<String>,
    from: PlanFrom,
}

/// What was seen when it was made.
struct PlanFrom {
    /// Its place among the records, which tells servers apart.
    server: Place,
    pool: Pool,
    /// The switch, and what the cache is built from.
    variables: Vec<(String, String)>,
    record: Option<Record>,
}

enum PoolChange {
    Stays,
    /// From this size, which the record keeps.
    Lower {
        pool: Pool,
        expected: u64,
        place: Place,
        record: Box<Record>,
    },
    /// Back to this size.
    Restore {
        now: u64,
        before: u64,
    },
}

impl Plan {
    pub fn make(
        server: &mut Server,
        on: bool,
        path: Option<&str>,
        size: Option<u64>,
        places: &Places,
    ) -> Result<Self, Failure> {
        check_may_set(server)?;
        let variables = server.variables("bpe\\_%")?;
        let now = |name: &str| variables.get(name).cloned().unwrap_or_default();
        let was_on = now("bpe_enabled") == "ON";
        let process = Process::find(server).ok();
        let place = Place::of(server, process.as_ref(), places.state_dir.as_deref())?;
        let record = place.read()?;
        let pool = Pool::of(server)?;
        let variables = BUILT_FROM.iter().chain(&["bpe_enabled"]);
        let from = PlanFrom {
            server: place.clone(),
            pool,
            variables: variables
                .map(|name| ((*name).to_owned(), now(name)))
                .collect(),
            record: record.clone().map(Record::nameless),
        };
        let mut plan = Self {
            on,
            settings: Vec::new(),
            was_on,
            pool: PoolChange::Stays,
            warnings: Vec::new(),
            from,
        };
        if !on {
            match coming_back(record.as_ref(), pool.size) {
                Ok(Some(before)) => {
                    plan.pool = PoolChange::Restore {
                        now: pool.size,
                        before,
                    }
                }
                Ok(None) => {}
                Err(why) => plan.warnings.push(format!(
                    "innodb_buffer_pool_size stays at {}: {why}",
                    human(pool.size)
                )),
            }
            if was_on {
                plan.warnings
                    .push("the cache is dropped: switching on again starts empty".to_owned());
                plan.warnings.push(UNTIL_RESTART.to_owned());
            }
            return Ok(plan);
        }
        let path = path.map_or_else(|| now("bpe_path"), str::to_owned);
        let size = size.unwrap_or_else(|| now("bpe_size").parse().unwrap_or(0));
        if path.is_empty() || size == 0 {
            let what = if path.is_empty() { "path" } else { "size" };
            return Err(
                Failure::usage(format!("the server has no {what} for the cache yet")).advise(
                    "name a folder on a fast local disk, and how much of it the cache may take",
                ),
            );
        }
        plan.check_path(server, &path, size)?;
        for (name, value) in [("bpe_path", path), ("bpe_size", size.to_string())] {
            let before = now(name);
            if before != value {
                plan.settings.push((name, value, before));
            }
        }
        if was_on && !plan.settings.is_empty() {
            plan.warnings
                .push("the cache is rebuilt and starts empty".to_owned());
        }
        if !was_on || !plan.settings.is_empty() {
            plan.warnings.push(UNTIL_RESTART.to_owned());
            let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
            match record {
                Some(record) => plan.lower(pool, expected_memory(size, page_size), place, record),
                None => plan.warnings.push(format!(
                    "innodb_buffer_pool_size stays at {}: {NO_RECORD}",
                    human(pool.size)
                )),
            }
        }
        Ok(plan)
    }

    /// On the server's own host a bad path is refused before anything is changed.
    fn check_path(&mut self, server: &mut Server, path: &str, size: u64) -> Result<(), Failure> {
        let Ok(process) = Process::find(server) else {
            return Ok(());
        };
        let missing = enable::check_paths(server, &process, path, size, &mut self.warnings)?;
        match missing.first() {
            None => Ok(()),
            Some(folder) => Err(
                Failure::refused(format!("{} does not exist", folder.display())).advise(format!(
                    "make it for the server's user: sudo install -d -m 700 -o {} {}",
                    shell(&process.user_name()),
                    shell_path(folder)
                )),
            ),
        }
    }

    fn lower(&mut self, mut pool: Pool, expected: u64, place: Place, record: Record) {
        // Lowered before and not touched since: count from what it was.
        if let Some(original) = record.original(pool.size) {
            pool.size = original;
        }
        if pool.lowered_for(expected).is_none() {
            self.warnings
                .push(pool_stays(pool.size, pool.step, expected));
            return;
        }
        self.pool = PoolChange::Lower {
            pool,
            expected,
            place,
            record: Box::new(record),
        };
    }

    /// Adds what it was made from.
    pub fn seen(&self, digest: &mut Digest) {
        let PlanFrom {
            server,
            pool,
            variables,
            record,
        } = &self.from;
        digest.add(Part::Server, server);
        digest.add(Part::Settings, &(variables, &self.settings));
        digest.add(Part::Pool, pool);
        digest.add(Part::Record, record);
    }

    /// What will be changed, in words.
    pub fn as_table(&self) -> Vec<Change> {
        let mut table: Vec<_> = self
            .settings
            .iter()
            .map(|(name, value, before)| Change::setting(name, Some(before), value))
            .collect();
        if self.on != self.was_on {
            let word = |on: bool| if on { "ON" } else { "OFF" };
            table.push(Change::setting(
                "bpe_enabled",
                Some(word(self.was_on)),
                word(self.on),
            ));
        }
        match &self.pool {
            PoolChange::Lower { pool, expected, .. } => {
                if let Some(lowered) = pool.lowered_for(*expected) {
                    table.push(Change::pool(pool.size, lowered));
                }
            }
            PoolChange::Restore { now, before } => table.push(Change::new(
                "innodb_buffer_pool_size",
                human(*now),
                human(*before),
                "the extension no longer takes the memory",
            )),
            PoolChange::Stays => {}
        }
        table
    }

    /// Sets it; what was set before a failure is put back.
    ///
    /// # Errors
    /// In the server's own words, with what could not be put back.
    pub fn apply(self, server: &mut Server, told: &mut dyn Told) -> Result<(), Failure> {
        self.apply_or_reopen(server, told, &|| Err(Failure::step("not tried")))
    }

    /// The same; `reopen` logs in once more to put things back where the connection is lost.
    ///
    /// # Errors
    /// As above.
    pub fn apply_or_reopen(
        self,
        server: &mut Server,
        told: &mut dyn Told,
        reopen: Reopen<'_>,
    ) -> Result<(), Failure> {
        if self.on {
            self.switch_on(server, told, reopen)
        } else {
            self.switch_off(server, told, reopen)
        }
    }

    fn switch_off(
        self,
        server: &mut Server,
        told: &mut dyn Told,
        reopen: Reopen<'_>,
    ) -> Result<(), Failure> {
        let begin = Moment::of(server);
        let restores = matches!(self.pool, PoolChange::Restore { .. });
        told.steps(if restores {
            &["switch off", "put the buffer pool back"]
        } else {
            &["switch off"]
        });
        told.begin(0);
        run(server, "SET GLOBAL bpe_enabled = OFF").map_err(|mut failure| {
            if let Some(words) = connected(server, reopen).in_words() {
                failure.what.push_str(&format!("\n  {words}"));
            }
            failure
        })?;
        told.line("bpe_enabled = OFF");
        if let PoolChange::Restore { before, .. } = self.pool {
            told.begin(1);
            // The extension is off, which is what was asked for; the pool is a matter of memory alone.
            match pool::resize(server, before) {
                Ok(reached) => told.line(&format!("innodb_buffer_pool_size is {}", human(reached))),
                Err(why) => {
                    let said = pool_left(server, reopen, begin, &why, &mut || {})?;
                    told.line(&format!("it stays as it is: {said}"));
                }
            }
        }
        Ok(())
    }

    fn switch_on(
        self,
        server: &mut Server,
        told: &mut dyn Told,
        reopen: Reopen<'_>,
    ) -> Result<(), Failure> {
        let begin = Moment::of(server);
        let lowers = matches!(self.pool, PoolChange::Lower { .. });
        let steps = [
            "set and switch on",
            "see that it is active",
            "lower the buffer pool",
        ];
        told.steps(if lowers { &steps } else { &steps[..2] });
        told.begin(0);
        let mut journal = Journal::default();
        let mut begun = 0;
        let result = self.set(server, told, &mut journal).and_then(|()| {
            begun = 1;
            told.begin(begun);
            wait_until_active(server)
        });
        if let Err(mut failure) = result {
            // What failed may be the connection alone.
            let connection = connected(server, reopen);
            if let Some(words) = connection.in_words() {
                failure.what.push_str(&format!("\n  {words}"));
            }
            if connection.is_another() && begin.has_started_since(server) {
                (0..begun).for_each(|step| told.undone(step, true));
                failure.what.push_str(STARTED_AGAIN);
                return Err(failure);
            }
            let all = journal.roll_back(server, &connection);
            for Ok(text) | Err(text) in all.iter().map(|undone| &undone.result) {
                failure.what.push_str(&format!("\n  {text}"));
            }
            let wholly =
                !connection.leaves_a_statement() && all.iter().all(|undone| undone.result.is_ok());
            (0..begun).for_each(|step| told.undone(step, wholly));
            return Err(failure);
        }
        if let PoolChange::Lower {
            pool,
            expected,
            place,
            record,
        } = self.pool
        {
            told.begin(2);
            match lower_pool(server, pool, expected, &place, *record) {
                Ok(text) => told.line(&text),
                Err(why) => {
                    // Variables, which a server that starts again does not have.
                    let undone = &mut || (0..2).for_each(|step| told.undone(step, true));
                    let said = pool_left(server, reopen, begin, &why, undone)?;
                    told.line(&format!(
                        "innodb_buffer_pool_size could not be lowered: {said}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn set(
        &self,
        server: &mut Server,
        told: &mut dyn Told,
        journal: &mut Journal,
    ) -> Result<(), Failure> {
        // One that failed may have been done all the same.
        let mut set = |name: &str, value: &str, before: &str| {
            let result = run(server, &format!("SET GLOBAL {name} = {}", sql_value(value)));
            if result.is_ok() || server.is_outcome_unknown() {
                let sql = format!("SET GLOBAL {name} = {}", sql_value(before));
                journal.note(
                    format!("{name} = {before} again"),
                    move |server: &mut Server| server.execute(&sql).map_err(|error| plain(&error)),
                );
            }
            result
        };
        // Off and on, as only switching on says at once what is wrong with the new settings.
        if self.was_on && !self.settings.is_empty() {
            set("bpe_enabled", "OFF", "ON")?;
        }
        for (name, value, before) in &self.settings {
            set(name, value, before)?;
            told.line(&format!("{name} = {value}"));
        }
        if !self.was_on || !self.settings.is_empty() {
            set("bpe_enabled", "ON", "OFF")?;
            told.line("bpe_enabled = ON");
        }
        Ok(())
    }
}

/// What the pool goes back to when the extension is switched off; None where nothing was taken from it. The error is
/// why that is not known.
fn coming_back(record: Option<&Record>, now: u64) -> Result<Option<u64>, String> {
    let Some(record) = record else {
        return Err(NO_RECORD.to_owned());
    };
    match (record.original(now), record.pool_before) {
        (Some(original), _) => Ok(Some(original).filter(|&original| original != now)),
        (None, Some(before)) if before != now => Err(format!(
            "it has been changed since it was lowered from {}",
            human(before)
        )),
        _ => Ok(None),
    }
}

/// What is said after the pool could not be set, which need not work. `undone`: called where the server has started again.
///
/// # Errors
/// The server is not there any more, has started again, or does not tell the pool's size.
fn pool_left(
    server: &mut Server,
    reopen: Reopen<'_>,
    begin: Moment,
    why: &str,
    undone: &mut dyn FnMut(),
) -> Result<String, Failure> {
    let connection = connected(server, reopen);
    let words = match connection.in_words() {
        None => return Ok(why.to_owned()),
        Some(words) => words,
    };
    let failure = |text: &str| {
        Failure::step(format!(
            "innodb_buffer_pool_size could not be set: {why}\n  {words}{text}"
        ))
    };
    if !connection.is_another() {
        return Err(failure(""));
    }
    if begin.has_started_since(server) {
        undone();
        return Err(failure(STARTED_AGAIN));
    }
    match server.number("innodb_buffer_pool_size") {
        Ok(size) => Ok(format!(
            "{why}; {words}: it is {} now",
            human(size.unwrap_or(0))
        )),
        Err(unknown) => Err(failure(&format!("\n  {}", unknown.what))),
    }
}

/// Lowers the pool by what the extension really takes. Returns what was done, in words.
fn lower_pool(
    server: &mut Server,
    pool: Pool,
    expected: u64,
    place: &Place,
    mut record: Record,
) -> Result<String, String> {
    let text = |failure: Failure| failure.to_string();
    let used = server
        .number_of_status("bpe_memory_bytes")
        .map_err(text)?
        .unwrap_or(expected);
    let now = server
        .number("innodb_buffer_pool_size")
        .map_err(text)?
        .unwrap_or(0);
    let Some(wanted) = pool.lowered_for(used) else {
        return Err(pool_stays(pool.size, pool.step, used));
    };
    record.lower(pool.size, wanted);
    // Before it is done, so that it can be undone whatever happens.
    place.write(&record)?;
    if wanted == now {
        return Ok(format!("innodb_buffer_pool_size is {} already", human(now)));
    }
    let reached = pool::resize(server, wanted)?;
    if reached != wanted {
        record.lower(pool.size, reached);
        place.write(&record)?;
    }
    Ok(format!(
        "innodb_buffer_pool_size lowered from {} to {}",
        human(now),
        human(reached)
    ))
}

fn run(server: &mut Server, sql: &str) -> Result<(), Failure> {
    server
        .execute(sql)
        .map_err(|error| Failure::step(format!("{} failed: {}", readable(sql), plain(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_comes_back_from_every_size_it_was_given() {
        let mut record = Record::default();
        assert_eq!(coming_back(Some(&record), 1024), Ok(None));
        record.lower(1024, 1020);
        record.lower(1024, 1000);
        // 1020 is what an option file may start the server with.
        for now in [1020, 1000] {
            assert_eq!(coming_back(Some(&record), now), Ok(Some(1024)));
        }
        assert_eq!(coming_back(Some(&record), 1024), Ok(None));
        assert!(coming_back(Some(&record), 2048).is_err());
        assert!(coming_back(None, 1020).is_err());
    }
}
