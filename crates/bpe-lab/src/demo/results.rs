//! Measurements: the content of `results.json`, the source of table and report.

use std::path::Path;

use anyhow::Result;
use private_server::Installation;
use serde::{Deserialize, Serialize};

use super::args::{Args, SideName, Workload};
use super::extension::{Memory, Warmup};
use super::phases::Phases;
use super::plan::{Plan, TABLES, THREADS};
use super::sysbench::{Interval, Summary};
use super::work::Work;
use super::{settings, sysbench};

/// The whole demonstration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Version of this program.
    pub version: String,
    /// Seconds since 1970 at the beginning.
    pub began: u64,
    /// Wall-clock time of the whole run, seconds.
    pub seconds: f64,
    pub quick: bool,
    /// For example `MariaDB 10.11.19`.
    pub server: String,
    /// The version that the server prints, with the packager's additions.
    pub server_version: String,
    /// The server's name on the command line.
    pub flavour: String,
    pub machine: Machine,
    /// Server options, each with its reason.
    pub settings: Vec<(String, String)>,
    /// The sysbench commands, without the socket.
    pub commands: Vec<String>,
    /// The volume in words.
    pub volume: String,
    pub runs: Vec<PoolRun>,
}

/// The machine it ran on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    /// Bytes.
    pub memory: u64,
    pub kernel: String,
    pub system: String,
    /// File system type of the demonstration's folder.
    pub file_system: String,
}

/// Everything measured with one size of the pool. Sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolRun {
    pub pool: u64,
    /// Data and indexes of the tables, by the server's statistics.
    pub data: u64,
    pub cache: u64,
    pub tables: u64,
    pub rows: u64,
    pub threads: u64,
    /// Seconds for loading the tables; `None` if tables of an earlier run were used.
    pub load_seconds: Option<f64>,
    pub sides: Vec<Side>,
    pub warmup: Option<Warmup>,
    pub memory: Option<Memory>,
    #[serde(flatten)]
    pub phases: Phases,
}

/// One side: three tests on one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    pub name: SideName,
    pub tests: Vec<Test>,
}

/// One measured test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Test {
    pub workload: Workload,
    /// The load before the test, not counted in the summary.
    pub lead: Vec<Interval>,
    /// Whether hit ratio and throughput had settled at the end of the lead.
    #[serde(default)]
    pub settled: bool,
    pub intervals: Vec<Interval>,
    /// Percent of each second's page reads that the extension served, in the lead and the test; empty without the extension.
    #[serde(default)]
    pub hits: Vec<f64>,
    pub summary: Summary,
    pub work: Work,
}

impl Side {
    /// The test of a workload, if it was run.
    pub fn test(&self, workload: Workload) -> Option<&Test> {
        self.tests.iter().find(|test| test.workload == workload)
    }
}

impl PoolRun {
    /// The side of that name, if it was run.
    pub fn side(&self, name: SideName) -> Option<&Side> {
        self.sides.iter().find(|side| side.name == name)
    }

    /// Whether any of the three tests was run.
    pub fn is_tested(&self) -> bool {
        self.sides.iter().any(|side| !side.tests.is_empty())
    }

    /// The test of a workload on a side.
    pub fn test(&self, name: SideName, workload: Workload) -> Option<&Test> {
        self.side(name)?.test(workload)
    }

    /// Queries per second.
    pub fn qps(&self, name: SideName, workload: Workload) -> Option<f64> {
        Some(self.test(name, workload)?.summary.qps)
    }

    /// Gain in QPS by the extension, percent.
    pub fn gain(&self, workload: Workload) -> Option<f64> {
        let off = self.qps(SideName::Off, workload)?;
        let on = self.qps(SideName::On, workload)?;
        (off > 0.0).then(|| (on / off - 1.0) * 100.0)
    }

