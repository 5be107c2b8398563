//! Measurements: the content of `results.json`, the source of table and report.

use std::path::Path;

use private_server::Installation;
use serde::{Deserialize, Serialize};

use super::args::{Args, SideName};
use super::extension::{Memory, Warmup};
use super::phases::Phases;
use super::plan::{Plan, TABLES};
use super::settings;
use super::work::Work;
use crate::report::{Environment, share};
use crate::sysbench;
use crate::sysbench::{Interval, Summary, THREADS, Workload};

/// The whole demonstration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    #[serde(flatten)]
    pub environment: Environment,
    /// The server's name on the command line.
    pub flavour: String,
    /// The sysbench commands, without the socket.
    pub commands: Vec<String>,
    /// The volume in words.
    pub volume: String,
    pub runs: Vec<PoolRun>,
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

impl PoolRun {
    /// Whether any of the three tests was run.
    pub fn is_tested(&self) -> bool {
        self.sides.iter().any(|side| !side.tests.is_empty())
    }

    /// The test of a workload on a side.
    pub fn test(&self, name: SideName, workload: Workload) -> Option<&Test> {
        let side = self.sides.iter().find(|side| side.name == name)?;
        side.tests.iter().find(|test| test.workload == workload)
    }

    /// Queries per second.
    pub fn qps(&self, name: SideName, workload: Workload) -> Option<f64> {
        Some(self.test(name, workload)?.summary.qps)
    }

    /// Gain in QPS by the extension, percent.
    pub fn gain(&self, workload: Workload) -> Option<f64> {
        let qps = |name| self.qps(name, workload);
        Some(share(qps(SideName::On)?, qps(SideName::Off)?)? - 100.0)
    }

    /// QPS with the extension in percent of the ceiling.
    pub fn of_ceiling(&self, workload: Workload) -> Option<f64> {
        let qps = |name| self.qps(name, workload);
        share(qps(SideName::On)?, qps(SideName::Ceiling)?)
    }

    /// Reads of the data disk per query that the extension saved, percent.
    pub fn reads_saved(&self, workload: Workload) -> Option<f64> {
        let per_query = |name| {
            let test = self.test(name, workload)?;
            share(test.work.disk_reads? as f64, test.summary.queries as f64)
        };
        let on = per_query(SideName::On)?;
        Some(100.0 - share(on, per_query(SideName::Off)?)?)
    }
}

impl Results {
    /// Everything known before the first test.
    pub fn begin(
        args: &Args,
        installation: &Installation,
        plans: &[Plan],
        folder: &Path,
    ) -> Results {
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
        Results {
            environment: Environment::begin(
                args.quick,
                installation,
                folder,
                settings::with_reasons(args.flavour(), args.restart),
            ),
            flavour: args.flavour().name().into(),
            commands,
            volume: super::volume::DESCRIPTION.into(),
            runs: Vec::new(),
        }
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
