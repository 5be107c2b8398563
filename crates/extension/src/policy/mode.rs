//! What a server may choose of a policy.

use serde::Serialize;

/// How pages compete for a place once the devices are full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub enum AdmissionMode {
    /// Every offered page gets in.
    All,
    /// A page gets in if it was asked for more often than the pages that would have to go.
    #[default]
    Frequency,
}
