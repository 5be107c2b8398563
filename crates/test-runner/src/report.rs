//! Output for the user: a line for each completed subject, and at the end the failures with the command that repeats
//! each. The full tier stores the same data as `evidence/<commit>.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::steps::{Outcome, Step};

/// Displayed lines of a failed step's output.
const LAST_LINES: usize = 40;

/// Steps of one subject.
#[derive(Default)]
struct Subject {
    expected: usize,
    ended: usize,
    failed: usize,
    skipped: usize,
    took: Duration,
}

/// The state of a run.
pub struct Report {
    tier: &'static str,
    turn: u64,
    verbose: bool,
    folder: PathBuf,
    began: Instant,
    compiled: Option<Duration>,
    files: usize,
    subjects: BTreeMap<String, Subject>,
    running: Vec<String>,
    failed: Vec<Outcome>,
    skipped: Vec<String>,
    figures: Vec<String>,
    canaries: Vec<Value>,
    rules: Vec<(String, String)>,
    /// Steps that are also part of `make test`.
    of_test: BTreeSet<String>,
    steps: Vec<Value>,
    last_tick: Instant,
}

impl Report {
    /// A report with a directory for the output of the steps.
    pub fn new(tier: &'static str, turn: u64, verbose: bool) -> anyhow::Result<Report> {
        let folder = tempfile::Builder::new()
            .prefix("bpe-run-tests-")
            .tempdir()
            .context("cannot create a directory for what the steps print")?
            .keep();
        Ok(Report {
            tier,
            turn,
            verbose,
            folder,
            began: Instant::now(),
            compiled: None,
            files: 0,
            subjects: BTreeMap::new(),
            running: Vec::new(),
            failed: Vec::new(),
            skipped: Vec::new(),
            figures: Vec::new(),
            canaries: Vec::new(),
            rules: Vec::new(),
            of_test: BTreeSet::new(),
            steps: Vec::new(),
            last_tick: Instant::now(),
        })
    }

    /// The directory of this run.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prints a sentence for the user.
    pub fn say(&self, sentence: &str) {
        self.clear_progress();
        println!("{sentence}");
    }

    /// Reports a missing requirement of the host.
    pub fn lack(&mut self, sentence: &str) {
        self.say(&format!("note: {sentence}"));
    }

    /// Records the build time.
    pub fn compiled(&mut self, took: Duration) {
        self.compiled = Some(took);
    }

    /// Records the steps of `make test`.
    pub fn of_test(&mut self, names: impl IntoIterator<Item = String>) {
        self.of_test.extend(names);
    }

    /// Records the rules that the model can disable, with the consequence of each.
    pub fn rules(&mut self, rules: Vec<(String, String)>) {
        self.rules = rules;
    }

    /// Registers pending steps.
    pub fn expect(&mut self, steps: &[Step]) {
        for step in steps {
            self.subjects
                .entry(step.subject().to_owned())
                .or_default()
                .expected += 1;
        }
    }

    /// Files for a step's output and notes.
    pub fn files(&mut self) -> (PathBuf, PathBuf) {
        self.files += 1;
        let file = |kind: &str| self.folder.join(format!("{}.{kind}", self.files));
        (file("output"), file("notes"))
    }

    /// Records the start of a step.
    pub fn begins(&mut self, step: &Step) {
        self.running.push(step.name.clone());
    }

    /// Records the end of a step.
    pub fn ended(&mut self, outcome: Outcome) {
        self.running.retain(|name| *name != outcome.step.name);
        let output = std::fs::read(&outcome.output).unwrap_or_default();
        let output = String::from_utf8_lossy(&output).into_owned();
        let notes = std::fs::read_to_string(&outcome.notes).unwrap_or_default();
        let skipped = self.keep_notes(&outcome, &output, &notes);
        if self.verbose {
            self.clear_progress();
            println!("-- {}\n{output}", outcome.step.name);
        }
        let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        self.steps.push(json!({
            "name": outcome.step.name,
            "in_test": self.of_test.contains(&outcome.step.name),
            "seconds": seconds(outcome.took),
            "processor_seconds": seconds(outcome.processor),
            "result": if !outcome.passed { "failed" } else if skipped { "skipped" } else { "passed" },
        }));
        let name = outcome.step.subject().to_owned();
        let subject = self.subjects.entry(name.clone()).or_default();
        subject.ended += 1;
        subject.skipped += usize::from(skipped);
        subject.failed += usize::from(!outcome.passed);
        subject.took += outcome.took;
        if subject.ended == subject.expected {
            let line = line(&name, subject);
            self.clear_progress();
            println!("{line}");
        }
        if outcome.passed {
            let _ = std::fs::remove_file(&outcome.output);
        } else {
            self.failed.push(outcome);
        }
    }

