//! Address and credentials of a server. Accepts the options, option files and environment variables of the `mysql` and
//! `mariadb` clients, with the same names and the same precedence: command line, option files, environment, defaults.
//!
//! Not supported: `~/.mylogin.cnf`, whose obfuscation is specific to MySQL, and the server's RSA key, which TLS replaces.
//!
//! A password is sent only over a Unix socket with a verified peer ([`trust`]), or over TLS with a verified certificate.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use interface::Untrusted;
use interface::untrusted::one_line;
use serde::Deserialize;

use super::option_file::OptionFiles;
use super::protocol::Protocol;
use super::session::Session;
use super::socket_path::SocketPath;
use super::stream::{Socket, Wire};
use super::trust::Rule;
use super::{hidden_password, stream, trust};
use crate::connect::peer::Peer;
use crate::support::failure::{Exit, Failure};
use crate::support::terminal::complain;

/// Option groups for this command: those of the clients and `[bpe]`.
const GROUPS: [&str; 6] = [
    "client",
    "client-server",
    "client-mariadb",
    "mysql",
    "mariadb-client",
    "bpe",
];

/// Socket paths of packages, first the one of both Debian packages. No directory of these is writable for other users.
const SOCKETS: [&str; 3] = [
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
];

/// Session variables that affect the meaning of statements and answers, independent of the server's defaults for
/// sessions. With autocommit off, a read would open a transaction for the rest of the session. Error messages are
/// parsed, too. MariaDB skips comments of versions 50700 to 99999. On MySQL `max_error_count` requires a privilege.
const SETTINGS: [&str; 2] = [
    "SET NAMES utf8mb4, SESSION sql_mode = '', SESSION autocommit = 1, SESSION lock_wait_timeout = {wait}, \
     SESSION sql_quote_show_create = 1, SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, \
     SESSION sql_select_limit = 18446744073709551615, SESSION sql_notes = 1, \
     SESSION lc_messages = 'en_US', SESSION time_zone = '+00:00' \
     /*M!100000 , SESSION max_error_count = 64, SESSION max_statement_time = 0 */ /*!50708 , SESSION max_execution_time = 0 */",
    "SET SESSION TRANSACTION READ WRITE",
];

const HANGS: &str = "the server is stopped, hangs or is overloaded: check its process";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Lock timeout of this command's sessions; the servers' defaults are a day or a year.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// ER_LOCK_WAIT_TIMEOUT.
const LOCK_WAIT_TIMED_OUT: u16 = 1205;
#[derive(clap::Args, Debug, Default, Clone)]
#[group(id = "connection")]
#[command(next_help_heading = "Connection (as the mariadb and mysql clients take it)")]
pub struct Args {
    /// Unix socket of the server
    #[arg(short = 'S', long, value_name = "FILE")]
    pub socket: Option<String>,
    /// Host of the server; `localhost` means its Unix socket
    #[arg(short = 'h', long, value_name = "NAME")]
    pub host: Option<String>,
    /// TCP port of the server
    #[arg(short = 'P', long, value_name = "NUMBER")]
    pub port: Option<u16>,
    /// User to log in as
    #[arg(short = 'u', long, value_name = "NAME")]
    pub user: Option<String>,
    /// Ask for the password. Others can see a value given here; MYSQL_PWD and option files are safer
    #[arg(short = 'p', long, value_name = "PASSWORD", num_args = 0..=1, default_missing_value = None)]
    pub password: Option<Option<String>>,
    /// User whose server may answer at the socket, by name or number: for a server of neither root, yours, nor the packages
    #[arg(
        long,
        value_name = "NAME",
        env = "BPE_SERVER_USER",
        hide_env_values = true
    )]
    pub server_user: Option<String>,
    /// TLS over TCP. Certificates are verified in each mode but DISABLED; VERIFY_CA checks no name, and needs --ssl-ca. A
    /// password needs TLS
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub ssl_mode: Option<SslMode>,
    /// Certificates of the authorities that sign the server's, in PEM form; without it the system's
    #[arg(long, value_name = "FILE")]
    pub ssl_ca: Option<PathBuf>,
    /// As --ssl-mode=VERIFY_IDENTITY
    #[arg(long, conflicts_with = "ssl_mode")]
    pub ssl_verify_server_cert: bool,
    /// Read this option file and no other
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// Read this option file after the global ones
    #[arg(long, value_name = "FILE", conflicts_with = "defaults_file")]
    pub defaults_extra_file: Option<PathBuf>,
    /// Also read the groups with this appended to their names
    #[arg(long, value_name = "TEXT")]
    pub defaults_group_suffix: Option<String>,
    /// Read no option file
    #[arg(long, conflicts_with_all = ["defaults_file", "defaults_extra_file"])]
    pub no_defaults: bool,
    /// Ignore the environment variables `MYSQL_*` and `MARIADB_*`. With several servers, a password in them has no known owner
    #[arg(skip)]
    pub no_environment: bool,
}

