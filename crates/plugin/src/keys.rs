//! Diagnostic keys: behind the variable `bpe_diagnostics_key`.
//!
//! Reports need `PROCESS`. A recording, a verification, loading pages and fingerprints cost the server something or show more than
//! InnoDB shows. They also need the right to `SET GLOBAL`, which a key proves: an account with that right sets one, and one beginning
//! within [`GOOD_FOR`] uses it up. The variable always shows an empty text. So nothing stays armed, even when the command that
//! set the key is killed, and commands do not get into each other's way.
//!
//! Lock: the list of keys is a leaf.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::settings;

/// How long a key waits to be used.
pub const GOOD_FOR: Duration = Duration::from_secs(60);
/// Keys that wait at a time.
const MOST: usize = 16;
/// Letters and digits of a key.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=LONGEST;
/// Bytes of the longest key.
pub const LONGEST: usize = 64;

struct Key {
    text: String,
    since: Instant,
}

struct Waiting(Vec<Key>);

/// The keys that were set and may still be used.
pub struct Keys(Mutex<Waiting>);

impl Waiting {
    fn drop_old(&mut self, now: Instant) {
        self.0
            .retain(|key| now.saturating_duration_since(key.since) < GOOD_FOR);
    }

    fn check(&mut self, text: &str, now: Instant) -> Result<(), String> {
        self.drop_old(now);
        if text.is_empty() {
            return Ok(());
        }
        if !LENGTH.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!(
                "bpe_diagnostics_key takes {} to {} letters and digits, chosen at random; '' revokes all keys and ends \
                 whatever is running",
                LENGTH.start(),
                LENGTH.end()
            ));
        }
        if self.0.len() >= MOST {
            return Err(format!(
                "{MOST} keys are set and not used yet; each is forgotten {} seconds after it was set. SET GLOBAL \
                 bpe_diagnostics_key = '' revokes them all",
                GOOD_FOR.as_secs()
            ));
        }
        Ok(())
    }

    fn add(&mut self, text: &str, now: Instant) {
        self.drop_old(now);
        // Whoever was between the check and this moment had room.
        if self.0.len() < 2 * MOST {
            self.0.push(Key {
                text: text.to_owned(),
                since: now,
            });
        }
    }

    fn spend(&mut self, text: &str, now: Instant) -> bool {
        self.drop_old(now);
        let found = self.0.iter().position(|key| key.text == text);
        found.map(|place| self.0.swap_remove(place)).is_some()
    }
}

impl Keys {
    pub(crate) const fn new() -> Keys {
        Keys(Mutex::new(Waiting(Vec::new())))
    }

    /// Whether a text can be set as a key.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, text: &str) -> Result<(), String> {
        self.0.lock().check(text, Instant::now())
    }

    /// A key has been set; an empty one takes all keys back. Waits for nothing.
    pub fn set(&self, text: &str) {
        if text.is_empty() {
            self.forget();
        } else {
            self.0.lock().add(text, Instant::now());
        }
    }

    /// Uses up a key. `what` is to begin with it, `command` does it by itself.
    ///
    /// # Errors
    /// It is none that waits.
    pub fn spend(&self, text: Option<&str>, what: &str, command: &str) -> Result<(), String> {
        if !settings::LOADED.load(std::sync::atomic::Ordering::SeqCst) {
            return Err("the plugin is not installed, only its function is".into());
        }
        let known = text.is_some_and(|text| self.0.lock().spend(text, Instant::now()));
        known.then_some(()).ok_or_else(|| {
            format!(
                "{what} needs a key that an account with the right to SET GLOBAL has set in the last {} seconds (SET GLOBAL \
                 bpe_diagnostics_key), and each key starts only one; `{command}` sets one itself",
                GOOD_FOR.as_secs()
            )
        })
    }

    /// Keys that were set and may still be used.
    pub fn waiting(&self) -> usize {
        let mut keys = self.0.lock();
        keys.drop_old(Instant::now());
        keys.0.len()
    }

    /// No key that was set is good any more.
    pub fn forget(&self) {
        self.0.lock().0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef";
    const B: &str = "0123456789ABCDEF";

    #[test]
    fn a_key_is_good_once_and_for_a_minute() {
        let now = Instant::now();
        let mut keys = Waiting(Vec::new());
        assert!(!keys.spend(A, now) && !keys.spend("", now));
        keys.add(A, now);
        keys.add(B, now);
        assert!(!keys.spend(&A[1..], now));
        assert!(keys.spend(A, now + GOOD_FOR / 2));
        assert!(!keys.spend(A, now + GOOD_FOR / 2), "a second time");
        assert!(!keys.spend(B, now + GOOD_FOR), "too late");
        assert!(keys.0.is_empty());
    }

    #[test]
    fn only_what_is_hard_to_guess_is_a_key() {
        let now = Instant::now();
        let mut keys = Waiting(Vec::new());
        for good in ["", A, B, &"x".repeat(64)] {
            assert_eq!(keys.check(good, now), Ok(()), "{good}");
        }
        for bad in [
            "ON",
            "1",
            "short",
            &A[1..],
            "0123456789abcde ",
            &"x".repeat(65),
        ] {
            let why = keys.check(bad, now).unwrap_err();
            assert!(
                why.contains("16 to 64 letters") && !why.contains(bad) || bad == "1",
                "{why}"
            );
        }
    }

    #[test]
    fn keys_are_bounded() {
        let now = Instant::now();
        let mut keys = Waiting(Vec::new());
        for _ in 0..MOST {
            assert_eq!(keys.check(A, now), Ok(()));
            keys.add(A, now);
        }
        assert!(keys.check(B, now).unwrap_err().contains("not used yet"));
        assert_eq!(keys.check(B, now + GOOD_FOR), Ok(()));
        for _ in 0..100 {
            keys.add(A, now);
        }
        assert!(keys.0.len() <= 2 * MOST);
    }
}
