//! `bpe warm` between real servers: a physical copy gets as warm as its origin, from its own data files and under writes. The
//! command reports a server that is no copy, is cold, or may not be loaded.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::replicas::{Node, catch_up, first_primary};
use integration_tests::harness::Outcome;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::place::extended;
use integration_tests::trace::CREATE_FUNCTION;
use integration_tests::verification::{Compared, compare_cached};
use integration_tests::{Options, Place, Server, Suite, copies, note, sql};
use rustix::process::{Pid, Signal, kill_process};

/// Larger than the data.
const CACHE: u64 = 96 << 20;
/// Smaller than the data.
const SMALL: u64 = 12 << 20;
/// Rows of 2,000 bytes: twice the pool, about 1,200 pages.
const ROWS: u32 = 8_000;
/// Rows of the same size: about a third of the pool.
const HELD: u32 = 800;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warming")
        .each("a_copy_is_made_warm", a_copy_is_made_warm)
        .in_turn("sql_alone_carries_a_list", sql_alone_carries_a_list)
        .in_turn("what_is_no_copy_is_told", what_is_no_copy_is_told)
        .in_turn("ends_that_differ_or_die", ends_that_differ_or_die)
        .each("a_standby_that_falls_behind", a_standby_that_falls_behind)
}

fn options(place: &Place, number: usize) -> anyhow::Result<Options> {
    with_cache(place, number, CACHE)
}

fn with_cache(place: &Place, number: usize, bytes: u64) -> anyhow::Result<Options> {
    let cache = place.root().join(format!("cache-{number}"));
    std::fs::create_dir_all(&cache)?;
    let folder = format!("node-{number}");
    let options = place.options_of(&folder, &format!("run-{number}"));
    Ok(extended(options, place.library()?, &cache, bytes))
}

fn data(place: &Place, number: usize) -> PathBuf {
    place.root().join(format!("node-{number}"))
}

