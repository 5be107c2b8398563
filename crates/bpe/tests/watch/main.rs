//! Watching servers and clusters.

use std::process::ExitCode;

mod cluster;
mod monitoring;
mod watching;

fn main() -> ExitCode {
    integration_tests::harness::run([monitoring::suite(), watching::suite(), cluster::suite()])
}
