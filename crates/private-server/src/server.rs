//! A running server.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;

use crate::error::{Doing, tail, tail_since};
use crate::socket::SocketPath;
use crate::{Error, Flavour, Installation, Load, Options, Result, ownership, process};

/// Lines of the error log in an error message.
const LOG_LINES: usize = 30;
/// Time limit after SQL SHUTDOWN: flushing a full pool to a slow volume is slow.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);
const TERM_LIMIT: Duration = Duration::from_secs(30);

/// A private server that answers SQL. Dropping it kills it (SIGKILL); call [`Server::stop`] for a clean shutdown.
#[derive(Debug)]
pub struct Server {
    child: Child,
    flavour: Flavour,
    socket: SocketPath,
    log: PathBuf,
    port: Option<u16>,
    statement_timeout: Duration,
}

/// Creates a directory for the server alone. One of another user is accepted only if the server's user gets it.
fn make_private(folder: &Path, options: &Options) -> Result<()> {
    ownership::make_private_or_adopt(folder, options.user.is_some())
        .doing(|| format!("cannot make {}", folder.display()))
}

/// Name of a library for LD_PRELOAD of a process that starts in `run`: blanks and colons separate names there.
fn preloadable(library: &Path, run: &Path) -> Result<PathBuf> {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    if !library.as_os_str().as_bytes().iter().any(separates) {
        return Ok(library.to_owned());
    }
    let link = run.join("preload.so");
    let _ = fs::remove_file(&link);
    symlink(library, &link).doing(|| format!("cannot make {}", link.display()))?;
    Ok(PathBuf::from("./preload.so"))
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// By SQL SHUTDOWN, with exit status 0.
    Cleanly,
    /// By SIGTERM, with exit status 0, because SQL was not possible.
    BySignal,
}

impl Installation {
    /// Starts the server and waits until it answers SQL.
    ///
    /// # Errors
    /// [`Error::Start`] with the tail of the error log if the server ends or does not answer within the time limit. In
    /// the latter case it is killed.
    pub fn start(&self, options: Options) -> Result<Server> {
        let run = &options.run;
        // Access to the socket is access as the server's user: its root has no password.
        make_private(run, &options)?;
        let log = run.join("error.log");
        let log_file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .doing(|| format!("cannot open {}", log.display()))?;
        let log_start = log_file.metadata().map(|m| m.len()).unwrap_or(0);

        let socket = SocketPath::of(run, "socket")
            .doing(|| format!("cannot make a place for the socket of {}", run.display()))?;
        let _ = fs::remove_file(socket.path());
        let plugins = self.plugin_folder(&options)?;
        let tmp = run.join("tmp");
        make_private(&tmp, &options)?;

        if let Some(user) = &options.user {
            let mut own = vec![run.as_path(), &log, &tmp];
            own.extend(socket.folder());
            hand_over(user, &own)?;
        }

        let mut command = self.base_command(
            &options.datadir,
            options.user.as_deref(),
            options.defaults_file.as_deref(),
        );
        command.arg(format!("--socket={}", socket.path().display()));
        command.arg(format!("--pid-file={}", run.join("pid").display()));
        command.arg(format!("--tmpdir={}", tmp.display()));
        command.arg(format!("--plugin-dir={}", plugins.display()));
        if options.defaults_file.is_none() {
            command.arg(format!("--innodb-buffer-pool-size={}", options.buffer_pool));
        }
        command.arg("--innodb-buffer-pool-chunk-size=1048576");
        match options.port {
            Some(port) => {
                command.arg("--bind-address=127.0.0.1");
                command.arg(format!("--port={port}"));
                // Otherwise 127.0.0.1 is localhost, where root has no password.
                command.arg("--skip-name-resolve");
            }
            None => {
                command.arg("--skip-networking");
            }
        }
        if self.flavour.is_mysql() {
            // Loose, because a build may lack it.
            command.arg("--loose-mysqlx=OFF");
            // Includes notes, like MariaDB's log.
            command.arg("--log-error-verbosity=3");
        }
        command.arg(format!("--secure-file-priv={}", tmp.display()));
        let early: Vec<&str> = options
            .plugins
            .iter()
            .filter(|(_, _, load)| *load == Load::Early)
            .map(|(_, name, _)| name.as_str())
            .collect();
        if self.flavour.is_mysql() {
            if !early.is_empty() {
                // A single value, because a second occurrence would replace the first.
                let list: Vec<String> = early
                    .iter()
                    .map(|name| format!("{name}={name}.so"))
                    .collect();
                command.arg(format!("--early-plugin-load={}", list.join(";")));
            }
        } else {
            for name in early {
                command.arg(format!("--plugin-load-add={name}"));
            }
        }
        command.args(&options.extra);
        command.envs(
            options
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
        if let Some(library) = &options.preload {
            command.env("LD_PRELOAD", preloadable(library, run)?);
        }
        let mut command = wrapped(command, &options.wrapper);
        command.stdin(Stdio::null());
        command.stdout(
            log_file
                .try_clone()
                .doing(|| format!("cannot open {}", log.display()))?,
        );
        command.stderr(log_file);
        command.current_dir(run);
        let child = process::spawn(command, libc::SIGKILL)
            .doing(|| format!("cannot start {}", self.program().display()))?;
        let mut server = Server {
            child,
            flavour: self.flavour,
            socket,
            log,
            port: options.port,
            statement_timeout: options.statement_timeout,
        };
        server.wait_until_it_answers(options.start_timeout, log_start)?;
        Ok(server)
    }

    /// A plugin directory with links to the server's own plugins and to the caller's libraries.
    fn plugin_folder(&self, options: &Options) -> Result<PathBuf> {
        let folder = options.run.join("plugins");
        let what = || format!("cannot fill {}", folder.display());
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).doing(what);
            }
            _ => {}
        }
        // The server may run as another user than the caller.
        DirBuilder::new().mode(0o755).create(&folder).doing(what)?;
        let mut links: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
        if let Ok(entries) = fs::read_dir(&self.own_plugins) {
            for entry in entries.flatten() {
                links.insert(folder.join(entry.file_name()), entry.path());
            }
        }
        for (library, name, _) in &options.plugins {
            let library = library
                .canonicalize()
                .doing(|| format!("cannot find the plugin library {}", library.display()))?;
            links.insert(folder.join(format!("{name}.so")), library);
        }
        for (link, target) in links {
            symlink(target, link).doing(what)?;
        }
        Ok(folder)
    }
}

