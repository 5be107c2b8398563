//! Tests `bpe-lab replay` as a command: figures for small generated traces, and messages for wrong input. Needs no server.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use replay::trace::{Operation, TraceWriter};
use serde_json::Value;

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    #[track_caller]
    fn expect(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for part in parts {
            assert!(
                self.err.contains(part),
                "`{part}` is missing in: {}",
                self.err
            );
        }
        if code != 0 {
            assert_eq!(self.out, "", "nothing is printed of a replay that failed");
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        self.expect(0, &[]);
        serde_json::from_str(&self.out).expect("valid JSON")
    }
}

/// A directory with traces, and one for temporary files.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("tmp")).expect("a folder");
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("a file");
        self.path(name)
    }

    /// 40,000 events over 3,000 pages of different popularity.
    fn trace(&self) -> PathBuf {
        self.file("good.trace.zst", &good())
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bpe-lab"))
            .arg("replay")
            .args(arguments)
            .env("TMPDIR", self.path("tmp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        // The command may end without reading its input.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input));
        let output = child.wait_with_output().expect("the command ends");
        Run {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Replays a trace with these sizes.
    fn replay(&self, trace: &Path, pool: &str, ratio: &str, more: &[&str]) -> Run {
        let trace = trace.to_string_lossy();
        let mut all = vec![
            "--trace",
            &*trace,
            "--pool-pages",
            pool,
            "--cache-ratio",
            ratio,
        ];
        all.extend(more);
        self.run(&all)
    }
}

fn good() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).expect("a writer");
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32 % 3000
    };
    for n in 0..40_000 {
        let page = random().min(random()).min(random());
        let operation = if n % 4 == 0 {
            Operation::Write
        } else {
            Operation::Read
        };
        writer.write(page % 3, page, operation).expect("written");
    }
    writer.finish().expect("finished")
}

fn ratio(value: &Value, key: &str) -> f64 {
    let ratio = value[key].as_f64();
    let ratio = ratio.unwrap_or_else(|| panic!("{key} in {value}"));
    assert!((0.0..=1.0).contains(&ratio), "{key}: {ratio}");
    ratio
}

#[test]
fn one_size_gives_one_object() {
    let bench = Bench::new();
    let run = bench.replay(&bench.trace(), "600", "1", &["--format", "json"]);
    let value = run.json();
    assert_eq!(value["policy"], "product");
    assert_eq!(value["pool_pages"], 600);
    assert_eq!(value["cache_ratio"], 1.0);
    assert_eq!(value["cache_pages"], 600);
    assert_eq!(value["events"], 28_000);
    assert_eq!(value["reads"], 21_000);
    assert!(value["device_page_writes_per_1000"].as_f64() > Some(0.0));
    let (ours, opt) = (
        ratio(&value, "read_hit_ratio"),
        ratio(&value, "opt_read_hit_ratio"),
    );
    assert!(0.1 < ours && ours < opt, "{ours} {opt}");
    let again = bench.replay(&bench.trace(), "600", "1", &["--format", "json"]);
    assert_eq!(run.out, again.out, "a replay is repeatable");
    assert_eq!(
        fs::read_dir(bench.path("tmp")).map(Iterator::count).ok(),
        Some(0)
    );
}

#[test]
fn several_sizes_and_all_policies() {
    let bench = Bench::new();
    let more = ["--format", "json", "--policy", "all", "--instances", "4"];
    let value = bench.replay(&bench.trace(), "600", "1,2", &more).json();
    let runs = value["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let policies = run["policies"].as_array().expect("policies");
        let names: Vec<_> = policies
            .iter()
            .filter_map(|p| p["policy"].as_str())
            .collect();
        assert_eq!(
            names,
            [
                "product",
                "lru",
                "clock",
                "s3-fifo",
                "w-tinylfu",
                "mq",
                "opt"
            ]
        );
        let opt = ratio(run, "opt_read_hit_ratio");
        assert_eq!(
            ratio(&policies[0], "read_hit_ratio"),
            ratio(run, "read_hit_ratio")
        );
        assert!(policies.iter().all(|p| ratio(p, "read_hit_ratio") <= opt));
    }
    assert!(ratio(&runs[0], "read_hit_ratio") < ratio(&runs[1], "read_hit_ratio"));
}

