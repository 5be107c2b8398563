//! Life cycle of the plugin: loading, switching, bypass, sessions, stops.

use std::process::ExitCode;

mod bypass;
mod enabling;
mod imports;
mod messages;
mod refused_calls;
mod series;
mod sessions;
mod stopping;
mod switching;

fn main() -> ExitCode {
    refused_calls::become_refused_if_asked();
    integration_tests::harness::run([
        enabling::suite(),
        imports::suite(),
        messages::suite(),
        refused_calls::suite(),
        series::suite(),
        sessions::suite(),
        stopping::suite(),
        switching::suite(),
        bypass::suite(),
    ])
}