/// The first server, whose data was read several times.
fn source(place: &Place) -> anyhow::Result<Server> {
    std::fs::rename(place.data(), data(place, 1))?;
    let server = place.start(options(place, 1)?)?;
    sql::expect_state(&server, "active")?;
    server.sql(CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 2000, "")?;
    sql::fill(&mut connection, "d.other", 200, 2000, "")?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    Ok(server)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bpe"));
    command
        .args(["warm", "--no-defaults", "--user", "root"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> anyhow::Result<(i32, String)> {
    let output = command.output().context("bpe")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.code().unwrap_or(-1), text))
}

fn warm(from: &Server, to: &Server, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    run(command(arguments)
        .arg("--from")
        .arg(from.socket())
        .arg("--to")
        .arg(to.socket()))
}

fn expect(given: (i32, String), code: i32, parts: &[&str]) -> anyhow::Result<String> {
    let (exit, text) = given;
    ensure!(exit == code, "{exit} instead of {code}:\n{text}");
    for part in parts {
        ensure!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    Ok(text)
}

fn percent(server: &Server) -> anyhow::Result<f64> {
    Ok(sql::status(server, "warm_percent")?.parse()?)
}

fn a_copy_is_made_warm(place: &Place) -> Outcome {
    let first = source(place)?;
    copies::of_running(place, &first, &data(place, 1), &data(place, 2))?;
    let second = place.start(options(place, 2)?)?;
    sql::expect_state(&second, "active")?;
    let cached = sql::figure(&first, "pages_cached")?;
    ensure!(cached > 800, "{cached}");
    ensure!(percent(&second)? == -1.0 && sql::status(&second, "warm_state")? == "none");

    second.sql("SET GLOBAL bpe_warm_io_capacity = 0")?;
    let refused = warm(&first, &second, &[])?;
    expect(refused, 1, &["bpe_warm_io_capacity is 0", "--io-capacity"])?;

    // Recovery reads pages that were changed shortly before the copy, and the extension caches them.
    let recovered = sql::figure(&second, "pages_cached")?;
    let before = sql::figure(&second, "misses")?;
    let told = warm(&first, &second, &["--io-capacity", "5000"])?;
    let told = expect(told, 0, &["Loaded", "Warm"])?;
    note(told.lines().collect::<Vec<_>>().join("; "));
    let loaded = sql::figure(&second, "warm_pages_loaded")?;
    let reads = sql::summary_figure(&second, "/warm/reads")?;
    let listed = sql::summary_figure(&second, "/warm/listed")?;
    ensure!(
        listed > 800 && loaded > 100 && loaded + recovered > 800,
        "{listed} listed, {loaded} loaded, {recovered} cached before"
    );
    ensure!(reads < loaded / 4, "{reads} reads for {loaded} pages");
    ensure!(percent(&second)? >= 95.0, "{} %", percent(&second)?);
    ensure!(sql::status(&second, "warm_state")? == "loaded");
    ensure!(
        second
            .value("SELECT @@GLOBAL.bpe_warm_io_capacity")?
            .as_deref()
            == Some("0")
    );
    // Loading counts no misses.
    let misses = sql::figure(&second, "misses")? - before;
    ensure!(misses < 100, "{misses} misses");

    // The cache serves, and the server's own writes drop the pages they touch.
    let from = sql::figure(&second, "data_reads")?;
    sql::read_all(&mut second.connect()?, "d.t", ROWS)?;
    let of_disk = sql::figure(&second, "data_reads")? - from;
    ensure!(of_disk < listed / 10, "{of_disk} reads of the data files");
    second
        .connect()?
        .query_drop("UPDATE d.t SET pad = REVERSE(pad) WHERE id % 7 = 0")?;
    let list = place.root().join("list");
    let saved = run(command(&[])
        .arg("--from")
        .arg(first.socket())
        .arg("--save")
        .arg(&list))?;
    expect(saved, 0, &["Saved"])?;
    let again = run(command(&["--io-capacity", "5000"])
        .arg("--load")
        .arg(&list)
        .arg("--to")
        .arg(second.socket()))?;
    expect(again, 0, &["Warm"])?;
    let mut compared = Compared::default();
    compare_cached(&second, &mut compared)?;
    ensure!(
        compared.wrong == 0 && compared.compared > 500,
        "{compared:?}"
    );

    // Pages become young when they are used again, however soon: so they outlast a read of the dictionary, and whole tables replace
    // each other. By default that depends on whether the two uses are a second apart.
    first.sql("SET GLOBAL innodb_old_blocks_time = 0")?;
    follows(&first, &second)?;
    what_the_pool_holds_is_listed(place, &first, &second)?;
    // Warmth falls with the pages.
    second.sql("TRUNCATE TABLE d.t")?;
    sql::wait_until("it is less warm", Duration::from_secs(60), || {
        Ok(percent(&second)? < 50.0)
    })?;
    second.sql("SET GLOBAL bpe_enabled = OFF")?;
    ensure!(percent(&second)? == 0.0);
    let off = warm(&first, &second, &["--io-capacity", "5000"])?;
    expect(off, 1, &["the extension is disabled"])?;
    second.stop()?;
    first.stop()?;
    Ok(())
}

/// `warm-put` takes the answer of `heat`; malformed lists are refused, and arguments of older versions are unknown.
fn sql_alone_carries_a_list(place: &Place) -> Outcome {
    let first = source(place)?;
    copies::of_running(place, &first, &data(place, 1), &data(place, 2))?;
    let second = place.start(options(place, 2)?)?;
    sql::expect_state(&second, "active")?;
    let mut argument = "heat".to_owned();
    let mut pages = 0;
    loop {
        let part = sql::report(&first, &argument)?;
        let files = part["files"].as_array().context("no files")?;
        pages += files
            .iter()
            .filter_map(|file| file["count"].as_u64())
            .sum::<u64>();
        let answer = sql::report(&second, &format!("warm-put {part}"))?;
        ensure!(
            answer["files"].as_array().map(Vec::len) == Some(files.len()),
            "{answer}"
        );
        match part["next"].as_str() {
            Some(next) => next.clone_into(&mut argument),
            None => break,
        }
    }
    for wrong in [
        "warm-put nonsense",
        r#"warm-put {"files": [{"file": "../t.ibd"}]}"#,
        r#"warm-put {"files": [{"file": "d/t.ibd", "page_size": 16384, "list": "gA=="}]}"#,
    ] {
        let answer = sql::report(&second, wrong)?;
        ensure!(answer["error"].is_string(), "{wrong}: {answer}");
    }
    second.sql("SELECT COUNT(*) FROM d.t")?;
    let answer = sql::report(&second, "warm-load 7")?;
    ensure!(
        answer["pages"]
            .as_u64()
            .is_some_and(|fit| fit > 800 && fit <= pages),
        "{answer}, {pages} pages"
    );
    sql::wait_until("it is loaded", Duration::from_secs(120), || {
        Ok(sql::report(&second, "warm-status")?["state"] == "loaded")
    })?;
    let status = sql::report(&second, "warm-status")?;
    ensure!(
        percent(&second)? >= 95.0 && status["age_seconds"].as_u64() >= Some(7),
        "{status}"
    );
    // Without a new list, the load ends and the previous list stays.
    let answer = sql::report(&second, "warm-load 0")?;
    ensure!(
        answer["pages"] == 0 && percent(&second)? >= 95.0,
        "{answer}"
    );
    let mut root = second.connect()?;
    for unknown in [
        "warm-start",
        "warm-next 0123456789abcdef",
        "warm-load",
        "warm-load -1",
    ] {
        let answer: Option<Option<String>> =
            root.query_first(format!("SELECT bpe_report('{unknown}')"))?;
        ensure!(answer.flatten().is_none(), "{unknown}");
    }
    is_right(&second)?;
    second.stop()?;
    first.stop()?;
    Ok(())
}

/// Pages that become hot on the first server become warm on the second, and stay warm when the first is gone.
fn follows(first: &Server, second: &Server) -> Outcome {
    let mut follower = command(&["--io-capacity", "5000", "--follow", "--every", "5"])
        .arg("--from")
        .arg(first.socket())
        .arg("--to")
        .arg(second.socket())
        .spawn()?;
    let listed = || sql::summary_figure(second, "/warm/listed");
    let state = || sql::status(second, "warm_state");
    let done = (|| {
        sql::wait_until("the first round", Duration::from_secs(60), || {
            Ok(state()? == "loaded")
        })?;
        let before = listed()?;
        // Both get the table, as replication would bring it.
        for server in [first, second] {
            sql::fill(&mut server.connect()?, "d.later", 2000, 2000, "")?;
        }
        let mut connection = first.connect()?;
        // Out of the pool and, read again, into the cache: only cached pages are listed.
        sql::read_all(&mut connection, "d.t", ROWS)?;
        sql::read_all(&mut connection, "d.later", 2000)?;
        sql::wait_until("a later round", Duration::from_secs(60), || {
            Ok(listed()? > before + 50 && state()? == "loaded")
        })?;
        let warmth = percent(second)?;
        ensure!(warmth > 90.0, "{warmth} %");
        // An administrator stops the loading.
        second.sql("SET GLOBAL bpe_warm_io_capacity = 0")?;
        std::thread::sleep(Duration::from_secs(12));
        let capacity = second.value("SELECT @@GLOBAL.bpe_warm_io_capacity")?;
        ensure!(capacity.as_deref() == Some("0"), "{capacity:?}");
        anyhow::Ok(())
    })();
    follower.kill()?;
    let output = follower.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    done.with_context(|| said.clone())?;
    ensure!(said.contains("pages listed in"), "{said}");
    // A killed command does not block the next one.
    expect(
        warm(first, second, &["--io-capacity", "5000"])?,
        0,
        &["Warm"],
    )?;
    // SIGTERM, as `systemctl stop` sends it, ends the command, which restores the setting.
    let mut follower = begin(
        first,
        second,
        &["--io-capacity", "5000", "--follow", "--every", "60"],
    )?;
    let capacity = || sql::number(second, "SELECT @@GLOBAL.bpe_warm_io_capacity");
    let set = sql::wait_until("loading is allowed", Duration::from_secs(60), || {
        Ok(capacity()? == 5000)
    });
    kill_process(Pid::from_child(&follower), Signal::TERM)?;
    let ended = sql::wait_until("its end", Duration::from_secs(60), || {
        Ok(follower.try_wait()?.is_some())
    });
    let _ = follower.kill();
    let output = follower.wait_with_output()?;
    set.and(ended)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {said}", output.status);
    ensure!(capacity()? == 0, "it is {}", capacity()?);
    Ok(())
}

/// A table that only InnoDB's pool holds becomes warm with `--pool`.
fn what_the_pool_holds_is_listed(place: &Place, first: &Server, second: &Server) -> Outcome {
    // By default MariaDB keeps more pages free than this pool has.
    first.sql("SET GLOBAL innodb_lru_scan_depth = 100")?;
    // Bypass: the extension does not admit the pages that are flushed and read in the next steps.
    first.sql("SET GLOBAL bpe_bypass = ON")?;
    for server in [first, second] {
        sql::fill(&mut server.connect()?, "d.held", HELD, 2000, "")?;
    }
    sql::write_dirty_pages(first)?;
    sql::write_dirty_pages(second)?;
    let listed = |more: &[&str]| -> anyhow::Result<u64> {
        let told = warm(first, second, &[&["--io-capacity", "5000"], more].concat())?;
        let told = expect(told, 0, &["Warm"])?;
        note(told.lines().collect::<Vec<_>>().join("; "));
        sql::summary_figure(second, "/warm/listed")
    };
    let cached = listed(&[])?;
    let loaded = sql::figure(second, "warm_pages_loaded")?;
    for _ in 0..2 {
        sql::read_all(&mut first.connect()?, "d.held", HELD)?;
    }
    let with_pool = listed(&["--pool"])?;
    if with_pool <= cached + 40 {
        let spaces = match place.installation.flavour.is_mysql() {
            true => "INNODB_TABLESPACES",
            false => "INNODB_SYS_TABLESPACES",
        };
        let held = "SELECT CONCAT_WS(' ', COUNT(*), MIN(IS_OLD), MIN(PAGE_STATE), GROUP_CONCAT(DISTINCT SPACE)) \
                    FROM information_schema.INNODB_BUFFER_PAGE WHERE TABLE_NAME LIKE '%held%'";
        let space = format!(
            "SELECT CONCAT_WS(' ', SPACE, NAME, FILE_SIZE) FROM information_schema.{spaces} WHERE NAME LIKE 'd/%held%'"
        );
        let (held, space) = (first.value(held)?, first.value(&space)?);
        anyhow::bail!(
            "{cached} pages are cached, {with_pool} with those of the pool: in the pool {held:?}, space {space:?}"
        );
    }
    first.sql("SET GLOBAL bpe_bypass = OFF")?;
    let loaded = sql::figure(second, "warm_pages_loaded")? - loaded;
    ensure!(loaded > 40, "{loaded} more were loaded");
    ensure!(percent(second)? > 90.0, "{} %", percent(second)?);
    needs_rights(place, first)
}

/// The list needs PROCESS on the serving server, and page fingerprints need the privilege for SET GLOBAL there.
fn needs_rights(place: &Place, first: &Server) -> Outcome {
    first.sql("CREATE USER nobody@localhost")?;
    let saved = first.socket().with_file_name("never");
    let save = |more: &[&str]| {
        run(Command::new(env!("CARGO_BIN_EXE_bpe"))
            .args(["warm", "--no-defaults", "--user", "nobody", "--save"])
            .arg(&saved)
            .arg("--from")
            .arg(first.socket())
            .args(more))
    };
    let process = "GRANT PROCESS ON *.* TO 'nobody'@'localhost'";
    for more in [&[][..], &["--pool"], &["--by-name"]] {
        expect(
            save(more)?,
            1,
            &["--from", "lacks the PROCESS privilege", process],
        )?;
    }
    first.sql(process)?;
    let right = match place.is_mysql() {
        true => "SYSTEM_VARIABLES_ADMIN",
        false => "SUPER",
    };
    let grant = format!("GRANT {right} ON *.* TO 'nobody'@'localhost'");
    expect(
        save(&[])?,
        1,
        &["--from", "the right to SET GLOBAL", &grant],
    )?;
    ensure!(!saved.exists());
    // Whole tables are loaded without a comparison.
    expect(save(&["--by-name"])?, 0, &["Saved"])?;
    ensure!(!std::fs::read_to_string(&saved)?.contains("\"prints\":[{"));
    first.sql(&grant)?;
    expect(save(&[])?, 0, &["Saved"])?;
    let text = std::fs::read_to_string(&saved)?;
    ensure!(text.contains("\"prints\":[{") && text.contains("\"secret\":\""));
    first.sql("DROP USER nobody@localhost")?;
    Ok(())
}

/// The same table, filled by other statements, as on a replica loaded from a dump.
fn what_is_no_copy_is_told(place: &Place) -> Outcome {
    let other = place.root().join("other");
    let status = Command::new("cp")
        .arg("-a")
        .arg(place.data())
        .arg(&other)
        .status()?;
    ensure!(status.success(), "cp ended with {status}");
    let first = source(place)?;
    std::fs::rename(&other, data(place, 2))?;
    let _ = std::fs::remove_file(data(place, 2).join("auto.cnf"));
    let second = place.start(options(place, 2)?)?;
    sql::expect_state(&second, "active")?;
    second.sql(CREATE_FUNCTION)?;
    let mut connection = second.connect()?;
    sql::fill(&mut connection, "d.before", 300, 2000, "")?;
    sql::fill(&mut connection, "d.t", ROWS, 1500, "")?;
    let loaded = sql::figure(&second, "warm_pages_loaded")?;
    let told = warm(&first, &second, &["--io-capacity", "5000"])?;
    expect(told, 1, &["no physical copy", "--by-name"])?;
    ensure!(sql::figure(&second, "warm_pages_loaded")? == loaded);
    // A new cache is empty, unless dirty pages are written in the meantime.
    sql::write_dirty_pages(&second)?;
    cache_made_anew(&second, 80 << 20)?;
    let told = warm(&first, &second, &["--io-capacity", "5000", "--by-name"])?;
    let told = expect(told, 0, &["Loaded", "Warm"])?;
    note(told.lines().collect::<Vec<_>>().join("; "));
    ensure!(
        sql::figure(&second, "warm_pages_loaded")? > loaded + 400,
        "{told}"
    );
    let mut compared = Compared::default();
    compare_cached(&second, &mut compared)?;
    ensure!(
        compared.wrong == 0 && compared.compared > 400,
        "{compared:?}"
    );
    // A server that cannot be reached, or whose extension is off.
    second.sql("SET GLOBAL bpe_enabled = OFF")?;
    let told = warm(&second, &first, &[])?;
    expect(told, 1, &["--from", "the extension is disabled"])?;
    second.stop()?;
    let nobody = first.socket().with_file_name("nobody.sock");
    let told = run(command(&[])
        .arg("--from")
        .arg(nobody)
        .arg("--to")
        .arg(first.socket()))?;
    expect(told, 3, &["--from"])?;
    first.stop()?;
    Ok(())
}

/// A smaller cache takes the hottest pages, pages beyond the end of a file are skipped, and the command reports servers that
/// die. No page is wrong after any of it.
fn ends_that_differ_or_die(place: &Place) -> Outcome {
    let first = source(place)?;
    copies::of_running(place, &first, &data(place, 1), &data(place, 2))?;
    let second = place.start(with_cache(place, 2, SMALL)?)?;
    sql::expect_state(&second, "active")?;
    let recovered = sql::figure(&second, "pages_cached")?;
    let cut = warm(&first, &second, &["--io-capacity", "5000"])?;
    let cut = expect(cut, 0, &["Cut ", "the hottest are loaded"])?;
    note(cut.lines().collect::<Vec<_>>().join("; "));
    let loaded = sql::figure(&second, "warm_pages_loaded")?;
    ensure!(
        loaded > 0 && loaded + recovered > 400,
        "{loaded} loaded, {recovered} cached before"
    );
    is_right(&second)?;
    second.stop()?;

    // The first server's file grows, the second one's does not.
    let second = place.start(options(place, 2)?)?;
    sql::expect_state(&second, "active")?;
    let mut connection = first.connect()?;
    sql::insert(&mut connection, "d.t", ROWS + 1, ROWS + 4000, 2000)?;
    sql::read_all(&mut connection, "d.t", ROWS + 4000)?;
    let longer = warm(&first, &second, &["--io-capacity", "5000", "--pool"])?;
    let longer = expect(longer, 0, &["Skipped ", "beyond the end of their files"])?;
    note(longer.lines().collect::<Vec<_>>().join("; "));
    is_right(&second)?;

    // The command dies. The server loads the list to its end.
    cache_made_anew(&second, 80 << 20)?;
    let mut killed = begin(&first, &second, &["--io-capacity", "1"])?;
    loads_by(&mut killed, &second)?;
    killed.kill()?;
    killed.wait()?;
    ensure!(is_loading(&second)?, "it ended with its command");
    second.sql("SET GLOBAL bpe_warm_io_capacity = 5000")?;
    sql::wait_until("it is loaded", Duration::from_secs(60), || {
        Ok(sql::status(&second, "warm_state")? == "loaded")
    })?;
    is_right(&second)?;

    // The server that is being loaded dies.
    cache_made_anew(&second, 84 << 20)?;
    let mut slow = begin(&first, &second, &["--io-capacity", "1"])?;
    loads_by(&mut slow, &second)?;
    second.kill();
    let output = slow.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && said.contains("--to"),
        "{:?}: {said}",
        output.status
    );

    // The source dies. The list was transferred before, and is loaded.
    std::fs::remove_dir_all(place.root().join("cache-2"))?;
    let second = place.start(options(place, 2)?)?;
    sql::expect_state(&second, "active")?;
    let before = sql::figure(&second, "warm_pages_loaded")?;
    let mut follower = begin(
        &first,
        &second,
        &["--io-capacity", "5", "--follow", "--every", "5"],
    )?;
    let done = loads(&second).and_then(|()| {
        first.kill();
        second.sql("SET GLOBAL bpe_warm_io_capacity = 5000")?;
        sql::wait_until("it is loaded", Duration::from_secs(60), || {
            Ok(sql::status(&second, "warm_state")? == "loaded")
        })
    });
    // The command goes on, and reports the failure after a round.
    std::thread::sleep(Duration::from_secs(15));
    let goes_on = follower.try_wait()?.is_none();
    follower.kill()?;
    let output = follower.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    done.with_context(|| said.clone())?;
    ensure!(goes_on && said.contains("it is tried again"), "{said}");
    ensure!(sql::figure(&second, "warm_pages_loaded")? > before);
    is_right(&second)?;
    second.stop()?;
    Ok(())
}

/// A replica whose applier is blocked needs its disk to catch up: loading gets a tenth until then. The blocking lock blocks
/// nothing else, although MySQL has not opened that table yet.
fn a_standby_that_falls_behind(place: &Place) -> Outcome {
    let pause = |seconds| std::thread::sleep(Duration::from_secs(seconds));
    let nodes = [1, 2].map(|number| Node {
        place,
        number,
        rules: None,
    });
    let first = first_primary(&nodes[0])?;
    let mut connection = first.connect()?;
    sql::fill(&mut connection, "d.held", 10, 2000, "")?;
    sql::fill(&mut connection, "d.t", ROWS, 2000, "")?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    let second = nodes[1].join(&first, &nodes[0])?;
    catch_up(&second, &first)?;

    let mut holder = second.connect()?;
    holder.query_drop("LOCK TABLES d.held WRITE")?;
    sql::insert(&mut connection, "d.held", 11, 12, 2000)?;
    pause(3);
    let mut warming = begin(&first, &second, &["--io-capacity", "4"])?;
    loads(&second)?;
    // The command checks every two seconds, and needs more than one check.
    pause(7);
    let before = sql::summary_figure(&second, "/warm/reads")?;
    pause(10);
    let slowed = sql::summary_figure(&second, "/warm/reads")? - before;
    ensure!(
        slowed <= 12 && sql::status(&second, "warm_state")? != "loaded",
        "{slowed} reads in 10 s, after {before}"
    );
    holder.query_drop("UNLOCK TABLES")?;
    catch_up(&second, &first)?;
    sql::wait_until("all is loaded", Duration::from_secs(120), || {
        Ok(warming.try_wait()?.is_some())
    })?;
    let output = warming.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success() && said.contains("slowed down: the server falls behind"),
        "{}: {said}",
        output.status
    );
    ensure!(percent(&second)? >= 95.0, "{} %", percent(&second)?);
    note(format!("{slowed} reads of 40 in 10 s while it was behind"));
    is_right(&second)?;
    second.stop()?;
    first.stop()?;
    Ok(())
}

