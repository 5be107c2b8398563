//! One run: loading, then one side after the other, each on a fresh copy of the same files.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bpe_command::size;
use private_server::{Load, Options, Server};

use super::args::{Args, SideName, Workload};
use super::bench::Bench;
use super::dataset::Dataset;
use super::observer::Observer;
use super::results::{PoolRun, Side, Test};
use super::sysbench::{Interval, Sysbench};
use super::volume::Volume;
use super::{extension, phases, settings};

impl Bench<'_> {
    /// Runs one plan.
    ///
    /// # Errors
    /// Whatever stopped it; servers and volume are gone then.
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

    /// Starts the server of a side on a copy of the tables.
    ///
    /// # Errors
    /// When the copy, the volume or the server fails.
    pub fn set_up(&self, name: SideName, dataset: &Dataset) -> Result<Rig> {
        let backing = self.workspace.backing();
        let title = name.title();
        let stage = self.progress.stage(
            &format!("{title}: copying the tables"),
            (dataset.data >> 30) * 5 + 6,
        );
        self.workspace.empty(&backing)?;
        self.workspace.empty(&self.workspace.fast())?;
        dataset.copy_to(&backing.join("data"))?;
        stage.message("starting the server");

        // The order of the fields is the order in which they go: the server before its volume.
        let mut rig = Rig::default();
        let datadir = if name == SideName::Ceiling {
            backing.join("data")
        } else {
            let mountpoint = self.workspace.mountpoint();
            let log = self
                .workspace
                .logs()
                .join(format!("{}.log", self.log_name(&format!("{title}-volume"))));
            rig.volume = Some(Volume::mount(
                &backing,
                &mountpoint,
                &self.workspace.run(),
                &log,
            )?);
            mountpoint.join("data")
        };
        let run_folder = self.workspace.run().join(self.log_name(title));
        rig.log = Some((
            run_folder.join("error.log"),
            self.workspace
                .logs()
                .join(format!("{}.log", self.log_name(&format!("{title}-server")))),
        ));
        let mut options = Options::new(&datadir, &run_folder).buffer_pool(self.plan.pool);
        for setting in settings::settings(self.installation.flavour) {
            options = options.option(setting.option);
        }
        if name == SideName::On {
            let library = self.tools.library.as_ref().context("no bpe.so")?;
            options = options.plugin(library, "bpe", Load::Early);
        }
        rig.server = Some(self.installation.start(options)?);
        let where_ = match name {
            SideName::Ceiling => "all data on the fast disk",
            SideName::Off => "data on the volume, no extension",
            SideName::On => "data on the volume, extension loaded",
        };
        stage.finish(&format!("{title}: server is up ({where_})"));
        Ok(rig)
    }

    /// The load on the reference's tables on a server of a side.
    pub fn sysbench<'a>(&'a self, server: &'a Server) -> Sysbench<'a> {
        Sysbench {
            program: &self.tools.sysbench,
            socket: server.socket(),
            user: "root",
            tables: self.plan.tables(),
            logs: self.workspace.logs(),
        }
    }

    fn measure_side(&self, name: SideName, rig: &Rig, run: &mut PoolRun) -> Result<()> {
        let server = rig.server.as_ref().context("no server")?;
        let volume = rig.volume.as_ref();
        let mut observer = Observer::new(server)?;
        let sysbench = self.sysbench(server);
        if name == SideName::On {
            run.memory = Some(extension::switch_on(self, server)?);
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
        if name == SideName::On
            && let Some(memory) = &mut run.memory
        {
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
            .stage(&format!("{title}: {script}"), times.lead + times.test);
        let log = |part: &str| self.log_name(&format!("{title}-{script}{part}"));
        let (lead, _) = sysbench.run(workload, times.lead, &log("-lead"), &mut |interval| {
            stage.message(&live(interval));
            Ok(ControlFlow::Continue(()))
        })?;
        let before = observer.snapshot(volume)?;
        let (intervals, summary) =
            sysbench.run(workload, times.test, &log(""), &mut |interval| {
                stage.message(&live(interval));
                Ok(ControlFlow::Continue(()))
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
            intervals,
            summary,
            work,
        })
    }
}

/// A server on its disk. Dropped in this order whatever happens: the server, the copy of its log,
/// the volume.
#[derive(Default)]
pub struct Rig {
    pub server: Option<Server>,
    /// The server's log, and where a copy of it stays.
    pub log: Option<(PathBuf, PathBuf)>,
    pub volume: Option<Volume>,
}

impl Rig {
    /// Stops the server cleanly and unmounts the volume.
    ///
    /// # Errors
    /// When either does not go.
    pub fn end(mut self) -> Result<()> {
        // A volume without limits, so that the last pages do not take their time.
        if let Some(volume) = &self.volume {
            volume.set_unlimited()?;
        }
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        if let Some(volume) = self.volume.take() {
            volume.unmount()?;
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some((from, to)) = self.log.take() {
            // Without a log there is nothing to keep.
            let _ = std::fs::copy(from, to);
        }
    }
}

/// A second of a test in words.
pub fn live(interval: &Interval) -> String {
    format!("{:.0} QPS, p95 {:.0} ms", interval.qps, interval.p95_ms)
}

/// Runs one plan; see [`Bench::run`].
///
/// # Errors
/// As [`Bench::run`], with the size of the pool.
pub fn run_plan(bench: &Bench, args: &Args) -> Result<PoolRun> {
    bench
        .run(args)
        .with_context(|| format!("the run with a pool of {}", size::human(bench.plan.pool)))
}
