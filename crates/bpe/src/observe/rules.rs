//! The table rules (`bpe_tables`) as sentences.

use serde_json::{Value, json};

use super::sentence::{Level, Sentence};
use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// The table rules of `bpe_tables`.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Why the server ignores them; empty if it applies them.
    pub error: String,
    /// Number of rules.
    pub rules: u64,
    /// Number of rules that match no open table.
    pub unused: u64,
    /// Page reads and writes that bypassed the cache because of the rules, since the server started.
    pub kept_out: u64,
}

impl Rules {
    /// Reads two reports. `None` if the server refuses them.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn read(server: &mut Server) -> Result<Option<Self>, Failure> {
        let mut ask = |name: &str| -> Result<Option<Value>, Failure> {
            let text = report::ask_if_any(server, name)?;
            Ok(text.and_then(|text| report::parse(&text).ok()))
        };
        let (Some(summary), Some(Value::Array(rows))) = (ask("summary")?, ask("rules")?) else {
            return Ok(None);
        };
        let unused = rows.iter().filter(|row| row["files"] == 0).count();
        Ok(Some(Self {
            error: summary["tables_error"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            rules: rows.len() as u64,
            unused: unused as u64,
            kept_out: summary["kept_out"].as_u64().unwrap_or(0),
        }))
    }

    /// The rules as sentences.
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
