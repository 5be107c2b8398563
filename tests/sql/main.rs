//! Variables, reports, privileges, table rules and bad input in SQL.

use std::process::ExitCode;

mod bad_input;
mod reports;
mod rights;
mod tables;
mod variables;

fn main() -> ExitCode {
    integration_tests::harness::run([
        variables::suite(),
        reports::suite(),
        rights::suite(),
        tables::suite(),
        bad_input::suite(),
    ])
}
