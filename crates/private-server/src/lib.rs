//! Starts a private MariaDB or MySQL server in a separate directory: for the demonstration and for tests against real
//! servers.
//!
//! An installed server is never touched. No option file of the system is read; the data directory, socket, log and
//! plugin directory are the caller's; and no process is found or stopped by name.
//!
//! Usage:
//!
//! 1. [`Flavour`] selects a server. [`Flavour::find`] returns an [`Installation`] if it is on this host, and otherwise
//!    an error with the reason (a test reports it as the reason for skipping). [`Flavour::provide`] also creates a
//!    missing server: a private Debian root that contains it (see [`root`]), cached between runs.
//! 2. [`Installation::initialise`] creates an empty data directory.
//! 3. [`Installation::start`] with [`Options`] returns a [`Server`] that answers SQL. Its `sql`, `value`, `status` and
//!    `connect` use its unix socket as `root` without password. Only the caller can enter the socket's directory, and a
//!    port does not accept `root`.
//! 4. [`Server::stop`] shuts down cleanly, [`Server::kill`] simulates a crash. Dropping the server kills it, so that a
//!    panicking test leaves nothing behind. The kernel kills it when this process dies (see [`process`]).
//!
//! ```no_run
//! use private_server::{Flavour, Options};
//! let folder = tempfile::tempdir().unwrap();
//! let installation = Flavour::MariaDb1011.provide(&mut |line| eprintln!("{line}")).unwrap();
//! let data = folder.path().join("data");
//! installation.initialise(&data).unwrap();
//! let server = installation
//!     .start(Options::new(&data, folder.path().join("run")).buffer_pool(64 << 20))
//!     .unwrap();
//! assert_eq!(server.value("SELECT 1 + 1").unwrap().as_deref(), Some("2"));
//! server.stop().unwrap();
//! ```

mod error;
mod flavour;
mod initialise;
mod maven;
mod options;
pub mod ownership;
mod ports;
pub mod process;
mod replaced;
pub mod root;
mod server;
mod socket;
mod test_suite;

pub use error::{Error, Result, tail};
pub use flavour::{Flavour, Installation};
pub use mysql;
pub use options::{Load, Options};
pub use ports::free_ports;
pub use server::{Server, Stopped};
pub use socket::SocketPath;
pub use test_suite::TestSuite;
