//! Supported servers, and their locations.
//!
//! A server comes from the host's own packages if they have the wanted version, and otherwise from a private Debian
//! root. The root is not entered by chroot. Its own dynamic loader runs the server with the root's libraries, in the
//! host's ordinary file system. So nothing is mounted, paths are the same inside and outside, and a plugin sees the
//! usual process (first entry of the link map, `dlopen(NULL)`, AT_PHDR). Only `/proc/self/exe` names the loader.
//! Upstream builds of the servers come from Maven Central ([`crate::maven`]).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::replaced::{self, Found};
use crate::{Error, Result, maven, ownership, root};

/// A server that this crate can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// MariaDB 10.5 of Debian 11, with its glibc of 2020.
    MariaDb105,
    /// MariaDB 10.11 of Debian 12.
    MariaDb1011,
    /// MariaDB 11.8 of Debian 13.
    MariaDb118,
    /// MariaDB 11.4, the build of mariadb.org for every Linux on x86-64: libaio is linked in.
    MariaDb114Upstream,
    /// MySQL 9.7 of Debian unstable.
    MySql97,
}

/// A server that is on this host and starts.
#[derive(Clone, Debug)]
pub struct Installation {
    pub flavour: Flavour,
    /// The full version as the server prints it, for example `10.11.19-MariaDB-0+deb12u1`.
    pub version: String,
    /// The program, preceded by the loader's arguments if a private root's loader runs it.
    pub(crate) command: Vec<OsString>,
    /// Basedir: the directory that holds `sbin`, `share` and `lib`.
    pub(crate) base: PathBuf,
    /// Directory with the error messages and, for MariaDB, the bootstrap scripts.
    pub(crate) share: PathBuf,
    /// The server's own plugins.
    pub(crate) own_plugins: PathBuf,
}

impl Flavour {
    /// All flavours.
    pub const ALL: [Flavour; 5] = [
        Flavour::MariaDb105,
        Flavour::MariaDb1011,
        Flavour::MariaDb118,
        Flavour::MariaDb114Upstream,
        Flavour::MySql97,
    ];

