//! The views of schema `bpe`, and `bpe views`, which creates, drops or prints them independently of `bpe enable`.
//!
//! `sql/views.sql` contains the statements, for this command and for manual use. A view counts as ours if it has one of
//! the names there and calls `bpe_report`. Other objects are never replaced or dropped. The schema is dropped only when
//! it is empty.

use std::process::ExitCode;

use crate::connect::maintenance::Maintenance;
use crate::connect::server::{Server, error_code};
use crate::connect::{self, plain, report};
use crate::support::failure::{Exit, Failure};
use crate::support::terminal::say;

/// The statements, including comments.
const FILE: &str = include_str!("../../../../sql/views.sql");
/// Names of the views, without the schema.
pub const NAMES: [&str; 6] = ["status", "instances", "devices", "files", "rules", "tables"];

/// Errors when the account may not name another definer, or when that account does not exist.
const NOT_THAT_DEFINER: [u16; 3] = [1227, 1449, 4162];
/// "The server is running with the --read-only option".
const READ_ONLY: [u16; 2] = [1290, 1792];

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Create or replace the views bpe.status, bpe.instances, bpe.devices, bpe.files, bpe.rules and bpe.tables
    Create(Connected),
    /// Drop them, and the schema if nothing else is in it
    Drop(Connected),
    /// Print the statements that create them
    Print,
}

#[derive(clap::Args)]
struct Connected {
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Create(to) => create_alone(&mut Server::connect(&to.connection)?)?,
        Action::Drop(to) => drop_alone(&mut Server::connect(&to.connection)?)?,
        Action::Print => say!("{}", FILE.trim_end()),
    }
    Ok(Exit::Ok.into())
}

/// Contents of schema `bpe`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Present {
    pub schema: bool,
    /// Views of this project.
    pub ours: Vec<String>,
    /// Foreign tables and views that have one of our names.
    pub foreign: Vec<String>,
}

impl Present {
    /// Reads the contents from the server.
    pub fn read(server: &mut Server) -> Result<Self, mysql::Error> {
        let schema = server.value(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'bpe'",
        )?;
        let found = server.pairs(
            "SELECT t.TABLE_NAME, LOCATE('bpe_report', v.VIEW_DEFINITION) FROM information_schema.TABLES t \
             LEFT JOIN information_schema.VIEWS v ON v.TABLE_SCHEMA = t.TABLE_SCHEMA AND v.TABLE_NAME = t.TABLE_NAME \
             WHERE t.TABLE_SCHEMA = 'bpe' ORDER BY t.TABLE_NAME",
        )?;
        let mut present = Self {
            schema: schema.is_some(),
            ..Self::default()
        };
        for (name, place) in found {
            if !NAMES.contains(&name.as_str()) {
                continue;
            }
            if place.parse().is_ok_and(|place: u64| place > 0) {
                present.ours.push(name);
            } else {
                present.foreign.push(name);
            }
        }
        Ok(present)
    }

    pub fn is_complete(&self) -> bool {
        self.ours.len() == NAMES.len()
    }

    /// Why the views cannot be created; `None` if they can.
    pub fn obstacle(&self) -> Option<String> {
        let first = self.foreign.first()?;
        Some(format!(
            "schema bpe already has a table or view `{first}` that is not one of bpe's"
        ))
    }
}

/// Creates or replaces the views. The session's statements must not reach a replica.
pub fn create(server: &mut Server) -> Result<(), String> {
    let present = Present::read(server).map_err(|error| plain(&error))?;
    if let Some(obstacle) = present.obstacle() {
        return Err(obstacle);
    }
    for statement in statements() {
        let result = match server.execute(&statement) {
            Err(error) if NOT_THAT_DEFINER.contains(&error_code(&error)) => {
                server.execute(&without_definer(&statement))
            }
            result => result,
        };
        if let Err(error) = result {
            if present.ours.is_empty() {
                // An incomplete set of views is useless.
                let _ = remove(server, !present.schema);
            }
            return Err(explained(&error));
        }
    }
    Ok(())
}

/// What [`remove`] did with the schema.
#[derive(Debug, PartialEq, Eq)]
pub enum Schema {
    Dropped,
    /// It existed before, or did not exist at all.
    Untouched,
    /// It contains other objects.
    Kept,
}

