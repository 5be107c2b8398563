//! Every read returns the bytes of the last write, on every path of a page.

use std::process::ExitCode;

mod audit;
mod competing;
mod integrity;
mod page_sizes;
mod scans;
mod verify;

fn main() -> ExitCode {
    integration_tests::harness::run([
        integrity::suite(),
        page_sizes::suite(),
        verify::suite(),
        scans::suite(),
        competing::suite(),
        audit::suite(),
    ])
}
