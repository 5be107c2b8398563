//! What a run consists of; steps other than trials, and their tiers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One process that gives a verdict.
#[derive(Clone, Debug)]
pub struct Step {
    /// `subject::...`
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(&'static str, String)>,
    /// Working directory. None: the workspace.
    pub folder: Option<PathBuf>,
    pub load: Load,
    pub when: When,
    /// A disabled rule must be detected in it.
    pub is_canary: bool,
    /// It needs `dist/`.
    pub needs_dist: bool,
}

/// Start of the line that `--list` prints for a trial which the full tier runs on one of two servers.
const IN_TURN: &str = "[in turn] ";

/// A trial, as its program lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// `subject::server::...`
    pub name: String,
    /// The full tier runs it on one of two servers.
    pub in_turn: bool,
}

impl Trial {
    pub fn of(listed: &str) -> Trial {
        let name = listed.strip_prefix(IN_TURN);
        Trial {
            name: name.unwrap_or(listed).to_owned(),
            in_turn: name.is_some(),
        }
    }
}

/// Result of a step.
pub struct Outcome {
    pub step: Step,
    pub passed: bool,
    pub took: Duration,
    /// Processor time of it and of the servers that it started.
    pub processor: Duration,
    /// Its output.
    pub output: PathBuf,
    /// Notes of the harness: kind, test and text, separated by tabs.
    pub notes: PathBuf,
}

/// A step's load on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Waits for a server most of the time.
    Third,
    /// Keeps one processor busy.
    One,
    /// Measures, or uses all processors: no other step may run beside it.
    Alone,
}

/// The tier of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In every tier.
    Always,
    /// In the full tier, and in this sixth of it.
    Sixth(u64),
}

impl Step {
    /// A step that runs a program with arguments.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, arguments: &[&str]) -> Step {
        Step {
            name: name.into(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            folder: None,
            load: Load::One,
            when: When::Always,
            is_canary: false,
            needs_dist: false,
        }
    }

    /// The part of the name that users select.
    pub fn subject(&self) -> &str {
        self.name.split("::").next().unwrap_or_default()
    }

    /// Whether it runs a program that cargo built, in its package's directory.
    pub fn is_of_a_program(&self) -> bool {
        self.folder.is_some()
    }

    pub fn load(self, load: Load) -> Step {
        Step { load, ..self }
    }

    fn sixth(self, sixth: u64) -> Step {
        Step {
            when: When::Sixth(sixth),
            ..self
        }
    }

    fn canary(self) -> Step {
        Step {
            is_canary: true,
            ..self
        }
    }

    fn with_dist(self) -> Step {
        Step {
            needs_dist: true,
            ..self
        }
    }

    fn environment(mut self, name: &'static str, value: &str) -> Step {
        self.environment.push((name, value.to_owned()));
        self
    }
}

/// Cargo, as invoked by the caller.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Steps without a build.
pub fn documents() -> Vec<Step> {
    let mut steps: Vec<Step> = ["sentences", "names", "messages", "links", "prose"]
        .into_iter()
        .map(|check| {
            Step::new(
                format!("documents::{check}"),
                format!("checks/{check}"),
                &[],
            )
        })
        .collect();
    steps.push(Step::new("packages", "checks/packages", &[]));
    steps.push(Step::new("format", cargo(), &["fmt", "--all", "--check"]));
    steps
}

/// Lints of packages, selected by cargo arguments.
fn clippy(packages: &[&str]) -> Step {
    let arguments = [
        &["clippy", "--locked", "--all-targets"],
        packages,
        &["--", "-D", "warnings"],
    ];
    Step::new("clippy", cargo(), &arguments.concat()).load(Load::Alone)
}

/// Lints of all packages.
pub fn lints() -> Step {
    clippy(&["--workspace"]).load(Load::One)
}

/// `make check`: lints and unit tests of one package, the order of imports, and the steps without a build.
pub fn check(package: Option<&str>) -> Vec<Step> {
    let mut steps = documents();
    let imports = [
        "test",
        "--locked",
        "--quiet",
        "-p",
        "interface",
        "--test",
        "circles",
    ];
    steps.push(Step::new("imports", cargo(), &imports).load(Load::Alone));
    if let Some(package) = package {
        let mut test = vec!["test", "--locked", "--bins", "-p", package];
        // Cargo rejects `--lib` if the package has none.
        let sources = Path::new("crates").join(package).join("src");
        if !sources.exists() || sources.join("lib.rs").exists() {
            test.push("--lib");
        }
        steps.push(clippy(&["-p", package]));
        steps.push(Step::new("unit-tests", cargo(), &test).load(Load::Alone));
    }
    steps
}

/// A bounded number of schedules of each property under the checker, without the canaries.
pub const FEW_SCHEDULES: &str = "interleavings::few";
/// All schedules, with the canaries.
pub const ALL_SCHEDULES: &str = "interleavings::all";

/// The bounded number.
const FEW: &str = "60";

