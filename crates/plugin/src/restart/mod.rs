//! Restart: persists the cache when the server stops, and recovers it when the next one starts.
//!
//! # Terms
//! - *Records*: one for each data file, with its change stamp, in a file in memory (`/dev/shm`).
//! - *Arena*: the directory of cached pages, a second file there. It belongs to the crate `cache`.
//! - *Snapshot*: a copy of both on the cache disk, written after a clean shutdown. It survives a reboot of the host.
//! - *State header*: identifies format, server and boot of the host, at the beginning of the records.
//! - *Token*: random bits in the data directory, which each start replaces. It matches a snapshot with the data.
//! - *Redo fence*: a digest of InnoDB's idle redo log. It shows whether InnoDB has run without the plugin.
//! - *Tripwire*: a second check by InnoDB's LSN, after the recovery.
//!
//! # Life cycle
//! | when | function | effect |
//! |---|---|---|
//! | plugin initialised, before InnoDB | [`persist::begin`] | replaces the token, recovers the files, tracks them |
//! | extension opened | [`persist::take_session`], [`persist::extension_opened`] | keeps the entries in the arena |
//! | InnoDB opens its redo log | [`redo_gate::file_opened`] | serves, or rejects the recovered files |
//! | every two seconds | [`persist::record`] | counts pages, notes that the process is alive |
//! | plugin ends | [`persist::end`] | writes staged pages, or removes the state |
//! | process ends | [`snapshot::at_end`] | makes all data durable, writes the snapshot |
//!
//! # Order and failure
//! The token is replaced before a write is forwarded, and a snapshot is invalidated before it is trusted. The records are
//! true after each instruction, so a kill costs one entry at most. What a failed step cannot prove is not used, and the
//! log has the reason.
//!
//! # Cost
//! A start waits one second at most for the recovery. An end waits one second for staged pages, and five for the snapshot.
//!
//! # Files, in reading order
//! | file | content |
//! |---|---|
//! | [`persist`] | life cycle: start, opening, periodic notes, end |
//! | [`state`] | [`state::RestartState`], the state that they share |
//! | [`records`] | the file with the records, mapped |
//! | [`state_header`], [`token`], [`redo_fence`] | evidence |
//! | [`redo_gate`] | withholds serving until InnoDB has opened the proven log |
//! | [`snapshot`] | writing and restoring the snapshot |
//! | [`tripwire`] | the second check |

pub mod persist;
mod records;
pub mod redo_fence;
pub mod redo_gate;
pub mod snapshot;
pub mod state;
pub mod state_header;
pub mod token;
pub mod tripwire;

pub use state::RESTART;
