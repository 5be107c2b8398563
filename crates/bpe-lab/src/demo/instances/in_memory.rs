//! All data in InnoDB's pool: the effect of `innodb_buffer_pool_instances` alone.

use anyhow::{Result, bail};
use private_server::{Options, Server};

use super::super::args::Workload;
use super::super::bench::Bench;
use super::super::dataset::Dataset;
use super::super::plan::{Plan, THREADS, Tables};
use super::super::rig::Rig;
use super::super::settings;
use super::super::sysbench::Sysbench;
use super::figures::{InMemory, InMemoryTest};
use super::load::measure;
use super::mutexes;
use super::rounds::{COUNTS, ROUNDS, WORKLOADS, order, start_time};

/// Without these options the disk would be the limit, which is not measured here.
const RELAXED: [&str; 2] = ["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"];

/// Approximate duration, seconds.
pub fn estimate(plan: &Plan) -> u64 {
    let servers = (ROUNDS * COUNTS.len()) as u64;
    let test = plan.times.lead + plan.times.test;
    let tests: u64 = [plan.single_table(), plan.tables()]
        .iter()
        .map(|tables| WORKLOADS.len() as u64 * (start_time(tables.count) + test))
        .sum();
    let gib = plan.data() as f64 / (1_u64 << 30) as f64;
    let load = (gib * 35.0) as u64 + 8;
    load + servers * (up(plan) + tests)
}

/// Seconds for starting, reading everything and stopping.
fn up(plan: &Plan) -> u64 {
    5 + (plan.data() >> 27)
}

/// Runs the experiment on one copy of the tables, which all servers use in turn.
///
/// # Errors
/// The first failure. The server is gone then.
pub fn run(bench: &Bench, dataset: &Dataset) -> Result<InMemory> {
    let datadir = bench.workspace.backing().join("data");
    bench.workspace.empty(&bench.workspace.backing())?;
    dataset.copy_to(&datadir)?;
    let mut measured = InMemory {
        pool: bench.plan.pool,
        data: dataset.data,
        rows: bench.plan.single_table().rows,
        threads: THREADS,
        options: RELAXED
            .iter()
            .chain(&mutexes::OPTIONS)
            .map(|option| (*option).to_owned())
            .collect(),
        tests: Vec::new(),
    };
    for round in 0..ROUNDS {
        for instances in order(round) {
            let rig = start(bench, instances)?;
            let server = rig.server()?;
            for tables in [bench.plan.single_table(), bench.plan.tables()] {
                for workload in WORKLOADS {
                    let mut test = run_test(bench, server, instances, tables, workload)?;
                    test.round = round;
                    measured.tests.push(test);
                }
            }
            rig.end()?;
        }
    }
    Ok(measured)
}

fn start(bench: &Bench, instances: u64) -> Result<Rig> {
    let plural = if instances == 1 { "" } else { "s" };
    let stage = bench.progress.stage(
        &format!("pool of {instances} instance{plural}: starting"),
        up(bench.plan),
    );
    let name = bench.log_name(&format!("instances-{instances}"));
    let run_folder = bench.workspace.run().join(&name);
    let datadir = bench.workspace.backing().join("data");
    let mut options = Options::new(&datadir, &run_folder).buffer_pool(bench.plan.pool);
    for setting in settings::settings(bench.installation.flavour, bench.plan.restart) {
        options = options.option(setting.option);
    }
    for option in RELAXED.iter().chain(&mutexes::OPTIONS) {
        options = options.option(*option);
    }
    options = options.option(format!("--innodb-buffer-pool-instances={instances}"));
    let mut rig = Rig::default();
    rig.log = Some((
        run_folder.join("error.log"),
        bench.workspace.logs().join(format!("{name}-server.log")),
    ));
    let server = rig.server.insert(bench.installation.start(options)?);
    let got = server.value("SELECT @@GLOBAL.innodb_buffer_pool_instances")?;
    if got.as_deref() != Some(&instances.to_string()) {
        bail!(
            "the server made {} pool instances where {instances} were asked for",
            got.as_deref().unwrap_or("no")
        );
    }
    stage.message("reading all tables into memory");
    for tables in bench.plan.all_tables() {
        for number in 1..=tables.count {
            let table = format!("{}.sbtest{number}", tables.database);
            server.sql(&format!("SELECT SUM(LENGTH(c)) FROM {table}"))?;
            server.sql(&format!(
                "SELECT SUM(k) FROM {table} FORCE INDEX (k_{number})"
            ))?;
        }
    }
    stage.finish(&format!(
        "pool of {instances} instance{plural}: server is up, all tables are in memory"
    ));
    Ok(rig)
}

fn run_test(
    bench: &Bench,
    server: &Server,
    instances: u64,
    tables: Tables,
    workload: Workload,
) -> Result<InMemoryTest> {
    let times = bench.plan.times;
    let script = workload.script();
    let title = format!(
        "pool of {instances}: {script}, {} table{}",
        tables.count,
        if tables.count == 1 { "" } else { "s" }
    );
    let stage = bench
        .progress
        .stage(&title, start_time(tables.count) + times.lead + times.test);
    let sysbench = Sysbench {
        tables,
        ..bench.sysbench(server.socket())
    };
    let log = bench.log_name(&format!("instances-{instances}-{script}-{}", tables.count));
    let measured = measure(&sysbench, workload, times, &log, &stage, || {
        Ok((mutexes::read(server)?, pages_read(server)?))
    })?;
    stage.finish(&format!("{title}: {:.0} QPS", measured.qps));
    let (before, after) = (measured.before, measured.after);
    Ok(InMemoryTest {
        round: 0,
        instances,
        tables: tables.count,
        script: script.into(),
        qps: measured.qps,
        summary: measured.summary,
        seconds: measured.seconds,
        mutexes: mutexes::between(&before.0, &after.0),
        pages_read: after.1.saturating_sub(before.1),
    })
}

fn pages_read(server: &Server) -> Result<u64> {
    Ok(server
        .status("Innodb_buffer_pool_reads")?
        .into_values()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0))
}