#[test]
fn the_table_and_other_policies() {
    let bench = Bench::new();
    let run = bench.replay(&bench.trace(), "100", "0.5,1", &["--policy", "lru"]);
    run.expect(0, &[]);
    assert_eq!(run.out.matches("LRU").count(), 2, "{}", run.out);
    assert!(run.out.contains("28,000 events measured"), "{}", run.out);
}

#[test]
fn another_policy_in_the_extension_itself() {
    let bench = Bench::new();
    let replay = |policy| {
        let more = ["--format", "json", "--policy", policy];
        bench.replay(&bench.trace(), "600", "1", &more).json()
    };
    let (product, own, other) = (
        replay("product"),
        replay("density"),
        replay("second-chance"),
    );
    assert_eq!(own["policy"], "density");
    for figure in ["engine", "read_hit_ratio", "device_page_writes_per_1000"] {
        assert_eq!(product[figure], own[figure]);
        assert_ne!(product[figure], other[figure]);
    }
    assert!(ratio(&other, "read_hit_ratio") > 0.1);
}

#[test]
fn a_trace_from_standard_input_plain_or_compressed() {
    let bench = Bench::new();
    let arguments = [
        "--trace",
        "-",
        "--pool-pages",
        "100",
        "--cache-ratio",
        "1",
        "--policy",
        "mq",
    ];
    let one = bench.run_with(&arguments, &good());
    one.expect(0, &[]);
    let plain = zstd::decode_all(&good()[..]).expect("decoded");
    let two = bench.run_with(&arguments, &plain);
    assert_eq!(one.out, two.out);
    let twice = [&arguments[..], &["--trace", "-"]].concat();
    bench
        .run(&twice)
        .expect(2, &["standard input can be read only once"]);
}

#[test]
fn a_change_of_the_working_set() {
    let bench = Bench::new();
    let trace = bench.trace();
    let second = trace.to_string_lossy();
    let more = [
        "--trace", &*second, "--until", "5", "--format", "json", "--policy", "lru",
    ];
    let value = bench.replay(&trace, "600", "1", &more).json();
    assert_eq!(value["events"], 2000);
    assert_eq!(value["distinct_pages"].as_u64().map(|n| n % 2), Some(0));
    let changed = ratio(&value, "read_hit_ratio");
    let more = [&more[..], &["--from", "4"]].concat();
    let later = bench.replay(&trace, "600", "1", &more).json();
    assert_eq!(later["events"], 400);
    assert!(
        changed < ratio(&later, "read_hit_ratio"),
        "the cache warms up"
    );
}

#[test]
fn a_plot() {
    let bench = Bench::new();
    let plot = bench.path("hits.svg");
    let name = plot.to_string_lossy();
    let trace = bench.trace();
    let run = bench.replay(&trace, "600", "1,2", &["--policy", "mq", "--plot", &name]);
    run.expect(0, &["hits.svg"]);
    let text = fs::read_to_string(&plot).expect("the plot");
    for part in [
        "<svg",
        "the extension",
        "LRU",
        "OPT with bypass",
        "MQ",
        "2 x",
        "</svg>",
    ] {
        assert!(text.contains(part), "{part}");
    }
    bench
        .replay(&trace, "600", "1", &["--plot", &name])
        .expect(2, &["several sizes"]);
    bench
        .replay(&trace, "600", "1,2", &["--plot", "/nowhere/a.svg"])
        .expect(2, &["cannot write the plot", "folder that exists"]);
}

