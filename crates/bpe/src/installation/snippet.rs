//! The snippet makes the extension permanent: an option file in one of the server's included directories.
//!
//! It loads the plugin before InnoDB and sets its variables. MySQL also persists the settings; those take precedence,
//! but apply only after InnoDB has opened its files. `loose-` lets a server start if the library is gone: both servers
//! log an error for a missing library and continue. MariaDB does not know `early-plugin-load`, and may read a file that
//! was written for MySQL.

use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use interface::canary;

use crate::connect::process::Process;
use crate::connect::server::Flavour;
use crate::connect::trust::is_usual;
use crate::support::quote::option_line;

/// The servers' own tool that prints what they read from an option file.
const PRINTER: &str = "/usr/bin/my_print_defaults";

/// Contents of a snippet.
#[derive(Debug, Clone, Default)]
pub struct Snippet {
    /// Names and values of the extension's variables.
    pub settings: Vec<(String, String)>,
    pub pool_before: Option<u64>,
    pub pool_after: Option<u64>,
    /// Newer MariaDB releases limit pool growth to this, by default to the size at start. Without it, `disable` could
    /// not restore the pool after a restart.
    pub pool_max: Option<u64>,
    /// Previous value of early-plugin-load; MySQL accepts one value.
    pub early_load_before: Option<String>,
    /// InnoDB must not use native asynchronous I/O.
    pub native_aio_off: bool,
    /// The line that names the server: see [`of_server`].
    pub server: String,
}

const HEAD: &str =
    "# Written by `bpe enable`: the InnoDB buffer pool extension. `bpe disable` removes it.\n";
const SERVER: &str = "# Server: user ";
const NATIVE_AIO_OFF: &str = "# Native asynchronous I/O of this server cannot be followed.\n\
                              innodb_use_native_aio = OFF\n";

/// Maximum size of a snippet in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The snippet with this path, as the server sees it; `None` if there is none, or only a foreign file.
pub fn there(process: &Process, path: &Path) -> Option<String> {
    match inspect(process, path) {
        Ok(ExistingFile::Ours(text)) => Some(text),
        _ => None,
    }
}

/// State of the snippet's path.
pub enum ExistingFile {
    Nothing,
    Ours(String),
    /// A file of another author.
    Foreign,
}

/// Reads the state of the snippet's path.
///
/// # Errors
/// A message: users other than root can change its directory, or it cannot be read.
pub fn inspect(process: &Process, path: &Path) -> Result<ExistingFile, String> {
    let (folder, name) = process.directory_of(path)?;
    let read = folder.read(name, MAX_BYTES);
    let Some(bytes) = read.map_err(|error| error.to_string())? else {
        return Ok(ExistingFile::Nothing);
    };
    Ok(match String::from_utf8(bytes) {
        Ok(text) if is_ours(&text, &of_server(process), is_usual(process.uid)) => {
            ExistingFile::Ours(text)
        }
        _ => ExistingFile::Foreign,
    })
}

/// The line by which a snippet names its server, because other servers may read the same directory. Empty if this user
/// may not inspect the process.
pub fn of_server(process: &Process) -> String {
    match process.data_directory() {
        Ok((user, data)) => format!("{SERVER}{user}, data directory {data:?}\n"),
        Err(_) => String::new(),
    }
}

/// Whether a text was written for this server. Snippets of earlier versions name no server; they belong to a packaged server only.
fn is_ours(text: &str, server: &str, is_usual: bool) -> bool {
    canary!("foreign-option-file")
        || text
            .strip_prefix(HEAD)
            .is_some_and(|rest| match rest.starts_with(SERVER) {
                true => server.is_empty() || rest.starts_with(server),
                false => is_usual,
            })
}

/// Removes the snippet.
///
/// # Errors
/// A message: the file is no snippet, or cannot be removed.
pub fn remove(process: &Process, path: &Path) -> Result<(), String> {
    match inspect(process, path)? {
        ExistingFile::Nothing => Ok(()),
        ExistingFile::Foreign => Err("`bpe enable` has not written it".to_owned()),
        ExistingFile::Ours(_) => {
            let (folder, name) = process.directory_of(path)?;
            folder.remove(name).map_err(|error| error.to_string())
        }
    }
}

/// A snippet that only disables InnoDB's native asynchronous I/O, or the existing one with that line added. `None` if
/// it already contains the line.
pub fn without_native_aio(there: Option<&str>, server: &str) -> Option<String> {
    let mut text = match there {
        Some(text) if text.contains(NATIVE_AIO_OFF) => return None,
        Some(text) => text.to_owned(),
        // Both products read this group.
        None => format!("{HEAD}{server}[mysqld]\n"),
    };
    text.push_str(NATIVE_AIO_OFF);
    Some(text)
}

/// Lines of an option file, and the options that the server must read from them.
struct Lines {
    text: String,
    group: &'static str,
    options: Vec<String>,
}

