//! Mistakes of an administrator cause a clear SQL error, and lose nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::{
    Flavour, Outcome, Place, Server, Suite, altered, note, place, skip, sql, trace,
};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("bad_input")
        .each("nothing_set", nothing_set)
        .in_turn("path_missing", path_missing)
        .in_turn("path_not_writable", path_not_writable)
        .with(
            Flavour::MariaDb1011,
            "path_of_another_user",
            path_of_another_user,
        )
        .with(
            Flavour::MariaDb1011,
            "any_user_of_group_0",
            any_user_of_group_0,
        )
        .in_turn("directory_without_room", directory_without_room)
        .in_turn("links", links)
        .in_turn("files_that_are_not_ours", files_that_are_not_ours)
        .in_turn("two_servers", two_servers)
        .each("on_the_data_disk", on_the_data_disk)
        .in_turn("without_direct_io", without_direct_io)
        .each("sizes", sizes)
        .each("values", values)
        .each("options_of_before", options_of_before)
        .each("install_twice", install_twice)
        .each("uninstall_under_load", uninstall_under_load)
        .in_turn("bad_path_at_the_start", bad_path_at_the_start)
        .in_turn("no_room_at_the_start", no_room_at_the_start)
        .with(Flavour::MariaDb1011, "imports_missing", imports_missing)
}

/// A server with the plugin installed and nothing configured.
fn installed(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    Ok(server)
}

fn set_path(path: &Path) -> String {
    format!("SET GLOBAL bpe_path = '{}'", path.display())
}

/// Sets path and size, which may be refused, and enables, which must be refused if both were accepted. Returns the messages,
/// which must contain each of `words`.
fn refused(server: &Server, path: &Path, size: u64, words: &[&str]) -> anyhow::Result<String> {
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    let mut said = String::new();
    let mut connection = server.connect()?;
    use integration_tests::mysql::prelude::Queryable;
    let statements = [
        set_path(path),
        format!("SET GLOBAL bpe_size = {size}"),
        "SET GLOBAL bpe_enabled = ON".into(),
    ];
    for statement in &statements {
        if let Err(error) = connection.query_drop(statement) {
            said = error.to_string();
            break;
        }
    }
    ensure!(
        !said.is_empty(),
        "{} with {size} bytes is accepted",
        path.display()
    );
    for word in words {
        ensure!(
            said.to_lowercase().contains(&word.to_lowercase()),
            "the message does not say '{word}': {said}"
        );
    }
    sql::expect_state(server, "disabled")?;
    ensure!(server.value("SELECT @@GLOBAL.bpe_enabled")?.as_deref() == Some("0"));
    Ok(said)
}

/// After all refusals, valid values work.
fn then_it_works(place: &Place, server: &Server) -> Outcome {
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql(&set_path(&place.cache()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(server, "active")
}

fn nothing_set(place: &Place) -> Outcome {
    let server = installed(place)?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(
        said.contains("bpe_size") || said.contains("bpe_path"),
        "{said}"
    );
    server.sql(&set_path(&place.cache()))?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("bpe_size"), "{said}");
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_path = ''")?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("bpe_path"), "{said}");
    then_it_works(place, &server)?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_path = ''")?;
    ensure!(said.contains("bpe_path"), "{said}");
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}

fn path_missing(place: &Place) -> Outcome {
    let server = installed(place)?;
    for path in ["missing/file", "missing/"] {
        refused(&server, &place.root().join(path), CACHE, &["missing"])?;
    }
    // One of two is missing: neither is used.
    let both = PathBuf::from(format!(
        "{}:{}",
        place.cache().display(),
        place.root().join("missing/file").display()
    ));
    refused(&server, &both, CACHE, &["missing"])?;
    ensure!(place.cache_files().is_empty(), "{:?}", place.cache_files());
    ensure!(!place.root().join("missing").exists());
    // While on, a bad path is refused and the good one stays.
    then_it_works(place, &server)?;
    let said = sql::refusal(&server, &set_path(&place.root().join("missing/file")))?;
    ensure!(said.contains("missing"), "{said}");
    sql::expect_state(&server, "active")?;
    let path = server.value("SELECT @@GLOBAL.bpe_path")?;
    ensure!(
        path == Some(place.cache().display().to_string()),
        "{path:?}"
    );
    server.stop()?;
    Ok(())
}

fn path_not_writable(place: &Place) -> Outcome {
    let server = installed(place)?;
    // A path that even root cannot write to.
    let mount = Mount::memory(&place.root().join("read-only"), 256 << 20)?;
    mount.set_read_only(true)?;
    let said = refused(&server, mount.path(), CACHE, &["read-only"])?;
    ensure!(
        said.to_lowercase().contains("read-only file system"),
        "{said}"
    );
    mount.set_read_only(false)?;
    std::fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o777))?;
    refused(&server, mount.path(), CACHE, &["every user"])?;
    refused(&server, Path::new("/dev/null"), CACHE, &["/dev/null"])?;
    refused(&server, Path::new("/proc"), CACHE, &["/proc"])?;
    then_it_works(place, &server)?;
    server.stop()?;
    Ok(())
}

