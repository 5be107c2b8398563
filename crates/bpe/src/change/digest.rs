//! What ties a plan that is shown to what is done: a hash for each part of what it was made from and says.
//!
//! The page brings the digest back with the confirmation, the plan is made anew, and where a part differs nothing is done.
//! Only what was decided or set by somebody goes in: no time, no free space, no number of a process. The console keeps
//! nothing for it, so that a plan outlives its restart; nor is it a secret, as whoever may send one may switch anyway.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use interface::left_out;

/// Parts, by the words that the page translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What is asked for.
    Request,
    /// Which server answers there.
    Server,
    /// Plugin, library, function, views.
    Plugin,
    /// Variables.
    Settings,
    Pool,
    /// Folders and option files.
    Files,
    /// What the server was before.
    Record,
    /// The words that are shown.
    Plan,
}

#[derive(Debug, Default)]
pub struct Digest {
    parts: Vec<(Part, u64)>,
}

impl Digest {
    pub fn add(&mut self, part: Part, what: &impl Debug) {
        // Fixed keys: the same in every process.
        let mut hasher = DefaultHasher::new();
        format!("{what:?}").hash(&mut hasher);
        self.parts.push((part, hasher.finish()));
    }

    /// As a page keeps it.
    pub fn text(&self) -> String {
        let words: Vec<_> = self
            .parts
            .iter()
            .map(|(part, hash)| format!("{part:?}-{hash:016x}"))
            .collect();
        words.join(".")
    }

    /// Parts that differ from those of a plan that was shown.
    pub fn differing(&self, shown: &str) -> Vec<Part> {
        let shown: Vec<_> = shown.split('.').collect();
        if left_out!("plan-that-was-shown") {
            return Vec::new();
        }
        let mut differing = Vec::new();
        for part in self.parts.iter().map(|(part, _)| *part) {
            let name = format!("{part:?}-");
            let now = self.parts.iter().filter(|(known, _)| *known == part);
            let now = now.map(|(_, hash)| format!("{name}{hash:016x}"));
            let then = shown.iter().filter(|word| word.starts_with(&name));
            if !differing.contains(&part) && !now.eq(then.copied()) {
                differing.push(part);
            }
        }
        if differing.is_empty() && shown.len() != self.parts.len() {
            differing.push(Part::Plan);
        }
        differing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(size: u64, path: &str) -> Digest {
        let mut digest = Digest::default();
        digest.add(Part::Settings, &size);
        digest.add(Part::Files, &path);
        digest.add(Part::Settings, &"more");
        digest
    }

    #[test]
    fn the_same_is_the_same_and_parts_tell_what_is_not() {
        let shown = digest(1, "/a").text();
        assert!(digest(1, "/a").differing(&shown).is_empty());
        assert_eq!(digest(2, "/a").differing(&shown), [Part::Settings]);
        assert_eq!(digest(1, "/b").differing(&shown), [Part::Files]);
        assert_eq!(digest(2, "/b").differing(&shown).len(), 2);
        // What is no digest of this kind of plan.
        assert!(!digest(1, "/a").differing("").is_empty());
        assert!(!digest(1, "/a").differing("Settings-0").is_empty());
        assert_eq!(
            digest(1, "/a").differing(&format!("{shown}.Pool-0")),
            [Part::Plan]
        );
    }
}
