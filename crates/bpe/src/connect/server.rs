//! A logged-in server: its product and version, variables, status, and statements with readable errors.

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

use crate::connect::protocol::Bounds;
use crate::connect::session::{BOUNDS, Session};
use crate::connect::trust::{Holder, Rule};
use crate::connect::{self, Address, Target, plain};
use crate::support::failure::{Exit, Failure};
use crate::support::quote::sql_text;
use crate::support::text::cut;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    MySql,
    MariaDb,
}

impl Flavour {
    /// The privilege that `SET GLOBAL` requires.
    pub fn right_to_set_global(self) -> &'static str {
        match self {
            Self::MySql => "SYSTEM_VARIABLES_ADMIN",
            Self::MariaDb => "SUPER",
        }
    }

    /// The privilege that `SET SESSION sql_log_bin` requires.
    pub fn right_to_skip_binary_log(self) -> &'static str {
        match self {
            Self::MySql => "SYSTEM_VARIABLES_ADMIN",
            Self::MariaDb => "BINLOG ADMIN",
        }
    }
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
    /// As the plugin reads it.
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

/// How far this project supports a server release.
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

/// Bounds for an answer of names and values. A server has fewer than 2,000 variables, and each is kept in memory.
const PAIRS: Bounds = Bounds {
    rows: 10_000,
    bytes: 4 << 20,
    ..BOUNDS
};
/// Bounds of a single row.
const ONE: Bounds = Bounds {
    bytes: 4 << 20,
    ..BOUNDS
};
/// Values of this many bytes or more may have been truncated by SHOW.
const MIN_CUT: usize = 1000;

/// Errors of a killed session or of a server that shuts down: ER_SERVER_SHUTDOWN, ER_QUERY_INTERRUPTED, MariaDB's
/// ER_CONNECTION_KILLED and ER_STATEMENT_TIMEOUT, MySQL's ER_SESSION_WAS_KILLED.
const INTERRUPTED: [u16; 5] = [1053, 1317, 1927, 1969, 3169];

/// Why a connection is no longer usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The connection is closed.
    Closed,
    /// The answer timed out; the server may still execute the statement.
    Unanswered,
}

