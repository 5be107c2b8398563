//! Access to a server: its address, the proof of its identity, a session, and its process on this host.
//!
//! # Terms
//! - *Target*: address, account and TLS mode, from the command line and the option files.
//! - *Peer*: the process at the other end of a connection, as the kernel identifies it.
//! - *Holder*: a peer that [`trust`] accepted. Only a holder gets a password in clear text.
//! - *Session*: a connection after the login. A [`server::Server`] is a session with a known product and version.
//!
//! # Reading order
//! [`target`] (options, then [`option_file`]), [`socket_path`] and [`trust`] (who listens), [`stream`] and [`protocol`]
//! (bytes), [`session`], [`server`] (statements), [`process`] and [`peer`] (`/proc`). [`report`], [`state`] and
//! [`maintenance`] are statements that several rooms need. [`servers_file`] lists several servers.
//!
//! # Failure
//! Every wait has a limit, and every answer a maximum size, because the other side may be hostile or hang.

mod hidden_password;
pub mod maintenance;
pub mod option_file;
pub mod peer;
pub mod process;
pub mod process_name;
pub mod protocol;
pub mod report;
#[cfg(test)]
pub mod rogue;
pub mod server;
pub mod servers_file;
pub mod session;
mod socket_path;
pub mod state;
mod stream;
pub mod target;
pub mod trust;

pub use target::{Address, Args, SslMode, Target, io_of, plain, was_too_slow};