    /// Stores the notes of a step. Returns whether it was skipped.
    fn keep_notes(&mut self, outcome: &Outcome, output: &str, notes: &str) -> bool {
        let mut skipped = false;
        for note in notes.lines() {
            let mut parts = note.splitn(3, '\t');
            let (kind, name, text) = (parts.next(), parts.next(), parts.next());
            let line = format!("{}: {}", name.unwrap_or_default(), text.unwrap_or_default());
            match kind {
                Some("figure") => self.figures.push(line),
                Some("skipped") => {
                    skipped = true;
                    self.skipped.push(line);
                }
                // A failed step did not detect the disabled rule.
                Some("canary") if outcome.passed => self.canaries.push(json!({
                    "rule": name,
                    "by": outcome.step.name,
                    "after": text.unwrap_or_default(),
                    "in_test": self.of_test.contains(&outcome.step.name),
                })),
                _ => {}
            }
        }
        // Tests of the ordinary harness print why they were skipped, and count as passed.
        for line in output
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("skipped: "))
        {
            self.skipped.push(format!("{}: {line}", outcome.step.name));
        }
        skipped
    }

    /// Shows the running steps: each second on a terminal, each two minutes elsewhere.
    pub fn tick(&mut self) {
        let is_terminal = std::io::stderr().is_terminal();
        let every = Duration::from_secs(if is_terminal { 1 } else { 120 });
        if self.last_tick.elapsed() < every {
            return;
        }
        self.last_tick = Instant::now();
        let (ended, expected) = self
            .subjects
            .values()
            .fold((0, 0), |(ended, expected), subject| {
                (ended + subject.ended, expected + subject.expected)
            });
        let minutes = self.began.elapsed().as_secs() / 60;
        let seconds = self.began.elapsed().as_secs() % 60;
        let text = format!(
            "{minutes}:{seconds:02}  {ended} of {expected} steps; now {}",
            self.running.join(", ")
        );
        if is_terminal {
            let width = std::env::var("COLUMNS")
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(79);
            let text: String = text.chars().take(width).collect();
            eprint!("\r\x1b[K{text}");
        } else {
            eprintln!("{text}");
        }
    }

    fn clear_progress(&self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    /// Whether a step has failed.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Prints figures, skipped tests, and failures. Returns whether all passed.
    pub fn end(&mut self) -> anyhow::Result<bool> {
        self.clear_progress();
        if self.tier == "full" {
            section("Figures", &self.figures);
        }
        section("Skipped", &self.skipped);
        for outcome in &self.failed {
            println!("\nFailed: {}", outcome.step.name);
            let output = std::fs::read(&outcome.output).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            let lines: Vec<&str> = output.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                println!("  {line}");
            }
            println!("  repeat it: {}", repetition(&outcome.step));
        }
        if self.tier == "full" {
            let path = self.keep_evidence()?;
            println!("\nEvidence: {}", path.display());
        }
        let count = |of: fn(&Subject) -> usize| self.subjects.values().map(of).sum::<usize>();
        let (all, failed, skipped) = (
            count(|subject| subject.ended),
            count(|subject| subject.failed),
            count(|subject| subject.skipped),
        );
        let building = self.compiled.map_or(String::new(), |took| {
            format!(" ({} s of them building)", took.as_secs())
        });
        println!(
            "\n{} passed, {failed} failed, {} skipped in {} s{building}",
            // A step may have several reasons, or skip a part of it.
            all.saturating_sub(failed + skipped),
            self.skipped.len(),
            self.began.elapsed().as_secs()
        );
        if failed > 0 {
            println!("What they printed is kept in {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
        Ok(failed == 0 && all > 0)
    }

    fn keep_evidence(&self) -> anyhow::Result<PathBuf> {
        let text = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).output().ok();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let commit = text(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
        let changed = text(&["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|text| !text.is_empty());
        let folder = Path::new("evidence");
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!(
            "{commit}{}.json",
            if changed { "-changed" } else { "" }
        ));
        let evidence = json!({
            "commit": commit,
            "changed": changed,
            "turn": self.turn,
            "seconds": self.began.elapsed().as_secs(),
            "building_seconds": self.compiled.map(|took| took.as_secs()),
            "steps": self.steps,
            "rules": self.rules,
            "canaries": self.canaries,
            "figures": self.figures,
            "skipped": self.skipped,
        });
        std::fs::write(&path, serde_json::to_string_pretty(&evidence)? + "\n")?;
        Ok(path)
    }
}

fn section(title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    println!("\n{title}:");
    for line in lines {
        println!("  {line}");
    }
}

fn line(name: &str, subject: &Subject) -> String {
    let result = match (subject.failed, subject.skipped) {
        (0, 0) => "ok".to_owned(),
        (0, skipped) => format!("ok, {skipped} skipped"),
        (failed, _) => format!("{failed} FAILED"),
    };
    let steps = if subject.ended == 1 { "step" } else { "steps" };
    format!(
        "{name:<22} {:>4} {steps:<5} {:>7.1} s  {result}",
        subject.ended,
        subject.took.as_secs_f64()
    )
}

/// The command that repeats a step.
fn repetition(step: &Step) -> String {
    if step.is_of_a_program() {
        return format!("make test TESTS={}", step.subject());
    }
    let arguments = step.arguments.iter().map(|argument| {
        let text = argument.to_string_lossy().into_owned();
        if text.contains(' ') {
            format!("'{text}'")
        } else {
            text
        }
    });
    let environment = step
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    environment
        .chain([step.program.display().to_string()])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}