/// As MySQL's clients name them. Ours verify in each one with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SslMode {
    Disabled,
    Preferred,
    Required,
    VerifyCa,
    VerifyIdentity,
}

/// Address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Socket(PathBuf),
    Tcp { host: String, port: u16 },
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "socket {}", one_line(&path.to_string_lossy())),
            Self::Tcp { host, port } => write!(f, "{} port {port}", one_line(host)),
        }
    }
}

/// A password that derived or careless formatting never prints.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

/// The combined result of `Args`, option files and environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub address: Address,
    pub user: String,
    password: Option<Password>,
    ask_password: bool,
    /// Whether no option, file or variable names the socket.
    is_default: bool,
    /// From `--server-user`.
    server_user: Option<u32>,
    ssl_mode: SslMode,
    ssl_ca: Option<PathBuf>,
}

impl Args {
    /// Whether no option selects a server.
    pub fn is_default(&self) -> bool {
        self.socket.is_none()
            && self.host.is_none()
            && self.port.is_none()
            && self.user.is_none()
            && self.password.is_none()
            && self.defaults_file.is_none()
            && self.defaults_extra_file.is_none()
            && self.defaults_group_suffix.is_none()
            && self.ssl_mode.is_none()
            && self.ssl_ca.is_none()
            && !self.ssl_verify_server_cert
    }

    fn heeds(&self, variable: &str) -> bool {
        !self.no_environment
            || !(variable.starts_with("MYSQL_") || variable.starts_with("MARIADB_"))
    }

    /// Reads the option files and computes the target.
    pub fn target(&self) -> Result<Target, Failure> {
        let environment = |name: &str| {
            self.heeds(name)
                .then(|| std::env::var(name).ok())
                .flatten()
                .filter(|text| !text.is_empty())
        };
        let files = self.read_files(&environment)?;
        for warning in &files.warnings {
            complain!("bpe: warning: {}", one_line(warning));
        }
        if let Some(Some(password)) = &self.password {
            hidden_password::hide_argument(password);
            complain!(
                "bpe: warning: other users can see a password on the command line for a moment, and it stays in the \
                 shell's history; use -p alone, MYSQL_PWD or an option file"
            );
        }
        self.resolve(&files, &environment)
    }