fn path_of_another_user(_: &Place) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(skip("starting a server as another user needs root"));
    }
    let place = Place::readable_by("nobody", Flavour::MariaDb1011)?;
    let server = place.start(place.installable()?.user("nobody"))?;
    server.sql(place.install_statement())?;
    let folder = place.root().join("roots");
    std::fs::create_dir(&folder)?;
    refused(&server, &folder, CACHE, &["permission denied"])?;
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
    refused(&server, &folder, CACHE, &["permission denied"])?;
    // A file of root's in a directory of the server's.
    let file = place.cache().join("roots.cache");
    std::fs::write(&file, "")?;
    refused(&server, &file, CACHE, &["roots.cache"])?;
    ensure!(std::fs::metadata(&file)?.len() == 0);
    std::fs::remove_file(&file)?;
    then_it_works(&place, &server)?;
    server.stop()?;
    Ok(())
}

/// As OpenShift runs containers: the user id has no account, and only group 0 owns anything.
fn any_user_of_group_0(place: &Place) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(skip("starting a server as another user needs root"));
    }
    let place = Place::readable_by("root", place.installation.flavour)?;
    // Directories that the server would create exist beforehand, as in an image.
    std::fs::create_dir_all(place.root().join("run/tmp"))?;
    let owned = [place.root(), place.memory()];
    let share = |folder: &Path| {
        let status = std::process::Command::new("chmod")
            .args(["-R", "g=u"])
            .arg(folder)
            .status()?;
        ensure!(status.success(), "chmod ended with {status}");
        anyhow::Ok(())
    };
    owned.into_iter().try_for_each(share)?;
    let options = || {
        let options = place.early(CACHE)?;
        anyhow::Ok(options.wrapper(&["setpriv", "--reuid=1001", "--regid=0", "--clear-groups"]))
    };
    // The cache's directory belongs to another user alone.
    let set_mode = |mode| {
        std::fs::set_permissions(place.cache(), std::fs::Permissions::from_mode(mode))
            .context("the cache's directory")
    };
    set_mode(0o700)?;
    let server = place.start(options()?)?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    ensure!(status.contains("\nUid:\t1001\t1001\t1001"), "{status}");
    sql::expect_state(&server, "failed")?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.contains("Permission denied"), "{reason}");
    server.sql("SELECT COUNT(*) FROM mysql.user")?;
    server.stop()?;
    // The group may use it as well.
    set_mode(0o770)?;
    let server = place.start(options()?)?;
    sql::expect_state(&server, "active")?;
    let ledger = Ledger::small(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.verify(&server)?;
    server.kill();
    let server = place.start(options()?)?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    let kept = sql::figure(&server, "pages_inherited")?;
    note(format!("{kept} pages kept; refused before: {reason}"));
    ensure!(kept > 0, "nothing was kept");
    server.stop()?;
    Ok(())
}

