//! What the tests inside real servers share.
//!
//! Each program (`start/`, `ddl/`, ...) has a module for each of its subjects (`start/enabling.rs`, ...), whose `suite` names its
//! tests to a [`Suite`](harness::Suite). A test is a function of a [`Place`](place::Place): a folder with a fresh data directory
//! for one kind of server. Most tests run for every kind.
//!
//! What shows a wrong page: nothing in the servers does, an old page is as valid as the current one. Three witnesses are
//! used instead:
//! * [`ledger`]: many clients, each knows the exact version of every row that is its own, and says so when it is given
//!   another one; sums of money that only move from row to row must stay.
//! * [`deterministic`]: a load whose end state does not depend on timing, so that checksums of tables can be compared
//!   between a server with the plugin and one without.
//! * [`verification`]: the servers' own checks, after a clean stop and a start without the plugin.
//!
//! [`pressure`] is the ledger with sysbench beside it.
//! [`churn`] makes, empties and removes files beside a load.
//! [`ordinary`] is what happens to a server in an ordinary month.
//! [`browser`] opens the console's page in Chromium.
//! [`console`] starts `bpe console`, or that of another command, and asks it.
//! [`cluster`] is of several servers that have the same rows.
//! [`copies`] are physical copies of servers at work.
//! [`altered`] makes servers out of others that import less.
//! [`cached_pages`] finds and damages pages in a live cache file.
//! [`lapses`] does for MariaDB what it forgets, before and after its disk loses power.
//! [`reboots`] is a machine that is started anew.
//! [`stuck`] tells what a server that does not answer is doing.
//! [`exporter`] runs Prometheus' exporter beside a server.
//! [`taken`] reports what a server has recovered from the process before.
//! [`volumes`] makes disks with ext4, XFS or btrfs, and throttles them.
//! [`trace`] drains a recording of page reads and writes.
//!
//! `canary.rs` shows that these witnesses see a cache that does not invalidate.
//!
//! Timing decides nothing: figures are noted ([`harness::note`]) and shown at the end of `make test`.

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
