//! `bpe-lab demo --instances`: the effect of instances on InnoDB's pool and on the extension.
//!
//! Two experiments compare one instance with eight, in alternating order over two rounds, so that a drift of the machine
//! affects both:
//!
//! 1. [`in_memory`]: MySQL with all data in its pool, with `innodb_buffer_pool_instances`. It uses one table, and thirty
//!    tables with as many rows in total. performance_schema shows the locks ([`mutexes`]). MariaDB has a single pool, so the
//!    experiment is skipped there, with the reason.
//! 2. [`beyond_memory`]: the demonstration's usual load, 25 times the pool, on the emulated volume with the extension on,
//!    with `bpe_instances`. `bpe_report('instances')` shows the locks.
//!
//! [`load`] runs one test of either, [`figures`] has the results, [`table`] prints them.

mod beyond_memory;
mod figures;
mod in_memory;
mod load;
mod mutexes;
mod rounds;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bpe::size;

use super::args::Args;
use super::bench::Bench;
use super::dataset::Dataset;
use super::plan::{Plan, Times};
use super::progress::Progress;
use super::results::Machine;
use super::tools::{Tools, provide_server};
use super::workspace::{Workspace, shown};
use figures::Figures;
use rounds::WORKLOADS;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Minimum pool that MySQL divides into instances. A smaller one stays undivided with any setting.
const LEAST_POOL: u64 = GIB;
/// Pool of the load beyond memory: as in `bpe-lab demo --quick`, whose tables are used as well.
const SMALL_POOL: u64 = 40 * MIB;
const CEASED: &str = "MariaDB has had a single buffer pool instance since 10.5, and no innodb_buffer_pool_instances \
                      to set since 10.6";

/// Runs both experiments.
///
/// # Errors
/// A step failed; the error says what to do. In every case nothing stays running or mounted.
pub fn demonstrate(args: &Args) -> Result<ExitCode> {
    let flavour = args.flavour();
    let beyond = beyond_plan(args)?;
    let memory = flavour.is_mysql().then(|| memory_plan(args));
    let tools = Tools::find(args)?;
    if tools.library.is_none() {
        bail!("--instances measures the extension: leave \"on\" among the --sides");
    }
    let folder = args.folder();
    let workspace = Workspace::create(&folder)?;
    let need = memory.iter().chain([&beyond]).map(Plan::disk_space).max();
    workspace.require_space(need.unwrap_or(0))?;
    if let Some(plan) = &memory {
        require_memory(plan.pool)?;
    }

    let estimate =
        memory.as_ref().map_or(0, in_memory::estimate) + beyond_memory::estimate(&beyond);
    let progress = Progress::new(estimate);
    let installation = provide_server(args, &progress)?;
    let mut figures = Figures::begin(args.quick, &installation, Machine::look(&folder));
    let bench = |plan| Bench {
        plan,
        tools: &tools,
        installation: &installation,
        workspace: &workspace,
        progress: &progress,
        tests: &WORKLOADS,
    };
    let measured = (|| -> Result<()> {
        match &memory {
            Some(plan) => {
                let measured = with_tables(&bench(plan), args, in_memory::run);
                figures.in_memory = Some(measured.context("the load with all data in memory")?);
            }
            None => {
                progress.say(&format!("Left out, with all data in memory: {CEASED}."));
                figures.in_memory_left_out = Some(CEASED.into());
            }
        }
        let measured = with_tables(&bench(&beyond), args, beyond_memory::run);
        figures.beyond_memory = Some(measured.context("the load beyond memory")?);
        Ok(())
    })();
    progress.close();
    measured.with_context(|| format!("logs are in {}", workspace.logs().display()))?;
    figures.end();

    let json = folder.join("instances.json");
    std::fs::write(&json, serde_json::to_string_pretty(&figures)?)
        .with_context(|| format!("cannot write {}", json.display()))?;
    print!("{}", table::text(&figures));
    println!("\nFigures as JSON: {}", shown(&json));
    drop(workspace);
    Ok(ExitCode::SUCCESS)
}

fn with_tables<T>(
    bench: &Bench,
    args: &Args,
    run: impl Fn(&Bench, &Dataset) -> Result<T>,
) -> Result<T> {
    let dataset = Dataset::provide(bench, args.fresh)?;
    let measured = run(bench, &dataset)?;
    bench.workspace.empty(&bench.workspace.backing())?;
    bench.workspace.empty(&bench.workspace.fast())?;
    if args.fresh {
        std::fs::remove_dir_all(&dataset.datadir)?;
        bench.workspace.empty(&bench.workspace.prepared())?;
        std::fs::remove_dir(bench.workspace.prepared())?;
    }
    Ok(measured)
}

fn times(args: &Args) -> Times {
    let (test, lead, warm_max) = if args.quick { (4, 1, 8) } else { (10, 2, 30) };
    Times {
        lead,
        lead_max: lead,
        test: args.time.unwrap_or(test),
        warm_max,
        switch: 0,
        after: 0,
    }
}

/// Pool and tables of the load in memory. The tables (thirty and the single one) take 60 % of the pool, with `--quick` less.
fn memory_plan(args: &Args) -> Plan {
    Plan {
        pool: LEAST_POOL * args.scale,
        cache: 0,
        rows: if args.quick { 10_000 } else { 40_000 } * args.scale,
        single: true,
        restart: false,
        variables: Vec::new(),
        times: times(args),
    }
}

fn beyond_plan(args: &Args) -> Result<Plan> {
    let pool = match args.pool[..] {
        [] => SMALL_POOL * args.scale,
        [pool] => pool,
        _ => bail!("--instances takes one --pool only, that of the load beyond memory"),
    };
    Ok(Plan::new(pool, times(args)))
}

/// Fails if the machine would swap.
fn require_memory(pool: u64) -> Result<()> {
    let need = pool + pool / 2;
    match replay::available_memory() {
        Some(available) if available < need => bail!(
            "{} of memory are available, a server with a pool of {} needs about {}: MySQL cuts no smaller pool into \
             instances; free some memory, or measure the extension alone with --server mariadb-10.11",
            size::human(available),
            size::human(pool),
            size::human(need)
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::rounds::order;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let words = ["demo", "--instances"].iter().chain(words);
        Cli::try_parse_from(words).unwrap().args
    }

    #[test]
    fn the_pool_holds_all_data_and_can_be_cut() {
        for words in [&[][..], &["--quick"], &["--scale", "4"]] {
            let plan = memory_plan(&args(words));
            assert!(plan.pool >= LEAST_POOL);
            let ratio = plan.data() as f64 / plan.pool as f64;
            assert!((0.1..0.75).contains(&ratio), "{ratio}");
            assert_eq!(
                plan.single_table().rows,
                plan.tables().rows * plan.tables().count
            );
        }
    }

    #[test]
    fn it_ends_within_its_promise() {
        for (words, limit) in [(&[][..], 600), (&["--quick"][..], 300)] {
            let args = args(words);
            let seconds = in_memory::estimate(&memory_plan(&args))
                + beyond_memory::estimate(&beyond_plan(&args).unwrap());
            assert!(seconds <= limit, "{words:?}: {seconds} s");
        }
    }

    #[test]
    fn the_order_alternates() {
        assert_eq!(order(0), [1, 8]);
        assert_eq!(order(1), [8, 1]);
        assert_eq!(args(&[]).flavour(), private_server::Flavour::MySql97);
        assert!(beyond_plan(&args(&["--pool", "64M,128M"])).is_err());
    }
}
