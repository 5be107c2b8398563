//! Inputs of the steps of `enable`: the server's current state and the requested settings.

use interface::untrusted::one_line;
use interface::variables;

use super::checks::{ByHand, Permanence};
use crate::change::setting::Setting;
use crate::connect::plain;
use crate::connect::process::Process;
use crate::connect::server::{Flavour, Server};
use crate::installation::install_state::InstallState;
use crate::installation::pool::Pool;
use crate::installation::server_options;
use crate::installation::snippet::{self, Snippet};
use crate::support::failure::Failure;

/// Inputs of the steps.
pub struct Facts {
    pub process: Option<Process>,
    pub flavour: Flavour,
    /// All requested settings, and `bpe_enabled` last.
    pub settings: Vec<Setting>,
    pub pool: Pool,
    pub permanence: Permanence,
    pub stale_plugin_row: bool,
    /// `bpe_enabled` was set before and switching on failed. The extension waits, and reports the reason of that failure.
    pub has_failed: bool,
}

impl Facts {
    /// Settings that differ from the server's values.
    pub fn changes(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| setting.differs())
    }

    /// Whether a running cache must be rebuilt and starts empty.
    pub fn rebuilds(&self) -> bool {
        self.was_on()
            && self
                .changes()
                .any(|setting| variables::rebuilds(setting.name))
    }

    fn was_on(&self) -> bool {
        let is_on = |s: &Setting| s.name == "bpe_enabled" && s.before.as_deref() == Some("ON");
        self.settings.iter().any(is_on)
    }

    /// Whether `bpe_enabled` is ON without effect. Switching on then requires switching off first.
    pub fn tries_again(&self) -> bool {
        self.has_failed && self.was_on()
    }

    /// The snippet, with the pool size and the native I/O setting of the record.
    pub fn snippet(&self, record: &InstallState, pool_after: Option<u64>) -> Snippet {
        let (Permanence::Snippet { early_load, .. } | Permanence::ByHand { early_load, .. }) =
            &self.permanence;
        Snippet {
            settings: self
                .settings
                .iter()
                .map(|setting| (setting.name.to_owned(), setting.value.clone()))
                .collect(),
            pool_before: pool_after.map(|_| self.pool.size),
            pool_after,
            pool_max: self.pool.max_to_keep(),
            early_load_before: early_load.clone(),
            native_aio_off: record.native_aio_off,
            server: self
                .process
                .as_ref()
                .map(snippet::of_server)
                .unwrap_or_default(),
        }
    }

    pub fn differs_permanently(
        &self,
        server: &mut Server,
        record: &InstallState,
    ) -> Result<bool, Failure> {
        if let (Permanence::Snippet { path, .. }, Some(process)) = (&self.permanence, &self.process)
        {
            let wanted = self.snippet(record, record.pool_after).text(server.flavour);
            if snippet::there(process, path) != wanted.ok() {
                return Ok(true);
            }
        }
        if server.flavour == Flavour::MySql {
            let persisted = persisted(server)?;
            return Ok(self.settings.iter().any(|setting| {
                !persisted
                    .iter()
                    .any(|(name, value)| name == setting.name && *value == setting.value)
            }));
        }
        Ok(false)
    }
}

/// Names and values of MySQL's persisted variables. The values are not truncated: callers compare and restore them.
pub fn persisted(server: &mut Server) -> Result<Vec<(String, String)>, Failure> {
    server
        .rows("SELECT VARIABLE_NAME, COALESCE(VARIABLE_VALUE, '') FROM performance_schema.persisted_variables")
        .map_err(|error| {
            Failure::refused(format!(
                "cannot read persisted variables: {}",
                plain(&error)
            ))
        })
}
/// The lines that a user must write if no snippet can be written.
pub fn by_hand(flavour: Flavour, snippet: &Snippet, place: &ByHand) -> String {
    let mut text = match snippet.text(flavour) {
        Ok(text) => text,
        Err(why) => {
            return format!("write its settings into an option file of the server's: {why}");
        }
    };
    if let Some(suffix) = &place.suffix {
        for group in ["mariadb", "mysqld"] {
            let named = format!("[{group}{}]\n", one_line(suffix));
            text = text.replace(&format!("[{group}]\n"), &named);
        }
    }
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("    {}", one_line(line)))
        .collect();
    format!(
        "write this into {} (or any option file that the server reads):\n{}{}",
        match (&place.file, flavour) {
            (Some(file), _) => one_line(&file.to_string_lossy()),
            (None, Flavour::MariaDb) =>
                format!("/etc/mysql/mariadb.conf.d/{}", server_options::SNIPPET),
            (None, Flavour::MySql) =>
                format!("/etc/mysql/mysql.conf.d/{}", server_options::SNIPPET),
        },
        lines.join("\n"),
        match flavour {
            Flavour::MariaDb => "",
            // Otherwise each start logs that it already exists.
            Flavour::MySql =>
                "\n  and then keep it from being loaded a second time: SET SESSION sql_log_bin = OFF; DELETE FROM mysql.plugin WHERE name = 'bpe'",
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_to_write_by_hand_name_file_and_groups() {
        let snippet = Snippet {
            settings: vec![("bpe_enabled".to_owned(), "ON".to_owned())],
            pool_before: None,
            pool_after: None,
            pool_max: None,
            early_load_before: None,
            native_aio_off: false,
            server: String::new(),
        };
        let place = ByHand {
            file: Some("/etc/my.cnf".into()),
            suffix: Some(".two".to_owned()),
        };
        let maria = by_hand(Flavour::MariaDb, &snippet, &place);
        assert!(maria.contains("write this into /etc/my.cnf"), "{maria}");
        assert!(maria.contains("[mariadb.two]"), "{maria}");
        let forged = ByHand {
            file: Some("/etc/my.cnf\nforged".into()),
            suffix: Some("]\nforged".to_owned()),
        };
        let shown = by_hand(Flavour::MariaDb, &snippet, &forged);
        assert!(
            !shown.lines().any(|line| line.starts_with("forged")),
            "{shown}"
        );
        assert!(!maria.contains("mysql.plugin"), "{maria}");
        let mysql = by_hand(Flavour::MySql, &snippet, &ByHand::default());
        assert!(
            mysql.contains("/etc/mysql/mysql.conf.d/zz-bpe.cnf"),
            "{mysql}"
        );
        assert!(mysql.contains("[mysqld]\n"), "{mysql}");
        assert!(mysql.contains("DELETE FROM mysql.plugin"), "{mysql}");
    }
}
