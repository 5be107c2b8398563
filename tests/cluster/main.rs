//! Several servers with the same rows.

use std::process::ExitCode;

mod failovers;
mod galera;
mod group_replication;
mod replication;

fn main() -> ExitCode {
    integration_tests::harness::run([
        galera::suite(),
        group_replication::suite(),
        replication::suite(),
        failovers::suite(),
    ])
}
