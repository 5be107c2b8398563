//! `bpe status`: the state of the extension on one page, or as JSON. With `--explain`, explains whether it helps.
//!
//! All data comes over SQL: status and system variables, and `bpe_report()` if that function exists. Exit code 0 if active, 1 if not.

use std::process::ExitCode;

use crate::connect;
use crate::connect::server::Server;
use crate::support::failure::Exit;
use crate::support::terminal::{self, Paint, say};
use explanation::Explanation;
use snapshot::Snapshot;

mod explanation;
mod page;
mod snapshot;

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Say in words whether it helps and what to change, with the figures behind each sentence
    #[arg(long)]
    explain: bool,
    /// Seconds to watch for --explain (5 if not given); with --json, adds the rates of that time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut server = Server::connect(&args.connection)?;
    let explanation = match args.seconds {
        None if !args.explain => None,
        seconds => Some(Explanation::watch(&mut server, seconds.unwrap_or(5))?),
    };
    let snapshot = Snapshot::take(&mut server)?;
    if args.json {
        let mut json = snapshot.json();
        if let Some(explanation) = &explanation {
            explanation.add_to(&mut json);
        }
        terminal::say_json(&json);
    } else if let Some(explanation) = &explanation {
        let text = explanation.text(&snapshot, Paint::stdout(), terminal::width());
        say!("{}", text.trim_end());
    } else {
        say!("{}", snapshot.text(Paint::stdout()).trim_end());
    }
    let exit = if snapshot.state() == "active" {
        Exit::Ok
    } else {
        Exit::No
    };
    Ok(exit.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::observe::persisted;

    fn plain() -> Paint {
        // Tests have no terminal, so colours are off.
        Paint::stdout()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn active() -> Snapshot {
        Snapshot {
            server: "MariaDB 10.11.19".into(),
            address: "socket /run/x".into(),
            installed: true,
            status: map(&[
                ("bpe_state", "active"),
                ("bpe_hits", "1234567"),
                ("bpe_hit_ratio", "87.5"),
                ("bpe_memory_bytes", "1048576"),
                ("bpe_instance_lock_accesses", "1000"),
                ("bpe_instance_lock_waits", "5"),
            ]),
            variables: map(&[("bpe_path", "/mnt/nvme"), ("bpe_size", "1073741824")]),
            devices: Some(
                json!([{"path": "/mnt/nvme/x.cache", "bytes": 1 << 30, "active": true,
                "state": "active", "errors": 0, "direct_io": false}]),
            ),
            instances: Some(json!([
                {"instance": 0, "accesses": 10, "share": 25.0, "lock_accesses": 10, "lock_waits": 0},
                {"instance": 1, "accesses": 30, "share": 75.0, "lock_accesses": 10, "lock_waits": 1}
            ])),
            pool_bytes: 128 << 20,
            summary: json!({
                "cache_read_us": {"p50": 90.0, "p95": 200.0, "p99": 300.0},
                "data_read_us": {"p50": 900.0, "p95": 2500.0, "p99": 3000.0}
            }),
            denied: None,
        }
    }

    #[test]
    fn the_page_says_what_matters() {
        let text = active().text(plain());
        for part in [
            "active",
            "87.5 % hit ratio: 1,234,567",
            "0.78 % of the buffer pool of 128 MiB",
            "p50     90 us",
            "p95   2.50 ms",
            "on /mnt/nvme",
            "without O_DIRECT",
            "Instances   2; lock found held",
            "the hottest, 1, took 75 %",
            "held in 0.50 %",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.lines().count() < 24);
        assert!(!text.contains("kept"), "of a cache that was empty:\n{text}");
    }

    #[test]
    fn the_page_says_what_was_kept() {
        let mut snapshot = active();
        snapshot.summary = persisted::tests::summary(&[]);
        let text = snapshot.text(plain());
        assert!(
            text.contains("            100 % of the cache was kept"),
            "{text}"
        );
    }

    #[test]
    fn page_names_reads_that_io_uring_hides() {
        let mut snapshot = active();
        for (mode, async_mode, hides) in [
            ("runtime", "io_uring", true),
            ("runtime", "libaio", false),
            ("early", "libaio", false),
        ] {
            snapshot.status.extend(map(&[
                ("bpe_load_mode", mode),
                ("bpe_async_mode", async_mode),
            ]));
            let text = snapshot.text(plain());
            assert_eq!(text.contains("neither served nor counted"), hides, "{text}");
        }
    }

    #[test]
    fn page_names_missing_privilege() {
        let mut snapshot = active();
        assert!(!snapshot.text(plain()).contains("PROCESS"));
        snapshot.denied = Some("'monitor'@'localhost'".into());
        let text = snapshot.text(plain());
        assert!(
            text.contains("GRANT PROCESS ON *.* TO 'monitor'@'localhost'"),
            "{text}"
        );
    }

    #[test]
    fn a_server_without_it_is_told_what_to_do() {
        let snapshot = Snapshot::default();
        assert_eq!(snapshot.state(), "not installed");
        assert!(snapshot.text(plain()).contains("bpe enable"));
    }

    #[test]
    fn json_has_types() {
        let json = active().json();
        assert_eq!(json["status"]["bpe_hits"], 1_234_567);
        assert_eq!(json["status"]["bpe_hit_ratio"], 87.5);
        assert_eq!(json["variables"]["bpe_path"], "/mnt/nvme");
        assert_eq!(json["state"], "active");
    }
}
