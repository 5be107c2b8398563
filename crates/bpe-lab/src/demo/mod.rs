//! `bpe-lab demo`: shows on this machine what the extension does, with the load test of the reference.
//!
//! A private server runs on an emulated cloud volume, first without the extension, then with it,
//! and finally with all data on the fast disk itself, which is the ceiling. Each gets the same
//! files, the same options and the same three sysbench commands.
//!
//! With `--instances` something else is measured in the same surroundings: what it brings to cut
//! InnoDB's pool, and the extension, into instances ([`instances`]).
//!
//! With `--ui` nothing is measured: the console is opened on such a server ([`ui`]).
//!
//! The rooms: [`plan`] sizes everything; [`settings`] is what every server is started with;
//! [`dataset`] loads the tables once and keeps them; [`workspace`] is the folder, [`volume`] the
//! cloud volume, [`sysbench`] the load; [`stages`] runs one side after the other and fills
//! [`results`]; [`table`] and [`report`] show them. [`progress`] talks meanwhile, and [`interrupt`]
//! sees to it that nothing is left when it ends early.

mod dataset;
mod extension;
mod instances;
pub mod interrupt;
mod observer;
pub mod plan;
mod progress;
pub mod report;
mod results;
mod settings;
mod stages;
pub mod sysbench;
pub mod table;
pub mod tools;
mod ui;
mod volume;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bpe_command::{console, size};

/// What clap parses.
#[derive(clap::Args)]
pub struct Args {
    /// The server: mariadb-10.11, mariadb-11.8 or mysql-9.7
    /// [default: mariadb-10.11, with --instances mysql-9.7]
    #[arg(long, value_parser = server_name)]
    server: Option<private_server::Flavour>,
    /// Sizes of the buffer pool, each with a table of its own, such as 128M,256M
    /// [default: 128M, with --quick or --instances 40M]
    #[arg(long, value_delimiter = ',', value_parser = size::parse)]
    pool: Vec<u64>,
    /// Multiplies the default pool, and with it data and cache, for bigger machines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024),
          conflicts_with = "pool")]
    scale: u64,
    /// Measure instances instead: InnoDB's pool and the extension, each with one instance and with eight; throughput and lock figures, in under ten minutes
    #[arg(long)]
    instances: bool,
    /// Do not measure: prepare the server and its tables, and open the console with the experience page on them, until Ctrl-C
    #[arg(long, conflicts_with = "instances")]
    ui: bool,
    /// With --ui: also offer the sysbench scripts (*.lua) in this folder. They run on this host with your rights, so folder, scripts, their modules and all folders above must be yours or root's, and nobody else may write to them
    #[arg(long, value_name = "FOLDER", requires = "ui")]
    scripts: Option<PathBuf>,
    /// A short run, under four minutes (with --instances five): smaller, and less exact
    #[arg(long)]
    quick: bool,
    /// Seconds of each measured test [default: 30, with --quick 10; with --instances 10 and 4]
    #[arg(long, value_parser = clap::value_parser!(u64).range(3..=3600))]
    time: Option<u64>,
    /// Set a variable of the extension, such as compression=lz4; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = plan::Variable::parse, conflicts_with = "instances")]
    set: Vec<plan::Variable>,
    /// Folder for the report and, while it runs, for the servers: on the fast local disk
    /// [default: demo-SERVER in the current folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Load new tables instead of using those kept from an earlier run, and keep none
    #[arg(long)]
    fresh: bool,
    /// The extension's library [default: bpe.so beside this program]
    #[arg(long)]
    library: Option<PathBuf>,
    /// Run some sides only (for work on the demonstration itself)
    #[arg(long, hide = true, value_delimiter = ',', default_values = ["off", "on", "ceiling"])]
    sides: Vec<results::SideName>,
    /// Run some tests only (for work on the demonstration itself)
    #[arg(long, hide = true, value_delimiter = ',',
          default_values = ["read_only", "write_only", "read_write"])]
    tests: Vec<sysbench::Workload>,
    /// Make table and report anew from a results.json (for work on the report itself)
    #[arg(long, hide = true, value_name = "JSON")]
    render: Option<PathBuf>,
    #[command(flatten, next_help_heading = "With --ui")]
    listening: console::Listening,
}

impl Args {
    /// The server that is asked for.
    fn flavour(&self) -> private_server::Flavour {
        self.server.unwrap_or(if self.instances {
            private_server::Flavour::MySql97
        } else {
            private_server::Flavour::MariaDb1011
        })
    }

    /// The folder for report and work.
    fn folder(&self) -> PathBuf {
        self.folder
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("demo-{}", self.flavour().name())))
    }
}

fn server_name(text: &str) -> Result<private_server::Flavour, String> {
    private_server::Flavour::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = private_server::Flavour::ALL.map(|f| f.name()).to_vec();
        format!("known servers are {}", names.join(", "))
    })
}

/// Runs the demonstration.
///
/// # Errors
/// With what happened and what to do. Whatever the outcome, nothing stays running or mounted.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(json) = &args.render {
        let text = std::fs::read_to_string(json)
            .with_context(|| format!("cannot read {}", json.display()))?;
        let results = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a results.json", json.display()))?;
        show(&results, json.parent().unwrap_or(std::path::Path::new(".")))?;
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::install()?;
    let result = if args.ui {
        ui::open(&args)
    } else if args.instances {
        instances::demonstrate(&args)
    } else {
        demonstrate(&args)
    };
    // After a signal the interrupt thread cleans up and ends the process; what failed here meanwhile
    // failed because of it.
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

    let progress = progress::Progress::new(plans.iter().map(|p| p.estimate(args)).sum());
    let installation = provide_server(args, &progress)?;
    let mut results = results::Results::begin(args, &installation, &plans, &folder)?;
    for plan in &plans {
        let bench = stages::Bench {
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
    print!("{}", table::text(results));
    println!(
        "\nReport with charts: {}\nFigures as JSON:    {}",
        shown(&html),
        shown(&folder.join("results.json"))
    );
    Ok(())
}

fn shown(path: &std::path::Path) -> String {
    path.canonicalize()
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

fn provide_server(
    args: &Args,
    progress: &progress::Progress,
) -> Result<private_server::Installation> {
    let stage = progress.stage(&format!("Finding {}", args.flavour().name()), 0);
    let mut lines = 0_u32;
    let found = args.flavour().provide(&mut |line| {
        lines += 1;
        // The first line says what is happening; debootstrap's own ones pass by.
        if lines == 1 {
            progress.say(line);
        } else {
            stage.message(line);
        }
    });
    match found {
        Ok(installation) => {
            stage.finish(&format!(
                "Server: {} {}",
                if installation.flavour.is_mysql() {
                    "MySQL"
                } else {
                    "MariaDB"
                },
                installation.version
            ));
            Ok(installation)
        }
        Err(error) => {
            progress.close();
            let hint = match args.flavour() {
                private_server::Flavour::MariaDb1011 => {
                    "\nOn Debian 12: apt-get install mariadb-server-core"
                }
                _ => "\nIt needs root and debootstrap: apt-get install debootstrap",
            };
            bail!("{error}{hint}")
        }
    }
}
