//! The cache on each file system that this host can create: the read mode, and the share of reads that the cache answers.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use integration_tests::volumes::{FileSystem, Mounted, Volume};
use integration_tests::{Outcome, Place, Server, Suite, note, sql, trace};

const CACHE: u64 = 64 << 20;
const DISK: u64 = 512 << 20;
const ROWS: u32 = 10_000;
const WIDTH: u32 = 1800;
/// Minimum percentage of reads that the cache answers: 99 on an idle machine, less where other load keeps its disk busy.
const LEAST_ANSWERED: f64 = 90.0;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("file_systems").each("reads_are_answered_on_each", reads_are_answered_on_each)
}

/// Switches on with the cache in this directory, and reads a table that fits.
fn answered(server: &Server, name: &str, folder: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))?;
    server.sql(&format!("SET GLOBAL bpe_path = '{}'", folder.display()))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(server, "active")?;
    let mut connection = server.connect()?;
    for _ in 0..3 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    let before = [
        sql::figure(server, "hits")?,
        sql::figure(server, "data_reads")?,
    ];
    for _ in 0..5 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    let hits = (sql::figure(server, "hits")? - before[0]) as f64;
    let data_reads = (sql::figure(server, "data_reads")? - before[1]) as f64;
    let percent = hits * 100.0 / (hits + data_reads);
    let devices = trace::ask(&mut server.connect()?, "devices")?;
    let summary = sql::report(server, "summary")?;
    let is_direct = devices[0]["direct_io"].as_bool().context("no device")?;
    note(format!(
        "{name}: direct I/O {is_direct}, {percent:.1} % of {} reads answered, p50 {:.0} us, {} busy",
        hits + data_reads,
        summary["cache_read_us"]["p50"].as_f64().unwrap_or_default(),
        summary["cache"]["reads_busy"],
    ));
    ensure!(is_direct, "{name}: {devices}");
    ensure!(
        hits > 1000.0 && percent >= LEAST_ANSWERED,
        "{name}: {percent:.1} %"
    );
    Ok(server.sql("SET GLOBAL bpe_enabled = OFF")?)
}

fn reads_are_answered_on_each(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(trace::CREATE_FUNCTION)?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, WIDTH, "")?;
    for file_system in [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs] {
        let name = file_system.name();
        let volume = Volume::create(place.root(), name, file_system, DISK)?;
        answered(&server, name, &volume.folder().join("cache"))?;
    }
    // Page cache only: tmpfs has no direct I/O.
    let folder: PathBuf = place.root().join("memory-disk");
    std::fs::create_dir(&folder)?;
    let mounted = Mounted::at(&["-t", "tmpfs", "-o", "size=200m", "tmpfs"], &folder)?;
    answered(&server, "tmpfs", &folder.join("cache"))?;
    server.stop()?;
    drop(mounted);
    Ok(())
}