/// `ER_SP_DOES_NOT_EXIST`, or `ER_NO_DB_ERROR` without a current database: the function does not exist.
const NO_FUNCTION: [u16; 2] = [1305, 1046];
/// Bytes kept of a name or value; SHOW returns at most 2 KiB of each.
const MAX_SHOWN: usize = 1 << 14;
/// `ER_UNKNOWN_SYSTEM_VARIABLE`.
const UNKNOWN_VARIABLE: u16 = 1193;
/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`: the account lacks a privilege.
const ACCESS_DENIED: u16 = 1227;

/// Answer timeout of a login. Servers give up after 10 s by default (connect_timeout).
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long to wait for a killed statement to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length in characters of a displayed version.
const MAX_VERSION: usize = 100;

pub struct Server {
    session: Session,
    rule: Rule,
    /// Once set, the connection is unusable: a late answer could belong to an earlier statement.
    lost: Option<Lost>,
    /// The last statement without a result set.
    executed: String,
    /// That statement failed, but the server may have executed it.
    outcome_unknown: bool,
    /// The server lacks the function `bpe_report`, but has the variable.
    reports_by_variable: bool,
    /// The server refused the last report because the account lacks `PROCESS`.
    denies_reports: bool,
    pub address: Address,
    pub user: String,
    pub flavour: Flavour,
    pub version: Version,
    /// `@@version` as displayed.
    pub version_text: String,
}

impl Server {
    /// Logs in and identifies the server.
    pub fn connect(args: &connect::Args) -> Result<Self, Failure> {
        Self::log_in(&mut args.target()?)
    }

    /// Logs in to a known target. The login has a timeout, which detects a server that hangs. Later statements have none.
    pub fn log_in(target: &mut Target) -> Result<Self, Failure> {
        let mut server = Self::open(target, Some(LOGIN_TIMEOUT))?;
        server.wait_for_answers(None);
        Ok(server)
    }

    /// Logs in to a known target. `limit` is the answer timeout; `None` waits without limit.
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
        // Monitoring must work on a Galera node outside its cluster, and must not wait for other nodes' writes. Servers
        // without Galera reject these variables.
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
                Untrusted::new(&version_text).cut_at(MAX_VERSION),
                Untrusted::new(&comment).cut_at(MAX_VERSION)
            )));
        };
        server.flavour = flavour;
        server.version = version;
        server.version_text = Untrusted::new(&version_text)
            .cut_at(MAX_VERSION)
            .to_string();
        Ok(server)
    }

    /// The server's process, verified as the peer of its socket.
    pub fn holder(&self) -> Option<Holder> {
        self.session.holder
    }

    /// The trust rule for a connection without a socket.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    pub fn is_mariadb(&self) -> bool {
        self.flavour == Flavour::MariaDb
    }

    /// Sets the answer timeout; `None` waits without limit.
    pub fn wait_for_answers(&mut self, limit: Option<Duration>) {
        self.session.limit = limit;
    }

    /// Why the connection is no longer usable; `None` if it is.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Classifies a failed query: a lost connection makes it a connection failure.
    pub fn without_answer(&self, mut failure: Failure) -> Failure {
        if self.lost.is_some() {
            failure.exit = Exit::Connect;
        }
        failure
    }

    /// Ends the statement that was running when connection `lost` broke. Returns whether it no longer runs. KILL only
    /// requests the end, and some statements ignore it, for example the installation of a plugin.
    pub fn end_statement_of(&mut self, lost: &Self) -> bool {
        let id = u64::from(lost.session.greeting.connection_id);
        let end = Instant::now() + KILL_TIMEOUT;
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
            // After a restart or through a proxy, another session may have this id. The statement text identifies the right one.
            let statement = row.get_opt::<String, _>("Info").and_then(Result::ok);
            if !killed {
                if statement.as_ref() != Some(&lost.executed) {
                    return true;
                }
                // The statement may have ended before KILL, which then fails. The process list decides.
                let _ = self.ask(|session| session.execute(&format!("KILL {id}")));
                killed = true;
            } else if Instant::now() > end {
                return false;
            } else {
                sleep(Duration::from_millis(50));
            }
        }
    }

    /// Sends a statement, unless the connection is lost.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, mysql::Error>,
    ) -> Result<T, mysql::Error> {
        if self.lost.is_some() {
            return Err(io::Error::other("the connection is lost").into());
        }
        ask(&mut self.session).inspect_err(|error| self.lost = loss(error))
    }

    /// Runs a statement without a result set.
    pub fn execute(&mut self, sql: &str) -> Result<(), mysql::Error> {
        sql.clone_into(&mut self.executed);
        let result = self.ask(|session| session.execute(sql));
        self.outcome_unknown = result.as_ref().is_err_and(may_have_been_done);
        result
    }

    /// Whether the last statement without a result set failed although the server may have executed it.
    pub fn is_outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }

    /// First column of the first row.
    pub fn value(&mut self, sql: &str) -> Result<Option<String>, mysql::Error> {
        self.value_within(sql, ONE)
    }

    fn value_within(&mut self, sql: &str, bounds: Bounds) -> Result<Option<String>, mysql::Error> {
        let value: Option<Option<String>> = self.row_within(sql, bounds)?;
        Ok(value.flatten())
    }

    /// A report of the plugin; null for an unknown name. Calls the function `bpe_report`. If that does not exist, uses
    /// the session variable of the same name.
    ///
    /// # Errors
    /// The function's error if the server has neither.
    pub fn report(&mut self, name: &str) -> Result<Option<String>, mysql::Error> {
        let report = self.report_by_either(name);
        self.denies_reports = report.as_ref().is_err_and(is_denied);
        report
    }

    /// Whether the server refused the last report because the account lacks `PROCESS`.
    pub fn denies_reports(&self) -> bool {
        self.denies_reports
    }

    fn report_by_either(&mut self, name: &str) -> Result<Option<String>, mysql::Error> {
        let bounds = bounds_of(name);
        let name = argument(name);
        if !self.reports_by_variable {
            match self.value_within(&format!("SELECT bpe_report({name})"), bounds) {
                Err(error) if is_no_function(&error) => {
                    let report = self.report_by_variable(&name, bounds);
                    self.reports_by_variable = report.is_ok();
                    return report.map_err(|of_variable| {
                        let without = error_code(&of_variable) == UNKNOWN_VARIABLE;
                        if without { error } else { of_variable }
                    });
                }
                answer => return answer,
            }
        }
        let report = self.report_by_variable(&name, bounds);
        // If the plugin was uninstalled, a later one may provide the function again.
        self.reports_by_variable = report.is_ok();
        report
    }

    /// # Errors
    /// `UNKNOWN_VARIABLE` if the plugin is older or not installed.
    fn report_by_variable(
        &mut self,
        argument: &str,
        bounds: Bounds,
    ) -> Result<Option<String>, mysql::Error> {
        let name = format!("SET SESSION bpe_report = {argument}");
        self.ask(|session| session.execute(&name))?;
        let report = self.value_within("SELECT @@SESSION.bpe_report", bounds);
        // The server would otherwise keep a copy of the report.
        self.ask(|session| session.execute("SET SESSION bpe_report = ''"))?;
        report
    }

    /// The first row.
    pub fn row<T: FromRow>(&mut self, sql: &str) -> Result<Option<T>, mysql::Error> {
        self.row_within(sql, ONE)
    }

    fn row_within<T: FromRow>(
        &mut self,
        sql: &str,
        bounds: Bounds,
    ) -> Result<Option<T>, mysql::Error> {
        let mut first = None;
        let one = |row| first = first.take().or(Some(row));
        self.ask(|session| session.query(sql, bounds, one))?;
        clean_if_any(first)
    }

    /// Every row.
    pub fn rows<T: FromRow>(&mut self, sql: &str) -> Result<Vec<T>, mysql::Error> {
        self.rows_within(sql, BOUNDS)
    }

    /// Every row of an answer with larger bounds.
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

    /// Two columns of every row, each cut to [`MAX_SHOWN`].
    pub fn pairs(&mut self, sql: &str) -> Result<Vec<(String, String)>, mysql::Error> {
        let rows: Vec<(Option<String>, Option<String>)> = self.rows_within(sql, PAIRS)?;
        let shown = |text: Option<String>| {
            let mut text = text.unwrap_or_default();
            cut(&mut text, MAX_SHOWN);
            text
        };
        let pairs = rows.into_iter();
        Ok(pairs
            .map(|(name, value)| (shown(name), shown(value)))
            .collect())
    }

    fn shown(&mut self, sql: &str) -> Result<BTreeMap<String, String>, Failure> {
        let pairs = self
            .pairs(sql)
            .map_err(|error| Failure::step(format!("{sql} failed: {}", plain(&error))))?;
        Ok(pairs
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
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

    /// One global variable in full length; SHOW truncates long values.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn whole_variable(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.variable(name)? {
            Some(shown) if shown.len() >= MIN_CUT => {
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

    /// State of plugin `bpe` in information_schema (ACTIVE, ...); `None` if it is not installed.
    pub fn plugin_state(&mut self) -> Result<Option<String>, mysql::Error> {
        self.value("SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe'")
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.session.as_fd()
    }
}

/// Whether this error means a lost connection. Only errors that the server itself returns keep it.
fn loss(error: &mysql::Error) -> Option<Lost> {
    use mysql::Error;
    match error {
        Error::IoError(error) if connect::was_too_slow(error) => Some(Lost::Unanswered),
        Error::IoError(_) => Some(Lost::Closed),
        _ => None,
    }
}

/// Whether a statement that failed with this error may have been executed: the connection broke, or the server reports
/// an interruption. It reports that also for a statement that was killed while it completed.
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

/// A LIKE pattern as the quoted literal that SHOW requires. Characters that no variable name contains become `_`.
fn pattern(like: &str) -> String {
    let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '\\');
    format!("'{}'", like.replace(|c: char| !is_named(c), "_"))
}

/// Bounds of a report. Parsed JSON takes many times its bytes. Only reports with a row for each file or rule are long.
fn bounds_of(report: &str) -> Bounds {
    let bytes = match report {
        "files" | "rules" | "suspended" => BOUNDS.bytes,
        // The console asks for it each second.
        "latency" => 1 << 20,
        _ => ONE.bytes,
    };
    Bounds { bytes, ..ONE }
}

/// The argument of `bpe_report`. Report names consist of lower-case letters.
fn argument(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        format!("'{name}'")
    } else {
        sql_text(name)
    }
}

/// A row whose texts contain no control characters, so that they can be printed in one-line messages.
///
/// # Errors
/// Its columns differ from the requested ones.
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

/// The cleaned text, if it differs from these bytes.
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
    use crate::connect::rogue::{self, Case};

    fn version(major: u16, minor: u16, patch: u16) -> Version {
        Version {
            major,
            minor,
            patch,
        }
    }

    #[test]
    fn servers_are_identified() {
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
            // Its first version without an old-style number.
            (Flavour::MySql, version(26, 7, 0), Expected),
        ] {
            assert_eq!(support(flavour, version), wanted, "{flavour} {version}");
        }
    }

    /// Runs every kind of query that the commands use.
    fn ask_all(args: &connect::Args, limit: Duration) -> Result<(), Failure> {
        let mut target = args.target()?;
        target.set_password("secret".to_owned());
        let mut ask = |ask: &dyn Fn(&mut Server)| {
            // Open a new session for each query, because the first may break its session.
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
            // Leftovers of a lost connection must not answer another statement.
            if server.lost().is_some() {
                assert!(first.is_err() && server.value("SELECT 1").is_err());
            }
        })
    }

    /// A malicious server that answers like this after the login.
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
            // A LOCAL INFILE request, and column counts.
            vec![b"\xfb/etc/shadow".to_vec()],
            vec![vec![0xfb]],
            vec![vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]],
            vec![vec![0xfe, 0, 0, 0, 0, 0, 1, 0, 0]],
            vec![vec![0xfc, 1]],
            rogue::rows(4000, &[]),
            rogue::rows(5000, &[]),
            rogue::rows(0, &[&[]]),
            // Rows with other shapes and types.
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
            // Some are the beginning of an answer: the client waits for its end.
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
    fn answers_are_bounded_by_question() {
        // Rows of nulls take far more memory than their bytes.
        let mut nulls = rogue::columns(4000);
        nulls.extend(vec![vec![0xfb; 4000]; 1000]);
        nulls.push(b"\xfe\0\0\x02\0".to_vec());
        let (_folder, args) = rogue(nulls).start();
        let mut server = Server::connect(&args).unwrap();
        let failure = server.rows::<Row>("SHOW FULL PROCESSLIST").unwrap_err();
        assert!(plain(&failure).contains("too many bytes"), "{failure}");
        for (mib, report, is_taken) in [
            (0, "latency", true),
            (2, "latency", false),
            (2, "summary", true),
            (5, "summary", false),
            (5, "heat:1:0", false),
            (5, "files", true),
        ] {
            let text = "x".repeat(50_000);
            let row = vec![text.as_str(); 20];
            // More rows than the one that is taken.
            let answer = rogue::rows(20, &vec![row.as_slice(); mib]);
            let (_folder, args) = rogue(answer).start();
            let mut server = Server::connect(&args).unwrap();
            let found = server.report(report);
            let is_bounded = found
                .as_ref()
                .err()
                .is_some_and(|error| plain(error).contains("too many bytes"));
            assert_eq!(!is_bounded, is_taken, "{report} {mib}");
        }
    }

    #[test]
    fn pairs_have_short_texts() {
        let long = "東".repeat(20_000);
        let (_folder, args) = rogue(rogue::rows(2, &[&[&long, &long], &["a", "b"]])).start();
        let pairs = Server::connect(&args).unwrap().pairs("SHOW").unwrap();
        let (name, value) = &pairs[0];
        assert!(name.len() <= MAX_SHOWN && value.len() <= MAX_SHOWN);
        assert!(value.capacity() <= MAX_SHOWN && long.starts_with(value));
        assert_eq!(pairs[1], ("a".into(), "b".into()));
    }

    #[test]
    fn endless_answers_end() {
        // Without the check only the limit ends an answer, and the test fails.
        let limit = if interface::canary!("bytes-of-an-answer") {
            LIMIT
        } else {
            LIMIT * 4
        };
        let mut long = rogue::columns(1);
        long.push(rogue::text(&[b'x'; 60_000]));
        let mut short = rogue::columns(1);
        short.push(rogue::text(b"x"));
        for packets in [long, short, vec![rogue::columns(200)[1].clone()]] {
            let mut case = rogue(packets);
            case.is_endless = true;
            let (_folder, args) = case.start();
            let mut target = args.target().unwrap();
            let mut server = match Server::open(&mut target, Some(limit)) {
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
        let args = connect::Args {
            socket: Some(path.display().to_string()),
            no_defaults: true,
            ..connect::Args::default()
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
        // The greeting's version does not matter if it is short.
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
    fn non_server_error_loses_the_connection() {
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
    fn interrupted_statement_has_unknown_outcome() {
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
