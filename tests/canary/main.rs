//! A library that is wrong on purpose is found out.

use std::process::ExitCode;

mod canary;

fn main() -> ExitCode {
    integration_tests::harness::run([canary::suite()])
}