impl Lines {
    fn comment(&mut self, text: &str) {
        self.text.push_str(&format!("# {text}\n"));
    }

    fn group(&mut self, name: &'static str) {
        self.text.push_str(&format!("[{name}]\n"));
        self.group = name;
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.text.push_str(&option_line(name, value)?);
        self.text.push('\n');
        self.options.push(format!("--{name}={value}"));
        Ok(())
    }
}

impl Snippet {
    /// The snippet's text.
    ///
    /// # Errors
    /// A value cannot be represented in an option file.
    pub fn text(&self, flavour: Flavour) -> Result<String, String> {
        self.lines(flavour).map(|lines| lines.text)
    }

    /// The text, verified with the server's own tool. Also returns whether this host has the tool.
    ///
    /// # Errors
    /// The tool reads other options than intended.
    pub fn proven_text(&self, flavour: Flavour) -> Result<(String, bool), String> {
        let lines = self.lines(flavour)?;
        if !is_roots(Path::new(PRINTER)) {
            return Ok((lines.text, false));
        }
        let read =
            read_by_the_server(&lines).map_err(|error| format!("cannot run {PRINTER}: {error}"))?;
        if read != lines.options {
            return Err(format!(
                "{PRINTER} reads other options in the lines of the option file than were meant"
            ));
        }
        Ok((lines.text, true))
    }

    fn lines(&self, flavour: Flavour) -> Result<Lines, String> {
        let mut lines = Lines {
            text: format!("{HEAD}{}", self.server),
            group: "",
            options: Vec::new(),
        };
        match flavour {
            Flavour::MariaDb => self.mariadb(&mut lines)?,
            Flavour::MySql => self.mysql(&mut lines)?,
        }
        if self.native_aio_off {
            lines.text.push_str(NATIVE_AIO_OFF);
            lines.options.push("--innodb_use_native_aio=OFF".to_owned());
        }
        Ok(lines)
    }

    fn mariadb(&self, lines: &mut Lines) -> Result<(), String> {
        lines.group("mariadb");
        lines.option("plugin_load_add", "bpe")?;
        self.settings(lines)?;
        if let (Some(before), Some(after)) = (self.pool_before, self.pool_after) {
            lines.comment(&format!(
                "Lowered from {before} by what the extension takes."
            ));
            lines.option("innodb_buffer_pool_size", &after.to_string())?;
            if let Some(max) = self.pool_max {
                lines.option("loose-innodb_buffer_pool_size_max", &max.to_string())?;
            }
        }
        Ok(())
    }

    fn settings(&self, lines: &mut Lines) -> Result<(), String> {
        self.settings
            .iter()
            .try_for_each(|(name, value)| lines.option(&format!("loose-{name}"), value))
    }

    fn mysql(&self, lines: &mut Lines) -> Result<(), String> {
        lines.comment("The settings are persisted by the server (SET PERSIST).");
        if let (Some(before), Some(after)) = (self.pool_before, self.pool_after) {
            lines.comment(&format!(
                "innodb_buffer_pool_size was lowered from {before} to {after}."
            ));
        }
        let ours = "bpe=bpe.so";
        let load = match self.early_load_before.as_deref() {
            None | Some("") => ours.to_owned(),
            Some(before) if before.split(';').any(|part| part.trim() == ours) => before.to_owned(),
            // The option holds one value; a later setting replaces it. Ours goes last: the server stops at the first
            // library that it cannot load, and a keyring is more important.
            Some(before) => format!("{before};{ours}"),
        };
        lines.group("mysqld");
        lines.option("loose-early-plugin-load", &load)?;
        lines.comment(
            "What is persisted comes after InnoDB has opened its files: too late to take over what is cached.",
        );
        self.settings(lines)
    }
}

/// Whether it is a program that only root may change.
fn is_roots(program: &Path) -> bool {
    fs::metadata(program)
        .is_ok_and(|meta| meta.is_file() && meta.uid() == 0 && meta.mode() & 0o022 == 0)
}

