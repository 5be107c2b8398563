//! Recordings, verifications, warming and the keys that let them begin, as one: what is asked of them, and what ends with all of them.

use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::keys::Keys;
use crate::recorder::Recordings;
use crate::settings;
use crate::verify::Verifications;
use crate::warm::Warming;

pub struct Diagnostics {
    pub keys: Keys,
    pub recordings: Recordings,
    pub verifications: Verifications,
    pub warming: Warming,
}

/// Of the server that the library was loaded into. Above the controller, which a recording needs.
pub static DIAGNOSTICS: Diagnostics = Diagnostics {
    keys: Keys::new(),
    recordings: Recordings::new(),
    verifications: Verifications::new(),
    warming: Warming::new(),
};

impl Diagnostics {
    /// The answer to an argument of `bpe_report()`; `None` for one that is not known.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let verified = self.verifications.answer(&self.keys, argument);
        verified
            .or_else(|| self.warming.answer(argument))
            .or_else(|| self.recordings.answer(&self.keys, argument))
    }

    /// `bpe_diagnostics_key` has been set. An empty text takes all keys back, and ends the recording, verifications and the warming under
    /// way. Called under a lock of the server's that new connections need, so it waits for nothing.
    pub fn set_key(&self, text: &str) {
        // One that is set while the plugin comes or goes cannot be used: it would only take a place.
        if text.is_empty() || settings::LOADED.load(Ordering::SeqCst) {
            self.keys.set(text);
        }
        if text.is_empty() {
            self.verifications.end_all();
            self.recordings.end_soon();
            self.warming.end_soon();
        }
    }

    /// The plugin is being unloaded: nothing set for it is good for the next one.
    pub fn end(&self) {
        self.keys.forget();
        self.verifications.end_all();
        self.recordings.stop();
        self.warming.end();
    }
}
