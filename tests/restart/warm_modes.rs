//! Servers are killed under load, or stopped, in each I/O mode, and the next server recovers the cache.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::taken::{self, Taken};
use integration_tests::{Options, Outcome, Place, Suite, note, sql, verification};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_modes")
        .in_turn("killed_while_bypassed", killed_while_bypassed)
        .each("killed_in_each_mode", killed_in_each_mode)
        .in_turn(
            "killed_in_each_mode_of_the_extension",
            killed_in_each_mode_of_the_extension,
        )
        .in_turn("loaded_late_and_then_early", loaded_late_and_then_early)
}

fn options(place: &Place, more: &[&str]) -> anyhow::Result<Options> {
    let options = place.early(CACHE)?;
    Ok(more
        .iter()
        .fold(options, |options, one| options.option(*one)))
}

fn killed_in_each_mode(place: &Place) -> Outcome {
    let of_one = if place.is_mysql() {
        "--innodb-doublewrite=DETECT_AND_RECOVER"
    } else {
        "--innodb-log-file-mmap=OFF"
    };
    let modes: [&[&str]; 5] = [
        &["--innodb-use-native-aio=OFF"],
        &["--innodb-flush-method=fsync"],
        &["--innodb-flush-method=O_DIRECT_NO_FSYNC"],
        &["--innodb-doublewrite=OFF", "--innodb-flush-neighbors=0"],
        &[of_one],
    ];
    killed_in(place, &modes)
}

fn killed_in_each_mode_of_the_extension(place: &Place) -> Outcome {
    let modes: [&[&str]; 2] = [
        &["--bpe-compression=lz4", "--bpe-instances=3"],
        &["--bpe-bypass-timeout=3600"],
    ];
    killed_in(place, &modes)
}

/// Each mode is the options of a server, which is killed twice.
fn killed_in(place: &Place, modes: &[&[&str]]) -> Outcome {
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    let server = place.start(options(place, &[])?)?;
    let ledger = Ledger::small(&server)?;
    server.stop()?;
    for mode in modes {
        let context = || format!("{mode:?}, seed {seed}");
        let loose: Vec<String> = mode
            .iter()
            .map(|one| one.replace("--", "--loose-"))
            .collect();
        let mode: Vec<&str> = loose.iter().map(String::as_str).collect();
        let mut server = place.start(options(place, &mode)?).with_context(context)?;
        ledger.verify(&server).with_context(context)?;
        for _ in 0..2 {
            taken::expect_written(&server).with_context(context)?;
            let time = Duration::from_millis(random.u64(300..1800));
            ledger.run_and_kill(server, time).with_context(context)?;
            server = place.start(options(place, &mode)?).with_context(context)?;
            ledger.settle(&server).with_context(context)?;
            ledger.verify(&server).with_context(context)?;
            let taken = Taken::by(&server)?;
            let hits = sql::figure(&server, "hits")?;
            note(format!("{mode:?}: {hits} hits; {taken:?}"));
            if mode.iter().any(|one| one.ends_with("flush-method=fsync")) {
                // Writes that the kernel had not written back could still be lost.
                expect_written_without_o_direct(&taken).with_context(context)?;
            } else {
                taken.expect_warm().with_context(context)?;
            }
            ensure!(sql::figure(&server, "failed_proofs")? == 0, "{}", context());
        }
        ledger.run(&server, Duration::from_millis(500))?;
        server.stop()?;
    }
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}

fn expect_written_without_o_direct(taken: &Taken) -> Outcome {
    const WHY: &str = "it was written without O_DIRECT, and the server was killed";
    let is_rejected = ["ledger.t0", "ledger.t1"]
        .iter()
        .any(|table| taken.lost(table) == Some(WHY));
    ensure!(is_rejected && taken.pages > 300, "{taken:?}");
    Ok(())
}

/// In bypass, writes are still tracked.
fn killed_while_bypassed(place: &Place) -> Outcome {
    let mut server = place.start(options(place, &[])?)?;
    let ledger = Ledger::small(&server)?;
    for bypass in ["ON", "REFILL", "ON"] {
        ledger.verify(&server)?;
        server.sql(&format!("SET GLOBAL bpe_bypass = '{bypass}'"))?;
        ledger.run_and_kill(server, Duration::from_millis(1500))?;
        server = place.start(options(place, &[])?)?;
        ledger.settle(&server)?;
        ledger.verify(&server)?;
        let taken = Taken::by(&server)?;
        note(format!(
            "bypass {bypass}: {} hits; {taken:?}",
            sql::figure(&server, "hits")?
        ));
        ensure!(taken.files > 0, "{taken:?}");
        server.sql("SET GLOBAL bpe_bypass = 'OFF'")?;
    }
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// A plugin installed on a running server has not seen how its files were opened. Its persisted pages are right where they are
/// trusted.
fn loaded_late_and_then_early(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let ledger = Ledger::small(&server)?;
    server.stop()?;
    for kill in [false, true, true] {
        let late = place.start(place.installable()?)?;
        place.install(&late, CACHE)?;
        late.sql("SET GLOBAL bpe_enabled = ON")?;
        ledger.verify(&late)?;
        // Removes the plugin's row from `mysql.plugin`, so that the next server loads it early.
        late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        ledger.run(&late, Duration::from_secs(1))?;
        if kill {
            ledger.run_and_kill(late, Duration::from_millis(1500))?;
        } else {
            late.stop()?;
        }
        place.expect_left()?;
        let early = place.start(options(place, &[])?)?;
        ledger.settle(&early)?;
        ledger.verify(&early)?;
        let taken = Taken::by(&early)?;
        note(format!(
            "killed: {kill}; {} hits; {taken:?}",
            sql::figure(&early, "hits")?
        ));
        ledger.run(&early, Duration::from_secs(1))?;
        ledger.verify(&early)?;
        early.stop()?;
        // The reverse order: a late load starts empty.
        let late = place.start(place.installable()?)?;
        place.install(&late, CACHE)?;
        late.sql("SET GLOBAL bpe_enabled = ON")?;
        ledger.verify(&late)?;
        let taken = Taken::by(&late)?;
        note(format!("late: {taken:?}"));
        taken.expect_cold()?;
        late.sql(place.uninstall_statement())?;
        sql::wait_until("nothing is left", Duration::from_secs(300), || {
            Ok(place.expect_nothing_left().is_ok())
        })?;
        ledger.verify(&late)?;
        late.stop()?;
        place.expect_nothing_left()?;
    }
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}
