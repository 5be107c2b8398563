//! Every document, dashboard and command that names a variable of the extension names an existing one, and uses it according
//! to its kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use interface::status::Kind;
use interface::{Status, codes, limits, variables};
use serde_json::Value;

#[path = "../examples/generate/main.rs"]
#[allow(dead_code)]
mod generate;

/// Words with a variable's prefix that are no variables: the function, crates, prefixes of composed names, and a removed
/// variable that MariaDB still accepts as an abbreviation.
const OTHERS: [&str; 9] = [
    "report",
    "report_init",
    "report_deinit",
    "lab",
    "plugin",
    "bare",
    "cache_read",
    "data_read",
    "persist",
];
/// Removed variables. Only the tables in `docs/user/install.md` name them.
const REMOVED: [&str; 33] = [
    "keep",
    "scrub_rate",
    "admission",
    "diagnostics_key",
    "control_group",
    "read_timeout",
    "async_io",
    "pages_doubtful",
    "pages_verified",
    "bypass_seconds",
    "bypass_seconds_left",
    "bypass_dropped",
    "instances_active",
    "compression_ratio",
    "rejected_by_limit",
    "bytes_rejected",
    "bytes_kept_out",
    "reinserted",
    "write_amplification",
    "cache_read_p50_us",
    "cache_read_p95_us",
    "cache_read_p99_us",
    "data_read_p50_us",
    "data_read_p95_us",
    "data_read_p99_us",
    "attach_ms",
    "pages_dropped_at_start",
    "warm_pages_listed",
    "warm_pages_skipped",
    "warm_reads",
    "kept_out",
    "tables_error",
    "devices",
];
/// The exporter's prefixes.
const STATUS_METRIC: &str = "mysql_global_status_bpe_";
const VARIABLE_METRIC: &str = "mysql_global_variables_bpe_";
/// PromQL functions for counters.
const OF_COUNTERS: [&str; 3] = ["rate(", "increase(", "irate("];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if path.is_dir() && !path.ends_with("node_modules") && !path.ends_with("dist") {
            files_in(&path, found);
        } else if matches!(
            kind,
            Some("rs" | "ts" | "tsx" | "md" | "json" | "yml" | "sql" | "mjs")
        ) {
            found.push(path);
        }
    }
}

/// Returns the words of a text that begin with `start`, without it and in lower case. Skips names of the environment, which
/// are in capitals, and prefixes of several names, which end with an underscore.
fn words<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = String> + 'a {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.starts_with("BPE_") && !word.ends_with('_'))
        .filter_map(move |word| {
            let lower = word.to_ascii_lowercase();
            lower.strip_prefix(start).map(str::to_owned)
        })
}

fn is_variable(name: &str) -> bool {
    variables::by_name(&format!("bpe_{name}")).is_some()
}

