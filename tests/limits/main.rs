//! Limits of time and memory.

use std::process::ExitCode;

mod bounds;
mod file_systems;
mod memory;

fn main() -> ExitCode {
    integration_tests::harness::run([bounds::suite(), file_systems::suite(), memory::suite()])
}
