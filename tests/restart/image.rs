//! The cache survives a restart of the host after a clean stop. The server writes an image of the in-memory state at its end.
//! The next server uses it once. A bad disk costs only the image: neither the end nor the start of the server fails.
//!
//! The tests simulate the restart: the server starts with another boot id, and the in-memory state is removed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{Effect, Fault, Operation, Profile};
use integration_tests::harness::skip;
use integration_tests::ledger::Ledger;
use integration_tests::mounts::{self, Mount};
use integration_tests::taken::{self, Reads, Taken};
use integration_tests::{Options, Outcome, Place, Server, Suite, note, place, sql, verification};
use rustix::process::{Pid, Signal, kill_process};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
/// Log message at a stop without an image.
const NOT_LEFT: &str = "will be lost if the machine is restarted now";
const NOT_USED: &str = "what was cached before the machine's restart or the remount is not used";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("image")
        .in_turn("the_machine_restarts", the_machine_restarts)
        .in_turn("damaged", damaged)
        .each("other_runs", other_runs)
        .in_turn("whoever_does_not_use_it", whoever_does_not_use_it)
        .in_turn("a_disk_without_room", a_disk_without_room)
        .in_turn("a_disk_that_fails", a_disk_that_fails)
        .in_turn("a_disk_that_hangs", a_disk_that_hangs)
        .in_turn("killed_at_its_end", killed_at_its_end)
}

/// A host whose boots are numbered.
struct Machine<'a> {
    place: &'a Place,
    boot: u32,
    cache: PathBuf,
}

