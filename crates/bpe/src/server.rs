//! A server one is logged in to: which it is, its variables and status, and statements with errors
//! a person can read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use interface::untrusted::without_controls;
use interface::{Maker, Release, Untrusted};
use mysql::Row;
use mysql::prelude::FromRow;

use crate::connection::protocol::Bounds;
use crate::connection::session::{BOUNDS, Session};
use crate::connection::trust::{Holder, Rule};
use crate::connection::{self, Address, Target, plain};
use crate::failure::{Exit, Failure};
use crate::quote::sql_text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    MySql,
    MariaDb,
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
    pub patch: u16,
}

impl Version {
    /// As the plugin sees it.
    pub fn release(self, flavour: Flavour) -> Release {
        let maker = match flavour {
            Flavour::MariaDb => Maker::MariaDb,
            Flavour::MySql => Maker::MySql,
        };
        let part = |number: u16| u32::from(number);
        Release {
            maker,
            number: part(self.major) * 10_000 + part(self.minor) * 100 + part(self.patch).min(99),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How far a server release is known to this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The test suite runs against this series.
    Tested,
    /// Same plugin interface and I/O calls, but not tested.
    Expected,
    No,
}

/// Splits `10.11.19-MariaDB-0+deb12u1` and the like. `comment` is `@@version_comment`.
pub fn identify(text: &str, comment: &str) -> Option<(Flavour, Version)> {
    // MariaDB may be told to put 5.5.5- before its version for old replication clients.
    let mariadb = [text, comment]
        .iter()
        .any(|s| s.to_ascii_lowercase().contains("mariadb"));
    let text = text.strip_prefix("5.5.5-").unwrap_or(text);
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let mut parts = text[..end].split('.').map(|part| part.parse::<u16>().ok());
    let version = Version {
        major: parts.next()??,
        minor: parts.next()??,
        patch: parts.next().flatten().unwrap_or(0),
    };
    let flavour = if mariadb {
        Flavour::MariaDb
    } else {
        Flavour::MySql
    };
    Some((flavour, version))
}

/// Which releases are known to work.
pub fn support(flavour: Flavour, version: Version) -> Support {
    match (flavour, version.major, version.minor) {
        (Flavour::MariaDb, 10, 5 | 11) | (Flavour::MariaDb, 11, 4 | 8) | (Flavour::MySql, 9, 7) => {
            Support::Tested
        }
        _ if version.release(flavour).check().is_err() => Support::No,
        _ => Support::Expected,
    }
}

/// What an answer of names and values may be: a server has fewer than 2,000 variables, and each is kept in memory.
const PAIRS: Bounds = Bounds {
    rows: 10_000,
    bytes: 16 << 20,
    ..BOUNDS
};
/// Bytes of a value from which on SHOW may have cut it.
const SHORTEST_CUT: usize = 1000;

/// What a session is told that was killed, or whose server is shutting down: ER_SERVER_SHUTDOWN, ER_QUERY_INTERRUPTED,
/// MariaDB's ER_CONNECTION_KILLED and ER_STATEMENT_TIMEOUT, MySQL's ER_SESSION_WAS_KILLED.
const INTERRUPTED: [u16; 5] = [1053, 1317, 1927, 1969, 3169];

/// Why a connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It is closed.
    Closed,
    /// An answer did not come in time; what was asked for may be under way still.
    Unanswered,
}

/// `ER_SP_DOES_NOT_EXIST`, or `ER_NO_DB_ERROR` without a current database: no function of that name.
const NO_FUNCTION: [u16; 2] = [1305, 1046];
/// Characters of a variable that SHOW gives.
const MAX_SHOWN: usize = 1 << 14;
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
const UNKNOWN_VARIABLE: u16 = 1193;
/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`: the account lacks a privilege.
const ACCESS_DENIED: u16 = 1227;

/// How long an answer is waited for when logging in: servers themselves give up after 10 s (connect_timeout).
const LOGIN: Duration = Duration::from_secs(15);
/// How long a statement that was told to stop is waited for.
const ENDING: Duration = Duration::from_secs(5);

/// Characters of a version that are shown.
const LONGEST_VERSION: usize = 100;

pub struct Server {
    session: Session,
    rule: Rule,
    /// What came over it later would be the answer to something else.
    lost: Option<Lost>,
    /// The last statement without a result.
    executed: String,
    /// It failed, and the server may have executed it all the same.
    outcome_unknown: bool,
    /// It has no function `bpe_report`, but the variable.
    reports_by_variable: bool,
    /// It refused the last report, because the account lacks `PROCESS`.
    denies_reports: bool,
    pub address: Address,
    pub user: String,
    pub flavour: Flavour,
    pub version: Version,
    /// `@@version` as it is shown.
    pub version_text: String,
}

impl Server {
    /// Logs in and finds out which server it is.
    pub fn connect(args: &connection::Args) -> Result<Self, Failure> {
        Self::log_in(&mut args.target()?)
    }

    /// Logs in to a known target. A server that hangs is found out by that; statements may then take as long as they take.
    pub fn log_in(target: &mut Target) -> Result<Self, Failure> {
        let mut server = Self::open(target, Some(LOGIN))?;
        server.wait_for_answers(None);
        Ok(server)
    }

    /// Logs in to a known target. `limit`: how long an answer is waited for; None: as long as it takes.
    pub fn open(target: &mut Target, limit: Option<Duration>) -> Result<Self, Failure> {
        let session = target.connect(limit)?;
        const WHICH: &str = "SELECT @@version, @@version_comment";
        let mut server = Self {
            session,
            rule: target.rule(),
            lost: None,
            executed: String::new(),
            outcome_unknown: false,
            reports_by_variable: false,
            denies_reports: false,
            address: target.address.clone(),
            user: target.user.clone(),
            flavour: Flavour::MySql,
            version: Version::default(),
            version_text: String::new(),
        };
        // A Galera node that is no part of its cluster may be looked at all the same, and none is to wait for others' writes.
        // Servers without Galera do not know these.
        let _ = server.execute("SET SESSION wsrep_sync_wait = 0, wsrep_dirty_reads = ON");
        let row = server.row::<(String, String)>(WHICH).map_err(|error| {
            Failure::new(
                Exit::Connect,
                format!("the server does not tell its version: {}", plain(&error)),
            )
        })?;
        let (version_text, comment) = row.unwrap_or_default();
        let Some((flavour, version)) = identify(&version_text, &comment) else {
            return Err(Failure::refused(format!(
                "this is neither MySQL nor MariaDB (version `{}`, `{}`)",
                Untrusted::new(&version_text).cut_at(LONGEST_VERSION),
                Untrusted::new(&comment).cut_at(LONGEST_VERSION)
            )));
        };
        server.flavour = flavour;
        server.version = version;
        server.version_text = Untrusted::new(&version_text)
            .cut_at(LONGEST_VERSION)
            .to_string();
        Ok(server)
    }

    /// The server's process, as the checked peer of its socket.
    pub fn holder(&self) -> Option<Holder> {
        self.session.holder
    }

    /// Whom the caller believes without a socket.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    pub fn is_mariadb(&self) -> bool {
        self.flavour == Flavour::MariaDb
    }

    /// How long an answer is waited for from now on; None: as long as it takes.
    pub fn wait_for_answers(&mut self, limit: Option<Duration>) {
        self.session.limit = limit;
    }

    /// Whether and why the connection cannot be used any more.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// A failure of asking it; where the connection is lost, that is what failed.
    pub fn without_answer(&self, mut failure: Failure) -> Failure {
        if self.lost.is_some() {
            failure.exit = Exit::Connect;
        }
        failure
    }

    /// Ends the statement that a connection was lost with, if the server is still at it. Returns whether it is at it no
    /// more: KILL only asks it to stop, and installing a plugin, for one, does not look whether it was asked.
    pub fn end_statement_of(&mut self, lost: &Self) -> bool {
        let id = u64::from(lost.session.greeting.connection_id);
        let end = Instant::now() + ENDING;
        let mut killed = false;
        loop {
            let Ok(rows) = self.rows::<Row>("SHOW FULL PROCESSLIST") else {
                return false;
            };
            let row = rows
                .iter()
                .find(|row| row.get_opt::<u64, _>("Id").and_then(Result::ok) == Some(id));
            let Some(row) = row else {
                return true;
            };
            // After a restart, or through a proxy, the number may be somebody else's: the statement tells.
            let statement = row.get_opt::<String, _>("Info").and_then(Result::ok);
            if !killed {
                if statement.as_ref() != Some(&lost.executed) {
                    return true;
                }
                // An error may be that it has ended by itself: the list tells.
                let _ = self.ask(|session| session.execute(&format!("KILL {id}")));
                killed = true;
            } else if Instant::now() > end {
                return false;
            } else {
                sleep(Duration::from_millis(50));
            }
        }
    }

    /// Asks the server, as long as it answers.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, mysql::Error>,
    ) -> Result<T, mysql::Error> {
        if self.lost.is_some() {
            return Err(io::Error::other("the connection is lost").into());
        }
        ask(&mut self.session).inspect_err(|error| self.lost = loss(error))
    }

    /// Runs a statement without a result.
    pub fn execute(&mut self, sql: &str) -> Result<(), mysql::Error> {
        sql.clone_into(&mut self.executed);
        let result = self.ask(|session| session.execute(sql));
        self.outcome_unknown = result.as_ref().is_err_and(may_have_been_done);
        result
    }

    /// Whether the last statement without a result failed, and the server may have executed it all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }

    /// First column of the first row.
    pub fn value(&mut self, sql: &str) -> Result<Option<String>, mysql::Error> {
        let value: Option<Option<String>> = self.row(sql)?;
        Ok(value.flatten())
    }

    /// A report of the plugin's, null for a name that it does not know: of the function `bpe_report`, or where nobody has made
    /// that, of the session variable of this name.
    ///
    /// # Errors
    /// That of the function where the server has neither.
    pub fn report(&mut self, name: &str) -> Result<Option<String>, mysql::Error> {
        let report = self.report_by_either(name);
        self.denies_reports = report.as_ref().is_err_and(is_denied);
        report
    }

    /// Whether it refused the last report because the account lacks `PROCESS`.
    pub fn denies_reports(&self) -> bool {
        self.denies_reports
    }

    fn report_by_either(&mut self, name: &str) -> Result<Option<String>, mysql::Error> {
        let name = argument(name);
        if !self.reports_by_variable {
            match self.value(&format!("SELECT bpe_report({name})")) {
                Err(error) if is_no_function(&error) => {
                    let report = self.report_by_variable(&name);
                    self.reports_by_variable = report.is_ok();
                    return report.map_err(|of_variable| {
                        let without = error_code(&of_variable) == UNKNOWN_VARIABLE;
                        if without { error } else { of_variable }
                    });
                }
                answer => return answer,
            }
        }
        let report = self.report_by_variable(&name);
        // It was uninstalled meanwhile; and what comes may be another one.
        self.reports_by_variable = report.is_ok();
        report
    }

    /// # Errors
    /// `UNKNOWN_VARIABLE` where the plugin is older, or is not there.
    fn report_by_variable(&mut self, argument: &str) -> Result<Option<String>, mysql::Error> {
        let name = format!("SET SESSION bpe_report = {argument}");
        self.ask(|session| session.execute(&name))?;
        let report = self.value("SELECT @@SESSION.bpe_report");
        // The server would keep a copy.
        self.ask(|session| session.execute("SET SESSION bpe_report = ''"))?;
        report
    }

    /// The first row.
    pub fn row<T: FromRow>(&mut self, sql: &str) -> Result<Option<T>, mysql::Error> {
        let mut first = None;
        let one = |row| first = first.take().or(Some(row));
        self.ask(|session| session.query(sql, BOUNDS, one))?;
        clean_if_any(first)
    }

    /// Every row.
    pub fn rows<T: FromRow>(&mut self, sql: &str) -> Result<Vec<T>, mysql::Error> {
        self.rows_within(sql, BOUNDS)
    }

    /// Every row of an answer that may be longer than others.
    pub fn rows_within<T: FromRow>(
        &mut self,
        sql: &str,
        bounds: Bounds,
    ) -> Result<Vec<T>, mysql::Error> {
        let mut rows = Ok(Vec::new());
        self.ask(|session| {
            session.query(sql, bounds, |row| {
                if let Ok(found) = &mut rows {
                    match clean(row) {
                        Ok(row) => found.push(row),
                        Err(error) => rows = Err(error),
                    }
                }
            })
        })?;
        rows
    }

    /// Two columns of every row.
    pub fn pairs(&mut self, sql: &str) -> Result<Vec<(String, String)>, mysql::Error> {
        let rows: Vec<(Option<String>, Option<String>)> = self.rows_within(sql, PAIRS)?;
        Ok(rows
            .into_iter()
            .map(|(name, value)| (name.unwrap_or_default(), value.unwrap_or_default()))
            .collect())
    }

    fn shown(&mut self, sql: &str) -> Result<BTreeMap<String, String>, Failure> {
        let pairs = self
            .pairs(sql)
            .map_err(|error| Failure::step(format!("{sql} failed: {}", plain(&error))))?;
        Ok(pairs
            .into_iter()
            .map(|(name, value)| {
                let cut: String = value.chars().take(MAX_SHOWN).collect();
                (name.to_ascii_lowercase(), cut)
            })
            .collect())
    }

    /// Global variables whose name matches a LIKE pattern, by lower-case name.
    pub fn variables(&mut self, like: &str) -> Result<BTreeMap<String, String>, Failure> {
        self.shown(&format!("SHOW GLOBAL VARIABLES LIKE {}", pattern(like)))
    }

    /// Global status whose name matches a LIKE pattern, by lower-case name.
    pub fn status(&mut self, like: &str) -> Result<BTreeMap<String, String>, Failure> {
        self.shown(&format!("SHOW GLOBAL STATUS LIKE {}", pattern(like)))
    }

    /// One global variable; None when the server does not have it.
    pub fn variable(&mut self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.variables(&like_exactly(name))?.remove(name))
    }

    /// One global variable with all of its text, of which SHOW gives the beginning.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn whole_variable(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.variable(name)? {
            Some(shown) if shown.len() >= SHORTEST_CUT => {
                let whole = self.value(&format!("SELECT @@GLOBAL.{name}"));
                Ok(whole.ok().flatten().or(Some(shown)))
            }
            shown => Ok(shown),
        }
    }

    /// One global variable as a number.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        Ok(self.variable(name)?.and_then(|text| text.parse().ok()))
    }

    /// One status variable as a number.
    pub fn number_of_status(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let status = self.status(&like_exactly(name))?;
        Ok(status.get(name).and_then(|text| text.parse().ok()))
    }

    /// Warnings of the last statement, as one text.
    pub fn warnings(&mut self) -> String {
        let rows: Vec<(String, u32, String)> = self.rows("SHOW WARNINGS").unwrap_or_default();
        rows.into_iter()
            .map(|(_, _, message)| Untrusted::new(&message).to_string())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// State of plugin `bpe` by information_schema (ACTIVE, ...), None when it is not installed.
    pub fn plugin_state(&mut self) -> Result<Option<String>, mysql::Error> {
        self.value("SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe'")
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.session.as_fd()
    }
}

/// Whether the connection is lost with this error: all but what the server itself says.
fn loss(error: &mysql::Error) -> Option<Lost> {
    use mysql::Error;
    match error {
        Error::IoError(error) if connection::was_too_slow(error) => Some(Lost::Unanswered),
        Error::IoError(_) => Some(Lost::Closed),
        _ => None,
    }
}

/// Whether a statement that was answered with this may have been done: the connection was lost with it, or the server says
/// that it was interrupted. It says so in place of "done", too, to one that was killed while it finished.
fn may_have_been_done(error: &mysql::Error) -> bool {
    loss(error).is_some() || INTERRUPTED.contains(&error_code(error))
}

/// The number of a server error, 0 for others.
pub fn error_code(error: &mysql::Error) -> u16 {
    match error {
        mysql::Error::MySqlError(server) => server.code,
        _ => 0,
    }
}

/// Whether a statement failed because the account lacks a privilege.
pub fn is_denied(error: &mysql::Error) -> bool {
    error_code(error) == ACCESS_DENIED
}

/// Whether a statement failed because there is no function of that name.
pub fn is_no_function(error: &mysql::Error) -> bool {
    NO_FUNCTION.contains(&error_code(error))
}

/// A LIKE pattern that matches `name` alone.
fn like_exactly(name: &str) -> String {
    name.replace('_', "\\_")
}

/// The literal of a LIKE pattern for the names of variables, which SHOW takes in quotes alone. What no such name has fits one character.
fn pattern(like: &str) -> String {
    let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '\\');
    format!("'{}'", like.replace(|c: char| !is_named(c), "_"))
}

/// The argument of `bpe_report`: the names of reports are words.
fn argument(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        format!("'{name}'")
    } else {
        sql_text(name)
    }
}

/// A row whose texts have no control characters: they may be shown, and end up in messages of one line.
///
/// # Errors
/// It has other columns than were asked for.
fn clean<T: FromRow>(mut row: Row) -> Result<T, mysql::Error> {
    for column in 0..row.len() {
        let Some(mysql::Value::Bytes(bytes)) = row.as_ref(column) else {
            continue;
        };
        if let Some(clean) = cleaned(bytes) {
            row.place(column, mysql::Value::Bytes(clean.into_bytes()));
        }
    }
    let wrong = || io::Error::other("its answer has other columns than were asked for");
    T::from_row_opt(row).map_err(|_| wrong().into())
}

/// The text instead of these bytes, if it is another one.
fn cleaned(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let clean = without_controls(&text);
    (clean.as_bytes() != bytes).then(|| clean.into_owned())
}

fn clean_if_any<T: FromRow>(row: Option<Row>) -> Result<Option<T>, mysql::Error> {
    row.map(clean).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::rogue::{self, Case};

    fn version(major: u16, minor: u16, patch: u16) -> Version {
        Version {
            major,
            minor,
            patch,
        }
    }

    #[test]
    fn servers_are_told_apart() {
        for (text, comment, flavour, wanted) in [
            (
                "10.11.19-MariaDB-0+deb12u1",
                "Debian 12",
                Flavour::MariaDb,
                version(10, 11, 19),
            ),
            (
                "5.5.5-10.6.1-MariaDB",
                "",
                Flavour::MariaDb,
                version(10, 6, 1),
            ),
            (
                "11.8.6",
                "MariaDB Server",
                Flavour::MariaDb,
                version(11, 8, 6),
            ),
            ("9.7.4-2", "(Debian)", Flavour::MySql, version(9, 7, 4)),
            (
                "8.0.36-28",
                "Percona Server (GPL)",
                Flavour::MySql,
                version(8, 0, 36),
            ),
        ] {
            assert_eq!(identify(text, comment), Some((flavour, wanted)), "{text}");
        }
        assert_eq!(identify("unknown", ""), None);
    }

    #[test]
    fn support_is_by_series() {
        use Support::*;
        for (flavour, version, wanted) in [
            (Flavour::MariaDb, version(10, 11, 2), Tested),
            (Flavour::MariaDb, version(11, 8, 6), Tested),
            (Flavour::MySql, version(9, 7, 0), Tested),
            (Flavour::MariaDb, version(11, 4, 5), Tested),
            (Flavour::MySql, version(8, 4, 3), Expected),
            (Flavour::MariaDb, version(10, 6, 3), Expected),
            (Flavour::MariaDb, version(10, 5, 29), Tested),
            (Flavour::MariaDb, version(10, 4, 3), No),
            (Flavour::MySql, version(5, 7, 44), No),
            // Its first version without a number of the old kind.
            (Flavour::MySql, version(26, 7, 0), Expected),
        ] {
            assert_eq!(support(flavour, version), wanted, "{flavour} {version}");
        }
    }

    /// Asks whatever the command asks in some way.
    fn ask_all(args: &connection::Args, limit: Duration) -> Result<(), Failure> {
        let mut target = args.target()?;
        target.set_password("secret".to_owned());
        let mut ask = |ask: &dyn Fn(&mut Server)| {
            // Each over a session of its own: the first one may end it.
            Server::open(&mut target, Some(limit)).map(|mut server| ask(&mut server))
        };
        ask(&|server| drop(server.variables("%")))?;
        ask(&|server| drop(server.number_of_status("a")))?;
        ask(&|server| drop(server.whole_variable("a")))?;
        ask(&|server| drop(server.value("SELECT 1")))?;
        ask(&|server| drop(server.row::<(u64, u64)>("SELECT 1")))?;
        ask(&|server| drop(server.rows::<(String, u32, Option<bool>)>("SELECT 1")))?;
        ask(&|server| drop(server.rows::<Row>("SHOW REPLICA STATUS")))?;
        ask(&|server| drop(server.report("summary")))?;
        ask(&|server| drop(server.warnings()))?;
        ask(&|server| {
            let first = server.execute("SET GLOBAL a = 1");
            // What a lost connection has left is no answer to another statement.
            if server.lost().is_some() {
                assert!(first.is_err() && server.value("SELECT 1").is_err());
            }
        })
    }

    /// A rogue that answers so when it is logged in to.
    fn rogue(packets: Vec<Vec<u8>>) -> Case {
        let harmless = Case::harmless().answer;
        Case::new(move |statement| {
            let first = ["autocommit", "TRANSACTION READ WRITE", "wsrep", "@@version"];
            match first.iter().any(|word| statement.contains(word)) {
                true => harmless(statement),
                false => packets.clone(),
            }
        })
    }

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn hostile_answers_are_errors() {
        let escapes = "\u{1b}]0;a\u{7}\n\u{202e}".repeat(8000);
        let with = |row: &[u8]| {
            let mut packets = rogue::columns(2);
            packets.extend([row.to_vec(), b"\xfe\0\0\x02\0".to_vec()]);
            packets
        };
        for packets in [
            vec![],
            vec![vec![]],
            vec![vec![0]],
            vec![vec![0xff]],
            vec![[b"\xff\x51\x04#HY000", escapes.as_bytes()].concat()],
            // A file, and numbers of columns.
            vec![b"\xfb/etc/shadow".to_vec()],
            vec![vec![0xfb]],
            vec![vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]],
            vec![vec![0xfe, 0, 0, 0, 0, 0, 1, 0, 0]],
            vec![vec![0xfc, 1]],
            rogue::rows(4000, &[]),
            rogue::rows(5000, &[]),
            rogue::rows(0, &[&[]]),
            // Rows of other shapes and types.
            rogue::rows(1, &[&["x"]]),
            rogue::rows(2, &[&["x", "y"]]),
            rogue::rows(2, &[&["x"]]),
            rogue::rows(3, &[&["x", "y", "z"], &["1", "2", "3"]]),
            rogue::rows(2, &[&[&escapes, &escapes]]),
            with(b"\xfb\xfb"),
            with(b"\x01\xff\x01\xfe"),
            with(b"\xff\x01"),
            with(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            with(b"\xfd\xff\xff"),
            with(b""),
            vec![vec![1], vec![], vec![], vec![]],
            vec![vec![1], b"\x03def\xff\xff\xff\xff".to_vec(), vec![], vec![]],
        ] {
            let what = format!("{packets:.60?}");
            let (_folder, args) = rogue(packets).start();
            let began = Instant::now();
            // Those of them that are an answer's beginning wait for its end.
            let limit = Duration::from_millis(200);
            ask_all(&args, limit).unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert!(began.elapsed() < LIMIT * 2, "{what}");
        }
    }

    #[test]
    fn error_message_has_a_bound() {
        let error = [b"\xff\x51\x04#HY000".as_slice(), &[b'x'; 60_000]].concat();
        let (_folder, args) = rogue(vec![error]).start();
        let mut server = Server::connect(&args).unwrap();
        let said = server.value("SELECT 1").unwrap_err();
        assert_eq!(error_code(&said), 1105);
        assert!(plain(&said).len() < 1100);
    }

    #[test]
    fn variables_have_a_bound() {
        let row: &[&str] = &["a", "b"];
        for (count, is_taken) in [(9_000, true), (11_000, false)] {
            let (_folder, args) = rogue(rogue::rows(2, &vec![row; count])).start();
            let mut server = Server::connect(&args).unwrap();
            assert_eq!(server.variables("%").is_ok(), is_taken, "{count}");
        }
    }

    #[test]
    fn endless_answers_end() {
        let mut long = rogue::columns(1);
        long.push(rogue::text(&[b'x'; 60_000]));
        let mut short = rogue::columns(1);
        short.push(rogue::text(b"x"));
        for packets in [long, short, vec![rogue::columns(200)[1].clone()]] {
            let mut case = rogue(packets);
            case.is_endless = true;
            let (_folder, args) = case.start();
            let mut target = args.target().unwrap();
            let mut server = match Server::open(&mut target, Some(LIMIT * 4)) {
                Ok(server) => server,
                Err(failure) => panic!("{failure}"),
            };
            let failure = server.rows::<Row>("SHOW GLOBAL STATUS").unwrap_err();
            let why = plain(&failure);
            assert!(why.contains("malformed"), "{why}");
            assert_eq!(server.lost(), Some(Lost::Closed));
        }
    }

    #[test]
    fn trickle_of_bytes_does_not_prolong_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            use std::io::Write;
            for mut stream in listener.incoming().flatten() {
                let greeting = rogue::framed(0, &rogue::greeting("8.4.0", "", 0));
                for byte in greeting.into_iter().cycle() {
                    if stream.write_all(&[byte]).is_err() {
                        break;
                    }
                    sleep(Duration::from_millis(30));
                }
            }
        });
        let args = connection::Args {
            socket: Some(path.display().to_string()),
            no_defaults: true,
            ..connection::Args::default()
        };
        let began = Instant::now();
        let failure = Server::open(
            &mut args.target().unwrap(),
            Some(Duration::from_millis(100)),
        );
        let what = failure.map(drop).unwrap_err().what;
        assert!(what.contains("took too long"), "{what}");
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn connection_closed_at_each_byte_is_an_error() {
        let answer = rogue::rows(2, &[&["bpe_size", "1"]]);
        let mut is_done = false;
        for budget in 1..2000 {
            let mut case = rogue(answer.clone());
            case.budget = budget;
            let (_folder, args) = case.start();
            let mut target = args.target().unwrap();
            let found = Server::open(&mut target, Some(LIMIT))
                .and_then(|mut server| server.variables("bpe%"));
            if found.is_ok_and(|found| found.len() == 1) {
                is_done = true;
                break;
            }
        }
        assert!(is_done);
    }

    #[test]
    fn login_is_refused_in_words() {
        let greeted = |version: &str| {
            let mut case = Case::harmless();
            case.version = version.to_owned();
            case
        };
        let logged_in = |packets: &[&[u8]]| {
            let mut case = Case::harmless();
            case.login = packets.iter().map(|packet| packet.to_vec()).collect();
            case
        };
        let said = |version: &'static str| {
            Case::new(move |statement| match statement.contains("@@version") {
                true => rogue::rows(2, &[&[version, version]]),
                false => vec![rogue::OK.to_vec()],
            })
        };
        let long = "\u{1b}[2K".repeat(16_000);
        let tall: &'static str = "\u{1b}[2K".repeat(16_000).leak();
        for (case, words) in [
            (greeted(&long), "version is too long"),
            (said("x"), "neither MySQL nor MariaDB"),
            (said("99999999999.1"), "neither MySQL nor MariaDB"),
            (said(tall), "neither MySQL nor MariaDB"),
            (logged_in(&[b""]), "malformed"),
            (logged_in(&[b"\x01"]), "malformed"),
            (logged_in(&[b"\x01\x09"]), "malformed"),
            (logged_in(&[b"\xff\x15\x04#28000no"]), "no (error 1045)"),
            (
                logged_in(&[b"\xfemysql_native_password\0n\0", b"\xfea\0"]),
                "malformed",
            ),
        ] {
            let (_folder, args) = case.start();
            let failure = Server::open(&mut args.target().unwrap(), Some(LIMIT));
            let what = failure.map(drop).unwrap_err().what;
            assert!(what.contains(words), "{words}: {what:.200}");
        }
        // The greeting's version does not matter where it is short.
        for version in [
            "",
            "x",
            "99999.99999.99999-MariaDB",
            "5.5.5-10.11.2-MariaDB",
        ] {
            let (_folder, args) = greeted(version).start();
            assert!(Server::connect(&args).is_ok(), "{version}");
        }
    }

    #[test]
    fn a_connection_is_lost_with_what_is_not_the_servers_word() {
        let io = |kind| loss(&mysql::Error::IoError(io::Error::from(kind)));
        assert_eq!(io(io::ErrorKind::WouldBlock), Some(Lost::Unanswered));
        assert_eq!(io(io::ErrorKind::BrokenPipe), Some(Lost::Closed));
        assert_eq!(loss(&said(1105)), None);
    }

    fn said(code: u16) -> mysql::Error {
        mysql::Error::MySqlError(mysql::MySqlError {
            state: "HY000".into(),
            message: "no".into(),
            code,
        })
    }

    #[test]
    fn what_was_interrupted_may_have_been_done() {
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(may_have_been_done(&closed.into()));
        for code in [1053, 1317, 1927, 1969, 3169] {
            assert!(may_have_been_done(&said(code)), "{code}");
        }
        // Wrong value, access denied, unknown variable.
        for code in [1231, 1227, 1193, 1105] {
            assert!(!may_have_been_done(&said(code)), "{code}");
        }
    }

    #[test]
    fn patterns_and_arguments_end_where_they_should() {
        assert_eq!(like_exactly("bpe_size"), "bpe\\_size");
        assert_eq!(pattern("bpe\\_%"), "'bpe\\_%'");
        assert_eq!(pattern("x' OR 1"), "'x__OR_1'");
        assert_eq!(argument("summary"), "'summary'");
        assert_eq!(argument("x\\'"), "_utf8mb4 x'785c27'");
    }

    #[test]
    fn rows_have_no_control_characters() {
        for (bytes, clean) in [
            (&b"a\x1b[2K\nforged"[..], Some("a\\u{1b}[2K\\u{a}forged")),
            ("/mnt/\u{200d}".as_bytes(), None),
            (b"7", None),
            (b"\xff", Some("\u{fffd}")),
        ] {
            assert_eq!(cleaned(bytes).as_deref(), clean);
        }
    }
}