#[test]
fn traces_that_are_none() {
    let bench = Bench::new();
    let record = |operation: u8, pages: u8, zero: u8| {
        let mut bytes = vec![1, 0, 0, 0, 2, 0, 0, 0, operation, pages, zero, 0];
        bytes.extend([0; 4]);
        bytes
    };
    let after_good = |bad: Vec<u8>| [record(0, 1, 0), record(1, 1, 0), bad].concat();
    let good = good();
    let mut damaged = good.clone();
    damaged.truncate(good.len() - 20);
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("empty", vec![], "is empty"),
        (
            "short",
            after_good(vec![1; 5]),
            "2 whole records of 16 bytes, 5 bytes are left",
        ),
        ("cut", damaged, "cut off or damaged"),
        (
            "trailing",
            [&good[..], b"more"].concat(),
            "after record 40000",
        ),
        (
            "operation",
            after_good(record(2, 1, 0)),
            "record 3, at byte 32, has operation 2",
        ),
        (
            "pages",
            after_good(record(0, 0, 0)),
            "record 3, at byte 32, has no pages",
        ),
        (
            "zero",
            after_good(record(0, 1, 9)),
            "record 3, at byte 32, is not zero",
        ),
        (
            "text",
            b"This is a text and no trace, of 48 bytes, exact.".to_vec(),
            "is not a trace: record 1",
        ),
    ];
    for (name, bytes, part) in cases {
        let path = bench.file(name, &bytes);
        let run = bench.replay(&path, "600", "1", &[]);
        run.expect(4, &["bpe-lab: trace '", name, part]);
    }
    let missing = bench.replay(&bench.path("missing"), "600", "1", &[]);
    missing.expect(4, &["cannot read trace", "missing", "No such file"]);
    let folder = bench.replay(&bench.path("tmp"), "600", "1", &[]);
    folder.expect(4, &["cannot read trace", "directory"]);
    let writes = bench.file("writes", &record(1, 1, 0).repeat(10));
    let writes = bench.replay(&writes, "600", "1", &[]);
    writes.expect(4, &["none of the 7 events", "is a read"]);
}

#[test]
fn sizes_that_are_none() {
    let bench = Bench::new();
    // Sizes are checked before the trace is read.
    let none = bench.path("none");
    for (pool, ratio, part) in [
        ("0", "1", "--pool-pages"),
        ("-5", "1", "--pool-pages"),
        ("many", "1", "--pool-pages"),
        ("99999999999999999999", "1", "--pool-pages"),
        ("18446744073709551615", "1", "larger than any disk"),
        ("600", "1e300", "larger than any disk"),
        ("600", "0", "above 0"),
        ("600", "-1", "above 0"),
        ("600", "nan", "above 0"),
        ("600", "inf", "above 0"),
        ("600", "half", "not a number"),
        ("600", "1,,2", "not a number"),
        ("600", "0.0001", "less than one page"),
        (
            "600",
            "0.5",
            "too small for the extension, which needs at least 512 pages",
        ),
    ] {
        bench.replay(&none, pool, ratio, &[]).expect(2, &[part]);
    }
}

#[test]
fn more_space_than_there_is() {
    let bench = Bench::new();
    let run = bench.replay(&bench.trace(), "4000000000", "1", &[]);
    run.expect(4, &["cannot open the extension", "what to do"]);
}

#[test]
fn options_out_of_range() {
    let bench = Bench::new();
    let trace = bench.trace();
    for (more, part) in [
        (["--instances", "0"], "--instances"),
        (["--instances", "65"], "--instances"),
        (["--policy", "best"], "w-tinylfu"),
        (["--format", "xml"], "json"),
        (["--warm-up", "101"], "from 0 to 100"),
        (["--until", "-1"], "from 0 to 100"),
        (["--warm-up", "100"], "nothing is measured"),
        (["--until", "30"], "nothing is measured"),
    ] {
        bench.replay(&trace, "600", "1", &more).expect(2, &[part]);
    }
    let run = bench.replay(&trace, "10", "1", &["--instances", "11"]);
    run.expect(2, &["11 instances are more than the 10 pages"]);
    bench.run(&["--pool-pages", "1"]).expect(2, &["--trace"]);
}