fn directory_without_room(place: &Place) -> Outcome {
    let server = installed(place)?;
    let mount = Mount::image(&place.root().join("small"), 160 << 20)?;
    refused(&server, mount.path(), 1 << 30, &["free"])?;
    ensure!(
        place::files_in(mount.path()).is_empty(),
        "left: {:?}",
        place::files_in(mount.path())
    );
    // The first size fits, the next one does not.
    server.sql(&set_path(mount.path()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {}", 48 << 20))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let said = sql::refusal(&server, &format!("SET GLOBAL bpe_size = {}", 10u64 << 30))?;
    ensure!(said.contains("free"), "{said}");
    sql::expect_state(&server, "active")?;
    server.stop()?;
    ensure!(
        place::cache_files_in(mount.path()).len() == 1,
        "left: {:?}",
        place::cache_files_in(mount.path())
    );
    Ok(())
}

fn links(place: &Place) -> Outcome {
    let server = installed(place)?;
    let target = place.root().join("precious");
    std::fs::write(&target, "precious")?;
    let link = place.root().join("link.cache");
    symlink(&target, &link)?;
    refused(&server, &link, CACHE, &["link.cache"])?;
    let dangling = place.root().join("dangling.cache");
    symlink(place.root().join("nowhere"), &dangling)?;
    refused(&server, &dangling, CACHE, &["dangling.cache"])?;
    ensure!(
        !place.root().join("nowhere").exists(),
        "a link was followed"
    );
    let hard = place.cache().join("hard.cache");
    std::fs::hard_link(&target, &hard)?;
    refused(&server, &hard, CACHE, &["hard.cache"])?;
    std::fs::remove_file(&hard)?;

    // A symbolic link under the name that the server itself would choose.
    then_it_works(place, &server)?;
    let own = place
        .cache_files()
        .first()
        .cloned()
        .context("no cache file")?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(!own.exists())
    })?;
    symlink(&target, &own)?;
    refused(&server, &place.cache(), CACHE, &["link"])?;
    ensure!(
        std::fs::read(&target)? == b"precious",
        "the link's target was changed"
    );
    std::fs::remove_file(&own)?;
    then_it_works(place, &server)?;
    server.stop()?;
    Ok(())
}

fn files_that_are_not_ours(place: &Place) -> Outcome {
    let server = installed(place)?;
    let file = place.cache().join("notes.txt");
    std::fs::write(&file, "not a cache file".repeat(1000))?;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
    refused(&server, &file, CACHE, &["notes.txt", "not a cache file"])?;
    ensure!(
        std::fs::metadata(&file)?.len() == 16_000,
        "a file that is not ours was changed"
    );
    // An empty file may have been created for the server, but must not be readable by all.
    let empty = place.cache().join("empty.cache");
    std::fs::write(&empty, "")?;
    std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o644))?;
    refused(&server, &empty, CACHE, &["empty.cache"])?;
    std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o600))?;
    server.sql(&set_path(&empty))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    ensure!(std::fs::metadata(&empty)?.mode() & 0o7777 == 0o600);
    server.stop()?;
    // One of the server's own data files.
    let server = place.start(place.installable()?)?;
    let before = std::fs::metadata(place.data().join("ibdata1"))?;
    refused(&server, &place.data().join("ibdata1"), CACHE, &["ibdata1"])?;
    let after = std::fs::metadata(place.data().join("ibdata1"))?;
    ensure!(before.ino() == after.ino() && before.len() == after.len());
    server.stop()?;
    let server = place.start(place.options())?;
    server.stop()?;
    Ok(())
}

