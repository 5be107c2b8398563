//! Recordings, verifications and warming as one: what is asked of them, and what ends with all of them.

use serde_json::Value;

use crate::recorder::Recordings;
use crate::verify::Verifications;
use crate::warm::Warming;

pub struct Diagnostics {
    pub recordings: Recordings,
    pub verifications: Verifications,
    pub warming: Warming,
}

/// Of the server that the library was loaded into. Above the controller, which a recording needs.
pub static DIAGNOSTICS: Diagnostics = Diagnostics {
    recordings: Recordings::new(),
    verifications: Verifications::new(),
    warming: Warming::new(),
};

impl Diagnostics {
    /// The answer to an argument of `bpe_report()`; `None` for one that is not known.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let verified = self.verifications.answer(argument);
        verified
            .or_else(|| self.warming.answer(argument))
            .or_else(|| self.recordings.answer(argument))
    }

    /// The plugin is being unloaded.
    pub fn end(&self) {
        self.verifications.end_all();
        self.recordings.stop();
        self.warming.end();
    }
}
