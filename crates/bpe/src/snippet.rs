//! The snippet that makes the extension permanent: a file in the server's folder of option files.
//!
//! It loads the plugin before InnoDB and holds the settings. MySQL persists the settings, too, and
//! those win, but only once InnoDB has opened its files. `loose-` keeps a server
//! starting whose library is gone; both servers log an error line for a missing library and go on. MariaDB does not know
//! `early-plugin-load`, and may come to read a file that was written for MySQL.

use std::io;
use std::path::Path;

use crate::files;
use crate::process::Process;
use crate::server::Flavour;
use crate::server_options::option_text;

/// What the snippet says.
#[derive(Debug, Clone, Default)]
pub struct Snippet {
    /// Names and values of the extension's variables.
    pub settings: Vec<(String, String)>,
    pub pool_before: Option<u64>,
    pub pool_after: Option<u64>,
    /// Newer MariaDB releases let the pool grow no further than this, by default its size at start;
    /// without it `disable` could not restore the pool after a restart.
    pub pool_max: Option<u64>,
    /// What early-plugin-load held before (MySQL takes one value for it).
    pub early_load_before: Option<String>,
    /// InnoDB has to do without native asynchronous I/O.
    pub native_aio_off: bool,
    /// Whose it is: see [`of_server`].
    pub server: String,
}

const HEAD: &str =
    "# Written by `bpe enable`: the InnoDB buffer pool extension. `bpe disable` removes it.\n";
const SERVER: &str = "# Server: user ";
const NATIVE_AIO_OFF: &str = "# Native asynchronous I/O of this server cannot be followed.\n\
                              innodb_use_native_aio = OFF\n";

/// Bytes of a file that counts as a snippet.
const LONGEST: u64 = 1 << 20;

/// The snippet at this path, as the server sees it; None where there is none, or a file that was not written here.
pub fn there(process: &Process, path: &Path) -> Option<String> {
    match look(process, path) {
        Ok(There::Ours(text)) => Some(text),
        _ => None,
    }
}

/// What is at the place of the snippet.
pub enum There {
    Nothing,
    Ours(String),
    /// A file that another hand has written.
    Foreign,
}

/// Looks what is at the place of the snippet.
///
/// # Errors
/// Its folder is not root's alone to change, or it cannot be read; in words.
pub fn look(process: &Process, path: &Path) -> Result<There, String> {
    let text = |error: io::Error| error.to_string();
    let (folder, name) = files::split(path).map_err(text)?;
    let read = process.directory(folder)?.read(name, LONGEST);
    let Some(bytes) = read.map_err(text)? else {
        return Ok(There::Nothing);
    };
    Ok(match String::from_utf8(bytes) {
        Ok(text) if is_ours(&text, &of_server(process)) => There::Ours(text),
        _ => There::Foreign,
    })
}

/// The line by which a snippet names its server: other servers may read the same folder. Empty where this user may not see it.
pub fn of_server(process: &Process) -> String {
    match process.data_directory() {
        Ok((user, data)) => format!("{SERVER}{user}, data directory {data:?}\n"),
        Err(_) => String::new(),
    }
}

fn is_ours(text: &str, server: &str) -> bool {
    text.strip_prefix(HEAD).is_some_and(|rest| {
        server.is_empty() || !rest.starts_with(SERVER) || rest.starts_with(server)
    })
}

/// Writes the snippet in place of the one that is there.
///
/// # Errors
/// In words.
pub fn write(process: &Process, path: &Path, contents: &str) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (folder, name) = files::split(path).map_err(text)?;
    let folder = process.directory(folder)?;
    let replaced = folder.replace(name, contents.as_bytes(), 0o644);
    replaced.map(|replaced| replaced.done()).map_err(text)
}

/// Removes the snippet.
///
/// # Errors
/// It is not one, or cannot be removed; in words.
pub fn remove(process: &Process, path: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    match look(process, path)? {
        There::Nothing => Ok(()),
        There::Foreign => Err("`bpe enable` has not written it".to_owned()),
        There::Ours(_) => {
            let (folder, name) = files::split(path).map_err(text)?;
            process.directory(folder)?.remove(name).map_err(text)
        }
    }
}

/// The snippet that only keeps InnoDB from native asynchronous I/O, or the one that is there with that added. None when it
/// says so already.
pub fn without_native_aio(there: Option<&str>, server: &str) -> Option<String> {
    let mut text = match there {
        Some(text) if text.contains(NATIVE_AIO_OFF) => return None,
        Some(text) => text.to_owned(),
        // Both servers read this group.
        None => format!("{HEAD}{server}[mysqld]\n"),
    };
    text.push_str(NATIVE_AIO_OFF);
    Some(text)
}

