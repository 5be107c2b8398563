//! What outlives the process: records of the data files, and the proof that a file is unchanged.
//!
//! # Terms
//! - *Manifest* ([`manifest::Manifest`]): a header and one *record* for each data file, in memory that outlives the process.
//! - *Change stamp*: a file's ctime, in nanoseconds. A record stores the stamp after each change by this server.
//! - *Persisted file* ([`proof::PersistedFile`]): a record of the previous process, until the server opens the file.
//! - *Proof* ([`proof::PersistedFile::prove_file`]): the comparison of a record with the opened file.
//! - *Rejection*: the reason why a file is not proven. Its pages are dropped, and listed for the loader.
//!
//! # Order of a restart
//! 1. The previous process stores each identity before the change that needs it, and each stamp after the change.
//! 2. This process maps the records, decides which proofs they provide ([`proof::Recovery`]), and recovers the files as
//!    closed ones.
//! 3. When the server opens a file, its record proves it, or the file gets a new identity.
//! 4. [`outcomes`] counts both outcomes, and keeps the reasons.
//!
//! # Failure
//! A process may die between any two instructions. A record never claims more than is true at that instant, so a death costs
//! hits and no correctness. `docs/user/restarts.md` has the proof, its conditions and what it does not cover.
//!
//! # Files
//! [`stamp`] (the protocol), [`manifest`] (records), [`proof`] (which files are proven), [`outcomes`] (what became of each), `model_tests` (random histories and deaths, with
//! each rule removed in turn).

pub mod manifest;
#[cfg(all(test, debug_assertions, not(checker)))]
mod model_tests;
pub mod outcomes;
pub mod proof;
pub mod stamp;
