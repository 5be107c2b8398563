//! Tests `bpe-lab stream` and `bpe-lab policies` as commands. Needs no server.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const NAMES: [&str; 8] = [
    "tpcc", "special", "pareto", "uniform", "report", "growing", "tenants", "drift",
];
const SHAPE: [&str; 4] = ["--pool-pages", "512", "--events", "20000"];

fn lab(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bpe-lab"))
        .args(arguments)
        .env("TMPDIR", folder)
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

#[track_caller]
fn done(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn stream(name: &str, seed: &str, folder: &Path) -> Vec<u8> {
    let file = format!("{name}-{seed}.zst");
    let arguments = ["stream", name, "--seed", seed, "--out", &file];
    let said = done(&lab(&[&arguments[..], &SHAPE].concat(), folder));
    assert!(said.contains("bpe-lab replay --trace"), "{said}");
    fs::read(folder.join(file)).expect("the stream")
}

#[test]
fn a_seed_makes_one_stream_which_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    for name in NAMES {
        let one = stream(name, "1", folder);
        assert!(one == stream(name, "1", folder), "{name}: the same seed");
        assert!(one != stream(name, "2", folder), "{name}: another seed");
        let file = format!("{name}-1.zst");
        let arguments = ["replay", "--trace", &file, "--pool-pages", "512"];
        let more = [
            "--cache-ratio",
            "1",
            "--policy",
            "density",
            "--format",
            "json",
        ];
        let said = done(&lab(&[&arguments[..], &more].concat(), folder));
        let value: Value = serde_json::from_str(&said).expect("valid JSON");
        assert_eq!(value["events"], 14_000, "{name}");
        let reads = value["reads"].as_u64().expect("reads");
        assert!((3000..14_000).contains(&reads), "{name}: {reads} reads");
        assert!(value["opt_read_hit_ratio"].as_f64() > Some(0.0), "{name}");
    }
}

#[test]
fn policies_are_compared_in_a_table_and_a_plot() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let arguments = ["policies", "--streams", "report,drift", "--out", "made"];
    let one = done(&lab(
        &[&arguments[..], &SHAPE, &["--jobs", "1"]].concat(),
        folder,
    ));
    let table = fs::read_to_string(folder.join("made/policies.md")).expect("a table");
    assert_eq!(one.trim_end(), table.trim_end());
    for ratio in [1, 2, 4] {
        for name in ["report", "drift"] {
            let rows = table.matches(&format!("| {name} | {ratio}x | ")).count();
            assert_eq!(rows, 2, "{table}");
        }
    }
    let plot = fs::read_to_string(folder.join("made/policies.svg")).expect("a plot");
    assert!(plot.starts_with("<svg") && plot.contains(">drift</text>"));
    let three = done(&lab(
        &[&arguments[..], &SHAPE, &["--jobs", "3"]].concat(),
        folder,
    ));
    assert_eq!(one, three, "whatever the number of jobs");
}

#[test]
fn wrong_usage_is_told_before_the_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    for (arguments, code, part) in [
        (&["stream", "best", "--out", "f"][..], 2, "possible values"),
        (&["stream", "tpcc"], 2, "--out"),
        (
            &["stream", "tpcc", "--out", "no/folder"],
            4,
            "cannot write 'no/folder'",
        ),
        (
            &["stream", "tpcc", "--pool-pages", "1", "--out", "f"],
            2,
            "--pool-pages",
        ),
        (&["policies", "--jobs", "0"], 2, "--jobs"),
        (
            &["policies", "--pool-pages", "64"],
            2,
            "needs a cache of at least",
        ),
    ] {
        let output = lab(arguments, folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
