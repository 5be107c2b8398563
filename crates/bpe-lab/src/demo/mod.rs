//! `bpe-lab demo`: demonstrates the extension on this machine, with the load test of the reference.
//!
//! A private server runs on an emulated cloud volume, first without the extension, then with it. Finally it runs with all
//! data on the fast disk, which is the ceiling. Each run uses the same files, options and sysbench commands.
//!
//! With `--restart` the server with the extension is restarted under load in three ways ([`phases`]).
//!
//! With `--cluster` three servers fail over, which measures the benefit of a warm standby ([`cluster`]).
//!
//! With `--ui` nothing is measured: the console opens on such a server ([`ui`]).
//!
//! Modules: [`plan`] sizes everything, and [`settings`] has the options of every server. [`dataset`] loads the tables once
//! and keeps them. [`workspace`] is the directory, [`volume`] the cloud volume, [`rig`] a server on it, [`sysbench`] the
//! load. [`stages`] runs the sides in turn, and [`phases`] the steps after the tests with the extension. They fill
//! [`results`]; [`table`] and [`report`] present them. [`progress`] shows the progress, and [`interrupt`] cleans up after an
//! early end.

pub mod args;
mod bench;
mod cluster;
mod dataset;
mod extension;
pub mod interrupt;
pub mod numbers;
mod observer;
mod phases;
pub mod plan;
mod progress;
pub mod report;
mod results;
mod rig;
mod settings;
mod stages;
pub mod sysbench;
pub mod table;
pub mod tools;
mod ui;
mod volume;
mod work;
mod workspace;

use std::process::ExitCode;

use anyhow::{Context, Result};
pub use args::Args;

/// Runs the demonstration.
///
/// # Errors
/// A step failed; the error says what to do. In every case nothing stays running or mounted.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(json) = &args.render {
        let text = std::fs::read_to_string(json)
            .with_context(|| format!("cannot read {}", json.display()))?;
        let folder = json.parent().unwrap_or(std::path::Path::new("."));
        if args.cluster.is_some() {
            cluster::render(&text, folder)
                .with_context(|| format!("{} is not a cluster.json", json.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let results = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a results.json", json.display()))?;
        show(&results, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let args = args.completed();
    interrupt::install()?;
    let result = if args.ui {
        ui::open(&args)
    } else if let Some(name) = args.cluster {
        cluster::demonstrate(name, &args)
    } else {
        demonstrate(&args)
    };
    // After a signal the interrupt thread cleans up and ends the process. A failure here is then a consequence of the
    // signal.
    interrupt::park_if_interrupted();
    result
}

fn demonstrate(args: &Args) -> Result<ExitCode> {
    let plans = plan::plans(args);
    let tools = tools::Tools::find(args)?;
    let folder = args.folder();
    let workspace = workspace::Workspace::create(&folder)?;
    let need: u64 = plans.iter().map(plan::Plan::disk_space).max().unwrap_or(0);
    workspace.require_space(need)?;
    if args.restart && workspace.shared().is_none() {
        anyhow::bail!(
            "--restart needs a folder in /dev/shm, where the extension keeps what survives a restart: none can be made there"
        );
    }

    let progress = progress::Progress::new(plans.iter().map(|p| p.estimate(args)).sum());
    let installation = tools::provide_server(args, &progress)?;
    let mut results = results::Results::begin(args, &installation, &plans, &folder)?;
    for plan in &plans {
        let bench = bench::Bench {
            plan,
            tools: &tools,
            installation: &installation,
            workspace: &workspace,
            progress: &progress,
            tests: &args.tests,
        };
        let run = stages::run_plan(&bench, args);
        match run {
            Ok(run) => results.runs.push(run),
            Err(error) => {
                progress.close();
                return Err(error.context(format!("logs are in {}", workspace.logs().display())));
            }
        }
    }
    results.end();
    progress.close();

    let json = folder.join("results.json");
    std::fs::write(&json, serde_json::to_string_pretty(&results)?)
        .with_context(|| format!("cannot write {}", json.display()))?;
    show(&results, &folder)?;
    drop(workspace);
    Ok(ExitCode::SUCCESS)
}

/// Writes the report into `folder` and prints the table.
fn show(results: &results::Results, folder: &std::path::Path) -> Result<()> {
    let html = folder.join("report.html");
    std::fs::write(&html, report::html(results))
        .with_context(|| format!("cannot write {}", html.display()))?;
    if let Some(curves) = report::restarts(results) {
        let svg = folder.join("restarts.svg");
        std::fs::write(&svg, curves).with_context(|| format!("cannot write {}", svg.display()))?;
    }
    print!("{}", table::text(results));
    println!(
        "\nReport with charts: {}\nFigures as JSON:    {}",
        workspace::shown(&html),
        workspace::shown(&folder.join("results.json"))
    );
    Ok(())
}
