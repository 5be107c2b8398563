//! The ways to load the plugin: before InnoDB, installed on a running server, and from `mysql.plugin` at the next start.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, mounts, note, place, sql, trace,
};

/// Rows of 1,000 bytes: five times the pool.
const ROWS: u32 = 40_000;
const CACHE: u64 = 128 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("enabling")
        .all("loaded_before_innodb", loaded_before_innodb)
        .all(
            "installed_on_a_running_server",
            installed_on_a_running_server,
        )
        .in_turn(
            "tried_again_while_a_client_builds",
            tried_again_while_a_client_builds,
        )
        .each(
            "asked_for_before_it_is_set_up",
            asked_for_before_it_is_set_up,
        )
        .each("loaded_from_the_plugin_table", loaded_from_the_plugin_table)
        .with(
            Flavour::MariaDb1011,
            "installed_on_a_server_that_libaio_serves",
            installed_with_libaio,
        )
        .each(
            "without_native_asynchronous_io",
            without_native_asynchronous_io,
        )
        .in_turn("several_devices", several_devices)
        .with(
            Flavour::MariaDb1011,
            "a_server_that_changed_its_user",
            a_server_that_changed_its_user,
        )
}

/// Fills a table and reads it twice row by row. There must be hits, and every row must be right.
fn work(server: &Server, table: &str) -> Outcome {
    let mut connection = server.connect()?;
    sql::fill(&mut connection, table, ROWS, 1000, "")?;
    read_twice(server, table)
}

fn read_twice(server: &Server, table: &str) -> Outcome {
    let mut connection = server.connect()?;
    let before = sql::figure(server, "hits")?;
    for _ in 0..2 {
        let (ids, _) = sql::read_all(&mut connection, table, ROWS)?;
        ensure!(
            ids == u64::from(ROWS) * u64::from(ROWS + 1) / 2,
            "sum {ids}"
        );
    }
    let hits = sql::figure(server, "hits")? - before;
    ensure!(hits > 500, "only {hits} hits in two readings of the table");
    ensure!(sql::figure(server, "failed_proofs")? == 0, "failed proofs");
    ensure!(sql::figure(server, "device_errors")? == 0, "device errors");
    ensure!(sql::verify_pads(&mut connection, table, 1000)? == ROWS);
    Ok(())
}

/// Full scans in primary key order, for read-ahead; returns their hits.
fn scan(server: &Server, table: &str) -> anyhow::Result<u64> {
    let before = sql::figure(server, "hits")?;
    for _ in 0..3 {
        server.sql(&format!(
            "SELECT SUM(LENGTH(pad)) FROM {table} FORCE INDEX (PRIMARY)"
        ))?;
    }
    Ok(sql::figure(server, "hits")? - before)
}

fn loaded_before_innodb(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    ensure!(sql::status(&server, "load_mode")? == "early");
    work(&server, "d.t")?;
    let mode = sql::status(&server, "async_mode")?;
    ensure!(
        mode == "libaio",
        "asynchronous mode '{mode}' when loaded early"
    );
    let hits = scan(&server, "d.t")?;
    ensure!(hits > 1000, "only {hits} hits in three scans");
    if !place.is_mysql() {
        let log = std::fs::read_to_string(server.log())?;
        ensure!(
            log.contains("Using Linux native AIO") || log.contains("linux_aio"),
            "MariaDB says nothing of libaio"
        );
    }
    server.stop()?;
    place.expect_left()?;
    Ok(())
}

fn installed_on_a_running_server(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let mut connection = server.connect()?;
    // Open files, and asynchronous I/O in use.
    sql::fill(&mut connection, "d.before", ROWS, 1000, "")?;
    place.install(&server, CACHE)?;
    sql::expect_state(&server, "disabled")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    ensure!(sql::status(&server, "load_mode")? == "runtime");
    read_twice(&server, "d.before")?;
    work(&server, "d.after")?;
    scan(&server, "d.before")?;
    let mode = sql::status(&server, "async_mode")?;
    note(format!("asynchronous mode at run time: {mode}"));
    if place.is_mysql() {
        ensure!(mode == "libaio", "asynchronous mode '{mode}'");
    } else {
        ensure!(
            mode == "io_uring" || mode == "libaio",
            "asynchronous mode '{mode}'"
        );
    }
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::expect_state(&server, "disabled")?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty())
    })?;
    let mut connection = server.connect()?;
    ensure!(sql::verify_pads(&mut connection, "d.before", 1000)? == ROWS);
    server.stop()?;
    Ok(())
}

/// The automatic retry of a configured extension runs while a client builds it. The retry uses the client's extension, and
/// neither waits for the other.
fn tried_again_while_a_client_builds(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "fast")?;
    let folder = disk.mountpoint().join("later");
    std::fs::write(&folder, "in the way")?;
    let configured = [
        format!("--loose-bpe-path={}", folder.display()),
        format!("--loose-bpe-size={CACHE}"),
        "--loose-bpe-enabled=ON".into(),
    ];
    let server = place.start(
        configured
            .into_iter()
            .fold(place.installable()?, Options::option),
    )?;
    server.sql(place.install_statement())?;
    sql::wait_until("it has been tried", Duration::from_secs(20), || {
        Ok(sql::status(&server, "state")? == "failed")
    })?;
    std::fs::remove_file(&folder)?;
    // The retry comes after five seconds. At that moment the client waits between checking and assigning the values, and the
    // disk is too slow to build anything.
    std::thread::sleep(Duration::from_secs(3));
    std::thread::scope(|scope| {
        let client = scope
            .spawn(|| server.sql("SET GLOBAL bpe_enabled = ON, max_connections = 151 + SLEEP(4)"));
        std::thread::sleep(Duration::from_millis(1500));
        disk.stall(Duration::from_secs(6));
        client.join().expect("no panic")
    })?;
    let state = sql::status(&server, "state")?;
    ensure!(state == "active", "{state} right after switching on");
    std::thread::sleep(Duration::from_secs(1));
    sql::expect_state(&server, "active")?;
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.matches("not switched on").count() == 1, "{log}");
    server.stop()?;
    Ok(())
}

