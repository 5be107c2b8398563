//! A start with other paths removes the files that this server created under the former paths, and no other file.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::ensure;
use integration_tests::place::{extended, files_in};
use integration_tests::{Outcome, Place, Server, Suite, sql};

const CACHE: u64 = 64 << 20;
const SOON: Duration = Duration::from_secs(20);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("changed_paths").in_turn("former_files_are_removed", former_files_are_removed)
}

fn serves(server: &Server) -> Outcome {
    let mut connection = server.connect()?;
    sql::read_all(&mut connection, "d.t", 5000)?;
    sql::read_all(&mut connection, "d.t", 5000)?;
    ensure!(sql::figure(server, "hits")? > 0);
    sql::expect_state(server, "active")
}

fn former_files_are_removed(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::fill(&mut server.connect()?, "d.t", 5000, 2000, "")?;
    serves(&server)?;
    server.stop()?;
    place.expect_left()?;
    // A foreign file with a name like ours.
    let foreign = place.cache().join("bpe-0123456789abcdef.cache");
    std::fs::write(&foreign, vec![7; 100_000])?;
    let (cache, memory) = (
        place.root().join("another disk"),
        place.memory().join("another"),
    );
    for folder in [&cache, &memory] {
        std::fs::create_dir(folder)?;
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))?;
    }
    let options = || -> anyhow::Result<_> {
        let options = extended(place.options(), place.library()?, &cache, CACHE);
        Ok(options.option(format!("--bpe-persist-path={}", memory.display())))
    };
    let server = place.start(options()?)?;
    serves(&server)?;
    sql::wait_until("the former files are gone", SOON, || {
        let left = files_in(&place.cache());
        let kept = place.kept();
        Ok(left == [foreign.clone()] && kept.iter().all(|path| path.starts_with(&memory)))
    })?;
    let log = std::fs::read_to_string(server.log())?;
    ensure!(
        log.contains("this server made it under other settings"),
        "{log}"
    );
    server.stop()?;
    ensure!(
        files_in(&cache)
            .iter()
            .any(|path| path.extension() == Some("cache".as_ref()))
    );
    // The same settings again: the cached pages are there.
    let server = place.start(options()?)?;
    ensure!(sql::figure(&server, "pages_inherited")? > 0);
    serves(&server)?;
    // Off and on with another path, at run time.
    sql::run(
        &server,
        &[
            &format!("SET GLOBAL bpe_path = '{}'", place.cache().display()),
            "SET GLOBAL bpe_enabled = OFF",
            "SET GLOBAL bpe_enabled = ON",
        ],
    )?;
    sql::wait_until("the cache has moved", SOON, || {
        Ok(files_in(&cache).is_empty())
    })?;
    ensure!(foreign.exists());
    server.stop()?;
    Ok(())
}