fn wrapped(command: Command, wrapper: &[String]) -> Command {
    let Some((program, arguments)) = wrapper.split_first() else {
        return command;
    };
    let mut outer = Command::new(program);
    outer.args(arguments).arg(command.get_program());
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

impl Server {
    fn wait_until_it_answers(&mut self, limit: Duration, log_start: u64) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let ended = self.child.try_wait().ok().flatten();
            let answers = ended.is_none() && self.value("SELECT 1").is_ok();
            if answers {
                return Ok(());
            }
            let reason = if let Some(status) = ended {
                format!("it ended with {status}")
            } else if Instant::now() >= end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                format!("no answer after {} s; it was killed", limit.as_secs())
            } else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            return Err(Error::Start {
                reason,
                log: tail_since(&self.log, log_start, LOG_LINES),
            });
        }
    }

    /// A new connection as `root`, autocommit on.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn connect(&self) -> Result<mysql::Conn> {
        self.connect_within(self.statement_timeout)
            .map_err(|source| Error::Sql {
                statement: format!("connecting to {}", self.socket.path().display()),
                source,
            })
    }

    /// Like [`connect`](Self::connect), but a statement without an answer after `limit` fails.
    ///
    /// # Errors
    /// Those of the client library.
    pub fn connect_within(
        &self,
        limit: Duration,
    ) -> std::result::Result<mysql::Conn, mysql::Error> {
        let options = mysql::OptsBuilder::new()
            .socket(Some(self.socket.path().display().to_string()))
            .user(Some("root"))
            .read_timeout(Some(limit))
            .write_timeout(Some(Duration::from_secs(60)))
            .prefer_socket(false);
        mysql::Conn::new(options)
    }

    /// Runs one statement on a separate connection and drops its rows.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn sql(&self, statement: &str) -> Result<()> {
        self.connect()?
            .query_drop(statement)
            .map_err(sql_error(statement))
    }

    /// First column of the first row as text; `None` without a row or for NULL.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn value(&self, statement: &str) -> Result<Option<String>> {
        let row: Option<mysql::Row> = self
            .connect()?
            .query_first(statement)
            .map_err(sql_error(statement))?;
        Ok(row.and_then(|row| row.as_ref(0).and_then(text_of)))
    }

    /// Global status variables whose names match the LIKE pattern.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn status(&self, pattern: &str) -> Result<BTreeMap<String, String>> {
        self.pairs(&format!("SHOW GLOBAL STATUS LIKE '{pattern}'"))
    }

    /// Global system variables whose names match the LIKE pattern.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn variables(&self, pattern: &str) -> Result<BTreeMap<String, String>> {
        self.pairs(&format!("SHOW GLOBAL VARIABLES LIKE '{pattern}'"))
    }

    fn pairs(&self, statement: &str) -> Result<BTreeMap<String, String>> {
        let rows: Vec<(String, String)> = self
            .connect()?
            .query(statement)
            .map_err(sql_error(statement))?;
        Ok(rows.into_iter().collect())
    }

    /// The unix socket.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// The port on 127.0.0.1, if one was requested.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The server's error log; all servers with the same run directory append to it.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last `lines` lines of the error log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// The flavour that was started.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory in bytes; 0 when the process is gone.
    pub fn resident_bytes(&self) -> u64 {
        // Uses exact page counts: `VmRSS` is off by some hundred KiB, because every processor adds to it in batches.
        let path = format!("/proc/{}/smaps_rollup", self.pid());
        let memory = fs::read_to_string(path).unwrap_or_default();
        memory
            .lines()
            .find_map(|line| line.strip_prefix("Rss:"))
            .and_then(|rest| rest.trim().strip_suffix("kB"))
            .and_then(|number| number.trim().parse::<u64>().ok())
            .map_or(0, |kib| kib << 10)
    }

    /// Stops the server: SQL SHUTDOWN, then SIGTERM, then SIGKILL, each with a time limit.
    ///
    /// # Errors
    /// [`Error::Stop`] if it ended with another status than 0 or had to be killed.
    pub fn stop(mut self) -> Result<Stopped> {
        let mut how = Stopped::Cleanly;
        let mut problem = None;
        // The server may close the connection before it has answered, so an error alone does not prove that it keeps
        // running.
        let asked = self.sql("SHUTDOWN");
        let patience = if asked.is_ok() {
            SHUTDOWN_LIMIT
        } else {
            Duration::from_secs(2)
        };
        if !process::wait_at_most(&mut self.child, patience) {
            process::signal(&self.child, libc::SIGTERM);
            if process::wait_at_most(&mut self.child, TERM_LIMIT) {
                how = Stopped::BySignal;
            } else {
                let _ = self.child.kill();
                problem = Some(match asked {
                    Ok(()) => "no end after SHUTDOWN and SIGTERM; it was killed".to_owned(),
                    Err(error) => format!("{error}, no end after SIGTERM; it was killed"),
                });
            }
        }
        let status = self.child.wait();
        match status {
            Ok(status) if status.success() => Ok(how),
            Ok(status) => Err(Error::Stop {
                reason: problem.unwrap_or_else(|| format!("it ended with {status}")),
                log: self.log_tail(LOG_LINES),
            }),
            Err(error) => Err(Error::Stop {
                reason: error.to_string(),
                log: self.log_tail(LOG_LINES),
            }),
        }
    }

    /// Kills the server at once, like a crash (SIGKILL), and reaps it.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.socket.path());
    }
}

fn sql_error(statement: &str) -> impl FnOnce(mysql::Error) -> Error {
    let shown: String = statement.chars().take(200).collect();
    move |source| Error::Sql {
        statement: shown,
        source,
    }
}

/// A value of the text protocol as text.
fn text_of(value: &mysql::Value) -> Option<String> {
    match value {
        mysql::Value::NULL => None,
        mysql::Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        other => Some(other.as_sql(true).trim_matches('\'').to_owned()),
    }
}

/// Makes `user` the owner of each path, with the system's `chown`.
fn hand_over(user: &str, paths: &[&Path]) -> Result<()> {
    let what = || format!("cannot make {user} the owner of the server's run folder");
    let status = std::process::Command::new("chown")
        .arg(user)
        .args(paths)
        .status()
        .doing(what)?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("chown ended with {status}"))).doing(what)
    }
}
