//! More data than memory, on the emulated volume: the effect of `bpe_instances` on the extension.

use anyhow::{Context, Result, bail};
use private_server::{Load, Options, Server};
use serde::Deserialize;

use super::super::args::Workload;
use super::super::bench::Bench;
use super::super::dataset::Dataset;
use super::super::observer::Observer;
use super::super::plan::{Plan, TABLES, THREADS};
use super::super::rig::Rig;
use super::super::sysbench::Sysbench;
use super::super::volume::Volume;
use super::super::{extension, settings};
use super::figures::{BeyondMemory, BeyondMemoryTest, Locks};
use super::load::measure;
use super::rounds::{COUNTS, ROUNDS, WORKLOADS, order, start_time};

/// Approximate duration, seconds.
pub fn estimate(plan: &Plan) -> u64 {
    let gib = plan.data() as f64 / (1_u64 << 30) as f64;
    let load = (gib * 25.0) as u64 + 5;
    let settings = (ROUNDS * COUNTS.len()) as u64;
    let start = start_time(plan.tables().count);
    let tests = WORKLOADS.len() as u64 * (start + plan.times.lead + plan.times.test);
    load + (gib * 5.0) as u64 + 8 + settings * (start + plan.times.warm_max + tests)
}

/// Runs the experiment on one server. Each setting starts with an empty cache and fills it.
///
/// # Errors
/// The first failure. Server and volume are gone then.
pub fn run(bench: &Bench, dataset: &Dataset) -> Result<BeyondMemory> {
    let rig = start(bench, dataset)?;
    let server = rig.server()?;
    let volume = rig.volume.as_ref();
    let sysbench = bench.sysbench(server.socket());
    let mut observer = Observer::new(server)?;
    let mut measured = BeyondMemory {
        pool: bench.plan.pool,
        data: dataset.data,
        cache: bench.plan.cache,
        tables: TABLES,
        rows: bench.plan.rows,
        threads: THREADS,
        tests: Vec::new(),
    };
    for round in 0..ROUNDS {
        for instances in order(round) {
            server.sql("SET GLOBAL bpe_enabled = OFF")?;
            server.sql(&format!("SET GLOBAL bpe_instances = {instances}"))?;
            extension::switch_on(bench, server)?;
            let got = counters(server)?.len() as u64;
            if got != instances {
                bail!("the extension made {got} instances where {instances} were asked for");
            }
            extension::warm_up(bench, &sysbench, &mut observer, volume)?;
            for workload in WORKLOADS {
                let mut test = run_test(bench, server, &sysbench, instances, workload)?;
                test.round = round;
                measured.tests.push(test);
            }
        }
    }
    drop(observer);
    rig.end()?;
    Ok(measured)
}

fn start(bench: &Bench, dataset: &Dataset) -> Result<Rig> {
    let stage = bench.progress.stage(
        "extension: copying the tables",
        (dataset.data >> 30) * 5 + 8,
    );
    let workspace = bench.workspace;
    workspace.empty(&workspace.backing())?;
    workspace.empty(&workspace.fast())?;
    dataset.copy_to(&workspace.backing().join("data"))?;
    stage.message("starting the server");
    let name = bench.log_name("instances-extension");
    let logs = workspace.logs();
    let run_folder = workspace.run().join(&name);
    let mut rig = Rig::default();
    rig.volume = Some(Volume::mount(
        &workspace.backing(),
        &workspace.mountpoint(),
        &workspace.run().join("volume-control"),
        &logs.join(format!("{name}-volume.log")),
    )?);
    rig.log = Some((
        run_folder.join("error.log"),
        logs.join(format!("{name}-server.log")),
    ));
    let datadir = workspace.mountpoint().join("data");
    let mut options = Options::new(&datadir, &run_folder).buffer_pool(bench.plan.pool);
    for setting in settings::settings(bench.installation.flavour, bench.plan.restart) {
        options = options.option(setting.option);
    }
    let library = bench.tools.library.as_ref().context("no bpe.so")?;
    options = options.plugin(library, "bpe", Load::Early);
    for option in workspace.keeping() {
        options = options.option(option);
    }
    rig.options = Some(options);
    let server = rig.start(bench.installation, &[])?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    stage.finish("extension: server is up (data on the volume)");
    Ok(rig)
}

fn run_test(
    bench: &Bench,
    server: &Server,
    sysbench: &Sysbench,
    instances: u64,
    workload: Workload,
) -> Result<BeyondMemoryTest> {
    let times = bench.plan.times;
    let script = workload.script();
    let title = format!("extension of {instances}: {script}");
    let seconds = start_time(sysbench.tables.count) + times.lead + times.test;
    let stage = bench.progress.stage(&title, seconds);
    let log = bench.log_name(&format!("instances-extension-{instances}-{script}"));
    let measured = measure(sysbench, workload, times, &log, &stage, || counters(server))?;
    let locks = between(&measured.before, &measured.after);
    stage.finish(&format!(
        "{title}: {:.0} QPS, {:.3} % of the lock accesses found it held",
        measured.qps,
        locks.held().unwrap_or(0.0)
    ));
    Ok(BeyondMemoryTest {
        round: 0,
        instances,
        script: script.into(),
        qps: measured.qps,
        summary: measured.summary,
        seconds: measured.seconds,
        locks,
    })
}

/// One row of `bpe_report('instances')`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Counters {
    hits: u64,
    misses: u64,
    accesses: u64,
    lock_accesses: u64,
    lock_waits: u64,
}

fn counters(server: &Server) -> Result<Vec<Counters>> {
    let text = server
        .value("SELECT bpe_report('instances')")?
        .context("the extension reports no instances")?;
    serde_json::from_str(&text).context("the extension's report of its instances")
}

/// Differences between two readings.
fn between(before: &[Counters], after: &[Counters]) -> Locks {
    let mut locks = Locks::default();
    for (then, now) in before.iter().zip(after) {
        let accesses = now.accesses.saturating_sub(then.accesses);
        locks.hits += now.hits.saturating_sub(then.hits);
        locks.misses += now.misses.saturating_sub(then.misses);
        locks.accesses += accesses;
        locks.hottest = locks.hottest.max(accesses);
        locks.lock_accesses += now.lock_accesses.saturating_sub(then.lock_accesses);
        locks.lock_waits += now.lock_waits.saturating_sub(then.lock_waits);
    }
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_subtracted_and_added_up() {
        let row = |accesses, lock_waits| Counters {
            hits: accesses,
            misses: 0,
            accesses,
            lock_accesses: 2 * accesses,
            lock_waits,
        };
        let locks = between(&[row(10, 1), row(10, 1)], &[row(20, 1), row(40, 3)]);
        assert_eq!((locks.accesses, locks.hottest), (40, 30));
        assert_eq!((locks.lock_accesses, locks.lock_waits), (80, 2));
    }
}
