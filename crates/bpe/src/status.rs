//! `bpe status`: one page about how the extension does, or the same as JSON.
//!
//! Everything comes over SQL: status and system variables, and `bpe_report()` where that function
//! has been created. Exit code 0 when active, 1 when not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::connection;
use crate::failure::{Exit, Failure};
use crate::server::Server;
use crate::size::human;
use crate::terminal::Paint;
use crate::terminal::say;

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: connection::Args,
}

/// All that is shown.
#[derive(Debug, Default)]
struct Snapshot {
    server: String,
    address: String,
    installed: bool,
    status: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    devices: Option<Value>,
    instances: Option<Value>,
    pool_bytes: u64,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut server = Server::connect(&args.connection)?;
    let snapshot = Snapshot::take(&mut server)?;
    if args.json {
        say!("{:#}", snapshot.json());
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

impl Snapshot {
    fn take(server: &mut Server) -> Result<Self, Failure> {
        let status = server.status("bpe%")?;
        let mut report = |name: &str| {
            let text = server
                .value(&format!("SELECT bpe_report('{name}')"))
                .ok()??;
            serde_json::from_str::<Value>(&text).ok()
        };
        let (devices, instances) = (report("devices"), report("instances"));
        Ok(Self {
            server: format!("{} {}", server.flavour, server.version),
            address: server.address.to_string(),
            installed: !status.is_empty(),
            variables: server.variables("bpe%")?,
            pool_bytes: server.number("innodb_buffer_pool_size")?.unwrap_or(0),
            status,
            devices,
            instances,
        })
    }

    fn state(&self) -> &str {
        if self.installed {
            self.text_of("bpe_state")
        } else {
            "not installed"
        }
    }

    fn text_of(&self, name: &str) -> &str {
        self.status.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> f64 {
        self.text_of(name).parse().unwrap_or(0.0)
    }

    fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> Value {
        let typed = |map: &BTreeMap<String, String>| -> Value {
            map.iter()
                .map(|(name, text)| (name.clone(), typed_value(text)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        json!({
            "server": self.server,
            "address": self.address,
            "installed": self.installed,
            "state": self.state(),
            "innodb_buffer_pool_size": self.pool_bytes,
            "status": typed(&self.status),
            "variables": typed(&self.variables),
            "devices": self.devices,
            "instances": self.instances,
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let mut line = |label: &str, text: String| {
            let label = format!("{label:<12}");
            let _ = writeln!(out, "{}{text}", paint.dim(&label));
        };
        line("Server", format!("{}, {}", self.server, self.address));
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
            state => paint.yellow(state),
        };
        let reason = match self.text_of("bpe_state_reason") {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        line("State", format!("{state}{reason}"));
        line(
            "Loaded",
            format!(
                "version {}, {}, asynchronous I/O: {}",
                self.text_of("bpe_version"),
                match self.text_of("bpe_load_mode") {
                    "early" => "before InnoDB",
                    "runtime" => "on the running server",
                    other => other,
                },
                self.text_of("bpe_async_mode")
            ),
        );
        let size = self.variable("bpe_size").parse().unwrap_or(0);
        line(
            "Cache",
            format!(
                "{} of {}, {} pages, on {}",
                human(self.number("bpe_bytes_cached") as u64),
                human((self.number("bpe_capacity_bytes") as u64).max(size)),
                grouped(self.number("bpe_pages_cached")),
                match self.variable("bpe_path") {
                    "" => "no path yet",
                    path => path,
                }
            ),
        );
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
        for (label, prefix) in [("cache", "bpe_cache_read"), ("data disk", "bpe_data_read")] {
            let quantile = |name: &str| microseconds(self.number(&format!("{prefix}_{name}_us")));
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
                "{} admitted, {} turned away, {} evicted, {} invalidated, {} written",
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
        self.device_lines(&mut line, paint);
        self.instance_lines(&mut line);
        out
    }

    fn device_lines(&self, line: &mut impl FnMut(&str, String), paint: Paint) {
        let devices = self.devices.as_ref().and_then(Value::as_array);
        let named = |device: &&Value| device["path"].as_str().is_some_and(|path| !path.is_empty());
        let devices = devices.into_iter().flatten().filter(named);
        for (index, device) in devices.enumerate() {
            let text = |name: &str| device[name].as_str().unwrap_or("");
            let number = |name: &str| device[name].as_f64().unwrap_or(0.0);
            let healthy = device["active"].as_bool().unwrap_or(false);
            let state = if healthy {
                paint.green(text("state"))
            } else {
                paint.red(text("state"))
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
        line(
            "Instances",
            format!(
                "{}; lock found held in {all:.2} % of {} accesses{detail}",
                self.number("bpe_instances_active"),
                grouped(self.number("bpe_instance_lock_accesses"))
            ),
        );
    }
}

/// Numbers as numbers, everything else as text.
fn typed_value(text: &str) -> Value {
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && text.starts_with(|c: char| c.is_ascii_digit()) => {
            number.into()
        }
        _ => text.into(),
    }
}

/// A count with separators between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn microseconds(number: f64) -> String {
    if number <= 0.0 {
        "-".to_owned()
    } else if number < 1000.0 {
        format!("{number:.0} us")
    } else {
        format!("{:.2} ms", number / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Paint {
        // Tests have no terminal, so nothing is coloured.
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
                ("bpe_cache_read_p50_us", "90"),
                ("bpe_data_read_p95_us", "2500"),
                ("bpe_instance_lock_accesses", "1000"),
                ("bpe_instance_lock_waits", "5"),
                ("bpe_instances_active", "2"),
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
            "the hottest, 1, took 75 %",
            "held in 0.50 %",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.lines().count() < 24);
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
        assert_eq!(typed_value("0.1.0"), "0.1.0");
        assert_eq!(typed_value("inf"), "inf");
    }
}
