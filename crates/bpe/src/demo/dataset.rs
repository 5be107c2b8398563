//! The tables of the test, loaded once by sysbench and kept between runs.
//!
//! Loading happens on the fast disk with much memory and without durability, then the server is
//! stopped cleanly and started once more with its defaults (which restores the redo log's size) for
//! ANALYZE. Every side of every run then works on a copy of exactly these files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use private_server::{Flavour, Options};

use super::plan::{Plan, TABLES};
use super::progress::clock;
use super::stages::Bench;
use super::sysbench::Sysbench;
use super::{interrupt, settings};
use crate::size;

/// Counts up when the way of loading changes, so that older copies are not used.
const FORMAT: u32 = 1;

/// A data directory of a cleanly stopped server.
pub struct Dataset {
    pub datadir: PathBuf,
    /// Bytes in the tables' files.
    pub data: u64,
    /// Seconds that loading took; None when an earlier run did it.
    pub load_seconds: Option<f64>,
}

impl Dataset {
    /// The kept data set that matches, or a new one.
    ///
    /// # Errors
    /// When the server or sysbench fails, or the disk is full.
    pub fn provide(bench: &Bench, fresh: bool) -> Result<Dataset> {
        let Bench {
            plan,
            installation,
            workspace,
            progress,
            ..
        } = bench;
        let kept = private_server::root::cache_folder()
            .join("datasets")
            .join(key(installation.flavour, &installation.version, plan));
        if !fresh && kept.join("mysql").is_dir() {
            let data = data_size(&kept)?;
            progress.say(&format!(
                "Tables: {} from an earlier run, kept in {} (--fresh loads them anew)",
                size::human(data),
                kept.display()
            ));
            return Ok(Dataset {
                datadir: kept,
                data,
                load_seconds: None,
            });
        }
        let place = if fresh {
            workspace.prepared()
        } else {
            kept.clone()
        };
        let partial = place.with_extension(format!("partial-{}", std::process::id()));
        fs::create_dir_all(&partial)
            .with_context(|| format!("cannot make {}", partial.display()))?;
        interrupt::will_fill(&partial);
        let begun = Instant::now();
        let loaded = load(bench, &partial);
        if let Err(error) = loaded {
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
        let data = data_size(&partial)?;
        // Another run may have made the same one meanwhile; either will do.
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
            datadir: place,
            data,
            load_seconds: Some(begun.elapsed().as_secs_f64()),
        })
    }

    /// Copies the data directory to `target` (which must not exist) and brings the copy to the disk.
    ///
    /// # Errors
    /// Those of the file system.
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

fn load(bench: &Bench, datadir: &Path) -> Result<()> {
    let Bench {
        plan,
        tools,
        installation,
        workspace,
        progress,
    } = bench;
    let estimate = (plan.data() >> 20) / 52 + 5;
    let stage = progress.stage(&format!("Loading {}", size::human(plan.data())), estimate);
    stage.message("making a data directory");
    installation.initialise(datadir)?;

    let run = workspace.run().join("load");
    let memory = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find(|line| line.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib << 10);
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
    server.sql("CREATE DATABASE sbtest")?;
    let sysbench = Sysbench {
        program: &tools.sysbench,
        socket: server.socket(),
        rows: plan.rows,
        logs: workspace.logs(),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64 * 2;
    sysbench.prepare(threads.clamp(2, TABLES), &mut |begun| {
        stage.message(&format!("table {begun} of {TABLES}"));
    })?;
    stage.message("stopping the server cleanly");
    server.stop()?;

    stage.message("analysing the tables");
    let mut options = Options::new(datadir, &run).buffer_pool(pool);
    if installation.flavour.is_mysql() {
        options = options.option("--skip-log-bin");
    }
    let server = installation.start(options)?;
    for table in 1..=TABLES {
        server.sql(&format!("ANALYZE TABLE sbtest.sbtest{table}"))?;
    }
    server.stop()?;
    let data = data_size(datadir)?;
    let took = stage.elapsed();
    stage.finish(&format!(
        "Tables: {TABLES} of {} rows, {}, loaded in {}",
        plan.rows,
        size::human(data),
        clock(took)
    ));
    Ok(())
}

fn data_size(datadir: &Path) -> Result<u64> {
    let folder = datadir.join("sbtest");
    let mut sum = 0;
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        if entry.path().extension().is_some_and(|ext| ext == "ibd") {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

/// Makes the folders and lists the files.
fn plan_copy(from: &Path, to: &Path, files: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            plan_copy(&entry.path(), &target, files)?;
        } else if kind.is_file() {
            files.push((entry.path(), target));
        }
        // Links and sockets are not part of a data directory that we made.
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
            data: data_size(&from).unwrap(),
            load_seconds: None,
        };
        assert_eq!(dataset.data, 100_000);
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