fn two_servers(place: &Place) -> Outcome {
    place::copy_folder(&place.data(), &place.root().join("other"))?;
    let shared = place.cache().join("shared.cache");
    let first = installed(place)?;
    first.sql(&set_path(&shared))?;
    first.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    first.sql("SET GLOBAL bpe_enabled = ON")?;
    let ledger = Ledger::create(&first, 1, 2000, 3000, 4)?;

    let second = place.start(place.options_of("other", "run-other").plugin(
        place.library()?,
        "bpe",
        integration_tests::Load::BySql,
    ))?;
    second.sql(place.install_statement())?;
    ledger.run_while(&first, Duration::from_secs(3), || {
        let said = refused(&second, &shared, CACHE, &["shared.cache"])?;
        ensure!(said.contains("server"), "{said}");
        // A directory can be shared.
        then_it_works(place, &second)?;
        Ok(())
    })?;
    sql::expect_state(&first, "active")?;
    ledger.verify(&first)?;
    ensure!(place.cache_files().len() == 2, "{:?}", place.cache_files());

    // Only the killed server itself may reuse its file, no other server.
    first.kill();
    ensure!(shared.exists());
    refused(&second, &shared, CACHE, &["another server"])?;
    ensure!(shared.exists());
    second.stop()?;
    let first = place.start(place.installable()?)?;
    first.sql(&set_path(&shared))?;
    first.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    first.sql("SET GLOBAL bpe_enabled = ON")?;
    ledger.settle(&first)?;
    ledger.verify(&first)?;
    first.stop()?;
    ensure!(shared.exists(), "gone after the stop");
    Ok(())
}

fn on_the_data_disk(place: &Place) -> Outcome {
    let server = installed(place)?;
    let warnings = sql::warnings(&server, &set_path(&place.cache()))?;
    let text = warnings.join("; ");
    ensure!(
        text.contains("same file system"),
        "warnings on SET bpe_path: {warnings:?}"
    );
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    let warnings = sql::warnings(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(
        warnings.join("; ").contains("same file system"),
        "warnings on SET bpe_enabled: {warnings:?}"
    );
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.contains("same file system"), "nothing in the error log");
    server.stop()?;
    Ok(())
}

