//! The plugin's messages go to the server's own log sinks.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::{Flavour, Outcome, Place, Server, Suite, sql};

const CACHE: u64 = 64 << 20;
/// Far more than any disk has.
const TOO_LARGE: u64 = 1 << 60;
const REFUSAL: &str = "has room for";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("messages")
        .each("messages_reach_the_error_log", reach_the_log)
        .with(
            Flavour::MySql97,
            "mysql_log_services_have_the_messages",
            log_services,
        )
}

/// The server refuses a size, and logs the reason.
fn refuse(server: &Server) -> Outcome {
    let said = sql::refusal(server, &format!("SET GLOBAL bpe_size = {TOO_LARGE}"))?;
    ensure!(said.contains(REFUSAL), "{said}");
    Ok(())
}

fn log(server: &Server) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(server.log())?)
}

fn lines_with(text: &str, part: &str) -> usize {
    text.lines().filter(|line| line.contains(part)).count()
}

fn reach_the_log(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    refuse(&server)?;
    let text = log(&server)?;
    ensure!(lines_with(&text, REFUSAL) == 1, "{text}");
    ensure!(lines_with(&text, "BPE-0002: switched on: ") == 1, "{text}");
    server.sql(place.uninstall_statement())?;
    server.sql(place.install_statement())?;
    server.stop()?;
    Ok(())
}

/// The table and the JSON log have errors, and no log has notes that `log_error_verbosity` leaves out. MariaDB has only one text
/// file.
fn log_services(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?.option("--log-error-verbosity=1"))?;
    sql::run(
        &server,
        &[
            "SET GLOBAL bpe_enabled = OFF",
            "SET GLOBAL bpe_enabled = ON",
        ],
    )?;
    refuse(&server)?;
    let rows = |condition: &str| {
        sql::number(
            &server,
            &format!("SELECT COUNT(*) FROM performance_schema.error_log WHERE {condition}"),
        )
    };
    ensure!(rows(&format!("prio = 'Error' AND data LIKE '%bpe%{REFUSAL}%'"))? == 1);
    ensure!(rows("data LIKE '%bpe%switched on%'")? == 0);
    let text = log(&server)?;
    ensure!(lines_with(&text, "switched on: ") == 0, "{text}");

    server.sql("INSTALL COMPONENT 'file://component_log_sink_json'")?;
    server.sql("SET GLOBAL log_error_services = 'log_filter_internal; log_sink_json'")?;
    refuse(&server)?;
    // Both sinks write to standard error, which is one file here.
    sql::wait_until("the JSON log has it", Duration::from_secs(10), || {
        let text = log(&server)?;
        let json = |line: &&str| line.starts_with('{') && line.contains(REFUSAL);
        Ok(text.lines().filter(json).count() == 1 && lines_with(&text, REFUSAL) == 2)
    })?;
    server.stop()?;
    Ok(())
}