#[test]
fn names_are_those_of_the_lists() {
    let mut files = vec![repository("README.md"), repository("ARCHITECTURE.md")];
    for folder in [
        "crates/bpe/src",
        "crates/bpe/tests",
        "crates/bpe-lab/src",
        "crates/bpe-lab/tests",
        "crates/plugin/src",
        "docs",
        "monitoring",
        "sql",
        "tests",
        "web/src",
        "web/mock",
    ] {
        files_in(&repository(folder), &mut files);
    }
    assert!(files.len() > 200, "only {} files", files.len());
    let mut unknown = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let named = words(&text, "bpe_");
        let status = words(&text, STATUS_METRIC).filter(|name| Status::by_name(name).is_none());
        let variable = words(&text, VARIABLE_METRIC).filter(|name| !is_variable(name));
        let removed = path.ends_with("docs/user/install.md");
        let known = |name: &String| {
            (removed && REMOVED.contains(&name.as_str()))
                || OTHERS.contains(&name.as_str())
                || is_variable(name)
                || Status::by_name(name).is_some()
        };
        for name in named
            .filter(|name| !known(name))
            .chain(status)
            .chain(variable)
        {
            unknown.insert(format!("bpe_{name} in {}", path.display()));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Every code belongs to a message in the sources. Compares the texts as the compiler joins them.
#[test]
fn codes_are_of_messages() {
    let mut files = Vec::new();
    for of in ["plugin", "coherence", "cache"] {
        files_in(&repository("crates").join(of).join("src"), &mut files);
    }
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    let mut joined = String::new();
    for text in texts {
        let mut parts = text.split("\\\n");
        joined.push_str(parts.next().unwrap_or_default());
        for part in parts {
            joined.push_str(part.trim_start());
        }
    }
    for (code, part) in codes::ALL {
        assert!(
            joined.contains(part),
            "BPE-{code:04}: no source says \"{part}\""
        );
    }
}

/// Counters are shown as rates, and other kinds are not.
#[test]
fn expressions_fit_the_kinds() {
    let mut seen = BTreeSet::new();
    for file in [
        "monitoring/grafana/innodb-bpe.json",
        "monitoring/prometheus/bpe.rules.yml",
    ] {
        let text = fs::read_to_string(repository(file)).unwrap();
        for (at, _) in text.match_indices(STATUS_METRIC) {
            let name: String = text[at + STATUS_METRIC.len()..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let status = Status::by_name(&name).unwrap_or_else(|| panic!("{file}: {name}"));
            let grows = OF_COUNTERS.iter().any(|of| text[..at].ends_with(of));
            // Sum by count is the total mean, for when the last minutes had no reads.
            let mean = name.ends_with("_us_sum") || name.ends_with("_us_count");
            assert!(
                grows == (status.kind() == Kind::Counter) || (mean && !grows),
                "{file}: {name} is a {}",
                status.kind().as_str()
            );
            assert!(status.kind() != Kind::Text, "{file}: no text gets through");
            seen.insert(name);
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

/// Every number has a place in the dashboard. A panel that shows one variable has its unit.
#[test]
fn the_dashboard_shows_every_number_in_its_unit() {
    let text = fs::read_to_string(repository("monitoring/grafana/innodb-bpe.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut shown = BTreeSet::new();
    let (rows, panels): (Vec<&Value>, Vec<&Value>) = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .partition(|panel| panel["type"] == "row");
    let folded = rows
        .iter()
        .flat_map(|row| row["panels"].as_array().unwrap());
    for panel in panels.into_iter().chain(folded) {
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            shown.extend(words(expression, STATUS_METRIC));
            let counter = expression.strip_prefix("rate(");
            let plain = counter.unwrap_or(expression).strip_prefix(STATUS_METRIC);
            let Some((name, rest)) = plain.and_then(|plain| plain.split_once('{')) else {
                continue;
            };
            let whole = if counter.is_some() {
                "}[$__rate_interval])"
            } else {
                "}"
            };
            if rest.strip_prefix("instance=\"$instance\"") != Some(whole) {
                continue;
            }
            let status = Status::by_name(name).unwrap();
            let wanted = generate::dashboard::of_grafana(status.kind(), status.unit());
            assert_eq!(
                unit.unwrap_or("short"),
                wanted,
                "{} of {}",
                name,
                panel["title"]
            );
        }
    }
    for one in Status::ALL.iter().filter(|one| one.kind() != Kind::Text) {
        assert!(shown.contains(one.name()), "no panel shows {}", one.name());
    }
}

/// Alerts and dashboard use the limits of the commands.
#[test]
fn limits_are_those_of_the_list() {
    let rules = fs::read_to_string(repository("monitoring/prometheus/bpe.rules.yml")).unwrap();
    let panels = fs::read_to_string(repository("monitoring/grafana/innodb-bpe.json")).unwrap();
    for (text, metric, limit) in [
        (&rules, "capacity_bytes", limits::FULL),
        (
            &panels,
            "innodb_buffer_pool_size{instance=\\\"$instance\\\"}",
            limits::MEMORY,
        ),
    ] {
        let share = limit / 100.0;
        let (before, after) = (format!("{share} * mysql_"), format!("{metric} * {share}"));
        let said = text
            .lines()
            .filter(|line| line.contains(metric) && line.contains(" * "));
        let lines: Vec<&str> = said.collect();
        assert!(!lines.is_empty(), "{metric}");
        for line in lines {
            assert!(line.contains(&before) || line.contains(&after), "{line}");
        }
    }
}

/// Commands and page compute rates of counters only.
#[test]
fn rates_are_of_counters() {
    let mut seen = 0;
    for file in [
        "crates/bpe/src/observe/figures.rs",
        "crates/bpe-lab/src/demo/observer.rs",
    ] {
        let text = fs::read_to_string(repository(file)).unwrap();
        for of in ["rate(\"bpe_", "more(\"bpe_"] {
            for (at, _) in text.match_indices(of) {
                let name = text[at + of.len()..].split('"').next().unwrap();
                let kind = Status::by_name(name).map(Status::kind);
                assert_eq!(kind, Some(Kind::Counter), "{file}: {name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}
