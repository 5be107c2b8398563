//! Recordings, verifications and warming: dispatches their requests, and ends them together.

use serde_json::Value;

use crate::reports::trace_recorder::Recordings;
use crate::reports::verify::Verifications;
use crate::reports::warm::Warming;

pub struct Diagnostics {
    pub recordings: Recordings,
    pub verifications: Verifications,
    pub warming: Warming,
}

/// The diagnostics of this server. Above the controller, which recordings need.
pub static DIAGNOSTICS: Diagnostics = Diagnostics {
    recordings: Recordings::new(),
    verifications: Verifications::new(),
    warming: Warming::new(),
};

impl Diagnostics {
    /// Returns the answer to an argument of `bpe_report()`; `None` for an unknown one.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let verified = self.verifications.answer(argument);
        verified
            .or_else(|| self.warming.answer(argument))
            .or_else(|| self.recordings.answer(argument))
    }

    /// Ends everything: the plugin is being unloaded.
    pub fn end(&self) {
        self.verifications.end_all();
        self.recordings.stop();
        self.warming.end();
    }
}