    fn read_files(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<OptionFiles, Failure> {
        let mut files = OptionFiles::new();
        if self.no_defaults {
            return Ok(files);
        }
        let required = |files: &mut OptionFiles, path: &Path| {
            files.read_required(path).map_err(|error| {
                Failure::usage(format!(
                    "cannot read option file {}: {error}",
                    path.display()
                ))
            })
        };
        if let Some(path) = &self.defaults_file {
            required(&mut files, path)?;
            return Ok(files);
        }
        for path in ["/etc/my.cnf", "/etc/mysql/my.cnf"] {
            files.read_if_present(Path::new(path));
        }
        if let Some(home) = environment("MYSQL_HOME").or_else(|| environment("MARIADB_HOME")) {
            files.read_if_present(&Path::new(&home).join("my.cnf"));
        }
        if let Some(path) = &self.defaults_extra_file {
            required(&mut files, path)?;
        }
        if let Some(home) = environment("HOME") {
            files.read_if_present(&Path::new(&home).join(".my.cnf"));
        }
        Ok(files)
    }

    /// A pure function, so that precedence can be tested.
    fn resolve(
        &self,
        files: &OptionFiles,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Target, Failure> {
        let suffix = self
            .defaults_group_suffix
            .clone()
            .or_else(|| environment("MYSQL_GROUP_SUFFIX"));
        let mut groups: Vec<String> = GROUPS.iter().map(|&group| group.to_owned()).collect();
        if let Some(suffix) = &suffix {
            let suffixed: Vec<_> = groups.iter().map(|g| format!("{g}{suffix}")).collect();
            groups.extend(suffixed);
        }
        let from_file = |name: &str| files.value(&groups, name).map(str::to_owned);

        let host = self
            .host
            .clone()
            .or_else(|| from_file("host"))
            .or_else(|| environment("MYSQL_HOST"))
            .filter(|host| !host.is_empty());
        let port = match self.port {
            Some(port) => Some(port),
            None => from_file("port")
                .or_else(|| environment("MYSQL_TCP_PORT"))
                .map(|text| {
                    text.parse::<u16>()
                        .map_err(|_| Failure::usage(format!("`{text}` is not a port number")))
                })
                .transpose()?,
        };
        let protocol = from_file("protocol").map(|text| text.to_ascii_lowercase());
        let local = host.as_deref().is_none_or(|host| host == "localhost");
        // A port on the command line without a socket selects TCP even for localhost. A port in an option file does
        // not, because distributions write one there beside the socket.
        let tcp = match protocol.as_deref() {
            _ if self.socket.is_some() && self.host.is_none() => false,
            _ if !local => true,
            Some("tcp") => true,
            Some("socket") => false,
            _ => self.port.is_some() && self.socket.is_none(),
        };
        let mut is_default = false;
        let address = if tcp {
            Address::Tcp {
                host: match host {
                    Some(host) if host != "localhost" => host,
                    _ => "127.0.0.1".to_owned(),
                },
                port: port.unwrap_or(3306),
            }
        } else {
            let socket = self
                .socket
                .clone()
                .or_else(|| from_file("socket"))
                .or_else(|| environment("MYSQL_UNIX_PORT"));
            is_default = socket.is_none();
            Address::Socket(socket.unwrap_or_else(default_socket).into())
        };
        let user = self
            .user
            .clone()
            .or_else(|| from_file("user"))
            .unwrap_or_else(|| login_name(environment));
        let (password, ask_password) = match &self.password {
            Some(Some(given)) => (Some(Password(given.clone())), false),
            Some(None) => (None, true),
            None => match files.last(&groups, "password") {
                // `password` without a value in an option file also asks.
                Some(setting) => match &setting.value {
                    Some(value) => (Some(Password(value.clone())), false),
                    None => (None, true),
                },
                None => (environment("MYSQL_PWD").map(Password), false),
            },
        };
        let server_user = self.server_user.as_deref().map(trust::user).transpose();
        Ok(Target {
            address,
            user,
            password,
            ask_password,
            is_default,
            server_user: server_user
                .map_err(|why| Failure::usage(format!("--server-user: {why}")))?,
            ssl_mode: self.ssl_mode(files, &groups)?,
            ssl_ca: self
                .ssl_ca
                .clone()
                .or_else(|| from_file("ssl_ca").map(PathBuf::from)),
        })
    }

    fn ssl_mode(&self, files: &OptionFiles, groups: &[String]) -> Result<SslMode, Failure> {
        if self.ssl_verify_server_cert {
            return Ok(SslMode::VerifyIdentity);
        }
        if let Some(mode) = self.ssl_mode {
            return Ok(mode);
        }
        let given = |name: &str| files.last(groups, name).map(|setting| &setting.value);
        let is_off = |value: &Option<String>| {
            let value = value.as_ref().map(|value| value.to_ascii_lowercase());
            value.is_some_and(|value| ["0", "off", "false"].contains(&value.as_str()))
        };
        if let Some(mode) = given("ssl_mode") {
            let mode = mode.as_deref().unwrap_or_default();
            return SslMode::from_str(mode, true)
                .map_err(|_| Failure::usage(format!("`{mode}` is not an ssl-mode")));
        }
        // MariaDB's option names. Verification cannot be disabled.
        Ok(match (given("ssl"), given("ssl_verify_server_cert")) {
            (Some(ssl), _) if is_off(ssl) => SslMode::Disabled,
            _ if given("skip_ssl").is_some() => SslMode::Disabled,
            (Some(_), _) => SslMode::Required,
            (_, Some(verify)) if !is_off(verify) => SslMode::VerifyIdentity,
            _ => SslMode::Preferred,
        })
    }
}

fn default_socket() -> String {
    SOCKETS
        .into_iter()
        .find(|path| SocketPath::open(Path::new(path)).is_ok_and(|place| place.owner.is_some()))
        .unwrap_or(SOCKETS[0])
        .to_owned()
}

fn login_name(environment: &dyn Fn(&str) -> Option<String>) -> String {
    if rustix::process::geteuid().is_root() {
        return "root".to_owned();
    }
    environment("USER")
        .or_else(|| environment("LOGNAME"))
        .unwrap_or_else(|| "root".to_owned())
}

impl Target {
    /// Asks for the password now, if requested, so that later logins need no user.
    pub fn ask_password(&mut self) -> Result<(), Failure> {
        if self.ask_password {
            let text =
                rpassword::prompt_password(format!("Password of {}: ", Untrusted::new(&self.user)))
                    .map_err(|error| {
                        Failure::new(
                            Exit::Connect,
                            format!("cannot ask for the password: {error}"),
                        )
                        .advise("put it into MYSQL_PWD or an option file")
                    })?;
            self.password = Some(Password(text));
            self.ask_password = false;
        }
        Ok(())
    }

    /// Sets a password that was read elsewhere.
    pub fn set_password(&mut self, password: String) {
        self.password = Some(Password(password));
        self.ask_password = false;
    }

    /// Whether a login sends a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some() || self.ask_password
    }

    /// The users that this target trusts at a socket.
    pub fn rule(&self) -> Rule {
        Rule {
            caller: rustix::process::geteuid().as_raw(),
            package: trust::package_user(),
            named: self.server_user,
        }
    }

    /// Logs in; asks for the password on the first call, if requested. `limit` is the answer timeout, and a login may
    /// take twice as long. `None` waits without limit.
    pub fn connect(&mut self, limit: Option<Duration>) -> Result<Session, Failure> {
        let tls = self.tls()?;
        self.ask_password()?;
        let deadline = limit.map(|limit| Instant::now() + 2 * limit);
        let explain = |error: mysql::Error| self.explain(&error);
        let explain_io = |error: io::Error| self.explain(&error.into());
        let (socket, place) = match &self.address {
            Address::Socket(path) => {
                let place = SocketPath::open(path).map_err(explain_io)?;
                if self.is_default && place.owner.is_none() {
                    return Err(self.refuse(
                        "other users may write to its directory, or to one above it",
                        "if it is the server's socket, name it with -S",
                    ));
                }
                (
                    Socket::unix(&place, limit).map_err(explain_io)?,
                    Some(place),
                )
            }
            Address::Tcp { host, port } => {
                let limit = limit.unwrap_or(CONNECT_TIMEOUT).min(CONNECT_TIMEOUT);
                (Socket::tcp(host, *port, limit).map_err(explain_io)?, None)
            }
        };
        let mut protocol = Protocol::new(Wire::Plain(socket));
        protocol.set_deadline(deadline);
        let greeting = protocol.greeting().map_err(explain)?;
        let mut holder = None;
        if let Some(place) = place {
            let peer = Peer::of(protocol.stream().as_fd());
            holder = self.rule().check(peer, &place).map_err(|why| {
                self.refuse(
                    &why,
                    "ask who runs it; if it is the server, name its user with --server-user NAME",
                )
            })?;
        } else if let (Some(config), Address::Tcp { host, .. }) = (&tls, &self.address) {
            if !greeting.offers_tls() {
                let advice =
                    "configure TLS there (ssl_cert, ssl_key), or use its socket (-S) on its host";
                return Err(self.refuse(
                    "it offers no TLS, without which no password is sent",
                    advice,
                ));
            }
            protocol = protocol
                .over_tls(&greeting, |wire| wire.secured(host, Arc::clone(config)))
                .map_err(explain)?;
        }
        let is_private = tls.is_some() || matches!(self.address, Address::Socket(_));
        let password = self.password.as_ref().map(|password| password.0.as_str());
        protocol
            .log_in(&greeting, &self.user, password, is_private)
            .map_err(explain)?;
        let mut session = Session::new(protocol, greeting, holder);
        session.limit = limit;
        let locked = limit.map_or(LOCK_TIMEOUT, |limit| limit.min(LOCK_TIMEOUT));
        let wait = locked.as_secs().max(1);
        for statement in SETTINGS {
            let statement = statement.replace("{wait}", &wait.to_string());
            session.execute(&statement).map_err(explain)?;
        }
        Ok(session)
    }

    /// TLS configuration with the verification of the server; `None` without TLS.
    fn tls(&self) -> Result<Option<Arc<stream::ClientConfig>>, Failure> {
        let has_password = self.ask_password
            || self
                .password
                .as_ref()
                .is_some_and(|password| !password.0.is_empty());
        let wanted = match (&self.address, self.ssl_mode) {
            (Address::Socket(_), _) => false,
            (_, SslMode::Disabled) if has_password => {
                return Err(self.refuse(
                    "a password goes over TCP only with TLS, which --ssl-mode=DISABLED forbids",
                    "leave the option out, or use the server's socket (-S) on its host",
                ));
            }
            (_, SslMode::Disabled) => false,
            (_, SslMode::Preferred) => has_password || self.ssl_ca.is_some(),
            _ => true,
        };
        let checks_name = self.ssl_mode != SslMode::VerifyCa;
        if wanted && !checks_name && self.ssl_ca.is_none() {
            return Err(self.refuse(
                "ssl-mode VERIFY_CA checks no name, so that without ssl-ca every server with a public certificate \
                 would get the password",
                "name the authority of the server's certificate with --ssl-ca FILE (ssl-ca in a file), or use \
                 VERIFY_IDENTITY",
            ));
        }
        wanted
            .then(|| stream::tls_config(self.ssl_ca.as_deref(), checks_name))
            .transpose()
            .map_err(|why| {
                self.refuse(
                    &format!("no certificate can be verified: {why}"),
                    "name the authority of the server's certificate with --ssl-ca FILE",
                )
            })
    }

    fn refuse(&self, why: &str, advice: &str) -> Failure {
        let what = format!("refused to log in to the server at {}: {why}", self.address);
        Failure::new(Exit::Connect, what).advise(advice)
    }

    fn explain(&self, error: &mysql::Error) -> Failure {
        use mysql::{DriverError, Error};
        let failure = Failure::new(
            Exit::Connect,
            format!(
                "cannot connect to the server at {}: {}",
                self.address,
                plain(error)
            ),
        );
        match error {
            Error::MySqlError(server) => match server.code {
                1045 | 1698 => failure.advise(format!(
                    "log in as an administrator: `sudo bpe ...` where the server knows root by its \
                     socket, or -u NAME -p (tried as {} {} a password)",
                    Untrusted::new(&self.user),
                    if self.password.is_some() {
                        "with"
                    } else {
                        "without"
                    }
                )),
                3159 => failure.advise(
                    "the server wants TLS over TCP: give --ssl-mode=VERIFY_IDENTITY, with --ssl-ca FILE for an \
                     authority of yours, or use its socket (-S) on its host",
                ),
                1129 | 1040 => failure.advise("try again when the server has a free connection"),
                _ => failure,
            },
            Error::DriverError(DriverError::UnknownAuthPlugin(plugin)) => failure.advise(format!(
                "the server asks to log in by {}, which this command never does: use an account with a password, or the \
                 operating system's account over the socket",
                Untrusted::new(plugin).cut_at(64)
            )),
            Error::IoError(io) if was_too_slow(io) => failure.advise(HANGS),
            Error::IoError(io) if io.kind() == io::ErrorKind::InvalidData => match &self.address {
                Address::Tcp { .. } if io.get_ref().is_some_and(|why| why.is::<stream::Error>()) => {
                    failure.advise(
                        "name the authority of the server's certificate with --ssl-ca FILE; --ssl-mode=VERIFY_CA \
                         accepts a certificate for another name",
                    )
                }
                _ => failure.advise("is this a MySQL or MariaDB server?"),
            },
            _ => match &self.address {
                Address::Socket(path) if !path.exists() => failure.advise(format!(
                    "no server listens there: start it, or name its socket with -S ({} asks it)",
                    "`SELECT @@socket`"
                )),
                Address::Socket(_) => failure
                    .advise("is the server running, and may you reach its socket? Try with sudo"),
                Address::Tcp { .. } => failure.advise(
                    "is the server running, and does it listen on TCP there (bind-address, \
                     skip-networking, firewall)?",
                ),
            },
        }
    }
}

/// The message of the server or system without the library's additions, on one line.
pub fn plain(error: &mysql::Error) -> String {
    use mysql::{DriverError, Error};
    match error {
        Error::MySqlError(server) if server.code == LOCK_WAIT_TIMED_OUT => format!(
            "{} (error {}): another session holds a lock, perhaps a backup or a change of a table",
            Untrusted::new(&server.message),
            server.code
        ),
        Error::MySqlError(server) => format!(
            "{} (error {})",
            Untrusted::new(&server.message),
            server.code
        ),
        Error::IoError(io) => message(io),
        Error::DriverError(DriverError::UnknownAuthPlugin(_)) => {
            "its way to log in is not supported".to_owned()
        }
        // Their own text contains the whole row.
        _ => "its answer has other columns than were asked for".to_owned(),
    }
}

/// The system's error behind a library error.
pub fn io_of(error: &mysql::Error) -> Option<&io::Error> {
    match error {
        mysql::Error::IoError(io) => Some(io),
        _ => None,
    }
}

/// Whether an error means that a socket's timeout expired.
pub fn was_too_slow(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn message(error: &io::Error) -> String {
    match error.kind() {
        _ if was_too_slow(error) => "it took too long".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            "it closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::connect::rogue;
    use std::fs;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A socket with a full queue, while both results are kept.
    pub fn full(socket: &Path) -> (UnixListener, UnixStream) {
        let listener = UnixListener::bind(socket).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = UnixStream::connect(socket).unwrap();
        (listener, first)
    }

    fn at(socket: &Path) -> Target {
        let args = Args {
            socket: Some(socket.display().to_string()),
            no_defaults: true,
            ..Args::default()
        };
        args.target().unwrap()
    }

    #[test]
    fn full_queue_is_waited_for_until_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let kept = full(&path);
        let failure = || {
            let failure = at(&path).connect(Some(Duration::from_millis(50)));
            failure.map(drop).unwrap_err().what
        };
        let what = failure();
        assert!(what.ends_with("it took too long"), "{what}");
        drop(kept);
        let what = failure();
        assert!(what.contains("refused"), "{what}");
    }

    #[test]
    fn default_socket_needs_a_directory_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(folder.path(), open).unwrap();
        let mut target = at(&path);
        assert!(!target.is_default);
        target.is_default = true;
        let failure = target.connect(None).map(drop).unwrap_err().to_string();
        assert!(failure.contains("name it with -S"), "{failure}");
        assert!(listener.accept().is_err(), "it is not tried");
        let target = Args::default().resolve(&files(""), &nothing).unwrap();
        assert!(target.is_default);
        assert!(SOCKETS.iter().all(|path| !path.starts_with("/tmp")));
    }

    #[test]
    fn socket_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let answer = std::thread::spawn(move || rogue::greet_and_read(&listener));
        let mut target = at(&path);
        target.set_password("secret".to_owned());
        target.server_user = Some(rustix::process::geteuid().as_raw() + 1);
        let failure = target.connect(Some(Duration::from_secs(5))).map(drop);
        let failure = failure.unwrap_err().to_string();
        assert!(failure.contains("--server-user"), "{failure}");
        assert_eq!(answer.join().unwrap(), b"", "what it was told");
    }

