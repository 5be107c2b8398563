//! Watching servers and clusters.

#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

mod cluster;
mod monitoring;
mod watching;

fn main() -> ExitCode {
    integration_tests::harness::run([monitoring::suite(), watching::suite(), cluster::suite()])
}
