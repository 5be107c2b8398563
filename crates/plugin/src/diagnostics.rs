//! Recordings, verifications and the keys that let them begin, as one: what ends with all of them.

use crate::{keys, recorder, verify};

/// `bpe_diagnostics_key` has been set. An empty text takes all keys back, and ends the recording and verifications under way.
/// Called under a lock of the server's that new connections need, so it waits for nothing.
pub fn set_key(text: &str) {
    keys::set(text);
    if text.is_empty() {
        verify::end_all();
        recorder::end_soon();
    }
}

/// The plugin is being unloaded: nothing set for it is good for the next one.
pub fn end() {
    keys::forget();
    verify::end_all();
    recorder::stop();
}
