//! Tables that change as a whole, and copies of running servers.

use std::process::ExitCode;

mod backup;
mod ddl;

fn main() -> ExitCode {
    integration_tests::harness::run([ddl::suite(), backup::suite()])
}
