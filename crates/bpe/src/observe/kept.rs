//! What was kept of the cache when the server was started: in one sentence, and why the rest was not.

use serde_json::{Value, json};

use super::sentence::{Level, Sentence};
use crate::failure::Failure;
use crate::report;
use crate::server::Server;

/// Files of which the reason is told.
const TOLD: usize = 3;
/// It is news for so long, seconds.
const NEWS: u64 = 3600;
/// The usual reason, in the server's words: `coherence::manifest::Doubt`.
const CHANGED: &str = "it was changed while the server was down";

/// Of the cache that the process before has left. Pages are counted more or less.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Pages that are served, or will be when their file is opened.
    pub pages: u64,
    /// Pages and files that are compared with the data files before they are served.
    pub doubtful: (u64, u64),
    /// Of which nothing is left.
    pub lost: (u64, u64),
    /// The first of both: the file's name, and why.
    pub reasons: Vec<(String, String)>,
    pub lost_reasons: Vec<(String, String)>,
}

impl Kept {
    /// From the report `summary`; `None` where nothing was left, or the plugin is older.
    pub fn of(summary: &Value) -> Option<Self> {
        let inherited = &summary["inherited"];
        let number = |which: &str, what: &str| inherited[which][what].as_u64().unwrap_or(0);
        let both = |which: &str| (number(which, "pages"), number(which, "files"));
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let reasons = |of: &str| {
            let rows = inherited[of].as_array().into_iter().flatten();
            rows.map(|row| (text(row, "file"), text(row, "why")))
                .collect()
        };
        let kept = Self {
            pages: number("trusted", "pages") + number("left", "pages"),
            doubtful: both("doubtful"),
            lost: both("lost"),
            reasons: reasons("doubtful_files"),
            lost_reasons: reasons("lost_files"),
        };
        (kept.all() > 0).then_some(kept)
    }

    fn all(&self) -> u64 {
        self.pages + self.doubtful.0 + self.lost.0
    }

    /// Asks a server that has been up for so many seconds. `None` where nothing was left, and when that is no news any more.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn read(server: &mut Server, uptime_s: u64) -> Result<Option<Self>, Failure> {
        if uptime_s >= NEWS {
            return Ok(None);
        }
        let text = report::ask_if_any(server, "summary")?;
        let summary = text.and_then(|text| serde_json::from_str(&text).ok());
        Ok(summary.as_ref().and_then(Self::of))
    }

    /// How much was kept.
    pub fn sentence(&self) -> Sentence {
        let all = self.all().max(1) as f64;
        let percent = (
            "kept_percent",
            json!(floor(self.pages as f64 * 100.0 / all)),
        );
        let doubtful = ("doubtful_files", json!(self.doubtful.1));
        if self.lost.1 > 0 {
            return Sentence::new(
                "kept.lost",
                Level::Note,
                "{kept_percent} of the cache was kept when the server was started. Files of which nothing could be kept: \
                 {lost_files}.",
                &[percent, ("lost_files", json!(self.lost.1))],
            );
        }
        if self.doubtful.1 == 0 {
            return Sentence::new(
                "kept.all",
                Level::Good,
                "{kept_percent} of the cache was kept when the server was started.",
                &[percent],
            );
        }
        let all_known = self.reasons.len() as u64 == self.doubtful.1;
        let changed = |(file, why): &(String, String)| why == CHANGED && file.ends_with(".ibd");
        if !all_known || !self.reasons.iter().all(changed) {
            return Sentence::new(
                "kept.doubtful",
                Level::Note,
                "{kept_percent} of the cache was kept when the server was started. Files whose pages are compared before they \
                 are served: {doubtful_files}.",
                &[percent, doubtful],
            );
        }
        if self.doubtful.1 == 1 {
            return Sentence::new(
                "kept.changed_one",
                Level::Note,
                "{kept_percent} of the cache was kept: one table changed while the server was down, and its pages are \
                 compared before they are served.",
                &[percent],
            );
        }
        Sentence::new(
            "kept.changed",
            Level::Note,
            "{kept_percent} of the cache was kept: {doubtful_files} tables changed while the server was down, and their pages \
             are compared before they are served.",
            &[percent, doubtful],
        )
    }

    /// The same, and why the first files are doubtful or lost.
    pub fn sentences(&self) -> Vec<Sentence> {
        let values = |file: &str, why: &str| [("file", json!(file)), ("why", json!(why))];
        let lost = self.lost_reasons.iter().take(TOLD).map(|(file, why)| {
            Sentence::new(
                "kept.reason",
                Level::Note,
                "What was cached of {file} was not kept: {why}.",
                &values(file, why),
            )
        });
        let doubtful = self.reasons.iter().take(TOLD).map(|(file, why)| {
            Sentence::new(
                "kept.doubted",
                Level::Note,
                "What is cached of {file} is compared before it is served: {why}.",
                &values(file, why),
            )
        });
        [self.sentence()]
            .into_iter()
            .chain(lost)
            .chain(doubtful)
            .collect()
    }
}

