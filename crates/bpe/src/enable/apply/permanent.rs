//! The step that keeps it over a restart: an option file, and what MySQL persists.

use super::super::checks::Permanence;
use super::super::plan::persisted;
use super::Run;
use crate::connection::plain;
use crate::failure::Failure;
use crate::quote::{sql_text, sql_value};
use crate::server::Flavour;

impl Run<'_> {
    pub(super) fn permanent(&mut self) -> Result<(), Failure> {
        if self.server.flavour == Flavour::MySql {
            self.persist()?;
        }
        let snippet = self.plan.snippet(self.plan.record.pool_after);
        let (Permanence::Snippet { path, .. }, Some(process)) =
            (self.plan.permanence.clone(), self.plan.process.clone())
        else {
            return Ok(());
        };
        let text = snippet.proven_text(self.server.flavour);
        let (text, is_proven) = text.map_err(Failure::step)?;
        let old = self
            .replace(&process, &path, text.as_bytes())
            .map_err(|why| Failure::step(format!("cannot write {}: {why}", path.display())))?;
        self.journal.note("option file put back", move |_| {
            old.put_back().map_err(|error| error.to_string())
        });
        self.plan.record.snippet = Some(path.clone());
        self.write_record()?;
        self.told.line(&format!(
            "  wrote {}{}",
            path.display(),
            if is_proven {
                ""
            } else {
                " (my_print_defaults, which shows what the server reads in it, is not on this host)"
            }
        ));
        self.forget_plugin_row()
    }

    /// The snippet loads the plugin now; a row in mysql.plugin besides would make every start log
    /// that it exists already.
    fn forget_plugin_row(&mut self) -> Result<(), Failure> {
        let library = self
            .server
            .value("SELECT dl FROM mysql.plugin WHERE name = 'bpe'")
            .map_err(|error| Failure::step(plain(&error)))?;
        let Some(library) = library else {
            return Ok(());
        };
        self.sql_and_undo(
            "DELETE FROM mysql.plugin WHERE name = 'bpe'",
            "row in mysql.plugin put back",
            format!(
                "REPLACE INTO mysql.plugin (name, dl) VALUES ('bpe', {})",
                sql_text(&library)
            ),
        )
    }

    fn persist(&mut self) -> Result<(), Failure> {
        let before = persisted(self.server)?;
        let mut wanted: Vec<(String, String)> = self
            .plan
            .settings
            .iter()
            .map(|setting| (setting.name.to_owned(), setting.value.clone()))
            .collect();
        if let Some(size) = self.plan.record.pool_after {
            let name = "innodb_buffer_pool_size";
            let previous = before.iter().find(|(known, _)| known == name);
            // Persisted by ourselves in an earlier run: keep what the record says of before.
            let record = &mut self.plan.record;
            let ours = record.has_persisted()
                && previous
                    .and_then(|(_, value)| value.parse().ok())
                    .is_some_and(|value| record.original(value).is_some());
            if !ours {
                record.pool_persisted_before = previous.map(|(_, value)| value.clone());
            }
            record.pool_persisted = Some(true);
            self.write_record()?;
            wanted.push((name.to_owned(), size.to_string()));
        }
        for (name, value) in wanted {
            let previous = before
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.clone());
            if previous.as_ref() == Some(&value) {
                continue;
            }
            let (undone, undo) = match previous {
                Some(previous) => (
                    format!("persisted {name} is {previous} again"),
                    format!("SET PERSIST {name} = {}", sql_value(&previous)),
                ),
                None => (
                    format!("{name} no longer persisted"),
                    format!("RESET PERSIST IF EXISTS {name}"),
                ),
            };
            let sql = format!("SET PERSIST {name} = {}", sql_value(&value));
            self.sql_and_undo(&sql, undone, undo)?;
        }
        self.told.line("  settings persisted");
        Ok(())
    }
}