/// The configuration enables the extension without a path and a size. SQL can set them in any order.
fn asked_for_before_it_is_set_up(place: &Place) -> Outcome {
    let server = place.start(place.installable()?.option("--loose-bpe-enabled=ON"))?;
    let path = format!("SET GLOBAL bpe_path = '{}'", place.cache().display());
    let size = format!("SET GLOBAL bpe_size = {CACHE}");
    for statements in [[&path, &size], [&size, &path]] {
        server.sql(place.install_statement())?;
        sql::expect_state(&server, "failed")?;
        for statement in statements {
            server.sql(statement)?;
        }
        sql::wait_until("active", Duration::from_secs(20), || {
            Ok(sql::status(&server, "state")? == "active")
        })?;
        server.sql(place.uninstall_statement())?;
    }
    server.stop()?;
    Ok(())
}

/// The row of INSTALL loads the plugin at the next start.
fn loaded_from_the_plugin_table(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    if place.is_mysql() {
        sql::run(
            &server,
            &[
                &format!("SET PERSIST bpe_path = '{}'", place.cache().display()),
                &format!("SET PERSIST bpe_size = {CACHE}"),
                "SET PERSIST bpe_enabled = ON",
            ],
        )?;
    }
    server.stop()?;
    let options = place.installable()?;
    let options = if place.is_mysql() {
        // With --no-defaults MySQL would not read persisted variables either.
        let file = place.root().join("my.cnf");
        std::fs::write(&file, "[mysqld]\n")?;
        options
            .defaults_file(&file)
            .option(format!("--innodb-buffer-pool-size={}", place::POOL))
    } else {
        options
            .option(format!("--loose-bpe-path={}", place.cache().display()))
            .option(format!("--loose-bpe-size={CACHE}"))
            .option("--loose-bpe-enabled=ON")
    };
    let server = place.start(options)?;
    let status = server
        .value("SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe'")?;
    ensure!(
        status.as_deref() == Some("ACTIVE"),
        "plugin status {status:?}"
    );
    sql::expect_state(&server, "active")?;
    ensure!(sql::status(&server, "load_mode")? == "runtime");
    work(&server, "d.t")?;
    server.stop()?;
    place.expect_left()?;
    // After UNINSTALL the plugin stays unloaded.
    let server = place.start(place.installable()?)?;
    server.sql(place.uninstall_statement())?;
    server.stop()?;
    let server = place.start(place.installable()?)?;
    let rows = sql::number(
        &server,
        "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe'",
    )?;
    ensure!(rows == 0, "the plugin is back after UNINSTALL");
    server.stop()?;
    Ok(())
}

fn installed_with_libaio(place: &Place) -> Outcome {
    let mut options = place.installable()?;
    if !place.is_mysql() {
        options = options.option("--innodb-linux-aio=aio");
    }
    let server = place.start(options)?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    work(&server, "d.t")?;
    scan(&server, "d.t")?;
    let mode = sql::status(&server, "async_mode")?;
    ensure!(mode == "libaio", "asynchronous mode '{mode}'");
    server.stop()?;
    Ok(())
}

fn without_native_asynchronous_io(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?.option("--innodb-use-native-aio=OFF"))?;
    work(&server, "d.t")?;
    scan(&server, "d.t")?;
    let mode = sql::status(&server, "async_mode")?;
    ensure!(mode == "none seen", "asynchronous mode '{mode}'");
    server.stop()?;
    Ok(())
}

fn several_devices(place: &Place) -> Outcome {
    let second = place.root().join("second");
    std::fs::create_dir(&second)?;
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(&format!(
        "SET GLOBAL bpe_path = '{}:{}/named.cache'",
        place.cache().display(),
        second.display()
    ))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    work(&server, "d.t")?;
    ensure!(place.cache_files().len() == 1, "{:?}", place.cache_files());
    ensure!(place::files_in(&second) == [second.join("named.cache")]);
    let report = server
        .sql(trace::CREATE_FUNCTION)
        .and_then(|()| server.value("SELECT bpe_report('devices')"))?
        .unwrap_or_default();
    let devices: serde_json::Value = serde_json::from_str(&report)?;
    ensure!(
        devices.as_array().is_some_and(|devices| devices.len() == 2),
        "{report}"
    );
    server.stop()?;
    Ok(())
}

/// A server that root started, and that then changed its user, may not read its own `/proc/self`. Open files must be found
/// anyway, and the cache file must belong to the user.
fn a_server_that_changed_its_user(_: &Place) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    if !rustix::process::geteuid().is_root() {
        return Err(integration_tests::skip(
            "starting a server as another user needs root",
        ));
    }
    let place = Place::readable_by("nobody", integration_tests::Flavour::MariaDb1011)?;
    let server = place.start(place.installable()?.user("nobody"))?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.before", ROWS, 1000, "")?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    read_twice(&server, "d.before")?;
    let files = place.cache_files();
    ensure!(files.len() == 1, "{files:?}");
    let (file, data) = (
        std::fs::metadata(&files[0])?,
        std::fs::metadata(place.data())?,
    );
    ensure!(file.uid() == data.uid(), "owner {}", file.uid());
    ensure!(file.mode() & 0o7777 == 0o600, "mode {:o}", file.mode());
    server.stop()?;
    place.expect_left()?;
    Ok(())
}
