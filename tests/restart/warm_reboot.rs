//! After a clean stop the cache survives a restart of the machine, and only files that are proven unchanged are served from it.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::reboots::Machine;
use integration_tests::taken::{Reads, Taken};
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, note, place, skip_allowed, sql, verification,
};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;
/// Rows of a table besides the ledger's, and their bytes.
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
const CHANGED: &str = "it was changed while the server was down";
const NO_PROOF: &str = "InnoDB has run without the plugin since";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_reboot")
        .each("stopped", stopped)
        .in_turn("killed", killed)
        .each("another_server", another_server)
        .each("another_server_and_times_put_back", times_put_back)
        .with(
            Flavour::MySql97,
            "without_the_fence_it_is_noticed",
            without_the_fence,
        )
        .each("files_replaced", files_replaced)
        .in_turn("an_older_image", an_older_image)
        .each("a_log_elsewhere", a_log_elsewhere)
}

/// Options by which pages of rejected files are not loaded in the background.
fn options(place: &Place, machine: &Machine) -> anyhow::Result<Options> {
    let options = place.early(CACHE)?;
    machine.options(options.option("--bpe-warm-io-capacity=0"))
}

/// A server that has cached its data, including two tables.
fn filled(place: &Place, options: Options) -> anyhow::Result<(Server, Ledger)> {
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    for table in ["written", "rest"] {
        sql::fill(&mut connection, &format!("d.{table}"), ROWS, WIDTH, "")?;
    }
    let ledger = Ledger::small(&server)?;
    for table in ["written", "rest"] {
        sql::read_all(&mut connection, &format!("d.{table}"), ROWS)?;
    }
    ledger.verify(&server)?;
    Ok((server, ledger))
}

/// Every row of the table has this version; returns how its pages were read.
fn read(server: &Server, table: &str, version: u64) -> anyhow::Result<Reads> {
    let name = format!("d.{table}");
    let rows = u64::from(ROWS);
    let sums = sql::read_all(&mut server.connect()?, &name, ROWS)?;
    ensure!(
        sums == (rows * (rows + 1) / 2, rows * version),
        "{name}: sums {sums:?}, expected version {version}"
    );
    Reads::of(server, &name)
}

fn image(place: &Place) -> Option<PathBuf> {
    place.images_in(&place.cache()).pop()
}

fn stop(place: &Place, server: Server) -> Outcome {
    let log = server.log().to_path_buf();
    server.stop()?;
    place.expect_left()?;
    ensure!(image(place).is_some(), "no image is left");
    let text = fs::read_to_string(log)?;
    ensure!(text.contains("will be there after a restart of the machine"));
    Ok(())
}

/// A server started on the previous one's persisted state, with all rows checked.
struct Next {
    server: Server,
    taken: Taken,
    written: Reads,
    rest: Reads,
}

impl Next {
    fn start(
        place: &Place,
        options: Options,
        ledger: &Ledger,
        version: u64,
    ) -> anyhow::Result<Next> {
        let server = place.start(options)?;
        ensure!(image(place).is_none(), "the image can be used again");
        let written = read(&server, "written", version)?;
        let rest = read(&server, "rest", 0)?;
        ledger.verify(&server)?;
        let taken = Taken::by(&server)?;
        note(format!("{written:?}, {rest:?}; {taken:?}"));
        Ok(Next {
            server,
            taken,
            written,
            rest,
        })
    }

    fn expect_warm(self) -> anyhow::Result<Server> {
        self.taken.expect_warm()?;
        ensure!(
            self.written.are_warm() && self.rest.are_warm(),
            "{:?}, {:?}, {:?}",
            self.written,
            self.rest,
            self.taken
        );
        Ok(self.server)
    }