/// Not the whole if there is but one page less: one digit, never rounded up.
fn floor(percent: f64) -> f64 {
    (percent * 10.0).floor() / 10.0
}

#[cfg(test)]
pub mod tests {
    use super::*;

    type Reasons<'a> = &'a [(&'a str, &'a str)];

    pub fn summary(doubtful: Reasons<'_>) -> Value {
        summary_of(doubtful, &[])
    }

    fn summary_of(doubtful: Reasons<'_>, lost: Reasons<'_>) -> Value {
        let rows = |of: Reasons<'_>| -> Value {
            let row = |(file, why): &(&str, &str)| json!({ "file": file, "why": why });
            of.iter().map(row).collect()
        };
        let figures = |of: Reasons<'_>| json!({ "files": of.len(), "pages": of.len() * 40 });
        json!({ "inherited": {
            "pages": 1000, "dropped": 0, "attach_ms": 12,
            "trusted": { "files": 10, "pages": 800 },
            "doubtful": figures(doubtful),
            "lost": figures(lost),
            "left": { "files": 2, "pages": 120 },
            "doubtful_files": rows(doubtful),
            "lost_files": rows(lost),
        }})
    }

    fn kept(doubtful: Reasons<'_>, lost: Reasons<'_>) -> Kept {
        Kept::of(&summary_of(doubtful, lost)).unwrap()
    }

    #[test]
    fn how_much_was_kept_and_why_not_the_rest() {
        let said = |doubtful: Reasons<'_>| kept(doubtful, &[]).sentence().text;
        let mount = "its file system was mounted anew";
        assert_eq!(
            said(&[]),
            "100 % of the cache was kept when the server was started."
        );
        assert_eq!(
            said(&[("./d/a.ibd", CHANGED), ("./d/b.ibd", CHANGED)]),
            "92.0 % of the cache was kept: 2 tables changed while the server was down, and their pages are compared before \
             they are served."
        );
        assert!(said(&[("./d/a.ibd", CHANGED)]).contains("one table changed"));
        // Not tables, or not changed.
        assert!(said(&[("ibdata1", CHANGED)]).ends_with("they are served: 1."));
        assert!(said(&[("./d/a.ibd", CHANGED), ("./d/b.ibd", mount)]).ends_with("are served: 2."));
        let many = vec![("./d/a.ibd", mount); 5];
        let sentences = kept(&many, &[]).sentences();
        assert_eq!(sentences.len(), 1 + TOLD);
        assert_eq!(
            sentences[1].text,
            format!("What is cached of ./d/a.ibd is compared before it is served: {mount}.")
        );
    }

    #[test]
    fn what_is_lost_is_said_beside_what_is_doubtful() {
        let other = "it is another file of the same number";
        let kept = kept(&[("./d/a.ibd", CHANGED)], &[("./d/b.ibd", other)]);
        let sentences = kept.sentences();
        let texts: Vec<_> = sentences.iter().map(|one| &*one.text).collect();
        assert!(texts[0].ends_with("could be kept: 1."), "{texts:?}");
        assert_eq!(
            texts[1],
            format!("What was cached of ./d/b.ibd was not kept: {other}.")
        );
        assert!(texts[2].contains("./d/a.ibd is compared"), "{texts:?}");
    }

    #[test]
    fn reasons_that_are_not_told_are_not_made_up() {
        let mut more = kept(&[("./d/a.ibd", CHANGED)], &[]);
        more.doubtful.1 = 17;
        assert_eq!(more.sentence().text_key, "kept.doubtful");
    }

    #[test]
    fn the_whole_is_the_whole() {
        let mut all = kept(&[], &[]);
        (all.pages, all.doubtful) = (1_000_000, (1, 1));
        assert!(all.sentence().text.starts_with("99.9 %"));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(Kept::of(&Value::Null), None);
        let mut nothing = summary(&[]);
        for which in ["trusted", "doubtful", "lost", "left"] {
            nothing["inherited"][which]["pages"] = json!(0);
        }
        assert_eq!(Kept::of(&nothing), None);
    }
}
