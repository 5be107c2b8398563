//! The context of the steps of a change: server, progress, record and undo log. After a failure it undoes the steps.

use std::path::Path;
use std::rc::Rc;

use super::undo_log::{Moment, Reconnection, Reopen, UndoLog, connected};
use crate::connect::maintenance::Maintenance;
use crate::connect::plain;
use crate::connect::process::Process;
use crate::connect::server::{Server, error_code};
use crate::installation::install_state::{InstallState, StateFile};
use crate::support::failure::Failure;
use crate::support::files::Replaced;
use crate::support::notifier::Notifier;
use crate::support::quote::{readable, sql_value};

/// The server does not have the variable.
const UNKNOWN_VARIABLE: u16 = 1193;
const STARTED_AGAIN: &str = "\n  The server has started again.";

/// The kind of a change decides how the loop handles a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The steps add files, rows and variables. A failure undoes all of them.
    Install,
    /// The steps remove the same. After a failure the loop goes on, and removes as much as possible.
    Remove,
    /// The steps set variables. A failure sets them back; a restart of the server forgets them.
    Set,
}

/// The context of a step.
pub struct Run<'a> {
    pub server: &'a mut Server,
    notifier: &'a mut dyn Notifier,
    reopen: Reopen<'a>,
    kind: Kind,
    record: Option<(StateFile, Option<InstallState>)>,
    record_is_noted: bool,
    undo_log: UndoLog,
    maintenance: Option<Maintenance>,
    /// Replaced files, with their old versions.
    replaced: Vec<Rc<Replaced>>,
    begin: Moment,
    /// Index of the current step, and the number of failures before it.
    step: usize,
    failed_before: usize,
    /// Failures after which the loop went on.
    failures: Vec<String>,
    /// State of the connection, if a dispensable step has checked it and ended the change.
    connection: Option<Reconnection>,
    /// The failure keeps the completed steps.
    stays: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        kind: Kind,
        record: Option<(StateFile, Option<InstallState>)>,
        server: &'a mut Server,
        notifier: &'a mut dyn Notifier,
        reopen: Reopen<'a>,
    ) -> Self {
        let begin = Moment::of(server);
        Self {
            server,
            notifier,
            reopen,
            kind,
            record,
            record_is_noted: false,
            undo_log: UndoLog::default(),
            maintenance: None,
            replaced: Vec::new(),
            step: 0,
            failed_before: 0,
            begin,
            failures: Vec::new(),
            connection: None,
            stays: false,
        }
    }

    /// Begins the step with this index. The number of steps as index: all steps are complete.
    pub(super) fn begin(&mut self, step: usize) {
        self.step = step;
        self.failed_before = self.failures.len();
        self.notifier.begin(step);
        self.undo_log.begin(step);
    }

    /// Ends a step. The kind of the change decides about a failure.
    pub(super) fn end(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if self.kind == Kind::Remove {
            self.failures
                .extend(result.err().map(|failure| failure.what));
            if self.failures.len() > self.failed_before {
                self.notifier.failed(self.step);
            }
            return Ok(());
        }
        result?;
        match self.notifier.interrupted() {
            true => Err(Failure::step("interrupted")),
            false => Ok(()),
        }
    }

    /// Ends a dispensable step: reports its failure and goes on, over a new connection if the old one was lost.
    pub(super) fn end_dispensable(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let Err(failure) = result else {
            return self.end(Ok(()));
        };
        let connection = connected(self.server, self.reopen);
        let started_again = connection.is_another() && self.begin.has_started_since(self.server);
        if matches!(connection, Reconnection::Failed(..)) || started_again {
            // The completed steps are as requested, and no connection could undo them.
            self.stays = !started_again;
            self.connection = Some(connection);
            return Err(failure);
        }
        let mut text = failure.what;
        if let Some(words) = connection.message() {
            text.push_str(&format!("\n  {words}"));
        }
        self.tell(text);
        Ok(())
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Ends the change after success or failure.
    pub(super) fn conclude(mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let connection = match (self.connection.take(), &result) {
            (Some(connection), _) => connection,
            (None, Ok(())) if self.server.lost().is_none() => Reconnection::Unchanged,
            _ => connected(self.server, self.reopen),
        };
        let mut more: Vec<_> = connection.message().into_iter().collect();
        if let Some(maintenance) = self
            .maintenance
            .as_mut()
            .filter(|_| connection.is_another())
        {
            more.extend(maintenance.begin(self.server).err());
        }
        let result = match result {
            Err(mut failure) if self.kind != Kind::Remove => {
                for text in more {
                    failure.what.push_str(&format!("\n  {text}"));
                }
                Err(match self.stays {
                    true => failure,
                    false => self.undone(failure, &connection),
                })
            }
            result => {
                // Only the undo log needs the old files.
                for file in std::mem::take(&mut self.replaced) {
                    file.done();
                }
                self.failures
                    .extend(result.err().map(|failure| failure.what));
                if !self.failures.is_empty() {
                    self.failures.extend(more);
                }
                Ok(())
            }
        };
        self.close();
        match (result, self.failures.as_slice()) {
            (Ok(()), []) => Ok(()),
            (Err(mut failure), failures) => {
                for why in failures {
                    failure.what.push_str(&format!("\n  {why}"));
                }
                Err(failure)
            }
            (Ok(()), failures) if self.kind == Kind::Remove => Err(Failure::step(format!(
                "not everything could be undone:\n  {}",
                failures.join("\n  ")
            ))
            .advise("fix what the messages say and run `bpe disable` again")),
            (Ok(()), failures) => Err(Failure::step(failures.join("\n  "))),
        }
    }

    /// Restores `super_read_only`, and removes the record after a complete removal.
    pub(super) fn close(&mut self) {
        let ended = self.maintenance.take().map(|it| it.end(self.server));
        self.failures.extend(ended.and_then(Result::err));
        if self.kind == Kind::Remove && self.failures.is_empty() {
            let removed = self.record.take().map(|(place, _)| place.remove());
            self.failures.extend(removed.and_then(Result::err));
        }
    }

    /// Undoes all steps, and appends the results to the failure.
    fn undone(&mut self, mut failure: Failure, connection: &Reconnection) -> Failure {
        let (sets, at) = (self.kind == Kind::Set, self.step);
        if sets && connection.is_another() && self.begin.has_started_since(self.server) {
            // The restart has reset the variables.
            (0..at).for_each(|step| self.notifier.undone(step, true));
            failure.what.push_str(STARTED_AGAIN);
            return failure;
        }
        let is_over = !connection.leaves_a_statement();
        let all = std::mem::take(&mut self.undo_log).roll_back(self.server, connection);
        for Ok(text) | Err(text) in all.iter().map(|undone| &undone.result) {
            failure.what.push_str(&format!("\n  {text}"));
        }
        for step in 0..at {
            // A step without undo entries gets the result of all entries.
            let only_looked = all.iter().all(|undone| undone.step != step);
            let mut of_step = all
                .iter()
                .filter(|undone| only_looked || undone.step == step);
            let wholly = of_step.all(|undone| undone.result.is_ok());
            self.notifier.undone(step, is_over && wholly);
        }
        let wholly = is_over && all.iter().all(|undone| undone.result.is_ok());
        failure.what.push_str(match (wholly, sets) {
            (_, true) => "",
            (true, _) => "\n  The server is as it was before.",
            (false, _) => "\n  Not everything could be put back; `bpe disable` tries again.",
        });
        failure
    }

    /// Reports a line of the current step.
    pub fn tell(&mut self, text: impl AsRef<str>) {
        self.notifier
            .line(&format!("  {}", text.as_ref().trim_start()));
    }

    /// Reports a line beside the steps.
    pub fn say(&mut self, text: impl AsRef<str>) {
        self.notifier.line(text.as_ref());
    }

    /// Adds an undo entry. `undone` names its result.
    pub fn add_undo(
        &mut self,
        undone: impl Into<String>,
        undo: impl FnOnce(&mut Server) -> Result<(), String> + 'static,
    ) {
        self.undo_log.push(undone.into(), false, Box::new(undo));
    }

    /// Adds an undo entry that runs only if all later entries succeeded.
    pub fn add_needed_undo(
        &mut self,
        undone: impl Into<String>,
        undo: impl FnOnce(&mut Server) -> Result<(), String> + 'static,
    ) {
        self.undo_log.push(undone.into(), true, Box::new(undo));
    }

    /// Reports the result of an action. A removal collects failures and goes on.
    ///
    /// # Errors
    /// The action failed, in a change that stops at failures.
    pub fn done(
        &mut self,
        what: impl AsRef<str>,
        result: Result<(), String>,
    ) -> Result<(), Failure> {
        let what = what.as_ref();
        match result {
            Ok(()) => self.tell(what),
            Err(why) if self.kind == Kind::Remove => {
                self.failures.push(format!("{what}: NOT done: {why}"));
            }
            Err(why) => return Err(Failure::step(format!("{what}: NOT done: {why}"))),
        }
        Ok(())
    }

    /// Keeps later statements out of the binary log, and lifts `super_read_only` until the end.
    ///
    /// # Errors
    /// The server refuses.
    pub fn maintain(&mut self) -> Result<(), Failure> {
        let maintenance = self.maintenance.insert(Maintenance::default());
        maintenance.begin(self.server).map_err(Failure::step)
    }

    pub fn sql(&mut self, sql: &str) -> Result<(), Failure> {
        self.server
            .execute(sql)
            .map_err(|error| Failure::step(format!("{} failed: {}", readable(sql), plain(&error))))
    }

    /// Runs a statement, and notes the statement that undoes it, also if its outcome is unknown.
    pub fn sql_and_undo(
        &mut self,
        sql: &str,
        undone: impl Into<String>,
        undo: String,
    ) -> Result<(), Failure> {
        let result = self.sql(sql);
        if result.is_ok() || self.server.is_outcome_unknown() {
            self.add_undo(undone, move |server: &mut Server| {
                match server.execute(&undo) {
                    // The plugin is gone, and its variables with it.
                    Err(error) if error_code(&error) != UNKNOWN_VARIABLE => Err(plain(&error)),
                    _ => Ok(()),
                }
            });
        }
        result
    }

    /// Sets a global variable. The undo sets it to `before`.
    pub fn set(&mut self, name: &str, value: &str, before: &str) -> Result<(), Failure> {
        self.sql_and_undo(
            &format!("SET GLOBAL {name} = {}", sql_value(value)),
            format!("{name} = {before} again"),
            format!("SET GLOBAL {name} = {}", sql_value(before)),
        )
    }

    /// Replaces a file of the server in a directory that only root may change, and gives nobody more rights to it. The old
    /// file stays until the change ends, for an undo entry with this text. `is_needed` as in [`UndoLog::push`].
    pub fn replace(
        &mut self,
        process: &Process,
        path: &Path,
        contents: &[u8],
        undone: &str,
        is_needed: bool,
    ) -> Result<(), Failure> {
        let replaced = process.directory_of(path).and_then(|(folder, name)| {
            let replaced = folder.replace(name, contents, 0o644);
            replaced.map_err(|error| error.to_string())
        });
        let replaced = replaced
            .map_err(|why| Failure::step(format!("cannot write {}: {why}", path.display())))?;
        let replaced = Rc::new(replaced);
        self.replaced.push(Rc::clone(&replaced));
        let undo = move |_: &mut Server| replaced.put_back().map_err(|error| error.to_string());
        self.undo_log
            .push(undone.to_owned(), is_needed, Box::new(undo));
        Ok(())
    }

    /// Contents of the record.
    pub fn recorded(&self) -> InstallState {
        let record = self.record.as_ref().and_then(|(_, record)| record.clone());
        record.unwrap_or_default()
    }

    /// Changes the record and writes it. Steps call this before they act, so that `bpe disable` can clean up even if this
    /// process dies.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record(&mut self, change: impl FnOnce(&mut InstallState)) -> Result<(), Failure> {
        let Some((place, record)) = &mut self.record else {
            return Ok(());
        };
        if !self.record_is_noted {
            let before = place.read()?;
            let place = place.clone();
            // `bpe disable` needs the record to undo the rest.
            let undo = move |_: &mut Server| match before {
                Some(record) => place.write(&record),
                None => place.remove(),
            };
            let undone = "record of previous values put back";
            self.undo_log.push(undone.to_owned(), true, Box::new(undo));
            self.record_is_noted = true;
        }
        let record = record.get_or_insert_default();
        change(record);
        place
            .write(record)
            .map_err(|why| Failure::step(why).advise("name another folder with --state-dir"))
    }
}
