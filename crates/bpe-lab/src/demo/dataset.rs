//! The tables of the test, loaded once by sysbench and kept between runs.
//!
//! Loading runs on the fast disk with much memory and without durability. Then the server is stopped cleanly, and started
//! once more with its defaults for ANALYZE (which restores the redo log's size). Every side of every run works on a copy of
//! these files.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Error, Result, anyhow};
use bpe::size;
use private_server::{Flavour, Options, ownership};
use rustix::fs::{FlockOperation, flock};

use super::bench::Bench;
use super::plan::{Plan, TABLES};
use super::progress::{Progress, clock};
use super::{interrupt, settings};

/// Increment when the loading procedure changes, so that older copies are not used.
const FORMAT: u32 = 3;

/// Names in a data set's directory: the data directory, and a text file with the bytes in its tables.
const DATADIR: &str = "data";
const SIZE: &str = "bytes";

/// A data directory of a cleanly stopped server.
pub struct Dataset {
    pub datadir: PathBuf,
    /// Bytes of data and indexes in the tables, by the server's statistics.
    pub data: u64,
    /// Seconds for loading; `None` if an earlier run loaded it.
    pub load_seconds: Option<f64>,
}

impl Dataset {
    /// Returns the matching kept data set, or a new one.
    ///
    /// # Errors
    /// The server or sysbench fails, or the disk is full.
    pub fn provide(bench: &Bench, fresh: bool) -> Result<Dataset> {
        let Bench {
            plan,
            installation,
            workspace,
            progress,
            ..
        } = bench;
        let kept = private_server::root::cache_folder()
            .map_err(Error::msg)?
            .join("datasets")
            .join(key(installation.flavour, &installation.version, plan));
        if !fresh && kept.is_dir() {
            ownership::check(&kept)
                .map_err(|why| anyhow!("cannot use {why}; remove it, or give --fresh"))?;
            let data = read_size(&kept)?;
            progress.say(&format!(
                "Tables: {} from an earlier run, kept in {} (--fresh loads new ones)",
                size::human(data),
                kept.display()
            ));
            return Ok(Dataset {
                datadir: kept.join(DATADIR),
                data,
                load_seconds: None,
            });
        }
        let place = if fresh {
            workspace.prepared()
        } else {
            kept.clone()
        };
        let _lock = (!fresh).then(|| lock(&place, progress)).transpose()?;
        let partial = partial(&place);
        ownership::make(&partial).map_err(Error::msg)?;
        interrupt::will_fill(&partial);
        let begun = Instant::now();
        let loaded = load(bench, &partial.join(DATADIR));
        let data = match loaded {
            Ok(data) => data,
            Err(error) => {
                let _ = fs::remove_dir_all(&partial);
                return Err(error);
            }
        };
        fs::write(partial.join(SIZE), data.to_string())
            .with_context(|| format!("cannot write into {}", partial.display()))?;
        // A concurrent run may have made the same data set; either is valid.
        if place.exists() {
            fs::remove_dir_all(&partial)
                .with_context(|| format!("cannot remove {}", partial.display()))?;
        } else {
            fs::rename(&partial, &place)
                .with_context(|| format!("cannot rename {}", partial.display()))?;
        }
        interrupt::keep(&partial);
        if !fresh {
            progress.say(&format!(
                "The tables are kept for the next run in {}",
                place.display()
            ));
        }
        Ok(Dataset {
            datadir: place.join(DATADIR),
            data,
            load_seconds: Some(begun.elapsed().as_secs_f64()),
        })
    }

    /// Copies the data directory to `target` (which must not exist) and syncs the copy to the disk.
    ///
    /// # Errors
    /// A file system error.
    pub fn copy_to(&self, target: &Path) -> Result<()> {
        let mut files = Vec::new();
        plan_copy(&self.datadir, target, &mut files)?;
        let queue = Mutex::new(files);
        let copy_some = || -> Result<()> {
            loop {
                let Some((from, to)) = queue.lock().unwrap_or_else(|e| e.into_inner()).pop() else {
                    return Ok(());
                };
                fs::copy(&from, &to).with_context(|| {
                    format!("cannot copy {} to {}", from.display(), to.display())
                })?;
            }
        };
        std::thread::scope(|scope| {
            let workers = [scope.spawn(copy_some), scope.spawn(copy_some)];
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .map_err(|_| anyhow!("a copying thread failed"))?
            })
        })?;
        let folder = fs::File::open(target)?;
        rustix::fs::syncfs(&folder).context("cannot bring the copy to the disk")?;
        Ok(())
    }
}

