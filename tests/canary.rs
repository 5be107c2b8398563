//! The other tests can fail: a library that leaves out a rule of coherence is found out.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::{Flavour, Load, Options, Outcome, Place, Suite, library, note, sql};

const CACHE: u64 = 128 << 20;

fn main() -> ExitCode {
    Suite::new("canary")
        .each("a_write_that_drops_nothing_is_noticed", writes)
        .each("a_file_that_keeps_its_identity_is_noticed", files)
        .with(
            Flavour::MariaDb1011,
            "the_canary_without_a_rule_left_out_is_right",
            nothing_left_out,
        )
        .run()
}

fn options(place: &Place, rules: &str) -> anyhow::Result<Options> {
    Ok(place
        .options()
        .plugin(library::canary()?, "bpe", Load::Early)
        .option(format!("--bpe-path={}", place.cache().display()))
        .option(format!("--bpe-size={CACHE}"))
        .option("--bpe-enabled=ON")
        .environment("BPE_CANARY", rules))
}

/// The load of `integrity.rs`.
fn mixed_load(place: &Place, rules: &str) -> Outcome {
    let server = place.start(options(place, rules)?)?;
    let ledger = Ledger::create(&server, 2, 4000, 3000, 8)?;
    ledger
        .run(&server, Duration::from_secs(10))
        .and_then(|_| ledger.verify(&server))
}

fn writes(place: &Place) -> Outcome {
    let error = mixed_load(place, "writes")
        .err()
        .context("the load did not notice that writes drop nothing")?;
    note(format!("noticed: {}", first_line(&error)));
    Ok(())
}

/// As `ddl.rs` does: other contents in a file of the same name, and of the same inode where the file system gives the
/// number out again.
fn files(place: &Place) -> Outcome {
    let server = place.start(options(place, "files")?)?;
    let mut connection = server.connect()?;
    let mut noticed = None;
    for version in 0..8 {
        let made = sql::fill(&mut connection, "d.t", 8000 + version * 100, 1500, "")
            .and_then(|()| Ok(sql::read_all(&mut connection, "d.t", 8000)?))
            .and_then(|_| Ok(sql::read_all(&mut connection, "d.t", 8000)?))
            .and_then(|_| sql::verify_pads(&mut connection, "d.t", 1500))
            .and_then(|rows| {
                ensure!(rows == 8000 + version * 100, "{rows} rows");
                Ok(())
            })
            .and_then(|()| Ok(sql::run(&server, &["DROP TABLE d.t"])?));
        if let Err(error) = made {
            noticed = Some(first_line(&error));
            break;
        }
        // Other contents at the same places.
        server
            .sql(&format!(
                "CREATE TABLE d.filler{version} (a INT) ENGINE=InnoDB"
            ))
            .ok();
    }
    note(format!(
        "noticed: {}",
        noticed.context("it was not noticed that files keep their identity")?
    ));
    Ok(())
}

fn nothing_left_out(place: &Place) -> Outcome {
    mixed_load(place, "none")
}

fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or("").into()
}
