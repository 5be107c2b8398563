//! The persisted in-memory files are missing, damaged or foreign, or cannot be written: the server starts, and serves nothing
//! stale.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::taken::{self, Taken};
use integration_tests::{Options, Outcome, Place, Server, Suite, note, place, sql, verification};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;
/// Log message of a cache that ends with its server.
const NOT_KEPT: &str = "will be empty after a restart";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_memory")
        .in_turn("the_cache_file", the_cache_file)
        .in_turn("damaged", damaged)
        .in_turn("not_ours", not_ours)
        .in_turn("no_place_to_keep_it", no_place_to_keep_it)
}

fn options(place: &Place) -> anyhow::Result<Options> {
    place.early(CACHE)
}

fn filled(place: &Place) -> anyhow::Result<Ledger> {
    let server = place.start(options(place)?)?;
    let ledger = Ledger::small(&server)?;
    fill(&server, &ledger)?;
    server.stop()?;
    place.expect_left()?;
    Ok(ledger)
}

/// Changes some rows, so that their former cached pages are stale, and caches everything.
fn fill(server: &Server, ledger: &Ledger) -> Outcome {
    ledger.run(server, Duration::from_millis(400))?;
    ledger.verify(server)?;
    // A disk that returned wrong data is used again after some seconds.
    ledger.run_until_above(server, Duration::ZERO, "pages_cached", 500)?;
    taken::expect_written(server)
}

/// Lines of a server's log after `start`.
fn log_since(server: &Server, start: u64) -> anyhow::Result<String> {
    let bytes = fs::read(server.log())?;
    Ok(String::from_utf8_lossy(&bytes[start as usize..]).into_owned())
}

fn log_length(place: &Place) -> u64 {
    fs::metadata(place.root().join("run/error.log")).map_or(0, |log| log.len())
}

/// The persisted file of this kind.
fn of_kind(place: &Place, kind: &str) -> anyhow::Result<PathBuf> {
    let mut kept = place.kept().into_iter();
    kept.find(|path| path.extension().is_some_and(|it| it == kind))
        .with_context(|| format!("no .{kind}"))
}

/// Starts, checks everything, and stops. Returns the recovered pages, and the log lines.
fn start_and_look(
    place: &Place,
    ledger: &Ledger,
    options: Options,
) -> anyhow::Result<(Taken, String)> {
    let from = log_length(place);
    let server = place.start(options)?;
    ledger.verify(&server)?;
    let taken = Taken::by(&server)?;
    fill(&server, ledger)?;
    let log = log_since(&server, from)?;
    server.stop()?;
    Ok((taken, log))
}

type Damage = fn(&Path) -> Outcome;

fn at(path: &Path, offset: u64, bytes: &[u8]) -> Outcome {
    Ok(File::options()
        .write(true)
        .open(path)?
        .write_all_at(bytes, offset)?)
}

fn cut(path: &Path, part: u64) -> Outcome {
    let file = File::options().write(true).open(path)?;
    Ok(file.set_len(file.metadata()?.len() / 4 * part)?)
}

/// Torn, empty, or of another version: cold once, and warm afterwards.
fn damaged(place: &Place) -> Outcome {
    let ledger = filled(place)?;
    let ways: [(&str, &str, Damage); 12] = [
        ("files", "removed", |path| Ok(fs::remove_file(path)?)),
        ("arena", "removed", |path| Ok(fs::remove_file(path)?)),
        ("files", "empty", |path| cut(path, 0)),
        ("arena", "empty", |path| cut(path, 0)),
        ("files", "torn", |path| cut(path, 1)),
        ("arena", "torn", |path| cut(path, 2)),
        ("files", "of another version", |path| at(path, 8, &[99])),
        ("arena", "of another version", |path| at(path, 8, &[99])),
        // The boot, and the server that owns the file.
        ("files", "of another start", |path| {
            at(path, 16, &[0xAA; 16])
        }),
        ("files", "of another server", |path| {
            at(path, 32, &[0xAA; 16])
        }),
        ("arena", "of another layout", |path| {
            at(path, 16, &[0xAA; 8])
        }),
        ("arena", "of another session", |path| {
            at(path, 24, &[0xAA; 8])
        }),
    ];
    for (kind, how, damage) in ways {
        let what = format!(".{kind} is {how}");
        damage(&of_kind(place, kind)?).context(what.clone())?;
        // Otherwise the image would be recovered instead.
        for image in place.images_in(&place.cache()) {
            fs::remove_file(image)?;
        }
        let (taken, _) =
            start_and_look(place, &ledger, options(place)?).with_context(|| what.clone())?;
        taken.expect_cold().with_context(|| what.clone())?;
        place.expect_left().with_context(|| what.clone())?;
    }
    let (taken, _) = start_and_look(place, &ledger, options(place)?)?;
    taken.expect_warm()?;
    fs::remove_file(of_kind(place, "files")?)?;
    let (taken, _) = start_and_look(place, &ledger, options(place)?)?;
    taken.expect_warm().context("the image of the clean stop")?;
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}

