//! The commands of `bpe` against real servers.

#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

mod command;
mod compare;
mod hostile;
mod record;
mod rogue;
mod verify;
mod warming;

fn main() -> ExitCode {
    integration_tests::harness::run([
        command::suite(),
        compare::suite(),
        hostile::suite(),
        record::suite(),
        verify::suite(),
        warming::suite(),
    ])
}
