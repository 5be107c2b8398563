//! One run: loading, then one side after the other, each on a fresh copy of the same files.

use std::ops::ControlFlow;

use anyhow::{Context, Result};
use bpe::size;

use super::args::{Args, SideName};
use super::bench::Bench;
use super::dataset::Dataset;
use super::observer::Observer;
use super::results::{PoolRun, Side, Test};
use super::rig::{Rig, live};
use super::volume::Volume;
use super::{extension, phases};
use crate::sysbench::settled::Rule;
use crate::sysbench::{Sysbench, Workload};

/// The load before a test ends when the hit ratio meets the first rule, and the throughput (percent of its mean) the second.
const HITS_SETTLED: Rule = Rule {
    window: 20,
    rise: 0.5,
};
const THROUGHPUT_SETTLED: Rule = Rule {
    window: 20,
    rise: 2.0,
};

impl Bench<'_> {
    /// Runs one plan.
    ///
    /// # Errors
    /// The first failure. Servers and volume are gone then.
    pub fn run(&self, args: &Args) -> Result<PoolRun> {
        let dataset = Dataset::provide(self, args.fresh)?;
        let mut run = PoolRun::begin(self.plan);
        run.data = dataset.data;
        run.load_seconds = dataset.load_seconds;
        for side in &args.sides {
            self.run_side(*side, &dataset, &mut run)
                .with_context(|| format!("side \"{}\"", side.title()))?;
        }
        self.workspace.empty(&self.workspace.backing())?;
        self.workspace.empty(&self.workspace.fast())?;
        if args.fresh {
            std::fs::remove_dir_all(&dataset.datadir)?;
        }
        Ok(run)
    }

    fn run_side(&self, name: SideName, dataset: &Dataset, run: &mut PoolRun) -> Result<()> {
        let mut rig = self.set_up(name, dataset)?;
        self.measure_side(name, &rig, run)?;
        if name == SideName::On {
            run.phases = phases::run(self, &mut rig)?;
        }
        rig.end()
    }

    fn measure_side(&self, name: SideName, rig: &Rig, run: &mut PoolRun) -> Result<()> {
        let server = rig.server()?;
        let volume = rig.volume.as_ref();
        let mut observer = Observer::new(server)?;
        let sysbench = self.sysbench(server.socket());
        if name == SideName::On {
            run.memory = Some(if self.plan.restart {
                extension::share_memory(self, server)?
            } else {
                extension::switch_on(self, server)?
            });
            run.warmup = Some(extension::warm_up(self, &sysbench, &mut observer, volume)?);
        }
        let mut side = Side {
            name,
            tests: Vec::new(),
        };
        for &workload in self.tests {
            side.tests
                .push(self.run_test(name, workload, &sysbench, &mut observer, volume)?);
        }
        run.sides.push(side);
        if let (SideName::On, Some(memory)) = (name, &mut run.memory) {
            let now = observer.snapshot(volume)?.memory();
            memory.extension = memory.extension.max(now);
        }
        Ok(())
    }

    fn run_test(
        &self,
        name: SideName,
        workload: Workload,
        sysbench: &Sysbench,
        observer: &mut Observer,
        volume: Option<&Volume>,
    ) -> Result<Test> {
        let times = self.plan.times;
        let (title, script) = (name.title(), workload.script());
        let stage = self
            .progress
            .stage(&format!("{title}: {script}"), times.lead_max + times.test);
        let log = |part: &str| self.log_name(&format!("{title}-{script}{part}"));
        let (mut throughput, mut hits) = (Vec::new(), Vec::new());
        let mut settled = false;
        let mut seen = observer.snapshot(volume)?;
        // Sides without the extension read the same figures, for equal overhead.
        let mut look = |observer: &mut Observer, hits: &mut Vec<f64>| -> Result<()> {
            let now = observer.snapshot(volume)?;
            if name == SideName::On {
                hits.push(now.since(&seen).hit_ratio().unwrap_or(0.0));
            }
            seen = now;
            Ok(())
        };
        let (lead, _) = sysbench.run(workload, times.lead_max, &log("-lead"), &mut |interval| {
            stage.message(&live(interval));
            look(observer, &mut hits)?;
            throughput.push(interval.qps);
            settled = has_settled(&throughput, &hits);
            Ok(if settled && interval.t >= times.lead as f64 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        let before = observer.snapshot(volume)?;
        let (intervals, summary) =
            sysbench.run(workload, times.test, &log(""), &mut |interval| {
                stage.message(&live(interval));
                look(observer, &mut hits).map(|()| ControlFlow::Continue(()))
            })?;
        let work = observer.snapshot(volume)?.since(&before);
        let summary = summary.context("the test ended early")?;
        stage.finish(&format!(
            "{title}: {script}: {:.0} QPS, p95 {:.0} ms{}",
            summary.qps,
            summary.p95_ms,
            work.hit_ratio()
                .map_or(String::new(), |ratio| format!(", hit ratio {ratio:.1} %"))
        ));
        Ok(Test {
            workload,
            lead,
            settled,
            intervals,
            hits,
            summary,
            work,
        })
    }
}

/// Whether throughput and hit ratio, one value per second, have stopped rising. `hits` is empty without the extension.
fn has_settled(throughput: &[f64], hits: &[f64]) -> bool {
    let mean = throughput.iter().sum::<f64>() / throughput.len().max(1) as f64;
    let shares = throughput.iter().map(|qps| qps / mean.max(1.0) * 100.0);
    THROUGHPUT_SETTLED.is_met(shares)
        && (hits.is_empty() || HITS_SETTLED.is_met(hits.iter().copied()))
}

/// Runs one plan; see [`Bench::run`].
///
/// # Errors
/// As [`Bench::run`], with the pool size.
pub fn run_plan(bench: &Bench, args: &Args) -> Result<PoolRun> {
    bench
        .run(args)
        .with_context(|| format!("the run with a pool of {}", size::human(bench.plan.pool)))
}