    /// The image proves nothing, and the log has the reason. Its pages are listed, and none is served.
    fn expect_unproven(self, why: &str) -> anyhow::Result<Server> {
        self.taken.expect_nothing_trusted()?;
        ensure!(
            self.taken.pages > 300 && self.written.are_cold() && self.rest.are_cold(),
            "{:?}, {:?}, {:?}",
            self.written,
            self.rest,
            self.taken
        );
        for table in ["d.written", "d.rest"] {
            let reason = self.taken.lost(table);
            // Another inode has no persisted pages.
            ensure!(reason.is_none_or(|reason| reason == NO_PROOF), "{reason:?}");
        }
        let log = fs::read_to_string(self.server.log())?;
        ensure!(log.contains(why), "not in the log: {why}");
        Ok(self.server)
    }
}

/// Reasons in the log.
const RAN: &str = "only listed, and loaded anew: InnoDB has run without it since";
const OTHER_TOKEN: &str =
    "only listed, and loaded anew: the data directory is not as the server's stop has left it";

fn stopped(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (mut server, ledger) = filled(place, options(place, &machine)?)?;
    for _ in 0..3 {
        stop(place, server)?;
        machine.start_anew()?;
        let next = Next::start(place, options(place, &machine)?, &ledger, 0)?;
        server = next.expect_warm()?;
        // Changed pages are cached as well, and must be right afterwards.
        ledger.run(&server, Duration::from_secs(1))?;
    }
    // Stopped, and started twice within the same boot.
    stop(place, server)?;
    let next = Next::start(place, options(place, &machine)?, &ledger, 0)?;
    verification::stop_and_verify(place, next.expect_warm()?, &ledger, place.options())?;
    Ok(())
}

/// A killed server's state is not trusted, nor is an image from before the kill.
fn killed(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (server, ledger) = filled(place, options(place, &machine)?)?;
    stop(place, server)?;
    machine.start_anew()?;
    let server = Next::start(place, options(place, &machine)?, &ledger, 0)?.expect_warm()?;
    ledger.run_and_kill(server, Duration::from_secs(1))?;
    machine.start_anew()?;
    let server = place.start(options(place, &machine)?)?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    Taken::by(&server)?.expect_cold()?;
    server.stop()?;
    Ok(())
}

fn change(place: &Place, options: Options) -> Outcome {
    let server = place.start(options)?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    server.stop()?;
    Ok(())
}

/// A server without the plugin ran in between, before or after the reboot.
fn another_server(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (mut server, ledger) = filled(place, options(place, &machine)?)?;
    for (version, before) in [(1, true), (2, false)] {
        stop(place, server)?;
        if before {
            change(place, place.options())?;
        }
        machine.start_anew()?;
        if !before {
            change(place, place.options())?;
        }
        let next = Next::start(place, options(place, &machine)?, &ledger, version)?;
        server = next.expect_unproven(RAN)?;
    }
    server.stop()?;
    Ok(())
}

