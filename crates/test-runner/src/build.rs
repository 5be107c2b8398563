//! Compiles every test program once, and the library under test.
//!
//! One call of cargo builds all packages. Separate calls would choose other features of shared dependencies, and
//! compile them again. The programs are started directly afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::pool;
use crate::report::Report;
use crate::steps::{self, Load, Step, Trial, cargo};

/// A program built by cargo.
#[derive(Clone, Debug)]
pub struct Program {
    pub package: String,
    pub target: String,
    pub kind: Kind,
    pub path: PathBuf,
    /// Directory of its manifest, the working directory of its tests.
    pub folder: PathBuf,
    /// Trials that a program of `integration_tests::harness` lists. Programs of libtest have none.
    pub trials: Vec<Trial>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    UnitTests,
    Tests,
    Command,
}

/// All built programs.
pub struct Programs {
    all: Vec<Program>,
    libraries: Libraries,
}

/// Libraries that servers load.
#[derive(Clone, Debug)]
struct Libraries {
    release: PathBuf,
    /// Library of the test programs' build, with the switches for deliberate faults.
    canary: PathBuf,
}

/// The console's page, which the builds of the command include.
pub fn page() -> Step {
    Step::new("build-page", "scripts/build-page", &[])
}

/// The release library. `with_dist`: also the commands.
pub fn release(with_dist: bool) -> Step {
    let mut arguments = vec!["build", "--release", "--locked", "-p", "plugin"];
    if with_dist {
        arguments.extend(["-p", "bpe", "-p", "bpe-lab"]);
    }
    Step::new("build-release", cargo(), &arguments)
}

/// The programs, after the release build. `with_dist`: also fills `dist/`. `None` if a build fails; the report has the
/// error.
pub fn programs(with_dist: bool, report: &mut Report) -> anyhow::Result<Option<Programs>> {
    let target = target_folder()?;
    if with_dist {
        let built = target.join("release").display().to_string();
        let dist = Step::new("build-dist", "scripts/fill-dist", &[&built, "dist"]);
        pool::run(vec![dist], report);
        if report.has_failed() {
            return Ok(None);
        }
    }
    let Some(all) = test_programs(report)? else {
        return Ok(None);
    };
    let library = |path: &str| {
        let library = target.join(path);
        library
            .canonicalize()
            .with_context(|| format!("{} is missing", library.display()))
    };
    let libraries = Libraries {
        release: library("release/libbpe_plugin.so")?,
        canary: library("debug/deps/libbpe_plugin.so")?,
    };
    Ok(Some(Programs { all, libraries }))
}

fn target_folder() -> anyhow::Result<PathBuf> {
    let output = Command::new(cargo())
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let folder = metadata["target_directory"]
        .as_str()
        .context("cargo names no target folder")?;
    Ok(PathBuf::from(folder))
}

/// Compiles the test programs; a file receives cargo's messages about each.
fn test_programs(report: &mut Report) -> anyhow::Result<Option<Vec<Program>>> {
    let messages = report.folder().join("artifacts");
    // A separate file receives cargo's messages. The step's output keeps the errors.
    let command = "exec \"$1\" test --workspace --no-run --locked --message-format=json-render-diagnostics >\"$2\"";
    let mut step = Step::new("build-tests", "sh", &["-c", command, "sh"]);
    step.arguments
        .extend([cargo().into_os_string(), messages.clone().into_os_string()]);
    pool::run(vec![step.load(Load::Alone)], report);
    if report.has_failed() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&messages)?;
    let mut programs: Vec<Program> = text
        .lines()
        .filter_map(|line| program(&serde_json::from_str(line).ok()?))
        .collect();
    ensure!(!programs.is_empty(), "cargo names no test program");
    for program in &mut programs {
        if program.kind == Kind::Tests {
            program.trials = program.list()?;
        }
    }
    Ok(Some(programs))
}