    /// The name on command lines: `mariadb-10.5`, `mariadb-10.11`, `mariadb-11.8`, `mariadb-11.4-upstream`, `mysql-9.7`.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::MariaDb105 => "mariadb-10.5",
            Flavour::MariaDb1011 => "mariadb-10.11",
            Flavour::MariaDb118 => "mariadb-11.8",
            Flavour::MariaDb114Upstream => "mariadb-11.4-upstream",
            Flavour::MySql97 => "mysql-9.7",
        }
    }

    /// The inverse of [`Flavour::name`].
    pub fn from_name(name: &str) -> Option<Flavour> {
        Flavour::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Whether it is MySQL rather than MariaDB.
    pub fn is_mysql(self) -> bool {
        self == Flavour::MySql97
    }

    fn version_prefix(self) -> &'static str {
        match self {
            Flavour::MariaDb105 => "10.5.",
            Flavour::MariaDb1011 => "10.11.",
            Flavour::MariaDb118 => "11.8.",
            Flavour::MariaDb114Upstream => "11.4.",
            Flavour::MySql97 => "9.7.",
        }
    }

    /// Debian suite and packages of the private root, if the server comes from Debian.
    fn debian(self) -> Option<root::Recipe> {
        Some(match self {
            Flavour::MariaDb114Upstream => return None,
            Flavour::MariaDb105 => root::Recipe {
                suite: "bullseye",
                folder: "bullseye",
                packages: &["mariadb-server-core-10.5"],
            },
            Flavour::MariaDb1011 => root::Recipe {
                suite: "bookworm",
                folder: "bookworm",
                packages: &["mariadb-server-core"],
            },
            Flavour::MariaDb118 => root::Recipe {
                suite: "trixie",
                folder: "trixie",
                packages: &["mariadb-server-core"],
            },
            Flavour::MySql97 => root::Recipe {
                suite: "sid",
                folder: "sid",
                packages: &["mysql-server-core", "mysql-client-core"],
            },
        })
    }

    /// Finds the server without changing this host.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with a reason suitable for a "skipped" line.
    pub fn find(self) -> Result<Installation> {
        if let Some(folder) = std::env::var_os(replaced::variable(self.name())) {
            return self
                .replaced_by(Path::new(&folder))
                .map_err(|reason| self.unavailable(reason));
        }
        let Some(recipe) = self.debian() else {
            let base = maven::existing().map_err(|reason| self.unavailable(reason))?;
            return self.examine_upstream(&base);
        };
        let mut seen = Vec::new();
        for program in self.installed_programs() {
            match self.examine(Path::new("/"), &program) {
                Ok(found) => return Ok(found),
                Err(reason) => seen.push(reason),
            }
        }
        let in_root = root::existing(&recipe).and_then(|root| match root {
            Some(root) => self.examine(&root, &root.join(self.program_in_root())),
            None => Err(format!(
                "there is no private Debian {} root at {}",
                recipe.suite,
                root::place(&recipe)?.display()
            )),
        });
        in_root.map_err(|reason| {
            seen.push(reason);
            self.unavailable(seen.join("; "))
        })
    }

    /// Finds the server, or creates a private Debian root with it, and caches that. Creation takes about half a minute
    /// and 300 to 600 MB, and needs root and `debootstrap`. `progress` receives lines at intervals.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason.
    pub fn provide(self, progress: &mut dyn FnMut(&str)) -> Result<Installation> {
        let missing = match self.find() {
            Ok(found) => return Ok(found),
            // An explicitly named server is never replaced by another.
            Err(error) if std::env::var_os(replaced::variable(self.name())).is_some() => {
                return Err(error);
            }
            Err(error) => error,
        };
        let Some(recipe) = self.debian() else {
            let base = maven::fetch(progress).map_err(|reason| self.unavailable(reason))?;
            return self.examine_upstream(&base);
        };
        if !matches!(root::existing(&recipe), Ok(None)) {
            return Err(missing);
        }
        let root = root::make(&recipe, progress).map_err(|reason| self.unavailable(reason))?;
        self.examine(&root, &root.join(self.program_in_root()))
            .map_err(|reason| self.unavailable(reason))
    }

    fn examine_upstream(self, base: &Path) -> Result<Installation> {
        let program = base.join("bin/mariadbd");
        self.examine_program(vec![program.as_os_str().to_owned()], &program, base.into())
            .and_then(|found| self.of_this_series(found))
            .map_err(|reason| self.unavailable(reason))
    }

    /// The server in the directory that the environment names ([`replaced`]), of any series.
    fn replaced_by(self, folder: &Path) -> std::result::Result<Installation, String> {
        let name = Path::new(self.program_in_root()).file_name();
        let name = name.and_then(|name| name.to_str()).unwrap_or_default();
        match replaced::program(folder, name)? {
            Found::Root(program) => {
                let command = root::command_in(folder, &program)?;
                self.examine_program(command, &program, folder.join("usr"))
            }
            Found::Base(program) => {
                let command = vec![program.as_os_str().to_owned()];
                self.examine_program(command, &program, folder.into())
            }
        }
    }

    fn of_this_series(self, found: Installation) -> std::result::Result<Installation, String> {
        match found.version.starts_with(self.version_prefix()) {
            true => Ok(found),
            false => Err(format!(
                "{} is version {}",
                found.server_program().display(),
                found.version
            )),
        }
    }

    pub(crate) fn unavailable(self, reason: String) -> Error {
        Error::Unavailable {
            flavour: self.name(),
            reason,
        }
    }

    pub(crate) fn program_in_root(self) -> &'static str {
        if self.is_mysql() {
            "usr/sbin/mysqld"
        } else {
            "usr/sbin/mariadbd"
        }
    }

    pub(crate) fn installed_programs(self) -> Vec<PathBuf> {
        let name = if self.is_mysql() {
            "mysqld"
        } else {
            "mariadbd"
        };
        ["/usr/sbin", "/usr/local/sbin", "/usr/libexec"]
            .iter()
            .map(|dir| Path::new(dir).join(name))
            .filter(|path| path.is_file())
            .collect()
    }

    /// Determines the version of `program` by running it. `root` is `/` or a private root. The error is a reason.
    pub(crate) fn examine(
        self,
        root: &Path,
        program: &Path,
    ) -> std::result::Result<Installation, String> {
        let command = if root == Path::new("/") {
            vec![program.as_os_str().to_owned()]
        } else {
            let command = root::command_in(root, program)?;
            for file in [Path::new(&command[0]), program] {
                ownership::check(file)?;
            }
            command
        };
        self.examine_program(command, program, root.join("usr"))
            .and_then(|found| self.of_this_series(found))
    }

    fn examine_program(
        self,
        command: Vec<OsString>,
        program: &Path,
        base: PathBuf,
    ) -> std::result::Result<Installation, String> {
        let output = Command::new(&command[0])
            .args(&command[1..])
            .args(["--no-defaults", "--version"])
            .output()
            .map_err(|error| format!("{} does not run: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = version_of(&text).ok_or_else(|| {
            format!(
                "{} does not tell its version ({}): {}",
                program.display(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )
        })?;
        let is_maria = version.contains("MariaDB");
        if is_maria == self.is_mysql() {
            return Err(format!("{} is version {version}", program.display()));
        }
        // MariaDB 11 moved its files from share/mysql to share/mariadb; upstream builds have them in share.
        let share = ["share/mariadb", "share/mysql", "share"]
            .iter()
            .map(|dir| base.join(dir))
            .find(|dir| dir.join("english/errmsg.sys").is_file() || dir.join("charsets").is_dir())
            .ok_or_else(|| format!("{} lacks its files under share", program.display()))?;
        let own_plugins = [
            "lib/mysql/plugin",
            "lib64/mysql/plugin",
            "lib/mariadb/plugin",
        ]
        .iter()
        .map(|dir| base.join(dir))
        .find(|dir| dir.is_dir())
        .unwrap_or_else(|| base.join("lib/mysql/plugin"));
        Ok(Installation {
            flavour: self,
            version,
            command,
            base,
            share,
            own_plugins,
        })
    }
}