/// Times of files as ext4 stores them, by path in the file system.
type Times = BTreeMap<String, Vec<(&'static str, String)>>;

const FIELDS: [&str; 4] = ["ctime", "ctime_extra", "mtime", "mtime_extra"];

fn debugfs(disk: &Path, write: bool, request: &str) -> anyhow::Result<String> {
    let mut command = Command::new("debugfs");
    if write {
        command.arg("-w");
    }
    let output = command.args(["-R", request]).arg(disk).output();
    let output = output.map_err(|error| integration_tests::skip(format!("debugfs: {error}")))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Times of the data files only, not of the log.
fn times(disk: &Path, names: &[String]) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for name in names {
        let text = debugfs(disk, false, &format!("stat \"{name}\""))?;
        let mut of_file = Vec::new();
        // " ctime: 0x6560a4c8:3b2a5c10 -- Fri Nov 24 ..."
        for kind in ["ctime", "mtime"] {
            let line = text
                .lines()
                .find_map(|line| line.trim().strip_prefix(kind)?.strip_prefix(": 0x"));
            let line = line.with_context(|| format!("no {kind} of {name}: {text}"))?;
            let (seconds, extra) = line
                .split_whitespace()
                .next()
                .and_then(|word| word.split_once(':'))
                .context("no fraction")?;
            let at = FIELDS.iter().position(|field| *field == kind);
            let at = at.context("a field")?;
            of_file.push((FIELDS[at], format!("0x{seconds}")));
            of_file.push((FIELDS[at + 1], format!("0x{extra}")));
        }
        times.insert(name.clone(), of_file);
    }
    Ok(times)
}

/// The host loses power. Pages of the other server's run were written, but not the times of the data files. Only the log, which
/// is flushed first, shows that run.
fn lose_power(place: &Place, without: Option<&str>) -> Outcome {
    let machine = Machine::new(place)?;
    let mut mount = Mount::image(&place.root().join("disk"), 768 << 20)?;
    let disk = mount.path().with_extension("image");
    let data = mount.path().join("data");
    place::copy_folder(&place.data(), &data)?;
    let plain = || place.options_of(&data.display().to_string(), "run");
    let options = || -> anyhow::Result<Options> {
        let options = match without {
            Some(rule) => place::leaving_out(plain(), &place.cache(), CACHE, rule)?,
            None => place::extended(plain(), place.library()?, &place.cache(), CACHE),
        };
        machine.options(options.option("--bpe-warm-io-capacity=0"))
    };
    let (server, ledger) = filled(place, options()?)?;
    // Makes room in the file first: growth alone would reveal the change.
    for step in ["+", "-"] {
        server.sql(&format!("UPDATE d.written SET v = v {step} 1"))?;
    }
    server.stop()?;
    let server = place.start(options()?)?;
    read(&server, "written", 0)?;
    read(&server, "rest", 0)?;
    let length = || anyhow::Ok(fs::metadata(data.join("d/written.ibd"))?.len());
    stop(place, server)?;
    let names: Vec<String> = ["written", "rest"]
        .iter()
        .map(|table| format!("/data/d/{table}.ibd"))
        .collect();
    // The device gets another number as well.
    mount.mount_elsewhere()?;
    machine.start_anew()?;
    // Without other events it is warm.
    let server = Next::start(place, options()?, &ledger, 0)?.expect_warm()?;
    stop(place, server)?;
    mount.mount_anew()?;
    let (before, long) = (times(&disk, &names)?, length()?);
    change(place, plain())?;
    ensure!(length()? == long, "the file has grown");
    mount.unmounted(|| {
        ensure!(times(&disk, &names)? != before, "nothing was changed");
        for (name, fields) in &before {
            for (field, value) in fields {
                debugfs(
                    &disk,
                    true,
                    &format!("set_inode_field \"{name}\" {field} {value}"),
                )?;
            }
        }
        ensure!(times(&disk, &names)? == before, "times were not put back");
        Ok(())
    })?;
    machine.start_anew()?;
    let server = Next::start(place, options()?, &ledger, 1)?.expect_unproven(RAN)?;
    server.stop()?;
    Ok(())
}

fn times_put_back(place: &Place) -> Outcome {
    lose_power(place, None)
}

/// With a canary that ignores the log, former rows are served.
fn without_the_fence(place: &Place) -> Outcome {
    let error = lose_power(place, Some("fence"));
    let error = error.err().context("nothing was wrong without the fence")?;
    let text = format!("{:#}", error.root_cause());
    note(format!("noticed: {text}"));
    if text.contains("trusted: ") && text.contains(r#"("./d/written.ibd", "it was changed"#) {
        // The times at the close differed from those on the disk, so the power loss took nothing.
        return Err(skip_allowed("its times could not be put back as they were"));
    }
    ensure!(text.contains("d.written"), "{error:#}");
    Ok(())
}

/// Overwrites a file with the contents of another, and restores its modification time as far as possible.
fn write_over(from: &Path, to: &Path) -> Outcome {
    let before = fs::metadata(to)?;
    let mut target = File::options().write(true).truncate(true).open(to)?;
    std::io::copy(&mut File::open(from)?, &mut target)?;
    target.set_times(FileTimes::new().set_modified(before.modified()?))?;
    Ok(())
}

/// Replaces one table's file; the log, by a copy in another file; the whole data directory.
fn files_replaced(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (server, ledger) = filled(place, options(place, &machine)?)?;
    server.stop()?;
    let (older, file) = (
        place.root().join("older"),
        place.data().join("d/written.ibd"),
    );
    fs::copy(&file, &older)?;
    let server = place.start(options(place, &machine)?)?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    read(&server, "written", 1)?;
    read(&server, "rest", 0)?;
    stop(place, server)?;
    machine.start_anew()?;
    write_over(&older, &file)?;
    let next = Next::start(place, options(place, &machine)?, &ledger, 0)?;
    next.taken.expect_warm()?;
    let why = next.taken.lost("d.written");
    ensure!(why == Some(CHANGED), "{why:?}");
    ensure!(next.written.are_cold() && next.rest.are_warm());
    stop(place, next.server)?;

    let (log, aside) = (place.data().join(log_name(place)), place.root().join("log"));
    place::copy_folder(&log, &aside)?;
    machine.start_anew()?;
    if log.is_dir() {
        fs::remove_dir_all(&log)?;
    } else {
        fs::remove_file(&log)?;
    }
    place::copy_folder(&aside, &log)?;
    let server = Next::start(place, options(place, &machine)?, &ledger, 0)?.expect_unproven(RAN)?;
    stop(place, server)?;

    let copy = place.root().join("copy");
    place::copy_folder(&place.data(), &copy)?;
    machine.start_anew()?;
    fs::remove_dir_all(place.data())?;
    fs::rename(&copy, place.data())?;
    let server = Next::start(place, options(place, &machine)?, &ledger, 0)?.expect_unproven(RAN)?;
    server.stop()?;
    Ok(())
}

fn log_name(place: &Place) -> &'static str {
    if place.is_mysql() {
        "#innodb_redo"
    } else {
        "ib_logfile0"
    }
}

