//! Recovery of the cache from the previous server process.

use std::process::ExitCode;

mod attacks;
mod changed_paths;
mod fence;
mod image;
mod tripwire;
mod warm;
mod warm_events;
mod warm_gaps;
mod warm_late;
mod warm_memory;
mod warm_modes;
mod warm_reboot;

fn main() -> ExitCode {
    let code = integration_tests::harness::run([
        warm::suite(),
        warm_events::suite(),
        warm_memory::suite(),
        warm_modes::suite(),
        warm_late::suite(),
        warm_gaps::suite(),
        warm_reboot::suite(),
        image::suite(),
        fence::suite(),
        attacks::suite(),
        changed_paths::suite(),
        tripwire::suite(),
    ]);
    attacks::print_table();
    code
}
