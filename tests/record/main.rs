//! Recordings of page reads and writes.

use std::process::ExitCode;

mod recording;

fn main() -> ExitCode {
    integration_tests::harness::run([recording::suite()])
}
