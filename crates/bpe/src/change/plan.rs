//! Steps of a change, their rows, and the loop that runs them.

use std::fmt;

use interface::untrusted::one_line;
use serde::Serialize;

use super::digest::{Digest, Topic};
use super::run::{Kind, Run};
use super::undo_log::Reopen;
use crate::connect::server::Server;
use crate::installation::install_state::{InstallState, StateFile};
use crate::support::failure::Failure;
use crate::support::notifier::Notifier;
use crate::support::size::human;

/// Name of a row with a line of an option file.
pub const OPTION_LINE: &str = "line of the option file";

/// One row of the plan's table: item, old value, new value, reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    pub what: String,
    /// Empty: the item is new.
    pub from: String,
    pub to: String,
    pub why: String,
}

impl Row {
    pub fn new(
        what: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            from: from.into(),
            to: to.into(),
            why: why.into(),
        }
    }

    /// A variable. Sizes are written for people.
    pub fn setting(name: &str, before: Option<&str>, value: &str) -> Self {
        let shown = |text: &str| match (name, text.parse()) {
            ("bpe_size", Ok(0)) => String::new(),
            ("bpe_size", Ok(bytes)) => human(bytes),
            _ => text.to_owned(),
        };
        let why = match name {
            "bpe_path" => "folders or files on the fast disks",
            "bpe_size" => "room for the cache, all disks together",
            "bpe_enabled" => "the switch",
            _ => "",
        };
        Self::new(
            name,
            before.map(shown).unwrap_or_default(),
            shown(value),
            why,
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.what))?;
        match (self.from.as_str(), self.to.as_str()) {
            ("", "") => {}
            ("", to) => write!(f, ": {}", one_line(to))?,
            (from, to) => write!(f, ": {} -> {}", one_line(from), one_line(to))?,
        }
        match self.why.as_str() {
            "" => Ok(()),
            why => write!(f, " ({why})"),
        }
    }
}

/// Reaction to the failure of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    /// The [`Kind`] of the change decides.
    Usual,
    /// The loop reports the failure and runs the next step.
    Tell,
    /// The loop stops, since later steps need this one.
    Stop,
}

type Work = Box<dyn FnOnce(&mut Run<'_>) -> Result<(), Failure> + Send>;

/// One step.
pub struct Step {
    title: &'static str,
    pub(super) rows: Vec<Row>,
    on_failure: OnFailure,
    work: Work,
}

impl Step {
    pub fn new(
        title: &'static str,
        rows: Vec<Row>,
        work: impl FnOnce(&mut Run<'_>) -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        Self {
            title,
            rows,
            on_failure: OnFailure::Usual,
            work: Box::new(work),
        }
    }

    /// Lets the change succeed without this step.
    #[must_use]
    pub fn dispensable(mut self) -> Self {
        self.on_failure = OnFailure::Tell;
        self
    }

    /// Stops the change if this step fails.
    #[must_use]
    pub fn needed(mut self) -> Self {
        self.on_failure = OnFailure::Stop;
        self
    }
}

/// A change of a server, planned before any step runs.
pub struct Plan {
    kind: Kind,
    /// Flavour, version, address and process of the server.
    pub title: String,
    /// Notes for the administrator.
    pub notes: Vec<String>,
    /// Text of a plan without steps.
    pub nothing: String,
    steps: Vec<Step>,
    /// Digest of the facts behind the plan.
    pub digest: Digest,
    /// The server's state file and its record. Steps may change it.
    record: Option<(StateFile, Option<InstallState>)>,
    /// Runs after the last step succeeded.
    end: Option<Work>,
}

impl Plan {
    /// A plan without steps changes nothing.
    pub fn new(kind: Kind, title: String) -> Self {
        Self {
            kind,
            title,
            notes: Vec::new(),
            nothing: match kind {
                Kind::Remove => "The extension is not on this server; nothing to undo.",
                _ => "Already enabled with these settings; nothing to change.",
            }
            .to_owned(),
            steps: Vec::new(),
            digest: Digest::default(),
            record: None,
            end: None,
        }
    }

    /// Adds the server's record.
    #[must_use]
    pub fn with_record(mut self, place: StateFile, record: Option<InstallState>) -> Self {
        self.record = Some((place, record));
        self
    }

    pub fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Sets the work after the last step.
    pub fn at_end(
        &mut self,
        work: impl FnOnce(&mut Run<'_>) -> Result<(), Failure> + Send + 'static,
    ) {
        self.end = Some(Box::new(work));
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether an interrupted change outlives the server: it changes more than variables.
    pub fn leaves_something(&self) -> bool {
        self.kind != Kind::Set && !self.is_empty()
    }

    /// Adds the text of the complete plan to its digest.
    pub fn add_text_to_digest(&mut self) {
        let rows: Vec<_> = self.rows().collect();
        let text = format!("{rows:?}{:?}", self.notes);
        self.digest.add(Topic::Plan, &text);
    }

    /// Rows of all steps, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.steps.iter().flat_map(|step| &step.rows)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", one_line(&self.title))?;
        for note in &self.notes {
            writeln!(f, "  note: {}", one_line(note))?;
        }
        if self.is_empty() {
            return write!(f, "{}", one_line(&self.nothing));
        }
        let (head, foot) = match self.kind {
            Kind::Remove => ("This will be undone:", ""),
            _ => (
                "This will change:",
                "\nThe server goes on running. `bpe disable` undoes all of it.",
            ),
        };
        f.write_str(head)?;
        for row in self.rows() {
            match row.what == OPTION_LINE {
                true => write!(f, "\n      {}", one_line(&row.to))?,
                false => write!(f, "\n  - {row}")?,
            }
        }
        f.write_str(foot)
    }
}

impl Plan {
    /// Runs the steps. `reopen` logs in again after a lost connection.
    ///
    /// # Errors
    /// The failed step, and the results of undoing the others.
    pub fn carry_out(
        self,
        server: &mut Server,
        notifier: &mut dyn Notifier,
        reopen: Reopen<'_>,
    ) -> Result<(), Failure> {
        let titles: Vec<_> = self.steps.iter().map(|step| step.title).collect();
        notifier.steps(&titles);
        let mut run = Run::new(self.kind, self.record, server, notifier, reopen);
        let result = all(self.steps, self.end, &mut run);
        run.conclude(result)
    }
}

/// Runs all steps in order.
fn all(steps: Vec<Step>, end: Option<Work>, run: &mut Run<'_>) -> Result<(), Failure> {
    let count = steps.len();
    for (number, step) in steps.into_iter().enumerate() {
        run.begin(number);
        let result = (step.work)(run);
        match step.on_failure {
            OnFailure::Tell => run.end_dispensable(result)?,
            OnFailure::Usual => run.end(result)?,
            OnFailure::Stop => result?,
        }
    }
    run.begin(count);
    if run.server.lost().is_none() {
        run.close();
    }
    match end {
        Some(end) if !run.has_failed() => end(run),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_for_people() {
        let row = Row::setting("bpe_size", Some("0"), "1073741824");
        assert_eq!((row.from.as_str(), row.to.as_str()), ("", "1 GiB"));
        assert_eq!(
            Row::setting("bpe_enabled", Some("OFF"), "ON").to_string(),
            "bpe_enabled: OFF -> ON (the switch)"
        );
        let forged = Row::new("a\nb", "", "c\nd", "");
        assert_eq!(forged.to_string().lines().count(), 1, "{forged}");
    }
}