/// The temporary name of an incomplete data set.
fn partial(place: &Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Waits until no other run is loading, and removes leftovers of a killed one. The lock lasts as long as the file is open.
fn lock(place: &Path, progress: &Progress) -> Result<fs::File> {
    let folder = place.parent().context("a data set has a folder")?;
    ownership::make(folder).map_err(Error::msg)?;
    let path = folder.join("lock");
    let file =
        ownership::open_lock(&path).with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        progress.say("Waiting for another run that is loading its tables");
        flock(&file, FlockOperation::LockExclusive).context("cannot lock")?;
    }
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.path().extension().is_some_and(|ext| ext == "partial") {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(file)
}

fn key(flavour: Flavour, version: &str, plan: &Plan) -> String {
    let version: String = version
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-.".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    format!(
        "{}-{version}-{TABLES}x{}-{FORMAT}",
        flavour.name(),
        plan.rows
    )
}

/// Loads the tables. Returns their size in bytes.
fn load(bench: &Bench, datadir: &Path) -> Result<u64> {
    let Bench {
        plan,
        installation,
        workspace,
        progress,
        ..
    } = bench;
    let estimate = (plan.data() >> 20) / 52 + 5;
    let stage = progress.stage(&format!("Loading {}", size::human(plan.data())), estimate);
    stage.message("making a data directory");
    installation.initialise(datadir)?;

    let run = workspace.run().join("load");
    let memory = replay::available_memory().unwrap_or(1 << 30);
    let pool = (plan.data() * 3 / 2).min(memory / 3).max(128 << 20) >> 20 << 20;
    let mut options = Options::new(datadir, &run).buffer_pool(pool);
    for option in settings::LOADING {
        options = options.option(*option);
    }
    options = options.option(if installation.flavour.is_mysql() {
        "--innodb-redo-log-capacity=4G"
    } else {
        "--innodb-log-file-size=4G"
    });
    if installation.flavour.is_mysql() {
        options = options.option("--skip-log-bin");
    }
    let server = installation.start(options)?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64 * 2;
    let tables = plan.tables();
    server.sql(&format!("CREATE DATABASE {}", tables.database))?;
    let sysbench = bench.sysbench(server.socket());
    sysbench.prepare(threads.clamp(2, TABLES), &mut |begun| {
        stage.message(&format!("table {begun} of {TABLES}"));
    })?;
    stage.message("stopping the server cleanly");
    server.stop()?;

    stage.message("analysing the tables");
    let mut options = Options::new(datadir, &run).buffer_pool(pool);
    if installation.flavour.is_mysql() {
        // The size below must be up to date.
        options = options
            .option("--skip-log-bin")
            .option("--information-schema-stats-expiry=0");
    }
    let server = installation.start(options)?;
    for table in 1..=TABLES {
        server.sql(&format!("ANALYZE TABLE {}.sbtest{table}", tables.database))?;
    }
    let data = server
        .value(
            "SELECT CAST(SUM(data_length + index_length) AS UNSIGNED) \
             FROM information_schema.tables WHERE table_schema LIKE 'sbtest%'",
        )?
        .and_then(|text| text.parse().ok())
        .context("the server does not tell the size of the tables")?;
    server.stop()?;
    let took = stage.elapsed();
    stage.finish(&format!(
        "Tables: {TABLES} of {} rows, {}, loaded in {}",
        plan.rows,
        size::human(data),
        clock(took)
    ));
    Ok(data)
}

fn read_size(folder: &Path) -> Result<u64> {
    let path = folder.join(SIZE);
    fs::read_to_string(&path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .with_context(|| format!("{} is damaged: remove {}", path.display(), folder.display()))
}

/// Creates the directories and lists the files.
fn plan_copy(from: &Path, to: &Path, files: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    let mut directory = fs::DirBuilder::new();
    directory
        .mode(0o700)
        .create(to)
        .with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            plan_copy(&entry.path(), &target, files)?;
        } else if kind.is_file() {
            files.push((entry.path(), target));
        }
        // Links and sockets are not part of a data directory of this program.
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::create_dir_all(from.join("sbtest/deep")).unwrap();
        fs::write(from.join("ibdata1"), b"system").unwrap();
        fs::write(from.join("sbtest/sbtest1.ibd"), vec![7; 100_000]).unwrap();
        fs::write(from.join("sbtest/deep/x"), b"").unwrap();
        let dataset = Dataset {
            datadir: from.clone(),
            data: 0,
            load_seconds: None,
        };
        let to = folder.path().join("to");
        dataset.copy_to(&to).unwrap();
        assert_eq!(fs::read(to.join("ibdata1")).unwrap(), b"system");
        assert_eq!(
            fs::read(to.join("sbtest/sbtest1.ibd")).unwrap().len(),
            100_000
        );
        assert!(to.join("sbtest/deep/x").is_file());
        assert!(
            dataset.copy_to(&to).is_err(),
            "an old copy must not be mixed in"
        );
    }
}