/// A foreign file of that name stays, and the server persists nothing.
fn not_ours(place: &Place) -> Outcome {
    let ledger = filled(place)?;
    let precious = place.root().join("precious");
    fs::write(&precious, "precious")?;
    let private = fs::Permissions::from_mode(0o600);
    for kind in ["files", "arena"] {
        for how in ["link", "dangling link", "hard link", "directory", "foreign"] {
            let what = format!("a {how} for .{kind}");
            let path = of_kind(place, kind)?;
            fs::remove_file(&path)?;
            let foreign = [0x55; 8192];
            match how {
                "link" => symlink(&precious, &path)?,
                "dangling link" => symlink(place.root().join("nowhere"), &path)?,
                "hard link" => {
                    fs::write(place.memory().join("other"), foreign)?;
                    fs::set_permissions(place.memory().join("other"), private.clone())?;
                    fs::hard_link(place.memory().join("other"), &path)?;
                }
                "directory" => fs::create_dir(&path)?,
                _ => {
                    fs::write(&path, foreign)?;
                    fs::set_permissions(&path, private.clone())?;
                }
            }
            let (taken, log) =
                start_and_look(place, &ledger, options(place)?).with_context(|| what.clone())?;
            taken.expect_cold().with_context(|| what.clone())?;
            ensure!(fs::read(&precious)? == b"precious", "{what}");
            ensure!(!place.root().join("nowhere").exists(), "{what}");
            ensure!(log.contains(NOT_KEPT), "{what} is not said: {log}");
            ensure!(how != "foreign" || fs::read(&path)? == foreign, "{what}");
            if how == "directory" {
                fs::remove_dir(&path)?;
            } else if fs::symlink_metadata(&path).is_ok() {
                fs::remove_file(&path)?;
            }
            let _ = fs::remove_file(place.memory().join("other"));
            let (taken, _) =
                start_and_look(place, &ledger, options(place)?).with_context(|| what.clone())?;
            taken
                .expect_nothing_trusted()
                .with_context(|| what.clone())?;
            place.expect_left().with_context(|| what.clone())?;
        }
    }
    let (taken, _) = start_and_look(place, &ledger, options(place)?)?;
    taken.expect_warm()
}

/// The cache file is missing, truncated, from an earlier time, or another one of the same name.
fn the_cache_file(place: &Place) -> Outcome {
    let ledger = filled(place)?;
    let file = || place.cache_files().pop().context("no cache file");
    let older = place.root().join("older");
    fs::copy(file()?, &older)?;
    let (taken, _) = start_and_look(place, &ledger, options(place)?)?;
    taken.expect_warm()?;
    let again = |what: &str| -> anyhow::Result<Taken> {
        let (taken, log) =
            start_and_look(place, &ledger, options(place)?).with_context(|| what.to_owned())?;
        note(format!("the cache file is {what}: {taken:?}"));
        ensure!(!log.contains("internal error"), "{what}: {log}");
        place.expect_left().with_context(|| what.to_owned())?;
        Ok(taken)
    };
    fs::remove_file(file()?)?;
    again("missing")?.expect_cold()?;
    cut(&file()?, 2)?;
    again("cut")?;
    cut(&file()?, 0)?;
    again("empty")?.expect_cold()?;
    // Each page has a proof.
    fs::copy(&older, file()?)?;
    again("of an earlier time")?;
    again("as it was left")?.expect_warm()?;
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}

/// The directory is missing, not in memory, read-only, or full.
fn no_place_to_keep_it(place: &Place) -> Outcome {
    let server = place.start(place.options())?;
    let ledger = Ledger::small(&server)?;
    server.stop()?;
    let at = |path: &Path| {
        let options = options(place)?;
        anyhow::Ok(options.option(format!("--bpe-persist-path={}", path.display())))
    };
    let look = |what: &str, path: &Path, said: bool| -> anyhow::Result<Taken> {
        let (taken, log) =
            start_and_look(place, &ledger, at(path)?).with_context(|| what.to_owned())?;
        ensure!(log.contains(NOT_KEPT) == said, "{what}: {log}");
        Ok(taken)
    };
    let missing = place.root().join("missing");
    let disk = place.root().join("disk");
    fs::create_dir(&disk)?;
    for (what, path) in [("missing", &missing), ("on a disk", &disk)] {
        for _ in 0..2 {
            look(what, path, true)?.expect_cold()?;
        }
    }
    ensure!(!missing.exists());
    // Too small for both files, and slightly larger than the first of them.
    for kib in [16, 72, 96] {
        let mount = Mount::memory(&place.root().join("small"), kib << 10)?;
        for _ in 0..2 {
            look("full", mount.path(), true)?.expect_cold()?;
        }
    }
    let mount = Mount::memory(&place.root().join("roomy"), 8 << 20)?;
    look("roomy", mount.path(), false)?.expect_cold()?;
    ensure!(place::files_in(mount.path()).len() == 2);
    look("roomy", mount.path(), false)?.expect_warm()?;
    // It fills up later, when more data must be persisted.
    let filler = mount.path().join("filler");
    let fill_up = || -> anyhow::Result<u64> {
        Ok(std::io::copy(
            &mut std::io::repeat(1).take(16 << 20),
            &mut File::create(&filler)?,
        )
        .unwrap_or(0))
    };
    fill_up()?;
    look("filled up", mount.path(), false)?.expect_warm()?;
    fs::remove_file(&filler)?;
    mount.set_read_only(true)?;
    look("read-only", mount.path(), true)?.expect_cold()?;
    mount.set_read_only(false)?;
    // Servers without persistence have written since.
    let taken = look("writable again", mount.path(), false)?;
    note(format!("{taken:?}"));
    ensure!(
        taken.lost("ledger.t0").is_some() || taken.pages == 0,
        "{taken:?}"
    );
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    sql::run(&server, &["SELECT 1"])?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}
