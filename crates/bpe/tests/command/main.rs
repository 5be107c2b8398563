//! The commands of `bpe` against real servers.

#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

mod command;
mod compare;
mod record;
mod warming;

fn main() -> ExitCode {
    integration_tests::harness::run([
        command::suite(),
        compare::suite(),
        record::suite(),
        warming::suite(),
    ])
}