/// In memory: it works, and warns where the kernel has no O_DIRECT there (it has from 6.6 on).
fn without_direct_io(place: &Place) -> Outcome {
    let memory = Mount::memory(&place.root().join("memory"), 256 << 20)?;
    let server = installed(place)?;
    let mut said = sql::warnings(&server, &set_path(memory.path()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    said.extend(sql::warnings(&server, "SET GLOBAL bpe_enabled = ON")?);
    server.sql(trace::CREATE_FUNCTION)?;
    let devices = server
        .value("SELECT bpe_report('devices')")?
        .unwrap_or_default();
    let warned = said.iter().any(|text| text.contains("O_DIRECT"));
    let direct = devices.contains("\"direct_io\":true");
    ensure!(warned != direct, "warnings {said:?}, but {devices}");
    note(if warned {
        "warned"
    } else {
        "this kernel has O_DIRECT in memory: no warning"
    });
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run_until_above(&server, Duration::from_secs(4), "hits", 100)?;
    ledger.verify(&server)?;
    server.stop()?;
    ensure!(place::cache_files_in(memory.path()).len() == 1);
    Ok(())
}

fn sizes(place: &Place) -> Outcome {
    let server = installed(place)?;
    refused(&server, &place.cache(), 0, &["bpe_size"])?;
    refused(&server, &place.cache(), 1, &["small"])?;
    refused(&server, &place.cache(), 1 << 20, &["bytes"])?;
    refused(&server, &place.cache(), 1 << 50, &["free"])?;
    refused(&server, &place.cache(), u64::MAX, &["bytes"])?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_size = -1")?;
    ensure!(said.contains("bpe_size"), "{said}");
    sql::refusal(&server, "SET GLOBAL bpe_size = 'much'")?;
    sql::refusal(&server, "SET GLOBAL bpe_size = NULL")?;
    ensure!(place.cache_files().is_empty(), "{:?}", place.cache_files());
    then_it_works(place, &server)?;
    for size in [1u64 << 20, 1 << 50] {
        sql::refusal(&server, &format!("SET GLOBAL bpe_size = {size}"))?;
        sql::expect_state(&server, "active")?;
        ensure!(sql::number(&server, "SELECT @@GLOBAL.bpe_size")? == CACHE);
    }
    // A memory limit that is too low for the size.
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql("SET GLOBAL bpe_memory_limit = 100000")?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("memory"), "{said}");
    server.sql("SET GLOBAL bpe_memory_limit = 0")?;
    then_it_works(place, &server)?;
    server.stop()?;
    Ok(())
}

/// An option file sets every removed variable. The server starts, with one warning for each.
fn options_of_before(place: &Place) -> Outcome {
    const REMOVED: [&str; 8] = [
        "admission=density",
        "keep=60",
        "scrub-rate=64",
        "control-group=ON",
        "read-timeout=500",
        "diagnostics-key=0123456789abcdef",
        "async-io=native",
        "persist=restart",
    ];
    let mut options = place.early(CACHE)?;
    for one in REMOVED {
        options = options.option(format!("--loose-bpe-{one}"));
    }
    let server = place.start(options)?;
    sql::expect_state(&server, "active")?;
    let log = std::fs::read_to_string(server.log())?;
    for one in REMOVED {
        // MariaDB takes the last one for a prefix of `bpe_persist_path`.
        let named = [format!("loose-bpe-{one}"), format!("bpe_{one} is set")];
        let of_it = |line: &&str| named.iter().any(|named| line.contains(named));
        let lines: Vec<&str> = log.lines().filter(of_it).collect();
        ensure!(
            lines.len() == 1 && lines[0].contains("[Warning]"),
            "{one}: {lines:?}"
        );
    }
    server.stop()?;
    Ok(())
}

fn values(place: &Place) -> Outcome {
    let server = installed(place)?;
    for statement in [
        "SET GLOBAL bpe_enabled = 'perhaps'",
        "SET GLOBAL bpe_enabled = 7",
        "SET GLOBAL bpe_compression = 'zip'",
        "SET GLOBAL bpe_instances = 'many'",
        "SET SESSION bpe_enabled = ON",
    ] {
        sql::refusal(&server, statement)?;
    }
    // Values out of range are clamped, as the servers do.
    server.sql("SET GLOBAL bpe_instances = 1000")?;
    let instances = sql::number(&server, "SELECT @@GLOBAL.bpe_instances")?;
    ensure!(instances == 64, "{instances}");
    server.sql("SET GLOBAL bpe_instances = DEFAULT")?;
    ensure!(sql::number(&server, "SELECT @@GLOBAL.bpe_instances")? == 0);
    let long = format!("SET GLOBAL bpe_path = '/{}'", "x".repeat(5000));
    sql::refusal(&server, &long)?;
    then_it_works(place, &server)?;
    // Neither server checks DEFAULT. The cache stays, and the variables keep their values.
    for name in ["bpe_path", "bpe_size"] {
        let query = format!("SELECT @@GLOBAL.{name}");
        let before = server.value(&query)?;
        server.sql(&format!("SET GLOBAL {name} = DEFAULT"))?;
        ensure!(server.value(&query)? == before, "{name} lost {before:?}");
    }
    std::thread::sleep(std::time::Duration::from_secs(2));
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}

fn install_twice(place: &Place) -> Outcome {
    let by_name = "INSTALL PLUGIN bpe SONAME 'bpe.so'";
    let server = installed(place)?;
    sql::refusal(&server, by_name)?;
    then_it_works(place, &server)?;
    sql::refusal(&server, by_name)?;
    if !place.is_mysql() {
        // MariaDB accepts the repeated statement without an error.
        server.sql(place.install_statement())?;
    }
    sql::expect_state(&server, "active")?;
    server.stop()?;

    // From the command line and by SQL.
    let place = Place::new(place.installation.flavour)?;
    let server = place.start(place.early(CACHE)?)?;
    sql::refusal(&server, by_name)?;
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}

fn uninstall_under_load(place: &Place) -> Outcome {
    let server = installed(place)?;
    then_it_works(place, &server)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 6)?.paced();
    let mut rounds = 0;
    ledger.run_while(&server, Duration::from_secs(12), || {
        let until = std::time::Instant::now() + Duration::from_secs(9);
        while std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(700));
            server.sql(place.uninstall_statement())?;
            ensure!(server.status("bpe%")?.is_empty(), "status after UNINSTALL");
            std::thread::sleep(Duration::from_millis(300));
            server.sql(place.install_statement())?;
            then_it_works(place, &server)?;
            rounds += 1;
        }
        Ok(())
    })?;
    note(format!(
        "uninstalled and installed {rounds} times under load"
    ));
    ensure!(rounds >= 2, "only {rounds} rounds");
    sql::expect_state(&server, "active")?;
    ledger.verify(&server)?;
    server.sql(place.uninstall_statement())?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty())
    })?;
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