    /// QPS with the extension in percent of the ceiling.
    pub fn of_ceiling(&self, workload: Workload) -> Option<f64> {
        let ceiling = self.qps(SideName::Ceiling, workload)?;
        let on = self.qps(SideName::On, workload)?;
        (ceiling > 0.0).then(|| on / ceiling * 100.0)
    }

    /// Reads of the data disk per query that the extension saved, percent.
    pub fn reads_saved(&self, workload: Workload) -> Option<f64> {
        let per_query = |name| {
            let test = self.test(name, workload)?;
            let reads = test.work.disk_reads? as f64;
            (test.summary.queries > 0).then(|| reads / test.summary.queries as f64)
        };
        let off: f64 = per_query(SideName::Off)?;
        let on: f64 = per_query(SideName::On)?;
        (off > 0.0).then(|| (1.0 - on / off) * 100.0)
    }
}

impl Results {
    /// Everything known before the first test.
    ///
    /// # Errors
    /// Never fails at present; facts that cannot be read stay empty.
    pub fn begin(
        args: &Args,
        installation: &Installation,
        plans: &[Plan],
        folder: &Path,
    ) -> Result<Results> {
        let began = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let commands = plans
            .iter()
            .flat_map(|plan| {
                let mut options = sysbench::test_options(&plan.tables(), THREADS);
                if plan.restart {
                    options.push(sysbench::UNPREPARED.into());
                }
                let (workloads, seconds) = match plan.restart {
                    true => (&Workload::ALL[2..], plan.times.after),
                    false => (&Workload::ALL[..], plan.times.test),
                };
                let options = options.join(" ");
                workloads.iter().map(move |workload| {
                    let script = workload.script();
                    format!("sysbench {script} {options} --time={seconds} run")
                })
            })
            .collect();
        Ok(Results {
            version: env!("CARGO_PKG_VERSION").into(),
            began,
            seconds: 0.0,
            quick: args.quick,
            server: server_title(installation),
            server_version: installation.version.clone(),
            flavour: args.flavour().name().into(),
            machine: Machine::look(folder),
            settings: settings::settings(args.flavour(), args.restart)
                .map(|one| (one.option.into(), one.reason.into()))
                .collect(),
            commands,
            volume: super::volume::DESCRIPTION.into(),
            runs: Vec::new(),
        })
    }

    /// Records the total time.
    pub fn end(&mut self) {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        self.seconds = (now - self.began as f64).max(0.0);
    }
}

impl PoolRun {
    /// An empty run of a plan.
    pub fn begin(plan: &Plan) -> PoolRun {
        PoolRun {
            pool: plan.pool,
            data: 0,
            cache: plan.cache,
            tables: TABLES,
            rows: plan.rows,
            threads: THREADS,
            load_seconds: None,
            sides: Vec::new(),
            warmup: None,
            memory: None,
            phases: Phases::default(),
        }
    }
}

impl Machine {
    /// Describes the machine, with the file system of `folder`. Facts that cannot be read stay empty.
    pub fn look(folder: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| -> Option<String> {
            text.lines()
                .find(|line| line.starts_with(key))
                .and_then(|line| line.split_once([':', '=']))
                .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
            .map_or(0, |kib| kib << 10);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            memory,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME").unwrap_or_default(),
            file_system: file_system_of(folder).unwrap_or_default(),
        }
    }
}

/// For example `MariaDB 10.11.19`.
pub fn server_title(installation: &Installation) -> String {
    let product = if installation.flavour.is_mysql() {
        "MySQL"
    } else {
        "MariaDB"
    };
    format!("{product} {}", bare(&installation.version))
}

/// Returns `10.11.19` for `10.11.19-MariaDB-0+deb12u1`.
fn bare(version: &str) -> &str {
    version.split(['-', '+']).next().unwrap_or(version)
}

/// Type of the file system of `folder`: that of its longest ancestor among the mount points.
fn file_system_of(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(place, _)| folder.starts_with(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}
