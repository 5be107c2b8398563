//! How the command finds and reaches a server: the options, option files and environment variables
//! that the `mysql` and `mariadb` clients take, with the same names and the same precedence
//! (command line, then option files, then environment, then defaults).
//!
//! Not supported: `~/.mylogin.cnf` (its obfuscation is MySQL's own) and TLS. The command is meant
//! to run on the server's host, over its socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interface::Untrusted;
use interface::untrusted::one_line;
use mysql::{Conn, OptsBuilder};

use crate::failure::{Exit, Failure};
use crate::terminal::complain;
use option_file::OptionFiles;

mod hide;
pub mod limited;
pub mod option_file;

/// Groups that concern this command; the clients' own ones and `[bpe]`.
const GROUPS: [&str; 6] = [
    "client",
    "client-server",
    "client-mariadb",
    "mysql",
    "mariadb-client",
    "bpe",
];

/// Where servers put their socket, first the one both Debian packages use.
const SOCKETS: [&str; 4] = [
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",
];

const HANGS: &str = "the server is stopped, hangs or is overloaded: check its process";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a session of ours waits for a lock that another one holds; servers themselves wait for a day, or for a year.
const LOCKED_FOR: Duration = Duration::from_secs(30);
/// ER_LOCK_WAIT_TIMEOUT.
const LOCKED: u16 = 1205;
/// A server that has vanished is noticed by this. Usually there is no limit for a statement: shrinking a
/// large pool takes its time, and a socket with a time limit would not go on after a signal.
const KEEPALIVE_MILLISECONDS: u32 = 30_000;

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
    /// Heed no environment variable that is about servers: whose secret it would be is not known where there are several
    #[arg(skip)]
    pub no_environment: bool,
}

/// How to reach the server.
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

/// A password that no derived or careless formatting prints.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

/// What `Args`, option files and environment come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub address: Address,
    pub user: String,
    password: Option<Password>,
    ask_password: bool,
}

impl Args {
    /// Whether no option was given that says which server is meant.
    pub fn is_default(&self) -> bool {
        self.socket.is_none()
            && self.host.is_none()
            && self.port.is_none()
            && self.user.is_none()
            && self.password.is_none()
            && self.defaults_file.is_none()
            && self.defaults_extra_file.is_none()
            && self.defaults_group_suffix.is_none()
    }

    fn heeds(&self, variable: &str) -> bool {
        !self.no_environment
            || !(variable.starts_with("MYSQL_") || variable.starts_with("MARIADB_"))
    }

    /// Reads the option files and works out the target.
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
            hide::hide_argument(password);
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

    /// Pure, so that precedence can be tested.
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
        // A port given on the command line without a socket asks for TCP even to localhost; a
        // port in an option file does not, as distributions write one there beside the socket.
        let tcp = match protocol.as_deref() {
            _ if self.socket.is_some() && self.host.is_none() => false,
            _ if !local => true,
            Some("tcp") => true,
            Some("socket") => false,
            _ => self.port.is_some() && self.socket.is_none(),
        };
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
                .or_else(|| environment("MYSQL_UNIX_PORT"))
                .unwrap_or_else(default_socket);
            Address::Socket(socket.into())
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
                // `password` without a value in an option file asks, too.
                Some(setting) => match &setting.value {
                    Some(value) => (Some(Password(value.clone())), false),
                    None => (None, true),
                },
                None => (environment("MYSQL_PWD").map(Password), false),
            },
        };
        Ok(Target {
            address,
            user,
            password,
            ask_password,
        })
    }
}

