//! Shared parts of the tests with real servers.
//!
//! Each program (`start/`, `ddl/`, ...) has a module for each subject (`start/enabling.rs`, ...), whose `suite` registers its
//! tests in a [`Suite`](harness::Suite). A test is a function of a [`Place`](place::Place): a directory with a fresh data
//! directory for one kind of server. Most tests run for every kind.
//!
//! The servers cannot detect a stale page: it is as valid as the current one. Three witnesses detect it instead:
//! - [`ledger`]: many clients, each of which knows the exact version of its rows and reports any other one. Money only moves
//!   from row to row, so the sums must stay.
//! - [`deterministic`]: a load whose final state does not depend on timing. A server with the plugin and one without must have
//!   equal checksums of tables.
//! - [`verification`]: the servers' own checks, after a clean stop and a start without the plugin.
//!
//! Other modules:
//! - [`pressure`]: the ledger with sysbench beside it.
//! - [`churn`]: creates, truncates and drops files beside a load.
//! - [`ordinary`]: the events of an ordinary month on a server.
//! - [`browser`]: opens the console's page in Chromium.
//! - [`console`]: starts `bpe console`, or that of another command, and sends requests to it.
//! - [`cluster`]: several servers with the same rows.
//! - [`copies`]: physical copies of running servers.
//! - [`altered`]: derives servers that import less from others.
//! - [`cached_pages`]: finds and damages pages in a live cache file.
//! - [`lapses`]: compensates for MariaDB's errors before and after its disk loses power.
//! - [`reboots`]: a host that restarts.
//! - [`stuck`]: reports the activity of a server that does not answer.
//! - [`exporter`]: runs Prometheus' exporter beside a server.
//! - [`taken`]: reports the state that a server has recovered from the previous process.
//! - [`volumes`]: creates disks with ext4, XFS or btrfs, and throttles them.
//! - [`trace`]: drains a recording of page reads and writes.
//!
//! `canary.rs` proves that these witnesses detect a cache that does not invalidate.
//!
//! No result depends on timing: figures are noted ([`harness::note`]) and shown at the end of `make test`.

pub mod altered;
pub mod browser;
pub mod cached_pages;
pub mod checksums;
pub mod churn;
pub mod cluster;
pub mod console;
pub mod copies;
pub mod deterministic;
pub mod exporter;
pub mod harness;
pub mod lapses;
pub mod ledger;
pub mod library;
pub mod mounts;
pub mod ordinary;
pub mod place;
pub mod pressure;
pub mod probe;
pub mod reboots;
pub mod replacement;
pub mod sql;
pub mod stuck;
pub mod sysbench;
pub mod taken;
pub mod trace;
pub mod verification;
pub mod volumes;

pub use harness::{Outcome, Suite, note, skip, skip_allowed};
pub use place::Place;
pub use private_server::mysql;
pub use private_server::{Flavour, Load, Options, Server};