fn read_by_the_server(lines: &Lines) -> io::Result<Vec<String>> {
    let mut file = tempfile::tempfile()?;
    // The tool rejects files that other users may write to, which the umask may permit.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(lines.text.as_bytes())?;
    file.rewind()?;
    let output = Command::new(PRINTER)
        .args(["--defaults-file=/dev/stdin", lines.group])
        // The tool must not read any other file.
        .env_clear()
        .stdin(Stdio::from(file))
        .stderr(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("it ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mariadb_loads_early_and_keeps_the_settings() {
        let snippet = Snippet {
            settings: vec![
                ("bpe_path".into(), "/mnt/a b".into()),
                ("bpe_size".into(), "1024".into()),
            ],
            pool_before: Some(100),
            pool_after: Some(96),
            pool_max: Some(100),
            ..Snippet::default()
        };
        let text = snippet.text(Flavour::MariaDb).unwrap();
        for line in [
            "[mariadb]",
            "plugin_load_add = bpe",
            "loose-bpe_path = \"/mnt/a b\"",
            "loose-bpe_size = 1024",
            "innodb_buffer_pool_size = 96",
            "loose-innodb_buffer_pool_size_max = 100",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
        let unchanged = Snippet::default().text(Flavour::MariaDb).unwrap();
        assert!(!unchanged.contains("pool_size"));
    }

    #[test]
    fn a_snippet_of_another_server_is_not_ours() {
        let line = |user| format!("{SERVER}{user}, data directory \"/var/lib/mysql\"\n");
        let snippet = Snippet {
            server: line(105),
            ..Snippet::default()
        };
        let text = snippet.text(Flavour::MariaDb).unwrap();
        let is_ours = |text: &str, line: &str| is_ours(text, line, true);
        assert!(is_ours(&text, &line(105)) && is_ours(&text, ""));
        assert!(!is_ours(&text, &line(10)) && !is_ours(&text, &line(1051)));
        assert!(is_ours(HEAD, &line(105)), "without the line");
        assert!(!super::is_ours(HEAD, &line(105), false));
        assert!(!is_ours(&text[2..], &line(105)) && !is_ours("[mysqld]\n", ""));
    }

    #[test]
    fn native_aio_stays_off() {
        let alone = without_native_aio(None, "").unwrap();
        assert!(alone.contains("[mysqld]\n") && alone.ends_with("innodb_use_native_aio = OFF\n"));
        assert_eq!(without_native_aio(Some(&alone), ""), None);
        for flavour in [Flavour::MariaDb, Flavour::MySql] {
            let mut snippet = Snippet::default();
            let added = without_native_aio(Some(&snippet.text(flavour).unwrap()), "");
            snippet.native_aio_off = true;
            assert_eq!(added, snippet.text(flavour).ok());
        }
    }

    #[test]
    fn mysql_keeps_other_early_plugins() {
        let text = |before: Option<&str>| {
            Snippet {
                early_load_before: before.map(str::to_owned),
                ..Snippet::default()
            }
            .text(Flavour::MySql)
            .unwrap()
        };
        let settings = Snippet {
            settings: vec![("bpe_enabled".into(), "ON".into())],
            ..Snippet::default()
        };
        let settings = settings.text(Flavour::MySql).unwrap();
        assert!(
            settings.ends_with("\nloose-bpe_enabled = ON\n"),
            "{settings}"
        );
        assert!(text(None).contains("\nloose-early-plugin-load = \"bpe=bpe.so\"\n"));
        assert!(text(Some("keyring.so")).contains("\"keyring.so;bpe=bpe.so\""));
        assert!(text(Some("keyring.so;bpe=bpe.so")).contains("\"keyring.so;bpe=bpe.so\""));
    }

    #[test]
    fn no_value_adds_a_line() {
        let with = |name: &str, value: &str| Snippet {
            settings: vec![(name.into(), value.into())],
            ..Snippet::default()
        };
        let quotes = format!("exclude a.`{}`", "\"".repeat(3000));
        for (name, value) in [
            ("bpe_tables", "exclude a.`b\ninit_file=/evil.sql\n#`"),
            ("bpe_path", "/x\r\nplugin_dir=/y"),
            ("bpe_persist_path", "/x\u{2028}y"),
            ("bpe_tables", quotes.as_str()),
        ] {
            for flavour in [Flavour::MariaDb, Flavour::MySql] {
                assert!(with(name, value).text(flavour).is_err(), "{name}");
            }
        }
        let early = Snippet {
            early_load_before: Some("x.so\"\nplugin_dir=/y".to_owned()),
            ..Snippet::default()
        };
        assert!(early.text(Flavour::MySql).is_err());
    }

    #[test]
    fn servers_tool_reads_what_was_meant() {
        let snippet = Snippet {
            settings: vec![
                ("bpe_path".into(), "/mnt/a b#c;d".into()),
                (
                    "bpe_tables".into(),
                    "exclude a.`\"\\n'`, limit 5% é.*".into(),
                ),
            ],
            pool_before: Some(100),
            pool_after: Some(96),
            early_load_before: Some("keyring.so \"x\\".into()),
            native_aio_off: true,
            ..Snippet::default()
        };
        for flavour in [Flavour::MariaDb, Flavour::MySql] {
            let (text, _) = snippet.proven_text(flavour).unwrap();
            assert_eq!(Ok(text), snippet.text(flavour));
        }
        // A text that the tool reads differently fails.
        let mut lines = snippet.lines(Flavour::MariaDb).unwrap();
        lines.text.push_str("init_file=/x\n");
        if is_roots(Path::new(PRINTER)) {
            assert_ne!(read_by_the_server(&lines).unwrap(), lines.options);
        }
    }
}