/// Steps that are commands. Their sixths spread the processor time evenly.
pub fn all() -> Vec<Step> {
    let interleavings = [
        "test",
        "--locked",
        "--manifest-path",
        "checks/interleavings/Cargo.toml",
        "--workspace",
        "--lib",
        "interleavings",
    ];
    let weak_memory = [
        "test",
        "--locked",
        "--manifest-path",
        "checks/weak-memory/Cargo.toml",
        "--test",
        "orders",
    ];
    let bench = |name: &str, package: &str| {
        let arguments = [
            "bench",
            "--locked",
            "-p",
            package,
            "--bench",
            "instructions",
        ];
        // Counts of instructions do not depend on the load.
        Step::new(name, cargo(), &arguments)
    };
    let suite = |server: &str| {
        let server_argument = format!("SERVER={server}");
        let arguments = [
            "--no-print-directory",
            "mtr",
            &server_argument,
            "ARGS=--quick --in-memory",
        ];
        // Beside other steps, tests of the suites fail and are repeated, which takes twice the processor time.
        Step::new(format!("server-suites::{server}"), "make", &arguments)
            .load(Load::Alone)
            .with_dist()
    };
    vec![
        Step::new(
            FEW_SCHEDULES,
            cargo(),
            &[&interleavings[..], &["--", "--skip", "noticed"]].concat(),
        )
        .environment("INTERLEAVINGS", FEW),
        Step::new(ALL_SCHEDULES, cargo(), &interleavings)
            .sixth(1)
            .canary(),
        suite("mariadb-10.11").sixth(2),
        Step::new("weak-memory", cargo(), &weak_memory).sixth(3),
        bench("instructions", "cache").sixth(3),
        bench("hook-instructions", "plugin").sixth(3),
        suite("mysql-9.7").sixth(4),
        Step::new("licences", "scripts/check-dependencies", &[]).sixth(5),
        Step::new("page", "npm", &["--prefix", "web", "--silent", "test"]).sixth(5),
    ]
}

/// Unit tests and test programs of the ordinary harness, by package and target; unlisted ones always run.
pub fn of_program(package: &str, target: &str) -> (Load, When) {
    match (package, target) {
        // It measures caps.
        ("cloud-volume", "caps") => (Load::Alone, When::Sixth(5)),
        ("cloud-volume", _) => (Load::One, When::Sixth(5)),
        ("bpe-lab", "streams" | "volume" | "replay") => (Load::One, When::Sixth(5)),
        // Its sixth builds `dist/` for the servers' suites, too.
        ("bpe", "dist") => (Load::One, When::Sixth(2)),
        ("cache", "memory") => (Load::One, When::Sixth(3)),
        ("private-server", "servers" | "end_all") => (Load::One, When::Sixth(4)),
        _ => (Load::One, When::Always),
    }
}

/// Tests of the model, as separate steps: each takes up to minutes.
pub const MODEL: [(&str, When, bool); 9] = [
    (
        "nothing_old_is_read_in_any_exact_sequence",
        When::Sixth(1),
        false,
    ),
    (
        "nothing_old_is_read_by_several_threads",
        When::Sixth(2),
        false,
    ),
    ("nothing_old_is_read_after_any_death", When::Sixth(3), false),
    ("a_seed_replays_exactly", When::Sixth(4), true),
    (
        "each_rule_about_deaths_that_is_left_out_is_noticed",
        When::Sixth(4),
        true,
    ),
    (
        "each_rule_that_is_left_out_is_noticed",
        When::Sixth(0),
        true,
    ),
    ("a_violation_is_replayed_by_its_seed", When::Sixth(0), true),
    (
        "the_two_main_canaries_are_noticed_by_several_threads",
        When::Sixth(0),
        true,
    ),
    (
        "delayed_threads_read_nothing_stale_after_minutes",
        When::Sixth(0),
        false,
    ),
];

/// Model tests with fixed seeds, in every tier.
pub fn model_by_seeds(program: &Path) -> Vec<Step> {
    ["1", "2"]
        .into_iter()
        .map(|seed| {
            let arguments = [
                "--threads",
                "1",
                "--seed",
                seed,
                "--operations",
                "20000",
                "--seconds",
                "600",
                "--partial",
            ];
            Step::new(format!("model::seed_{seed}"), program, &arguments)
        })
        .collect()
}

/// Steps that compile, unit tests, which find faults early, and subjects whose trials take one to ten minutes, the longest
/// first. They start first, so that no long step remains at the end.
const LONG: [&str; 37] = [
    "interleavings",
    "unit-tests",
    "model",
    "hostile",
    "disk_incidents",
    "replication",
    "warm_modes",
    "warm_memory",
    "group_replication",
    "galera",
    "console_page",
    "bypass",
    "integrity",
    "warming",
    "recording",
    "compare",
    "crashes",
    "scans",
    "audit",
    "command",
    "warm_late",
    "switching",
    "ddl",
    "backup",
    "page_sizes",
    "cluster",
    "life",
    "monitoring",
    "warm",
    "image",
    "warm_reboot",
    "warm_events",
    "series",
    "damage",
    "bounds",
    "competing",
    "faults",
];

/// Sorts steps: steps that run alone are last, and the subjects of `LONG` are first.
pub fn longest_first(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| {
        let long = LONG.iter().position(|subject| *subject == step.subject());
        (step.load == Load::Alone, long.unwrap_or(LONG.len()))
    });
    steps
}
