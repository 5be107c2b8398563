//! The part of the cache that the server's start kept, and the reasons for the lost part.

use serde_json::{Value, json};

use super::sentence::{Level, Sentence};
use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Maximum number of files reported with their reason.
const MAX_REASONS: usize = 3;
/// Seconds after the server's start during which it is reported.
const NEWS: u64 = 3600;

/// The recovered cache of the previous process. Page counts are approximate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Persisted {
    /// Pages that are served now, or once their file is opened.
    pub pages: u64,
    /// Pages and files that were not proven equal to the data files.
    pub lost: (u64, u64),
    /// Name and reason of the first such files.
    pub lost_reasons: Vec<(String, String)>,
}

impl Persisted {
    /// Parses the report `summary`; absent fields count as zero. `None` if the server found no cache.
    pub fn of(summary: &Value) -> Option<Self> {
        let inherited = &summary["inherited"];
        let number = |which: &str, what: &str| inherited[which][what].as_u64().unwrap_or(0);
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let lost = inherited["lost_files"].as_array().into_iter().flatten();
        let kept = Self {
            pages: number("trusted", "pages").saturating_add(number("left", "pages")),
            lost: (number("lost", "pages"), number("lost", "files")),
            lost_reasons: lost
                .map(|row| (text(row, "file"), text(row, "why")))
                .collect(),
        };
        (kept.all() > 0).then_some(kept)
    }

    fn all(&self) -> u64 {
        self.pages.saturating_add(self.lost.0)
    }

    /// Reads it from a server that has been up for `uptime_s` seconds. `None` if the server found no cache, or started too long ago.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn read(server: &mut Server, uptime_s: u64) -> Result<Option<Self>, Failure> {
        if uptime_s >= NEWS {
            return Ok(None);
        }
        let text = report::ask_if_any(server, "summary")?;
        let summary = text.and_then(|text| report::parse(&text).ok());
        Ok(summary.as_ref().and_then(Self::of))
    }

    /// The recovered part as a sentence.
    pub fn sentence(&self) -> Sentence {
        let all = self.all().max(1) as f64;
        let percent = (
            "kept_percent",
            json!(floor(self.pages as f64 * 100.0 / all)),
        );
        if self.lost.1 == 0 {
            return Sentence::new(
                "kept.all",
                Level::Good,
                "{kept_percent} of the cache was kept when the server was started.",
                &[percent],
            );
        }
        Sentence::new(
            "kept.lost",
            Level::Note,
            "{kept_percent} of the cache was kept when the server was started. Files whose pages were not proven and are read \
             anew: {lost_files}.",
            &[percent, ("lost_files", json!(self.lost.1))],
        )
    }

    /// That sentence, and the reasons of the first files.
    pub fn sentences(&self) -> Vec<Sentence> {
        let reason = |(file, why): &(String, String)| {
            Sentence::new(
                "kept.reason",
                Level::Note,
                "What was cached of {file} was not kept: {why}.",
                &[("file", json!(file)), ("why", json!(why))],
            )
        };
        let reasons = self.lost_reasons.iter().take(MAX_REASONS).map(reason);
        std::iter::once(self.sentence()).chain(reasons).collect()
    }
}

/// One decimal, rounded down: 100 % only if no page is missing.
fn floor(percent: f64) -> f64 {
    (percent * 10.0).floor() / 10.0
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const CHANGED: &str = "it was changed while the server was down";

    /// 920 trusted pages and 40 of files not opened yet; 20 pages of each lost file.
    pub fn summary(lost: &[(&str, &str)]) -> Value {
        let rows = |of: &[(&str, &str)]| -> Value {
            let rows = of
                .iter()
                .map(|(file, why)| json!({ "file": file, "why": why }));
            rows.collect()
        };
        json!({ "inherited": {
            "pages": 960 + 20 * lost.len(), "dropped": 0, "attach_ms": 12,
            "trusted": { "files": 3, "pages": 920 },
            "lost": { "files": lost.len(), "pages": 20 * lost.len() },
            "left": { "files": 1, "pages": 40 },
            "lost_files": rows(lost),
        } })
    }

    fn kept(lost: &[(&str, &str)]) -> Persisted {
        Persisted::of(&summary(lost)).unwrap()
    }

    #[test]
    fn sentence_names_share_and_lost_files() {
        let text = |lost: &[(&str, &str)]| kept(lost).sentence().text;
        assert_eq!(
            text(&[]),
            "100 % of the cache was kept when the server was started."
        );
        assert_eq!(
            text(&[("./d/a.ibd", CHANGED), ("ibdata1", CHANGED)]),
            "96.0 % of the cache was kept when the server was started. Files whose pages were not proven and are read anew: 2."
        );
    }

    #[test]
    fn only_first_reasons_are_reported() {
        let sentences = kept(&[("./d/a.ibd", CHANGED); 5]).sentences();
        assert_eq!(sentences.len(), 1 + MAX_REASONS);
        assert_eq!(
            sentences[1].text,
            format!("What was cached of ./d/a.ibd was not kept: {CHANGED}.")
        );
    }

    #[test]
    fn percent_is_never_rounded_up() {
        let mut all = kept(&[]);
        (all.pages, all.lost) = (1_000_000, (1, 1));
        assert!(all.sentence().text.starts_with("99.9 %"));
    }

    #[test]
    fn empty_cache_has_no_sentence() {
        assert_eq!(Persisted::of(&Value::Null), None);
        let mut nothing = summary(&[]);
        for which in ["trusted", "left"] {
            nothing["inherited"][which]["pages"] = json!(0);
        }
        assert_eq!(Persisted::of(&nothing), None);
    }

    /// A plugin of another version has fields that this command ignores, or lacks some that it reads.
    #[test]
    fn other_versions_of_the_plugin_are_understood() {
        let mut older = summary(&[("./d/a.ibd", CHANGED)]);
        older["inherited"]["compared"] = json!({ "files": 2, "pages": 40 });
        assert_eq!(Persisted::of(&older), Some(kept(&[("./d/a.ibd", CHANGED)])));
        let least = json!({ "inherited": { "trusted": { "pages": 7 } } });
        let text = Persisted::of(&least).unwrap().sentence().text;
        assert_eq!(
            text,
            "100 % of the cache was kept when the server was started."
        );
    }
}