fn default_socket() -> String {
    SOCKETS
        .into_iter()
        .find(|path| Path::new(path).exists())
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
    /// Asks for the password now when that was wished, so that nobody need be there later.
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

    /// A password that was read elsewhere.
    pub fn set_password(&mut self, password: String) {
        self.password = Some(Password(password));
        self.ask_password = false;
    }

    /// Whether a password is sent when logging in.
    pub fn has_password(&self) -> bool {
        self.password.is_some() || self.ask_password
    }

    /// Logs in, asking for the password when that was wished, once. `limit`: how long an answer is waited for, and over a
    /// socket twice as long for all of them, which suits whoever only looks; None: as long as it takes.
    pub fn connect(&mut self, limit: Option<Duration>) -> Result<Conn, Failure> {
        self.ask_password()?;
        let locked = limit.map_or(LOCKED_FOR, |limit| limit.min(LOCKED_FOR));
        let builder = OptsBuilder::new()
            .user(Some(&self.user))
            .pass(self.password.as_ref().map(|password| &password.0))
            .prefer_socket(false)
            .tcp_connect_timeout(Some(
                limit.map_or(CONNECT_TIMEOUT, |limit| limit.min(CONNECT_TIMEOUT)),
            ))
            // A transaction that a look has begun would last as long as the session.
            .init(vec![format!(
                "SET SESSION autocommit = 1, lock_wait_timeout = {}",
                locked.as_secs().max(1)
            )])
            .read_timeout(limit)
            .write_timeout(limit)
            .tcp_keepalive_time_ms(Some(KEEPALIVE_MILLISECONDS));
        let builder = match &self.address {
            Address::Socket(path) => builder.socket(Some(path.to_string_lossy())),
            Address::Tcp { host, port } => builder.ip_or_hostname(Some(host)).tcp_port(*port),
        };
        let connected = match (limit, &self.address) {
            // Each answer has that limit, so that all of them may take longer.
            (Some(limit), Address::Socket(path)) => {
                limited::log_in(path, 2 * limit, move || Conn::new(builder)).map_err(|why| {
                    Failure::new(
                        Exit::Connect,
                        format!("cannot connect to the server at {}: {why}", self.address),
                    )
                    .advise(HANGS)
                })?
            }
            _ => Conn::new(builder),
        };
        connected.map_err(|error| self.explain(&error))
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
                    "the server wants TLS over TCP, which this command does not speak: \
                     run it on the server's host over the socket (-S)",
                ),
                1129 | 1040 => failure.advise("try again when the server has a free connection"),
                _ => failure,
            },
            Error::DriverError(DriverError::UnknownAuthPlugin(plugin)) => failure.advise(format!(
                "the account uses authentication plugin {}, which this command does not \
                 speak: use an account with a password, or the operating system's account over \
                 the socket",
                Untrusted::new(plugin).cut_at(64)
            )),
            _ if io_of(error).is_some_and(was_too_slow) => failure.advise(HANGS),
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

/// An error of the library in the words of the server or system alone, on one line.
pub fn plain(error: &mysql::Error) -> String {
    use mysql::{DriverError, Error};
    match error {
        Error::MySqlError(server) if server.code == LOCKED => format!(
            "{} (error {}): another session holds a lock, perhaps a backup or a change of a table",
            Untrusted::new(&server.message),
            server.code
        ),
        Error::MySqlError(server) => format!(
            "{} (error {})",
            Untrusted::new(&server.message),
            server.code
        ),
        Error::IoError(io) => in_words(io),
        Error::CodecError(codec) => io_of(error).map_or_else(|| codec.to_string(), in_words),
        Error::DriverError(DriverError::CouldNotConnect(Some((_, text, _)))) => {
            Untrusted::new(text).to_string()
        }
        other => Untrusted::new(&other.to_string()).to_string(),
    }
}

/// The system's error behind one of the library.
pub fn io_of(error: &mysql::Error) -> Option<&io::Error> {
    match error {
        mysql::Error::IoError(io) => Some(io),
        mysql::Error::CodecError(codec) => std::error::Error::source(codec)?.downcast_ref(),
        _ => None,
    }
}

/// What a socket with a limit says when it is over.
pub fn was_too_slow(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        _ if was_too_slow(error) => "it took too long".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            "it closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        // Who logs in is no secret.
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