impl Snippet {
    pub fn text(&self, flavour: Flavour) -> String {
        let mut text = format!("{HEAD}{}", self.server);
        match flavour {
            Flavour::MariaDb => self.mariadb(&mut text),
            Flavour::MySql => self.mysql(&mut text),
        }
        if self.native_aio_off {
            text.push_str(NATIVE_AIO_OFF);
        }
        text
    }

    fn mariadb(&self, text: &mut String) {
        text.push_str("[mariadb]\nplugin_load_add = bpe\n");
        self.settings(text);
        if let (Some(before), Some(after)) = (self.pool_before, self.pool_after) {
            text.push_str(&format!(
                "# Lowered from {before} by what the extension takes.\n\
                 innodb_buffer_pool_size = {after}\n"
            ));
            if let Some(max) = self.pool_max {
                text.push_str(&format!("loose-innodb_buffer_pool_size_max = {max}\n"));
            }
        }
    }

    fn settings(&self, text: &mut String) {
        for (name, value) in &self.settings {
            text.push_str(&format!("loose-{name} = {}\n", option_text(value)));
        }
    }

    fn mysql(&self, text: &mut String) {
        text.push_str("# The settings are persisted by the server (SET PERSIST).\n");
        if let (Some(before), Some(after)) = (self.pool_before, self.pool_after) {
            text.push_str(&format!(
                "# innodb_buffer_pool_size was lowered from {before} to {after}.\n"
            ));
        }
        let ours = "bpe=bpe.so";
        let load = match self.early_load_before.as_deref() {
            None | Some("") => ours.to_owned(),
            Some(before) if before.split(';').any(|part| part.trim() == ours) => before.to_owned(),
            // The option holds one value; a later one replaces it. Ours goes last: the server
            // gives up the list at the first library that it cannot load, and a keyring matters
            // more.
            Some(before) => format!("{before};{ours}"),
        };
        text.push_str(&format!("[mysqld]\nloose-early-plugin-load = \"{load}\"\n"));
        text.push_str(
            "# What is persisted comes after InnoDB has opened its files: too late to take over what is cached.\n",
        );
        self.settings(text);
    }
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
        let text = snippet.text(Flavour::MariaDb);
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
        let unchanged = Snippet::default().text(Flavour::MariaDb);
        assert!(!unchanged.contains("pool_size"));
    }

    #[test]
    fn a_snippet_of_another_server_is_not_ours() {
        let line = |user| format!("{SERVER}{user}, data directory \"/var/lib/mysql\"\n");
        let snippet = Snippet {
            server: line(105),
            ..Snippet::default()
        };
        let text = snippet.text(Flavour::MariaDb);
        assert!(is_ours(&text, &line(105)) && is_ours(&text, ""));
        assert!(!is_ours(&text, &line(10)) && !is_ours(&text, &line(1051)));
        assert!(is_ours(HEAD, &line(105)), "without the line");
        assert!(!is_ours(&text[2..], &line(105)) && !is_ours("[mysqld]\n", ""));
    }

    #[test]
    fn native_aio_stays_off() {
        let alone = without_native_aio(None, "").unwrap();
        assert!(alone.contains("[mysqld]\n") && alone.ends_with("innodb_use_native_aio = OFF\n"));
        assert_eq!(without_native_aio(Some(&alone), ""), None);
        for flavour in [Flavour::MariaDb, Flavour::MySql] {
            let mut snippet = Snippet::default();
            let added = without_native_aio(Some(&snippet.text(flavour)), "");
            snippet.native_aio_off = true;
            assert_eq!(added, Some(snippet.text(flavour)));
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
        };
        let settings = Snippet {
            settings: vec![("bpe_enabled".into(), "ON".into())],
            ..Snippet::default()
        };
        let settings = settings.text(Flavour::MySql);
        assert!(
            settings.ends_with("\nloose-bpe_enabled = ON\n"),
            "{settings}"
        );
        assert!(text(None).contains("\nloose-early-plugin-load = \"bpe=bpe.so\"\n"));
        assert!(text(Some("keyring.so")).contains("\"keyring.so;bpe=bpe.so\""));
        assert!(text(Some("keyring.so;bpe=bpe.so")).contains("\"keyring.so;bpe=bpe.so\""));
    }
}