/// A kept image is put back after the server has run.
fn an_older_image(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (mut server, ledger) = filled(place, options(place, &machine)?)?;
    let kept = place.root().join("kept");
    for version in [1, 2] {
        stop(place, server)?;
        let path = image(place).context("an image")?;
        place::copy_folder(&path, &kept)?;
        machine.start_anew()?;
        let next = Next::start(place, options(place, &machine)?, &ledger, version - 1)?;
        server = next.server;
        server.sql("UPDATE d.written SET v = v + 1")?;
        read(&server, "written", version)?;
        if version == 1 {
            stop(place, server)?;
        } else {
            server.kill();
        }
        machine.start_anew()?;
        fs::rename(&kept, &path)?;
        let next = Next::start(place, options(place, &machine)?, &ledger, version)?;
        server = next.expect_unproven(OTHER_TOKEN)?;
    }
    server.stop()?;
    Ok(())
}

/// A log in a separate directory is found again. If the server then uses an equal log at another place, nothing is trusted.
fn a_log_elsewhere(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let folder = place.root().join("redo");
    fs::create_dir(&folder)?;
    let (name, there) = (log_name(place), folder.join(log_name(place)));
    fs::rename(place.data().join(name), &there)?;
    let elsewhere = || -> anyhow::Result<Options> {
        let option = format!("--innodb-log-group-home-dir={}", folder.display());
        Ok(options(place, &machine)?.option(option))
    };
    let (server, ledger) = filled(place, elsewhere()?)?;
    stop(place, server)?;
    machine.start_anew()?;
    let server = Next::start(place, elsewhere()?, &ledger, 0)?.expect_warm()?;
    stop(place, server)?;
    machine.start_anew()?;
    place::copy_folder(&there, &place.data().join(name))?;
    let next = Next::start(place, options(place, &machine)?, &ledger, 0)?;
    ensure!(next.taken.files == 0, "{:?}", next.taken);
    ensure!(next.written.are_cold() && next.rest.are_cold());
    let log = fs::read_to_string(next.server.log())?;
    ensure!(log.contains("has its redo log elsewhere now"));
    next.server.stop()?;
    Ok(())
}
