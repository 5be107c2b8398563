//! What an installation consists of: the library, the option files, the cache's disks and memory, and the saved original
//! settings. Each file reads its part from the server and its host, and checks it. Only [`crate::change`] decides on changes.
//!
//! Reading order: [`library`] and [`interception`] (can the plugin work there), [`disk`] and [`size_percent`] (the cache),
//! [`pool`] and [`persistence`] (memory), [`server_options`] and [`snippet`] (option files), [`install_state`] and
//! [`stale_files`] (what `bpe disable` removes).

pub mod disk;
pub mod install_state;
pub mod interception;
pub mod library;
pub mod persistence;
pub mod pool;
pub mod server_options;
pub mod size_percent;
pub mod snippet;
pub mod stale_files;
