//! `bpe.so`: the buffer pool extension as a plugin of a stock MySQL or MariaDB server.
//!
//! The path of a page through this crate:
//!
//! 1. [`abi`] is the interface to the server's plugin loader: descriptors, variables, status, `bpe_report()`.
//! 2. [`got`] redirects the server's imports of the C library to [`calls`], all of them or none. The crate `interface`
//!    judges whether they suffice, and [`unseen`] whether the server uses asynchronous I/O that bypasses them.
//! 3. [`calls`] has one function per intercepted call. While the extension is off, each is a single atomic load and a jump.
//! 4. [`process`] has the one `Core` of the crate `coherence` that they share. It knows which descriptors are data files,
//!    the rules that keep the cache equal to them, asynchronous I/O from submit to harvest, the mode and the active
//!    extension.
//! 5. [`linux`] implements the trait through which `Core` uses the machine.
//! 6. [`controller`] has the one `Controller` of the crate `coherence`, which builds, replaces and retires the extension,
//!    and its interface to the server.
//!
//! [`recorder`] records the stream of page reads and writes for `bpe record`. [`verify`] compares cached pages for `bpe
//! verify`. [`warm`] loads the [`heat`] list of another server.
//!
//! The crate `extension` stores the pages.
//!
//! # Lock order
//! A thread may take a lock while it holds one further to the left, never the reverse: recording session → controller's
//! thread → controller → file registry → file identity → reads given up → in-flight table shard → (extension's locks, slots
//! of bounded reads last). Leaves: the state text, the log, active verifications, the load of a heat list, the bypass
//! settings, and the list of suspended files.

pub mod abi;
pub mod control;
pub mod hooks;
pub mod intercept;
pub mod platform;
pub mod reports;
pub mod restart;
pub mod settings;
pub mod tables;