/// The program of a cargo message.
fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let kind = message["target"]["kind"][0].as_str()?;
    let kind = match (kind, message["profile"]["test"].as_bool()?) {
        ("test", true) => Kind::Tests,
        ("bench" | "example", _) => return None,
        (_, true) => Kind::UnitTests,
        (_, false) => Kind::Command,
    };
    let folder = Path::new(message["manifest_path"].as_str()?)
        .parent()?
        .to_path_buf();
    let package = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let package = package
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))?;
    Some(Program {
        package: package.trim_end_matches('"').to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        kind,
        path,
        folder,
        trials: Vec::new(),
    })
}

impl Program {
    /// A step that runs it with arguments, in its package's directory.
    fn step(&self, name: String, arguments: &[&str], libraries: &Libraries) -> Step {
        let mut step = Step::new(name, &self.path, arguments);
        step.folder = Some(self.folder.clone());
        let paths = [
            ("BPE_LIBRARY", libraries.release.display()),
            ("BPE_CANARY_LIBRARY", libraries.canary.display()),
        ];
        step.environment
            .extend(paths.map(|(name, path)| (name, path.to_string())));
        step.environment
            .push(("CARGO", cargo().display().to_string()));
        step
    }

    /// Lists the trials of a test program.
    fn list(&self) -> anyhow::Result<Vec<Trial>> {
        let output = Command::new(&self.path)
            .arg("--list")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{}", self.path.display()))?;
        ensure!(
            output.status.success(),
            "{} --list ended with {}",
            self.path.display(),
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .filter(|name| name.contains("::"))
            .map(Trial::of)
            .collect())
    }
}

impl Programs {
    /// A step that runs one of the programs with arguments.
    pub fn step(&self, program: &Program, name: String, arguments: &[&str]) -> Step {
        program.step(name, arguments, &self.libraries)
    }

    /// Test programs, including those of the ordinary harness.
    pub fn tests(&self) -> impl Iterator<Item = &Program> {
        self.all
            .iter()
            .filter(|program| program.kind == Kind::Tests)
    }

    /// All unit tests. They use all processors for seconds.
    pub fn unit_tests(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self
            .all
            .iter()
            .filter(|program| program.kind == Kind::UnitTests)
            .map(|program| {
                let name = format!("unit-tests::{}", program.package);
                self.step(program, name, &["--quiet"])
            })
            .collect();
        if let Some(model) = self.model() {
            steps.extend(steps::model_by_seeds(&model.path));
        }
        steps
    }

    fn model(&self) -> Option<&Program> {
        self.all
            .iter()
            .find(|program| program.kind == Kind::Command && program.target == "coherence-model")
    }

    /// Rules that the model can disable, with the consequence of each.
    pub fn rules(&self) -> anyhow::Result<Vec<(String, String)>> {
        let model = self.model().context("there is no model")?;
        let output = Command::new(&model.path).arg("--rules").output();
        let output = output.with_context(|| format!("{}", model.path.display()))?;
        let text = String::from_utf8(output.stdout)?;
        let rules = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(rules
            .map(|(rule, without)| (rule.to_owned(), without.to_owned()))
            .collect())
    }

    /// Test programs of the ordinary harness.
    pub fn whole_programs(&self) -> Vec<Step> {
        let mut all = Vec::new();
        for program in self.tests() {
            // Their trials run one by one.
            if !program.trials.is_empty() {
                continue;
            }
            if program.package == "coherence-model" {
                for (test, when, is_canary) in steps::MODEL {
                    let arguments = ["--exact", test, "--nocapture"];
                    let step = self.step(program, format!("model::{test}"), &arguments);
                    all.push(Step {
                        when,
                        is_canary,
                        ..step
                    });
                }
                continue;
            }
            let (load, when) = steps::of_program(&program.package, &program.target);
            let name = format!("{}::{}", program.target, program.package);
            let step = self.step(program, name, &["--quiet"]);
            all.push(Step { load, when, ..step });
        }
        all
    }
}