impl Machine<'_> {
    fn new(place: &Place) -> anyhow::Result<Machine<'_>> {
        Machine::with_cache(place, place.cache())
    }

    fn with_cache(place: &Place, cache: PathBuf) -> anyhow::Result<Machine<'_>> {
        if !rustix::process::geteuid().is_root() {
            return Err(skip("a namespace of mounts needs root"));
        }
        Ok(Machine {
            place,
            boot: 1,
            cache,
        })
    }

    /// Removes the in-memory state and increments the boot number.
    fn restart(&mut self) -> Outcome {
        self.boot += 1;
        for path in self.place.kept() {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn in_this_boot(&self, options: Options) -> anyhow::Result<Options> {
        let file = self.place.root().join("boot_id");
        let digits = format!("{:012}", self.boot);
        fs::write(&file, format!("01234567-89ab-4cde-8123-{digits}\n"))?;
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let file = file.display().to_string();
        Ok(options.wrapper(&["unshare", "--mount", "sh", "-c", script, &file]))
    }

    fn options(&self) -> anyhow::Result<Options> {
        let library = self.place.library()?;
        let options = place::extended(self.place.options(), library, &self.cache, CACHE)
            .option("--bpe-warm-io-capacity=0");
        self.in_this_boot(options)
    }

    fn start(&self) -> anyhow::Result<Server> {
        self.place.start(self.options()?)
    }

    /// A server that has cached its data.
    fn filled(&self) -> anyhow::Result<(Server, Ledger)> {
        let server = self.start()?;
        let mut connection = server.connect()?;
        sql::fill(&mut connection, "d.rest", ROWS, WIDTH, "")?;
        let ledger = Ledger::small(&server)?;
        ledger.run(&server, Duration::from_secs(1))?;
        sql::read_all(&mut connection, "d.rest", ROWS)?;
        ledger.verify(&server)?;
        // So that the writers end in time on a slow disk.
        taken::expect_written(&server)?;
        Ok((server, ledger))
    }

    /// The image for the host's restart.
    fn image(&self) -> anyhow::Result<PathBuf> {
        let (images, others) = (self.place.images_in(&self.cache), self.unfinished());
        ensure!(others.is_empty(), "{others:?}");
        ensure!(images.len() == 1, "{images:?}");
        Ok(images[0].clone())
    }

    fn unfinished(&self) -> Vec<PathBuf> {
        let mut files = place::files_in(&self.cache);
        files.retain(|path| path.extension() == Some("image-new".as_ref()));
        files
    }

    fn expect_no_image(&self) -> Outcome {
        let (images, others) = (self.place.images_in(&self.cache), self.unfinished());
        ensure!(
            images.is_empty() && others.is_empty(),
            "{images:?}, {others:?}"
        );
        Ok(())
    }

    /// The recovered pages, after all rows were read and checked.
    fn taken(&self, server: &Server, ledger: &Ledger) -> anyhow::Result<(Taken, Reads)> {
        let sums = sql::read_all(&mut server.connect()?, "d.rest", ROWS)?;
        let rows = u64::from(ROWS);
        ensure!(sums == (rows * (rows + 1) / 2, 0), "{sums:?}");
        let reads = Reads::of(server, "d.rest")?;
        ledger.settle(server)?;
        ledger.verify(server)?;
        Ok((Taken::by(server)?, reads))
    }

    /// Pages were recovered, and none is trusted.
    fn expect_unproven(&self, server: &Server, ledger: &Ledger, what: &str) -> Outcome {
        let (taken, reads) = self.taken(server, ledger)?;
        taken.expect_nothing_trusted()?;
        ensure!(
            taken.lost("d.rest") == Some("InnoDB has run without the plugin since")
                && reads.are_cold(),
            "{what}: {taken:?}, {reads:?}"
        );
        Ok(())
    }

    /// Nothing was recovered.
    fn expect_cold(&self, server: &Server, ledger: &Ledger, what: &str) -> Outcome {
        let (taken, reads) = self.taken(server, ledger)?;
        ensure!(
            taken.pages == 0 && reads.are_cold(),
            "{what}: {taken:?}, {reads:?}"
        );
        Ok(())
    }
}

fn log_of(log: &Path) -> anyhow::Result<String> {
    Ok(fs::read_to_string(log)?)
}

/// Stops a server, which must end soon without a kill. Returns the log lines since the stop, and its duration.
fn stop(server: Server) -> anyhow::Result<(String, Duration)> {
    let log = server.log().to_path_buf();
    let before = log_of(&log)?.len();
    let began = Instant::now();
    server.stop()?;
    let took = began.elapsed();
    Ok((log_of(&log)?.split_off(before), took))
}

fn the_machine_restarts(place: &Place) -> Outcome {
    let mut machine = Machine::new(place)?;
    let (server, ledger) = machine.filled()?;
    machine.expect_no_image()?;
    let (said, took) = stop(server)?;
    ensure!(said.contains("after a restart of the machine"), "{said}");
    note(format!("stopped in {took:?}"));
    for round in 0..3 {
        machine.image()?;
        place.expect_left()?;
        machine.restart()?;
        let server = machine.start()?;
        machine.expect_no_image()?;
        let (taken, reads) = machine.taken(&server, &ledger)?;
        note(format!("{taken:?}, {reads:?}"));
        ensure!(
            taken.pages > 500 && taken.lost.is_empty() && reads.are_warm(),
            "{taken:?}"
        );
        let log = log_of(server.log())?;
        let recovered = "cached pages of before the machine's restart or the remount";
        ensure!(log.contains(recovered), "{log}");
        let summary = sql::report(&server, "summary")?;
        ensure!(summary["inherited"]["after_restart_of_machine"] == true);
        ledger.run(&server, Duration::from_secs(1))?;
        if round == 1 {
            // A killed server leaves no image for the host's restart.
            server.kill();
            machine.expect_no_image()?;
            let server = machine.start()?;
            let (taken, _) = machine.taken(&server, &ledger)?;
            ensure!(taken.pages > 500, "{taken:?}");
            let summary = sql::report(&server, "summary")?;
            ensure!(summary["inherited"]["after_restart_of_machine"] == false);
            stop(server)?;
        } else {
            stop(server)?;
        }
    }
    // Within the same boot, the in-memory state is used, and the image is discarded.
    machine.image()?;
    let server = machine.start()?;
    machine.expect_no_image()?;
    let (taken, _) = machine.taken(&server, &ledger)?;
    ensure!(taken.pages > 500, "{taken:?}");
    server.kill();
    machine.restart()?;
    let server = machine.start()?;
    machine.expect_cold(&server, &ledger, "killed, and restarted")?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// Each damage costs only the cache.
fn damaged(place: &Place) -> Outcome {
    let mut machine = Machine::new(place)?;
    let (server, ledger) = machine.filled()?;
    let mut server = Some(server);
    type Damage = fn(&Path, &[u8]) -> Outcome;
    let damages: [(&str, Damage); 7] = [
        ("cut off", |path, bytes| {
            File::options()
                .write(true)
                .open(path)?
                .set_len(bytes.len() as u64 / 2)?;
            Ok(())
        }),
        ("empty", |path, _| {
            Ok(File::options().write(true).open(path)?.set_len(0)?)
        }),
        ("one bit", |path, bytes| {
            let file = File::options().write(true).open(path)?;
            let at = bytes.len() / 2;
            Ok(file.write_all_at(&[bytes[at] ^ 4], at as u64)?)
        }),
        ("another version", |path, _| {
            let file = File::options().write(true).open(path)?;
            Ok(file.write_all_at(&9u64.to_ne_bytes(), 8)?)
        }),
        ("a file of somebody", |path, bytes| {
            Ok(fs::write(path, vec![b'x'; bytes.len()])?)
        }),
        ("a link", |path, _| {
            let other = path.with_extension("other");
            fs::rename(path, &other)?;
            Ok(symlink(other, path)?)
        }),
        ("readable by all", |path, _| {
            Ok(fs::set_permissions(
                path,
                fs::Permissions::from_mode(0o644),
            )?)
        }),
    ];
    for (what, damage) in damages {
        stop(server.take().context("a server")?)?;
        let image = machine.image()?;
        damage(&image, &fs::read(&image)?)?;
        machine.restart()?;
        let next = machine.start()?;
        machine.expect_cold(&next, &ledger, what)?;
        let log = log_of(next.log())?;
        ensure!(log.contains(NOT_USED), "{what}: {log}");
        // A foreign file stays, and no image replaces it.
        let stays = ["a file of somebody", "a link", "readable by all"].contains(&what);
        ensure!(fs::symlink_metadata(&image).is_ok() == stays, "{what}");
        if stays {
            let (said, _) = stop(next)?;
            ensure!(said.contains(NOT_LEFT), "{what}: {said}");
            fs::remove_file(&image)?;
            let _ = fs::remove_file(image.with_extension("other"));
            server = Some(machine.start()?);
        } else {
            server = Some(next);
        }
    }
    // The in-memory state was removed within the same boot: the image proves the same.
    stop(server.take().context("a server")?)?;
    for path in place.kept() {
        fs::remove_file(path)?;
    }
    let server = machine.start()?;
    let (taken, reads) = machine.taken(&server, &ledger)?;
    ensure!(
        taken.pages > 500 && taken.lost.is_empty() && reads.are_warm(),
        "{taken:?}"
    );
    machine.expect_no_image()?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// Runs of the server's program for other purposes do not consume the image.
fn other_runs(place: &Place) -> Outcome {
    let mut machine = Machine::new(place)?;
    let (server, ledger) = machine.filled()?;
    stop(server)?;
    machine.restart()?;
    let mut runs: Vec<&[&str]> = vec![
        &["--help", "--verbose"],
        &["--no-such-option"],
        &["--innodb-data-file-path=nonsense"],
    ];
    runs.extend_from_slice(if place.is_mysql() {
        &[&["--validate-config"], &["--initialize-insecure"]]
    } else {
        &[&["--wsrep-recover"], &["--bootstrap"]]
    });
    for arguments in runs {
        let options = arguments
            .iter()
            .fold(machine.options()?, |options, one| options.option(*one));
        let ended = place.start(options).err().context("it runs")?;
        ensure!(ended.to_string().contains("it ended with"), "{ended:#}");
        note(format!(
            "{arguments:?}: {:?}, {:?}",
            place.images_in(&machine.cache),
            place.kept()
        ));
    }
    let server = machine.start()?;
    let (taken, _) = machine.taken(&server, &ledger)?;
    ensure!(taken.pages > 500, "{taken:?}");
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// A server that starts disabled keeps the image, but its run invalidates it as a proof. A server that persists nothing
/// discards it, as does one that is disabled before it stops.
fn whoever_does_not_use_it(place: &Place) -> Outcome {
    let mut machine = Machine::new(place)?;
    let (server, ledger) = machine.filled()?;
    let mut server = Some(server);
    for option in ["--bpe-enabled=OFF", "--bpe-persist-path="] {
        stop(server.take().context("a server")?)?;
        machine.image()?;
        machine.restart()?;
        let off = place.start(machine.options()?.option(option))?;
        let is_left = || match option {
            "--bpe-enabled=OFF" => machine.image().map(|_| ()),
            _ => machine.expect_no_image(),
        };
        is_left().context(option)?;
        ledger.verify(&off)?;
        ledger.run(&off, Duration::from_secs(1))?;
        stop(off)?;
        is_left().context(option)?;
        let next = machine.start()?;
        machine.expect_no_image().context(option)?;
        match option {
            "--bpe-enabled=OFF" => machine.expect_unproven(&next, &ledger, option)?,
            _ => machine.expect_cold(&next, &ledger, option)?,
        }
        server = Some(next);
    }
    // Disabled before the stop.
    let last = server.take().context("a server")?;
    last.sql("SET GLOBAL bpe_enabled = OFF")?;
    let (said, _) = stop(last)?;
    ensure!(!said.contains("after a restart of the machine"), "{said}");
    machine.expect_no_image()?;
    let next = machine.start()?;
    next.sql(place.uninstall_statement())?;
    stop(next)?;
    machine.expect_no_image()
}

/// The disk is full when the image is written; later, no file can be created or removed in its directory.
fn a_disk_without_room(place: &Place) -> Outcome {
    let disk = Mount::image(&place.root().join("small"), CACHE + (160 << 20))?;
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o700))?;
    let mut machine = Machine::with_cache(place, disk.path().to_path_buf())?;
    let (server, ledger) = machine.filled()?;
    let name = disk.path().join("rest");
    let rest = File::create(&name)?;
    let mut length = 1 << 20;
    while length > 0 {
        let end = rest.metadata()?.len();
        if rest.write_all_at(&vec![7; length], end).is_err() {
            length /= 16;
        }
    }
    rest.sync_all()?;
    let (said, _) = stop(server)?;
    ensure!(said.contains(NOT_LEFT), "{said}");
    machine.expect_no_image()?;
    drop(rest);
    fs::remove_file(name)?;
    machine.restart()?;
    let server = machine.start()?;
    machine.expect_cold(&server, &ledger, "no room")?;
    stop(server)?;

    let image = machine.image()?;
    let change = |how: &str| -> Outcome {
        let status = Command::new("chattr").arg(how).arg(disk.path()).status();
        ensure!(status.context("chattr")?.success(), "chattr {how}");
        Ok(())
    };
    change("+i")?;
    machine.restart()?;
    let server = machine.start()?;
    let warm = machine.taken(&server, &ledger);
    let stopped = stop(server);
    change("-i")?;
    let ((taken, _), (said, _)) = (warm?, stopped?);
    ensure!(taken.pages > 500, "{taken:?}");
    ensure!(said.contains(NOT_LEFT), "{said}");
    ensure!(fs::read(&image)?[..8] == [0; 8], "it can be used twice");
    machine.restart()?;
    let server = machine.start()?;
    machine.expect_cold(&server, &ledger, "used already")?;
    machine.expect_no_image()?;
    stop(server)?;
    Ok(())
}

/// Writes of the image fail. At the next start writes to it fail, so that it cannot be invalidated.
fn a_disk_that_fails(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "fast")?;
    fs::set_permissions(disk.mountpoint(), fs::Permissions::from_mode(0o700))?;
    let mut machine = Machine::with_cache(place, disk.mountpoint().to_path_buf())?;
    let (server, ledger) = machine.filled()?;
    let mut server = Some(server);
    for operation in [Operation::Write, Operation::Sync] {
        for suffix in [".image-new", ".cache"] {
            if (operation, suffix) == (Operation::Write, ".cache") {
                continue;
            }
            disk.add_fault(Fault {
                operation,
                effect: Effect::Error,
                every: 1,
                path_suffix: Some(suffix.into()),
                times: None,
            });
            let (said, _) = stop(server.take().context("a server")?)?;
            disk.clear_faults();
            ensure!(said.contains(NOT_LEFT), "{operation:?} {suffix}: {said}");
            machine.expect_no_image()?;
            machine.restart()?;
            let next = machine.start()?;
            machine.expect_cold(&next, &ledger, "not written")?;
            server = Some(next);
        }
    }
    stop(server.take().context("a server")?)?;
    let image = machine.image()?;
    machine.restart()?;
    for operation in [Operation::Write, Operation::Sync] {
        disk.add_fault(Fault {
            operation,
            effect: Effect::Error,
            every: 1,
            path_suffix: Some(".image".into()),
            times: None,
        });
    }
    let next = machine.start()?;
    disk.clear_faults();
    machine.expect_cold(&next, &ledger, "cannot be made invalid")?;
    let log = log_of(next.log())?;
    ensure!(log.contains("cannot be made invalid"), "{log}");
    note(format!("it is {:?}", fs::metadata(image).is_ok()));
    stop(next)?;
    disk.unmount()?;
    Ok(())
}

/// The disk hangs at the server's end, and at its start.
fn a_disk_that_hangs(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "fast")?;
    fs::set_permissions(disk.mountpoint(), fs::Permissions::from_mode(0o700))?;
    let mut machine = Machine::with_cache(place, disk.mountpoint().to_path_buf())?;
    let (server, ledger) = machine.filled()?;
    disk.stall(Duration::from_secs(15));
    let (said, took) = stop(server)?;
    note(format!("ended after {took:?}"));
    ensure!(said.contains(NOT_LEFT), "{said}");
    // The stop also waits for requests that hang in the kernel; the extension's own timeout is shorter.
    ensure!(took < Duration::from_secs(40), "{took:?}");
    disk.resume();
    machine.restart()?;
    let server = machine.start()?;
    machine.expect_cold(&server, &ledger, "it hung")?;
    stop(server)?;
    machine.image()?;
    machine.restart()?;
    disk.stall(Duration::from_secs(600));
    let began = Instant::now();
    let server = machine.start()?;
    note(format!("started after {:?}", began.elapsed()));
    let log = log_of(server.log())?;
    ensure!(log.contains("has not answered in time"), "{log}");
    disk.resume();
    sql::wait_until("it is used", Duration::from_secs(300), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    machine.expect_cold(&server, &ledger, "it hung at the start")?;
    stop(server)?;
    disk.unmount()?;
    Ok(())
}

/// The server is killed while it writes the image.
fn killed_at_its_end(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "fast")?;
    fs::set_permissions(disk.mountpoint(), fs::Permissions::from_mode(0o700))?;
    let mut machine = Machine::with_cache(place, disk.mountpoint().to_path_buf())?;
    let (mut server, ledger) = machine.filled()?;
    let backing = disk.backing().to_path_buf();
    disk.set_profile(Profile {
        latency: Duration::from_millis(100),
        ..Profile::unlimited()
    });
    let process = Pid::from_raw(server.pid() as i32).context("a process")?;
    kill_process(process, Signal::TERM)?;
    sql::wait_until("it writes", Duration::from_secs(300), || {
        let files = place::files_in(&backing);
        Ok(files
            .iter()
            .any(|path| path.extension() == Some("image-new".as_ref())))
    })?;
    ensure!(server.is_running(), "it has ended");
    server.kill();
    disk.set_profile(Profile::unlimited());
    ensure!(!machine.unfinished().is_empty(), "it was not being written");
    ensure!(place.images_in(&machine.cache).is_empty());
    machine.restart()?;
    let server = machine.start()?;
    machine.expect_cold(&server, &ledger, "not finished")?;
    machine.expect_no_image()?;
    stop(server)?;
    machine.image()?;
    disk.unmount()?;
    Ok(())
}