fn begin(from: &Server, to: &Server, arguments: &[&str]) -> anyhow::Result<std::process::Child> {
    let mut command = command(arguments);
    command.arg("--from").arg(from.socket());
    command.arg("--to").arg(to.socket());
    command.spawn().context("bpe")
}

/// Sets another size, and waits for an empty cache of that size.
fn cache_made_anew(server: &Server, bytes: u64) -> Outcome {
    server.sql(&format!("SET GLOBAL bpe_size = {bytes}"))?;
    sql::wait_until("the cache was made anew", Duration::from_secs(60), || {
        Ok(sql::figure(server, "pages_cached")? < 100 && sql::status(server, "state")? == "active")
    })
}

/// As [`loads`], while the command runs.
fn loads_by(command: &mut std::process::Child, server: &Server) -> Outcome {
    let before = reads(server)?;
    sql::wait_until("it loads", Duration::from_secs(100), || {
        if let Some(status) = command.try_wait()? {
            let mut said = String::new();
            if let Some(mut pipe) = command.stderr.take() {
                pipe.read_to_string(&mut said)?;
            }
            anyhow::bail!("{status}: {said}");
        }
        Ok(reads(server)? > before)
    })
}

/// Waits for reads of a load that is going on. The state alone does not tell: a load waits up to a minute after a switch.
fn loads(server: &Server) -> Outcome {
    let before = reads(server)?;
    sql::wait_until("it loads", Duration::from_secs(100), || {
        Ok(reads(server)? > before)
    })
}

/// Reads of the data disk that loads have made.
fn reads(server: &Server) -> anyhow::Result<u64> {
    sql::summary_figure(server, "/warm/reads")
}

/// Whether a list is being loaded. A load pauses for a second after the server's own reads exceed half of the limit. At one
/// read per second, a single read does.
fn is_loading(server: &Server) -> anyhow::Result<bool> {
    let state = sql::status(server, "warm_state")?;
    Ok(["loading", "paused"].contains(&state.as_str()))
}

/// All cached pages match the data files.
fn is_right(server: &Server) -> Outcome {
    let mut compared = Compared::default();
    compare_cached(server, &mut compared)?;
    ensure!(
        compared.wrong == 0 && compared.compared > 100,
        "{compared:?}"
    );
    Ok(())
}
