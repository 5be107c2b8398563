//! `bpe-lab demo --cluster`: the benefit of a standby's extension when the primary dies.
//!
//! Three servers form a cluster of physical copies ([`nodes`], [`topology`]). Each has its data directory on a separate
//! emulated cloud volume, and its cache on the fast disk. A [`load`] at a fixed rate follows the primary, which is killed.
//! The standby takes over. Three variants: a standby filled by replication only, one that was kept warm ([`warmth`]), and
//! one without the extension ([`failover`]). [`figures`] has the results, [`shown`] and [`page`] present them.

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

/// This demonstration runs no sysbench test.
const TESTS: [Workload; 0] = [];

/// Runs all failovers.
///
/// # Errors
/// A step failed; the error says what to do. In every case nothing stays running or mounted.
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

/// Regenerates table and report from a `cluster.json`.
///
/// # Errors
/// The text is not such a file.
pub fn render(text: &str, folder: &Path) -> Result<()> {
    show(&serde_json::from_str(text)?, folder)
}
