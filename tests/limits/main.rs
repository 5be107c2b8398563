//! Bounds of time and memory.

use std::process::ExitCode;

mod bounds;
mod memory;

fn main() -> ExitCode {
    integration_tests::harness::run([bounds::suite(), memory::suite()])
}