/// The server starts anyway and reports the reason; the extension starts once the directory exists.
fn bad_path_at_the_start(place: &Place) -> Outcome {
    let folder = place.root().join("later");
    let server = place.start(
        place
            .options()
            .plugin(place.library()?, "bpe", integration_tests::Load::Early)
            .option(format!("--bpe-path={}/", folder.display()))
            .option(format!("--bpe-size={CACHE}"))
            .option("--bpe-enabled=ON"),
    )?;
    sql::wait_until(
        "the state says what is wrong",
        Duration::from_secs(20),
        || Ok(sql::status(&server, "state")? == "failed"),
    )?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.contains("later"), "reason: {reason}");
    ensure!(sql::figure(&server, "state_number")? == 3);
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.contains("later"), "nothing in the error log");
    std::fs::create_dir(&folder)?;
    sql::wait_until("the extension heals", Duration::from_secs(60), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    ensure!(place::files_in(&folder).len() == 1);
    let ledger = Ledger::create(&server, 1, 4000, 3000, 4)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 0)?;
    server.stop()?;

    // Disabled while it waits for the directory: it stays off.
    std::fs::remove_dir_all(&folder)?;
    let server = place.start(
        place
            .options()
            .plugin(place.library()?, "bpe", integration_tests::Load::Early)
            .option(format!("--bpe-path={}/", folder.display()))
            .option(format!("--bpe-size={CACHE}"))
            .option("--bpe-enabled=ON"),
    )?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    std::fs::create_dir(&folder)?;
    std::thread::sleep(Duration::from_secs(8));
    sql::expect_state(&server, "disabled")?;
    server.stop()?;
    Ok(())
}

fn no_room_at_the_start(place: &Place) -> Outcome {
    let mount = Mount::image(&place.root().join("small"), 160 << 20)?;
    let blocker = mount.path().join("blocker");
    std::fs::write(&blocker, vec![1u8; 80 << 20])?;
    let server = place.start(
        place
            .options()
            .plugin(place.library()?, "bpe", integration_tests::Load::Early)
            .option(format!("--bpe-path={}", mount.path().display()))
            .option(format!("--bpe-size={}", 48 << 20))
            .option("--bpe-enabled=ON"),
    )?;
    sql::wait_until(
        "the state says what is wrong",
        Duration::from_secs(20),
        || Ok(sql::status(&server, "state")? == "failed"),
    )?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.contains("free"), "reason: {reason}");
    std::fs::remove_file(&blocker)?;
    sql::wait_until("the extension heals", Duration::from_secs(60), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    server.stop()?;
    Ok(())
}

/// A server that makes one of its calls without the expected import.
fn imports_missing(place: &Place) -> Outcome {
    // The same call under a name that the plugin does not know.
    let source = "#define _GNU_SOURCE\n#include <unistd.h>\n\
         ssize_t qwrite64(int f, const void *b, size_t n, off_t o) { return pwrite(f, b, n, o); }\n";
    let altered::Renamed { installation, shim } =
        altered::renamed(place, "pwrite64", b'q', source)?;

    let server = installation.start(place.early(CACHE)?.preload(&shim))?;
    sql::expect_state(&server, "passive")?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.contains("pwrite64"), "reason: {reason}");
    ensure!(sql::figure(&server, "state_number")? == 2);
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("pwrite64"), "{said}");
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.contains("pwrite64"), "nothing in the error log");
    let ledger = Ledger::create(&server, 1, 4000, 3000, 4)?;
    ledger.run(&server, Duration::from_secs(2))?;
    ledger.verify(&server)?;
    ensure!(sql::figure(&server, "hits")? == 0);
    ensure!(place.cache_files().is_empty());
    server.stop()?;
    Ok(())
}
