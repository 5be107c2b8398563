//! `bpe.so`: the buffer pool extension as a plugin of a stock MySQL or MariaDB server.
//!
//! # Rooms
//! A *room* is a module at the top level of the crate, with its files. A room imports only rooms below it.
//!
//! | room | content |
//! |---|---|
//! | [`abi`] | interface to the server's plugin loader: descriptors, life cycle, variables, status, privileges |
//! | [`hooks`] | one function per intercepted call; while the extension is off, each is one atomic load and a jump |
//! | [`reports`] | what `bpe_report()` answers: state, traces, verification, heat lists, loading |
//! | [`control`] | switches the extension on and off: controller, plan, periodic checks |
//! | [`restart`] | persists the cache at the server's end, and recovers it at the next start |
//! | [`tables`] | the rules of `bpe_tables` |
//! | [`intercept`] | patches the server's imports, and detects I/O that bypasses the hooks |
//! | [`settings`] | values behind the system variables, `bpe_bypass` included |
//! | [`platform`] | the server's process and the operating system; the one `Core` of the crate `coherence` |
//!
//! # The path of a page
//! 1. [`intercept::got`] redirects the server's imports of the C library to [`hooks`], all of them or none. The crate
//!    `interface` judges whether they suffice, and [`intercept::untracked`] whether the server uses asynchronous I/O that
//!    bypasses them.
//! 2. A hook reads the mode of [`platform::CORE`]. `Core` knows which descriptors are data files, the rules that keep the
//!    cache equal to them, asynchronous I/O from submit to harvest, and the active extension.
//! 3. `Core` uses the operating system through [`platform::Linux`]. The crate `cache` stores the pages.
//! 4. [`control`] has the one `Controller` of the crate `coherence`, which builds, replaces and retires the extension.
//!
//! # Lock order
//! A thread may take a lock while it holds one further to the left, never the reverse: recording session → controller's
//! thread → controller → file registry → details of a file → abandoned reads → shard of the table of requests → (extension's
//! locks, slots of bounded reads last). Leaves: the state text, the log, active verifications, the load of a heat list, the
//! bypass settings, and the list of suspended files.

pub mod abi;
pub mod control;
pub mod hooks;
pub mod intercept;
pub mod platform;
pub mod reports;
pub mod restart;
pub mod settings;
pub mod tables;
