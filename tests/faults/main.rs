//! Failing disks, dying servers, ordinary months.

use std::process::ExitCode;

mod crashes;
mod damage;
mod disk_incidents;
mod faults;
mod life;

fn main() -> ExitCode {
    integration_tests::harness::run([
        faults::suite(),
        damage::suite(),
        disk_incidents::suite(),
        crashes::suite(),
        life::suite(),
    ])
}
