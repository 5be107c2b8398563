//! What `bpe_report()` answers.
//!
//! | file | content |
//! |---|---|
//! | `report` | the state and the rows of each report |
//! | `trace_recorder` | traces of page reads and writes, for `bpe record` |
//! | `verify` | comparison of cached pages with the data files, for `bpe verify` |
//! | `heat` | the list of cached pages by frequency, for another server |
//! | `warm` | loads such a list |
//! | `diagnostics` | dispatches arguments to the four above, and ends them together |

pub mod diagnostics;
pub mod heat;
pub mod report;
pub mod trace_recorder;
pub mod verify;
pub mod warm;
