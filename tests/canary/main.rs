//! Deliberately wrong libraries are detected.

use std::process::ExitCode;

mod canary;

fn main() -> ExitCode {
    integration_tests::harness::run([canary::suite()])
}
