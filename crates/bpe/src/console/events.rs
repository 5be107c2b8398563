//! Event log of the servers while the console watched them, in memory, limited to the newest `MAX_EVENTS` events.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::support::text::cut;

/// Maximum bytes of a displayed text.
const MAX_MESSAGE: usize = 1024;
/// Maximum number of events.
const MAX_EVENTS: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Info,
    Warning,
    Error,
}

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The server's id.
    pub server: String,
    pub level: Level,
    pub text: String,
}

/// Oldest first. The lock is a leaf.
#[derive(Default)]
pub struct Events(Mutex<VecDeque<Event>>);

impl Events {
    pub fn note(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if events.len() == MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub fn all(&self) -> Vec<Event> {
        let events = self.0.lock().unwrap_or_else(|e| e.into_inner());
        events.iter().cloned().collect()
    }
}

/// The first kibibyte of a text for display, which may contain a statement of a quarter of a megabyte.
pub fn shortened(mut text: String) -> String {
    if text.len() > MAX_MESSAGE {
        cut(&mut text, MAX_MESSAGE);
        text.push_str(" ...");
    }
    text
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("short".into()), "short");
        let cut = shortened(format!("x{}", "東".repeat(10_000)));
        assert!(
            cut.len() <= MAX_MESSAGE + 4 && cut.ends_with("東 ..."),
            "{cut}"
        );
    }

    #[test]
    fn the_newest_are_kept() {
        let events = Events::default();
        for number in 0..MAX_EVENTS + 7 {
            events.note(Event {
                at_ms: number as u64,
                server: "a".into(),
                level: Level::Info,
                text: String::new(),
            });
        }
        let all = events.all();
        assert_eq!(all.len(), MAX_EVENTS);
        assert_eq!(all[0].at_ms, 7);
    }
}
