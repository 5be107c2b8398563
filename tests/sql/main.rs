//! What SQL says and sets: variables, reports, rights, rules for tables, bad input.

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
