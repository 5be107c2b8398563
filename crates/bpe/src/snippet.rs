//! The snippet that makes the extension permanent: a file in the server's folder of option files.
//!
//! It loads the plugin before InnoDB and holds the settings. MySQL persists the settings, too, and
//! those win, but only once InnoDB has opened its files. `loose-` keeps a server
//! starting whose library is gone; both servers log an error line for a missing library and go on. MariaDB does not know
//! `early-plugin-load`, and may come to read a file that was written for MySQL.

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
}

const HEAD: &str =
    "# Written by `bpe enable`: the InnoDB buffer pool extension. `bpe disable` removes it.\n";
const NATIVE_AIO_OFF: &str = "# Native asynchronous I/O of this server cannot be followed.\n\
                              innodb_use_native_aio = OFF\n";

/// The snippet that only keeps InnoDB from native asynchronous I/O, or the one that is there with that added. None when it
/// says so already.
pub fn without_native_aio(there: Option<&str>) -> Option<String> {
    let mut text = match there {
        Some(text) if text.contains(NATIVE_AIO_OFF) => return None,
        Some(text) => text.to_owned(),
        // Both servers read this group.
        None => format!("{HEAD}[mysqld]\n"),
    };
    text.push_str(NATIVE_AIO_OFF);
    Some(text)
}

impl Snippet {
    pub fn text(&self, flavour: Flavour) -> String {
        let mut text = String::from(HEAD);
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
    fn native_aio_stays_off() {
        let alone = without_native_aio(None).unwrap();
        assert!(alone.contains("[mysqld]\n") && alone.ends_with("innodb_use_native_aio = OFF\n"));
        assert_eq!(without_native_aio(Some(&alone)), None);
        for flavour in [Flavour::MariaDb, Flavour::MySql] {
            let mut snippet = Snippet::default();
            let added = without_native_aio(Some(&snippet.text(flavour)));
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