/// Drops the views, and with `with_schema` also the schema if it is empty.
pub fn remove(server: &mut Server, with_schema: bool) -> Result<Schema, String> {
    let failed = |error: mysql::Error| explained(&error);
    let present = Present::read(server).map_err(failed)?;
    for name in &present.ours {
        server
            .execute(&format!("DROP VIEW bpe.{name}"))
            .map_err(failed)?;
    }
    if !present.schema || !with_schema {
        return Ok(Schema::Untouched);
    }
    let left = server
        .value(
            "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'bpe') \
             + (SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'bpe') \
             + (SELECT COUNT(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'bpe')",
        )
        .map_err(failed)?;
    if left.as_deref() != Some("0") {
        return Ok(Schema::Kept);
    }
    server.execute("DROP SCHEMA bpe").map_err(failed)?;
    Ok(Schema::Dropped)
}

fn create_alone(server: &mut Server) -> Result<(), Failure> {
    report::require_plugin(server)?;
    report::require_function(server)?;
    in_silence(server, create)?;
    say!("Made the views {}.", list());
    say!("To let an account read them: GRANT SELECT ON bpe.* TO ...; GRANT PROCESS ON *.* TO ...");
    Ok(())
}

fn drop_alone(server: &mut Server) -> Result<(), Failure> {
    let present = Present::read(server).map_err(|error| Failure::refused(plain(&error)))?;
    if present.ours.is_empty() {
        say!("None of the views is on this server; nothing to drop.");
        return Ok(());
    }
    match in_silence(server, |server| remove(server, true))? {
        Schema::Dropped => say!("Dropped the views and the schema bpe."),
        Schema::Untouched => say!("Dropped the views."),
        Schema::Kept => say!("Dropped the views; the schema bpe stays, as other things are in it."),
    }
    Ok(())
}

/// Runs `what` in a session whose statements reach no replica. Without a binary log, an account without the privilege
/// for that is sufficient.
fn in_silence<T>(
    server: &mut Server,
    what: impl FnOnce(&mut Server) -> Result<T, String>,
) -> Result<T, Failure> {
    let mut maintenance = Maintenance::default();
    if let Err(why) = maintenance.begin(server) {
        let log = server.variable("log_bin")?;
        if log.as_deref() != Some("OFF") {
            let right = server.flavour.right_to_skip_binary_log();
            return Err(Failure::refused(format!(
                    "{why}; the statements would be written to the binary log, and replicas without the function \
                     bpe_report would stop at them; nothing was changed"
                ))
                .advise(format!("log in as an administrator, or as one who was granted {right}")));
        }
    }
    let result = what(server);
    let ended = maintenance.end(server);
    match (result, ended) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(why)) => Err(Failure::step(why)),
        (Err(why), Ok(())) => Err(Failure::step(why)),
        (Err(why), Err(more)) => Err(Failure::step(format!("{why}\n  {more}"))),
    }
}

/// The views' full names, for messages.
pub fn list() -> String {
    NAMES.map(|name| format!("bpe.{name}")).join(", ")
}

fn explained(error: &mysql::Error) -> String {
    let text = plain(error);
    if READ_ONLY.contains(&error_code(error)) {
        return format!(
            "{text}; the server is read-only for this account: log in as an administrator, who is exempt from read_only"
        );
    }
    text
}

/// The file's statements, without full-line comments.
fn statements() -> Vec<String> {
    let lines: Vec<&str> = FILE
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    lines
        .join("\n")
        .split(";\n")
        .map(|statement| statement.trim().trim_end_matches(';').to_owned())
        .filter(|statement| !statement.is_empty() && !statement.starts_with("SET SESSION"))
        .collect()
}

/// The statement without its DEFINER clause: the account that runs it becomes the definer.
fn without_definer(statement: &str) -> String {
    match (statement.find("DEFINER ="), statement.find("SQL SECURITY")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{}", &statement[..from], &statement[to..])
        }
        _ => statement.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_creates_schema_and_views() {
        let all = statements();
        assert_eq!(all[0], "CREATE SCHEMA IF NOT EXISTS bpe");
        assert_eq!(all.len(), 1 + NAMES.len());
        for (statement, name) in all[1..].iter().zip(NAMES) {
            assert!(
                statement.contains(&format!("\nVIEW bpe.{name} ")),
                "{statement}"
            );
            assert!(statement.contains("bpe_report("), "{statement}");
            assert!(!statement.contains(';'), "{statement}");
            let own = without_definer(statement);
            assert!(
                own.starts_with("CREATE OR REPLACE SQL SECURITY INVOKER"),
                "{own}"
            );
        }
    }

    #[test]
    fn foreign_view_blocks_creation() {
        let mut present = Present::default();
        assert_eq!(present.obstacle(), None);
        present.foreign.push("status".into());
        assert!(present.obstacle().unwrap().contains("`status`"));
        assert!(!present.is_complete());
    }
}
