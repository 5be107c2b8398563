//! A plan as a table: what changes, from what to what, and why.

use std::path::Path;

use interface::untrusted::one_line;
use serde::Serialize;

use super::checks::Permanence;
use super::plan::Plan;
use crate::size::human;
use crate::views;

/// One thing that will be changed, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub what: String,
    /// Empty where there is nothing before.
    pub from: String,
    pub to: String,
    pub why: String,
}

impl Change {
    pub fn new(
        what: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            from: from.into(),
            to: to.into(),
            why: why.into(),
        }
    }

    /// A variable; sizes are written for people.
    pub fn setting(name: &str, before: Option<&str>, value: &str) -> Self {
        let shown = |text: &str| match (name, text.parse()) {
            ("bpe_size", Ok(0)) => String::new(),
            ("bpe_size", Ok(bytes)) => human(bytes),
            _ => text.to_owned(),
        };
        let why = match name {
            "bpe_path" => "folders or files on the fast disks",
            "bpe_size" => "room for the cache, all disks together",
            "bpe_enabled" => "the switch",
            _ => "",
        };
        Self::new(
            name,
            before.map(shown).unwrap_or_default(),
            shown(value),
            why,
        )
    }

    /// The buffer pool, lowered for what the extension takes.
    pub fn pool(size: u64, lowered: u64) -> Self {
        Self::new(
            "innodb_buffer_pool_size",
            human(size),
            format!("about {}", human(lowered)),
            format!(
                "lowered by about {} for the memory that the extension takes, at most 4 %",
                human(size - lowered)
            ),
        )
    }
}

impl Plan {
    /// What will be changed, in the order in which it is.
    pub fn as_table(&self) -> Vec<Change> {
        let mut table = Vec::new();
        if self.is_empty() {
            return table;
        }
        let shown = |path: &Path| path.display().to_string();
        for folder in &self.folders {
            table.push(Change::new(
                "folder",
                "",
                shown(folder),
                "for the cache; only the server's user may enter it",
            ));
        }
        if let Some(copy) = &self.copy {
            let before = if copy.replaces { "another version" } else { "" };
            table.push(Change::new(
                "library",
                before,
                shown(&copy.place),
                "the plugin, where the server looks for it",
            ));
        }
        if self.lift_read_only {
            table.push(Change::new(
                "super_read_only",
                "ON",
                "OFF for a moment",
                "it forbids installing a plugin",
            ));
        }
        if self.install {
            table.push(Change::new(
                "plugin bpe",
                "not installed",
                "installed",
                "on the running server, without a restart",
            ));
        }
        if self.create_function {
            table.push(Change::new(
                "function bpe_report",
                "",
                "created",
                "tells about disks, instances and files",
            ));
        }
        for setting in self.changes() {
            table.push(Change::setting(
                setting.name,
                setting.before.as_deref(),
                &setting.value,
            ));
        }
        if self.lower_pool {
            if let Some(lowered) = self.pool.lowered_for(self.expected_memory) {
                table.push(Change::pool(self.pool.size, lowered));
            }
        }
        if let Permanence::Snippet { path, .. } = &self.permanence {
            table.push(Change::new(
                "option file",
                "",
                shown(path),
                "so that a restart keeps it",
            ));
            for line in self.option_file.lines() {
                table.push(Change::new(
                    "line of the option file",
                    "",
                    one_line(line),
                    "",
                ));
            }
            if let Some(kept) = &self.kept {
                table.push(Change::new(
                    "memory that outlives the server",
                    "",
                    kept.as_str(),
                    "so that what is cached is there again after a restart",
                ));
            }
        }
        if self.make_views {
            table.push(Change::new(
                "views",
                "",
                views::list(),
                "show the extension in SQL",
            ));
        }
        table
    }

    /// What is worth knowing before.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.notes.clone();
        if self.rebuilds() && !self.tries_again() {
            warnings.push("the cache is rebuilt and starts empty".to_owned());
        }
        if self.lower_pool && self.pool.lowered_for(self.expected_memory).is_none() {
            warnings.push(pool_stays(
                self.pool.size,
                self.pool.step,
                self.expected_memory,
            ));
        }
        if let Permanence::ByHand { why, .. } = &self.permanence {
            warnings.push(format!(
                "no option file can be written ({why}), so a restart keeps this only after you have written one; the \
                 last step says what to write"
            ));
        }
        warnings
    }
}

/// Why the pool is not lowered.
pub fn pool_stays(size: u64, step: u64, expected: u64) -> String {
    format!(
        "innodb_buffer_pool_size stays at {}: the server changes it in steps of {}, more than 4 % of it; the extension \
         takes about {} besides",
        human(size),
        human(step),
        human(expected)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_for_people() {
        let change = Change::setting("bpe_size", Some("0"), "1073741824");
        assert_eq!((change.from.as_str(), change.to.as_str()), ("", "1 GiB"));
        let change = Change::setting("bpe_enabled", Some("OFF"), "ON");
        assert_eq!((change.from.as_str(), change.to.as_str()), ("OFF", "ON"));
        let change = Change::pool(100 << 20, 98 << 20);
        assert!(
            change.why.contains("2 MiB") && change.to.contains("98 MiB"),
            "{change:?}"
        );
    }
}
