//! `bpe-lab demo --cluster`: the benefit of a standby's extension when the primary dies.
//!
//! Three servers form a cluster of physical copies ([`nodes`], [`topology`]). Each has its data directory on a separate
//! emulated cloud volume, and its cache on the fast disk. A [`load`] at a fixed rate follows the primary, which is killed.
//! The standby takes over. Three variants: a standby filled by replication only, one that was kept warm ([`warmth`]), and
//! one without the extension ([`failover`]). [`figures`] has the results, [`presentation`] fills the
//! report.

mod account;
mod failover;
mod figures;
mod load;
pub mod name;
mod nodes;
mod plan;
mod presentation;
mod processors;
mod topology;
mod warmth;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::args::Args;
use super::bench::Bench;
use super::dataset::Dataset;
use super::output::{show, store};
use super::progress::Progress;
use super::settings;
use super::tools::{Tools, provide_server};
use super::workspace::Workspace;
use crate::report::Environment;
use crate::sysbench::Workload;
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
    let settings = settings::with_reasons(installation.flavour, false);
    let environment = Environment::begin(args.quick, &installation, &folder, settings);
    let mut figures = Figures::begin(&plan, environment, options);
    let measured = measure(&bench, &plan, args, &mut figures);
    progress.close();
    measured.with_context(|| format!("logs are in {}", workspace.logs().display()))?;
    figures.environment.end();

    store(
        &figures,
        &presentation::report(&figures),
        &folder.join("cluster.json"),
    )?;
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

/// Regenerates table and report from the text of a `cluster.json`.
///
/// # Errors
/// The text is not such a file.
pub fn render(text: &str, json: &Path) -> Result<()> {
    let figures = serde_json::from_str(text)?;
    show(&presentation::report(&figures), json)
}
