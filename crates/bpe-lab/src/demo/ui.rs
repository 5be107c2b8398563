//! `bpe-lab demo --ui`: the demonstration's server on its emulated volume, under the console with the experience page.
//!
//! The extension is loaded with path and size, and off: the user operates the switch.

use std::process::ExitCode;

use anyhow::{Context, Result};
use bpe::console::Opening;
use bpe::enable::Locations;
use bpe::size::human;

use super::args::{Args, SideName};
use super::bench::Bench;
use super::dataset::Dataset;
use super::observer::target_of;
use super::{extension, plan, progress, tools, workspace};
use crate::experience;

/// Prepares everything, and serves until the process ends.
///
/// # Errors
/// A preparation step failed. Nothing stays running or mounted.
pub fn open(args: &Args) -> Result<ExitCode> {
    // Before the tables are loaded, which takes long.
    args.listening.check()?;
    let plans = plan::plans(args);
    let plan = plans.first().context("there is a plan")?;
    let tools = tools::Tools::find(args)?;
    let folder = args.folder();
    let workspace = workspace::Workspace::create(&folder)?;
    workspace.require_space(plan.disk_space())?;
    let progress = progress::Progress::new(plan.preparation());
    let installation = tools::provide_server(args, &progress)?;
    let bench = Bench {
        plan,
        tools: &tools,
        installation: &installation,
        workspace: &workspace,
        progress: &progress,
        tests: &args.tests,
    };
    let dataset = Dataset::provide(&bench, args.fresh)?;
    let rig = bench.set_up(SideName::On, &dataset)?;
    let server = rig.server()?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    extension::set_up(&bench, server)?;
    progress.close();

    let target = target_of(server)?;
    let places = Locations {
        library: tools.library.clone(),
        state_dir: Some(workspace.run().join("state")),
        conf_dir: None,
    };
    println!(
        "{} with a pool of {}, {} of data on an emulated cloud volume, and {} for the cache",
        installation.flavour.name(),
        human(plan.pool),
        human(dataset.data),
        human(plan.cache)
    );
    let name = format!("demo {}", installation.flavour.name());
    let mut opening = Opening::new(&args.listening, vec![(name, target)], &places)?;
    experience::offer(&mut opening, Some(workspace.logs().to_owned()))?;
    opening.serve()?;
    rig.end()?;
    Ok(ExitCode::SUCCESS)
}
