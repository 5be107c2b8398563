//! `bpe-lab demo --cluster`: what a standby's extension is worth when the primary dies.
//!
//! Three servers, each with its data directory on an emulated cloud volume of its own and its cache on the fast disk, are made a
//! cluster of physical copies ([`nodes`], [`topology`]). A [`load`] at a fixed rate follows the primary, which is killed; the
//! standby takes over. This is done with a standby that has only what replication brought to it, with one that was kept warm
//! ([`warmth`]), and without the extension ([`failover`]). [`figures`] is what is kept, [`shown`] and [`page`] show it.

mod account;
mod failover;
mod figures;
mod load;
pub mod name;
mod nodes;
mod page;
mod plan;
mod processors;
mod shown;
mod topology;
mod warmth;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::args::{Args, Workload};
use super::bench::Bench;
use super::dataset::Dataset;
use super::progress::Progress;
use super::results::Machine;
use super::tools::{Tools, provide_server};
use super::workspace::{Workspace, shown};
use figures::Figures;
use name::ClusterName;
use plan::ClusterPlan;

/// No sysbench test is run here.
const TESTS: [Workload; 0] = [];

/// All failovers.
///
/// # Errors
/// With what happened and what to do. Whatever the outcome, nothing stays running or mounted.
pub fn demonstrate(name: ClusterName, args: &Args) -> Result<ExitCode> {
    let plan = ClusterPlan::new(name, args)?;
    let tools = Tools::find(args)?;
    if tools.library.is_none() {
        bail!("--cluster measures the extension: leave \"on\" among the --sides");
    }
    topology::require(name)?;
    warmth::program()?;
    let folder = args.folder();
    let workspace = Workspace::create(&folder)?;
    workspace.require_space(plan.disk_space())?;

    let progress = Progress::new(plan.estimate());
    let installation = provide_server(args, &progress)?;
    let bench = Bench {
        plan: &plan.size,
        tools: &tools,
        installation: &installation,
        workspace: &workspace,
        progress: &progress,
        tests: &TESTS,
    };
    let options = plan.name.options(&nodes::wiring(&bench)?, 1);
    let mut figures = Figures::begin(
        &plan,
        args.quick,
        &installation,
        Machine::look(&folder),
        options,
    );
    let measured = measure(&bench, &plan, args, &mut figures);
    progress.close();
    measured.with_context(|| format!("logs are in {}", workspace.logs().display()))?;
    figures.end();

    let json = folder.join("cluster.json");
    std::fs::write(&json, serde_json::to_string_pretty(&figures)?)
        .with_context(|| format!("cannot write {}", json.display()))?;
    show(&figures, &folder)?;
    println!("Figures as JSON:    {}", shown(&json));
    drop(workspace);
    Ok(ExitCode::SUCCESS)
}

fn measure(bench: &Bench, plan: &ClusterPlan, args: &Args, figures: &mut Figures) -> Result<()> {
    let dataset = Dataset::provide(bench, args.fresh)?;
    figures.data = dataset.data;
    let image = nodes::prepare(bench, plan, &dataset)?;
    if args.fresh {
        bench.workspace.empty(&bench.workspace.prepared())?;
    }
    for standby in &plan.standbys {
        let failover = failover::run(bench, plan, &image, *standby)
            .with_context(|| format!("the failover with a {}", standby.title()))?;
        figures.failovers.push(failover);
    }
    Ok(())
}

/// Writes the report into `folder` and prints the table.
fn show(figures: &Figures, folder: &Path) -> Result<()> {
    let html = folder.join("report.html");
    std::fs::write(&html, page::page(figures).into_string())
        .with_context(|| format!("cannot write {}", html.display()))?;
    print!("{}", shown::text(figures));
    println!("\nReport with charts: {}", shown(&html));
    Ok(())
}

/// Makes table and report anew from a `cluster.json`.
///
/// # Errors
/// When it is none.
pub fn render(text: &str, folder: &Path) -> Result<()> {
    show(&serde_json::from_str(text)?, folder)
}