    #[test]
    fn password_over_tcp_needs_tls() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            rogue::greet(&mut stream, "8.4.0", "mysql_native_password");
            rogue::rest(&mut stream)
        });
        let connect = |ssl_mode: Option<SslMode>, ssl_ca: Option<&str>| {
            let args = Args {
                port: Some(port),
                no_defaults: true,
                ssl_mode,
                ssl_ca: ssl_ca.map(PathBuf::from),
                ..Args::default()
            };
            let mut target = args.target().unwrap();
            target.set_password("secret".to_owned());
            let failure = target.connect(Some(Duration::from_secs(5))).map(drop);
            failure.unwrap_err().to_string()
        };
        let failure = connect(Some(SslMode::Disabled), None);
        assert!(failure.contains("--ssl-mode=DISABLED"), "{failure}");
        let failure = connect(None, Some("/nowhere"));
        assert!(failure.contains("--ssl-ca"), "{failure}");
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, rogue::AUTHORITY).unwrap();
        let failure = connect(None, ca.to_str());
        assert!(failure.contains("offers no TLS"), "{failure}");
        assert_eq!(answer.join().unwrap(), b"", "what it was told");
    }

    #[test]
    fn only_verified_certificates_get_the_password() {
        use SslMode::*;
        let server = include_str!("rogue/server.pem");
        let other = include_str!("rogue/other.pem");
        let expired = include_str!("rogue/expired.pem");
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let ours = file("ca.pem", rogue::AUTHORITY);
        let foreign = file("foreign.pem", include_str!("rogue/foreign.pem"));
        let empty = file("empty.pem", "no certificate");
        for (certificate, mode, authority, refusal) in [
            (server, None, &ours, None),
            (server, Some(Required), &ours, None),
            (server, Some(VerifyCa), &ours, None),
            (other, Some(VerifyCa), &ours, None),
            (other, None, &ours, Some("certificate")),
            (other, Some(Required), &ours, Some("certificate")),
            (expired, None, &ours, Some("certificate")),
            (expired, Some(VerifyCa), &ours, Some("certificate")),
            (server, None, &foreign, Some("certificate")),
            (server, Some(VerifyCa), &foreign, Some("certificate")),
            (server, None, &empty, Some("no certificate in PEM form")),
        ] {
            let mut case = rogue::Case::harmless();
            // The server requests the plain password, which TLS protects.
            case.login = vec![b"\x01\x04".to_vec(), rogue::OK.to_vec()];
            let args = Args {
                port: Some(case.start_tls(certificate)),
                no_defaults: true,
                ssl_mode: mode,
                ssl_ca: Some(authority.clone()),
                ..Args::default()
            };
            let mut target = args.target().unwrap();
            target.set_password("secret".to_owned());
            let failure = target
                .connect(Some(Duration::from_secs(10)))
                .map(drop)
                .err();
            let failure = failure.map(|failure| failure.to_string());
            match (&failure, refusal) {
                (None, None) => {}
                (Some(failure), Some(words)) => {
                    assert!(failure.contains(words), "{failure}");
                    assert!(failure.contains("--ssl-ca"), "{failure}");
                }
                _ => panic!("{mode:?} {authority:?}: {failure:?}"),
            }
        }
    }

    #[test]
    fn verify_ca_without_authority_is_refused() {
        let of_line = Args {
            host: Some("db1".into()),
            ssl_mode: Some(SslMode::VerifyCa),
            ..Args::default()
        };
        let of_file = "[client]\nhost=db1\nssl-mode=VERIFY_CA\n";
        for (args, text) in [(of_line, ""), (Args::default(), of_file)] {
            let target = args.resolve(&files(text), &nothing).unwrap();
            let failure = target.tls().unwrap_err().to_string();
            assert!(failure.contains("VERIFY_CA checks no name"), "{failure}");
            assert!(failure.contains("--ssl-ca FILE"), "{failure}");
        }
        // A socket needs no certificate.
        let text = "[client]\nsocket=/a\nssl-mode=VERIFY_CA\n";
        let target = Args::default().resolve(&files(text), &nothing).unwrap();
        assert!(target.tls().unwrap().is_none());
    }

    #[test]
    fn methods_that_give_the_password_away_are_refused() {
        for name in [
            "mysql_clear_password",
            "mysql_old_password",
            "sha256_password",
            "dialog",
            "client_ed25519",
            "",
        ] {
            let mut case = rogue::Case::harmless();
            let nonce = b"\0abcdefghijklmnopqrst\0";
            let request = [b"\xfe", name.as_bytes(), nonce].concat();
            case.login = vec![request, rogue::OK.to_vec()];
            let (_folder, args) = case.start();
            let mut target = args.target().unwrap();
            target.set_password("secret".to_owned());
            let failure = target.connect(Some(Duration::from_secs(5))).map(drop);
            let failure = failure.unwrap_err().to_string();
            assert!(failure.contains("never does"), "{name}: {failure}");
        }
    }

    #[test]
    fn ssl_options_are_those_of_both_clients() {
        use SslMode::*;
        let mode = |text: &str| {
            let target = Args::default().resolve(&files(text), &nothing);
            target.map(|target| target.ssl_mode)
        };
        for (text, wanted) in [
            ("[client]\n", Preferred),
            ("[client]\nssl-mode=verify_ca\n", VerifyCa),
            ("[client]\nssl-mode=DISABLED\n", Disabled),
            ("[client]\nskip-ssl\n", Disabled),
            ("[client]\nssl=0\n", Disabled),
            ("[client]\nssl\n", Required),
            ("[client]\nssl-verify-server-cert\n", VerifyIdentity),
            ("[client]\nssl-verify-server-cert=0\n", Preferred),
        ] {
            assert_eq!(mode(text).unwrap(), wanted, "{text}");
        }
        assert_eq!(
            mode("[client]\nssl-mode=x\n").unwrap_err().exit,
            Exit::Usage
        );
        let text = "[client]\nssl-ca=/ca.pem\nssl-mode=DISABLED\n";
        let args = Args {
            ssl_verify_server_cert: true,
            ..Args::default()
        };
        let target = args.resolve(&files(text), &nothing).unwrap();
        assert_eq!(target.ssl_mode, VerifyIdentity);
        assert_eq!(target.ssl_ca, Some("/ca.pem".into()));
    }

    #[test]
    fn unknown_server_user_is_wrong_usage() {
        let args = Args {
            server_user: Some("no such user".into()),
            ..Args::default()
        };
        let failure = args.resolve(&files(""), &nothing).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn files(text: &str) -> OptionFiles {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        fs::write(&path, text).unwrap();
        let mut files = OptionFiles::new();
        files.read_required(&path).unwrap();
        files
    }

    fn socket(path: &str) -> Address {
        Address::Socket(path.into())
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn socket_and_tcp_are_chosen_as_the_clients_do() {
        let text = "[client-server]\nsocket=/run/a.sock\nport=3307\n";
        let given = |socket: Option<&str>, host: Option<&str>, port: Option<u16>| Args {
            socket: socket.map(str::to_owned),
            host: host.map(str::to_owned),
            port,
            ..Args::default()
        };
        for (args, wanted) in [
            (given(None, None, None), socket("/run/a.sock")),
            (given(None, Some("localhost"), None), socket("/run/a.sock")),
            (given(Some("/b"), None, Some(1)), socket("/b")),
            (given(None, None, Some(3308)), tcp("127.0.0.1", 3308)),
            (given(None, Some("db1"), None), tcp("db1", 3307)),
            (given(Some("/b"), Some("db1"), None), tcp("db1", 3307)),
        ] {
            let target = args.resolve(&files(text), &nothing).unwrap();
            assert_eq!(target.address, wanted, "{args:?}");
        }
        let target = Args::default()
            .resolve(&files("[client]\nprotocol=TCP\n"), &nothing)
            .unwrap();
        assert_eq!(target.address, tcp("127.0.0.1", 3306));
    }

    #[test]
    fn command_line_beats_file_beats_environment() {
        let environment = |name: &str| match name {
            "MYSQL_PWD" => Some("from environment".to_owned()),
            "MYSQL_HOST" => Some("h".to_owned()),
            "USER" => Some("u".to_owned()),
            _ => None,
        };
        let text = "[client]\npassword=\"from file\"\nuser=f\n[client_two]\nuser=two\n";
        let plain_args = Args::default();
        let target = plain_args.resolve(&files(text), &environment).unwrap();
        assert_eq!(target.password, Some(Password("from file".into())));
        assert_eq!(target.user, "f");
        assert_eq!(target.address, tcp("h", 3306));

        let args = Args {
            user: Some("c".into()),
            password: Some(Some("given".into())),
            ..Args::default()
        };
        let target = args.resolve(&files(text), &environment).unwrap();
        assert_eq!(target.password, Some(Password("given".into())));
        assert_eq!(target.user, "c");

        let args = Args {
            defaults_group_suffix: Some("_two".into()),
            ..Args::default()
        };
        assert_eq!(
            args.resolve(&files(text), &environment).unwrap().user,
            "two"
        );

        let target = plain_args.resolve(&files(""), &environment).unwrap();
        assert_eq!(target.password, Some(Password("from environment".into())));
    }

    #[test]
    fn a_server_of_a_file_heeds_no_environment() {
        let args = Args {
            no_environment: true,
            ..Args::default()
        };
        for name in ["MYSQL_PWD", "MYSQL_HOST", "MYSQL_TCP_PORT", "MARIADB_HOME"] {
            assert!(!args.heeds(name) && Args::default().heeds(name), "{name}");
        }
        // The user name is no secret.
        assert!(args.heeds("USER"));
    }

    #[test]
    fn passwords_are_asked_for_and_never_printed() {
        let args = Args {
            password: Some(None),
            ..Args::default()
        };
        assert!(args.resolve(&files(""), &nothing).unwrap().ask_password);
        let target = Args::default()
            .resolve(&files("[client]\npassword\n"), &nothing)
            .unwrap();
        assert!(target.ask_password);
        let target = Args::default()
            .resolve(&files("[client]\npassword=secret\n"), &nothing)
            .unwrap();
        assert!(!format!("{target:?}").contains("secret"));
    }

    #[test]
    fn a_wrong_port_is_wrong_usage() {
        let failure = Args::default()
            .resolve(&files("[client]\nport=many\n"), &nothing)
            .unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }
}