impl Installation {
    /// The executed file: the server, or the loader of a private root.
    pub(crate) fn program(&self) -> &Path {
        Path::new(&self.command[0])
    }

    /// The file of the server program.
    pub fn server_program(&self) -> &Path {
        Path::new(&self.command[self.command.len() - 1])
    }

    /// The same installation with another server program.
    pub fn with_server_program(&self, program: &Path) -> Installation {
        let mut other = self.clone();
        let last = other.command.len() - 1;
        other.command[last] = program.as_os_str().to_owned();
        other
    }

    /// Another program of the same installation, such as `innochecksum`, as a command without arguments; `None` if the
    /// installation lacks it.
    pub fn tool(&self, name: &str) -> Option<Command> {
        let program = self.base.join("bin").join(name);
        if !program.is_file() {
            return None;
        }
        // All words but the last start the program: none, or the loader of a private root.
        let mut words = self.command[..self.command.len() - 1].to_vec();
        words.push(program.into_os_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Some(command)
    }

    /// The first part of the server's command line: program, the option file or `--no-defaults`, user and directories
    /// of the installation.
    pub(crate) fn base_command(
        &self,
        datadir: &Path,
        user: Option<&str>,
        defaults_file: Option<&Path>,
    ) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        match defaults_file {
            Some(file) => command.arg(format!("--defaults-file={}", file.display())),
            None => command.arg("--no-defaults"),
        };
        if rustix::process::geteuid().is_root() {
            command.arg(format!("--user={}", user.unwrap_or("root")));
        }
        let option = |name: &str, path: &Path| {
            let mut text = OsString::from(name);
            text.push(path);
            text
        };
        command.arg(option("--basedir=", &self.base));
        command.arg(option("--datadir=", datadir));
        command.arg(option("--lc-messages-dir=", &self.share));
        command.arg(option(
            "--character-sets-dir=",
            &self.share.join("charsets"),
        ));
        // Client variables (MYSQL_*, LD_*) must not reach the server.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("MYSQL")
                || name_text.starts_with("MARIADB")
                || name_text == "LD_PRELOAD"
            {
                command.env_remove(&name);
            }
        }
        command
    }
}

/// The version in the output of `--version`: the word after `Ver`.
fn version_of(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "Ver");
    words.next()?;
    words.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_both_servers_words() {
        let maria = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert_eq!(
            version_of(maria).as_deref(),
            Some("10.11.19-MariaDB-0+deb12u1")
        );
        let mysql = "/r/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))";
        assert_eq!(version_of(mysql).as_deref(), Some("9.7.4-2"));
        assert_eq!(version_of("no such thing"), None);
    }

    #[test]
    fn names_go_both_ways() {
        for flavour in Flavour::ALL {
            assert_eq!(Flavour::from_name(flavour.name()), Some(flavour));
        }
        assert_eq!(Flavour::from_name("postgresql"), None);
    }
}
