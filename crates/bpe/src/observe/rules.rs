//! The rules for tables (`bpe_tables`), in words.

use serde_json::{Value, json};

use super::sentence::{Level, Sentence};
use crate::failure::Failure;
use crate::report;
use crate::server::Server;

/// The rules for tables, `bpe_tables`.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Why they are not followed; empty if they are.
    pub error: String,
    /// How many there are.
    pub rules: u64,
    /// Of them, those that fit no table that the server has open.
    pub unused: u64,
    /// Page reads and writes that passed the cache by because of them, since the server was started.
    pub kept_out: u64,
}

impl Rules {
    /// Takes two statements.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn read(server: &mut Server) -> Result<Self, Failure> {
        let status = server.status("bpe\\_%")?;
        let rows = report::ask_if_any(server, "rules")?;
        let rows: Value = rows
            .and_then(|text| report::parse(&text).ok())
            .unwrap_or_default();
        let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
        let unused = rows.iter().filter(|row| row["files"] == 0).count();
        let text = |name: &str| status.get(name).cloned().unwrap_or_default();
        Ok(Self {
            error: text("bpe_tables_error"),
            rules: rows.len() as u64,
            unused: unused as u64,
            kept_out: text("bpe_kept_out").parse().unwrap_or(0),
        })
    }

    /// In words.
    pub fn sentences(&self) -> Vec<Sentence> {
        if !self.error.is_empty() {
            return vec![Sentence::new(
                "rules.error",
                Level::Bad,
                "The rules for tables are not followed, and all tables are cached as usual: {rules_error}. Set bpe_tables anew, \
                 and correct it in the option file.",
                &[("rules_error", json!(self.error))],
            )];
        }
        let rules = ("rules", json!(self.rules));
        let mut sentences = vec![Sentence::new(
            "rules.counted",
            Level::Note,
            "There are {rules} rules for tables in bpe_tables. Because of them {kept_out} page reads and writes have passed the \
             cache by since the server was started.",
            &[rules.clone(), ("kept_out", json!(self.kept_out))],
        )];
        if self.unused > 0 {
            sentences.push(Sentence::new(
                "rules.unused",
                Level::Note,
                "{rules_unused} of the {rules} rules for tables fit no table that is open now. SELECT bpe_report('rules') shows \
                 which; look whether their names are right.",
                &[("rules_unused", json!(self.unused)), rules],
            ));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_of() {
        let mut rules = Rules {
            rules: 3,
            unused: 0,
            kept_out: 1234,
            ..Rules::default()
        };
        let keys = |rules: &Rules| -> Vec<&'static str> {
            rules.sentences().iter().map(|said| said.text_key).collect()
        };
        assert_eq!(keys(&rules), ["rules.counted"]);
        assert!(rules.sentences()[0].text.contains("1,234 page reads"));
        rules.unused = 2;
        assert_eq!(keys(&rules), ["rules.counted", "rules.unused"]);
        rules.error = "rule 1 is wrong".into();
        assert_eq!(keys(&rules), ["rules.error"]);
    }
}
