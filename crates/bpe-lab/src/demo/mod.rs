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
//! # Terms
//! - *Side*: a server without the extension (off), with it (on), or with all data on the fast disk (ceiling).
//! - *Phase*: what follows the tests on the server with the extension: switching, or restarts.
//! - *Figures*: measured values as stored in JSON. `--render` makes the report from them again.
//!
//! Modules: [`plan`] sizes everything, and [`settings`] has the options of every server. [`dataset`] loads the tables once
//! and keeps them. [`workspace`] is the directory, [`volume`] the cloud volume, and [`rig`] a server on it. [`stages`] runs
//! the sides in turn, and [`phases`] the steps after the tests with the extension. They fill [`results`], of which
//! [`presentation`] makes a report, and [`output`] writes both. [`progress`] shows the progress, and [`interrupt`] cleans up
//! after an early end.

mod args;
mod bench;
mod cluster;
mod dataset;
mod disk;
mod extension;
pub mod interrupt;
mod observer;
mod output;
mod phases;
mod plan;
mod presentation;
mod progress;
mod results;
mod rig;
mod settings;
mod stages;
mod tools;
mod ui;
mod volume;
mod work;
mod workspace;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
pub use args::Args;

use crate::report::Picture;

/// Runs the demonstration.
///
/// # Errors
/// A step failed; the error says what to do. In every case nothing stays running or mounted.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(json) = &args.render {
        let text = std::fs::read_to_string(json)
            .with_context(|| format!("cannot read {}", json.display()))?;
        let is_cluster = args.cluster.is_some();
        let rendered = match is_cluster {
            true => cluster::render(&text, json),
            false => render(&text, json),
        };
        let name = if is_cluster { "cluster" } else { "results" };
        rendered.with_context(|| format!("{} is not a {name}.json", json.display()))?;
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
    let mut results = results::Results::begin(args, &installation, &plans, &folder);
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
    results.environment.end();
    progress.close();
    let json = folder.join("results.json");
    output::store(&results, &presentation::report(&results), &json)?;
    draw_restarts(&results, &json)?;
    drop(workspace);
    Ok(ExitCode::SUCCESS)
}

/// Regenerates table and report from the text of a `results.json`.
fn render(text: &str, json: &Path) -> Result<()> {
    let results = serde_json::from_str(text)?;
    output::show(&presentation::report(&results), json)?;
    draw_restarts(&results, json)
}

/// Writes the curves of the restarts, if there were any, beside the file `json`.
fn draw_restarts(results: &results::Results, json: &Path) -> Result<()> {
    let restarts = results.runs.iter();
    let restarts = restarts.filter_map(|run| run.phases.restarts.as_ref());
    let charts: Vec<_> = restarts
        .flat_map(phases::restart::Restarts::charts)
        .collect();
    if charts.is_empty() {
        return Ok(());
    }
    let picture = Picture {
        title: "Restarts under load",
        note: format!("{}, oltp_read_write", results.environment.server),
        charts,
        columns: 1,
        each: (760.0, 270.0),
    };
    output::write(&json.with_file_name("restarts.svg"), picture.svg())
}
