//! Options of a server start.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// When a plugin library is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Before InnoDB starts: `plugin_load_add` on MariaDB, `early-plugin-load` on MySQL.
    Early,
    /// Only linked into the plugin directory; the caller installs the plugin by SQL.
    BySql,
}

/// Options of one start of a server. All others have the server's defaults.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) datadir: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) buffer_pool: u64,
    pub(crate) plugins: Vec<(PathBuf, String, Load)>,
    pub(crate) port: Option<u16>,
    pub(crate) extra: Vec<String>,
    pub(crate) start_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) preload: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) wrapper: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) defaults_file: Option<PathBuf>,
}

impl Options {
    /// A server on the data directory `datadir`, with socket, log, pid file and plugin directory in the directory `run`
    /// (created if missing; never the data directory). Buffer pool 128 MiB.
    pub fn new(datadir: impl AsRef<Path>, run: impl AsRef<Path>) -> Self {
        Options {
            datadir: datadir.as_ref().to_owned(),
            run: run.as_ref().to_owned(),
            buffer_pool: 128 << 20,
            plugins: Vec::new(),
            port: None,
            extra: Vec::new(),
            start_timeout: Duration::from_secs(120),
            statement_timeout: Duration::from_secs(600),
            preload: None,
            environment: Vec::new(),
            wrapper: Vec::new(),
            user: None,
            defaults_file: None,
        }
    }

    /// Size of InnoDB's buffer pool in bytes. The server's resize step is set to 1 MiB, so whole MiB are used exactly.
    pub fn buffer_pool(mut self, bytes: u64) -> Self {
        self.buffer_pool = bytes;
        self
    }

    /// Links the library at `path` into the plugin directory, beside the server's own plugins, as `<name>.so`. Loads
    /// the plugin `name` from it at the time given by `load`.
    pub fn plugin(mut self, path: impl AsRef<Path>, name: &str, load: Load) -> Self {
        self.plugins
            .push((path.as_ref().to_owned(), name.to_owned(), load));
        self
    }

    /// Also listens on this port of 127.0.0.1; by default the server has no network port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// An additional server option in command-line form (`--innodb-io-capacity=400`).
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.extra.push(option.into());
        self
    }

    /// Time limit until the server answers SQL (recovery included). Default 120 s.
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Time limit for the answer to a statement of [`Server::connect`](crate::Server::connect). Default 600 s.
    pub fn statement_timeout(mut self, limit: Duration) -> Self {
        self.statement_timeout = limit;
        self
    }

    /// Preloads a library (LD_PRELOAD) into the server process only.
    pub fn preload(mut self, library: impl AsRef<Path>) -> Self {
        self.preload = Some(library.as_ref().to_owned());
        self
    }

    /// Sets a variable in the environment of the server process.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server with this command, followed by the server's own. The command must become the server (as
    /// `unshare` does).
    pub fn wrapper(mut self, command: &[&str]) -> Self {
        self.wrapper = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Makes a server that root starts switch to this user, as services do. The data directory must belong to the user;
    /// ownership of the directory `run` is transferred. By default the server stays root.
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Reads this option file (and its includes) instead of none. Then the file determines the size of the buffer pool.
    pub fn defaults_file(mut self, file: impl AsRef<Path>) -> Self {
        self.defaults_file = Some(file.as_ref().to_owned());
        self
    }
}
