//! The text page.

use std::fmt::Write as _;

use interface::Untrusted;
use interface::untrusted::one_line;
use serde_json::Value;

use super::snapshot::Snapshot;
use crate::connect::report;
use crate::installation::interception::UNTRACKED;
use crate::observe::persisted::Persisted;
use crate::support::size::human;
use crate::support::terminal::{Paint, grouped, microseconds};

impl Snapshot {
    pub fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let mut line = |label: &str, text: String| {
            let label = format!("{label:<12}");
            let _ = writeln!(out, "{}{text}", paint.dim(&label));
        };
        line(
            "Server",
            format!("{}, {}", self.server, one_line(&self.address)),
        );
        if !self.installed {
            line(
                "State",
                format!(
                    "{}; `bpe doctor` says whether it would help, `bpe enable` installs it",
                    paint.yellow("not installed")
                ),
            );
            return out;
        }
        let state = match self.state() {
            "active" => paint.green("active"),
            state @ "failed" => paint.red(state),
            state => paint.yellow(&one_line(state)),
        };
        let reason = match self.text_of("bpe_state_reason") {
            "" => String::new(),
            reason => format!(": {}", Untrusted::new(reason)),
        };
        line("State", format!("{state}{reason}"));
        line(
            "Loaded",
            format!(
                "version {}, {}, asynchronous I/O: {}",
                Untrusted::new(self.text_of("bpe_version")),
                match self.text_of("bpe_load_mode") {
                    "early" => Untrusted::new("before InnoDB"),
                    "runtime" => Untrusted::new("on the running server"),
                    other => Untrusted::new(other),
                },
                Untrusted::new(self.text_of("bpe_async_mode"))
            ),
        );
        if self.text_of("bpe_load_mode") == "runtime"
            && self.text_of("bpe_async_mode") == "io_uring"
        {
            line("", paint.yellow(UNTRACKED));
        }
        let size = self.variable("bpe_size").parse().unwrap_or(0);
        line(
            "Cache",
            format!(
                "{} of {}, {} pages, on {}",
                human(self.number("bpe_bytes_cached") as u64),
                human((self.number("bpe_capacity_bytes") as u64).max(size)),
                grouped(self.number("bpe_pages_cached")),
                Untrusted::new(match self.variable("bpe_path") {
                    "" => "no path yet",
                    path => path,
                })
            ),
        );
        if let Some(kept) = Persisted::of(&self.summary) {
            line("", kept.sentence().text);
        }
        let memory = self.number("bpe_memory_bytes");
        let share = if self.pool_bytes > 0 {
            format!(
                " ({:.2} % of the buffer pool of {})",
                memory * 100.0 / self.pool_bytes as f64,
                human(self.pool_bytes)
            )
        } else {
            String::new()
        };
        line("Memory", format!("{}{share}", human(memory as u64)));
        line(
            "Reads",
            format!(
                "{} hit ratio: {} from the cache, {} from the data disk",
                paint.bold(&format!("{:.1} %", self.number("bpe_hit_ratio"))),
                grouped(self.number("bpe_hits")),
                grouped(self.number("bpe_data_reads")),
            ),
        );
        for (label, reads) in [("cache", "cache_read_us"), ("data disk", "data_read_us")] {
            let Some(of) = self.summary[reads].as_object() else {
                continue;
            };
            let quantile =
                |name: &str| microseconds(of.get(name).and_then(Value::as_f64).unwrap_or(0.0));
            line(
                "",
                format!(
                    "{label:<10} p50 {:>9}   p95 {:>9}   p99 {:>9}",
                    quantile("p50"),
                    quantile("p95"),
                    quantile("p99")
                ),
            );
        }
        line(
            "Filling",
            format!(
                "{} admitted, {} rejected, {} evicted, {} invalidated, {} written",
                grouped(self.number("bpe_admitted")),
                grouped(self.number("bpe_rejected")),
                grouped(self.number("bpe_evicted")),
                grouped(self.number("bpe_invalidated")),
                human(self.number("bpe_bytes_written") as u64),
            ),
        );
        let (errors, proofs) = (
            self.number("bpe_device_errors"),
            self.number("bpe_failed_proofs"),
        );
        let troubles = format!(
            "{} device errors, {} pages that failed their proof",
            grouped(errors),
            grouped(proofs)
        );
        line(
            "Trouble",
            if errors + proofs > 0.0 {
                paint.yellow(&troubles)
            } else {
                troubles
            },
        );
        let suspended = self.number("bpe_suspended_files");
        if suspended > 0.0 {
            let text = format!(
                "data files that are not cached, as something else than the server seems to write to them: {} (`bpe status --explain`)",
                grouped(suspended)
            );
            line("", paint.yellow(&text));
        }
        let damaged = self.number("bpe_damaged_pages");
        if damaged > 0.0 {
            let text = format!(
                "{} pages are damaged in the data files, and whole in the cache (`bpe status --explain`)",
                grouped(damaged)
            );
            line("", paint.red(&text));
        }
        self.device_lines(&mut line, paint);
        self.instance_lines(&mut line);
        if let Some(account) = &self.denied {
            let text = format!(
                "cache disks, instances and latencies, as the account {account} lacks the PROCESS privilege; an administrator can run: {}",
                report::grant(account)
            );
            line("Not shown", paint.yellow(&text));
        }
        line(
            "Help",
            "`bpe status --explain` says in words whether it helps, `bpe top` shows it live".into(),
        );
        out
    }

    fn device_lines(&self, line: &mut impl FnMut(&str, String), paint: Paint) {
        let devices = self.devices.as_ref().and_then(Value::as_array);
        let named = |device: &&Value| device["path"].as_str().is_some_and(|path| !path.is_empty());
        let devices = devices.into_iter().flatten().filter(named);
        for (index, device) in devices.enumerate() {
            let text =
                |name: &str| Untrusted::new(device[name].as_str().unwrap_or_default()).to_string();
            let number = |name: &str| device[name].as_f64().unwrap_or(0.0);
            let healthy = device["active"].as_bool().unwrap_or(false);
            let state = if healthy {
                paint.green(&text("state"))
            } else {
                paint.red(&text("state"))
            };
            line(
                if index == 0 { "Devices" } else { "" },
                format!(
                    "{}: {}, {state}, {} read, {} written, {} errors{}",
                    text("path"),
                    human(number("bytes") as u64),
                    human(number("bytes_read") as u64),
                    human(number("bytes_written") as u64),
                    grouped(number("errors")),
                    if device["direct_io"].as_bool() == Some(false) {
                        ", without O_DIRECT"
                    } else {
                        ""
                    }
                ),
            );
        }
    }

    fn instance_lines(&self, line: &mut impl FnMut(&str, String)) {
        let waits = |waits: f64, accesses: f64| {
            if accesses > 0.0 {
                waits * 100.0 / accesses
            } else {
                0.0
            }
        };
        let all = waits(
            self.number("bpe_instance_lock_waits"),
            self.number("bpe_instance_lock_accesses"),
        );
        let rows: Vec<_> = self
            .instances
            .as_ref()
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .collect();
        let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or(0.0);
        let hottest = rows
            .iter()
            .max_by(|a, b| number(a, "accesses").total_cmp(&number(b, "accesses")));
        let detail = match hottest {
            Some(row) if rows.len() > 1 => format!(
                "; the hottest, {}, took {:.0} % of accesses and found its lock held in {:.2} %",
                row["instance"],
                number(row, "share"),
                waits(number(row, "lock_waits"), number(row, "lock_accesses"))
            ),
            _ => String::new(),
        };
        let count = match rows.len() {
            0 => String::new(),
            count => format!("{count}; "),
        };
        line(
            "Instances",
            format!(
                "{count}lock found held in {all:.2} % of {} accesses{detail}",
                grouped(self.number("bpe_instance_lock_accesses"))
            ),
        );
    }
}
