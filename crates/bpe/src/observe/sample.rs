//! One reading of a server: three statements, or five if the report comes from the variable `bpe_report`.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use interface::status::{Kind, Status};
use serde_json::Value;

use super::histogram::{Histogram, Quantiles, Reads};
use crate::connect::server::Server;
use crate::connect::{plain, report};
use crate::support::failure::{Exit, Failure};
use crate::support::text::cut;

/// The server's own counters used besides those of the extension.
const OF_THE_SERVER: &str = "'Questions','Com_commit','Com_rollback','Threads_running','Threads_connected','Uptime',\
    'Innodb_buffer_pool_read_requests','Innodb_buffer_pool_reads','Innodb_pages_read','Innodb_data_written',\
    'Innodb_data_reads','Innodb_pages_written','Innodb_row_lock_waits'";

/// Bytes kept of a status variable: of a text, which the plugin limits to 900 characters, and of a number.
const MAX_TEXT: usize = 4096;
const MAX_NUMBER: usize = 64;

/// All inputs of [`Figures`](super::Figures) at one point in time.
#[derive(Debug, Clone)]
pub struct Sample {
    pub taken: Instant,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Status variables with lower-case names: those of the extension and some of the server.
    pub status: BTreeMap<String, String>,
    pub pool_bytes: u64,
    /// Latencies of cache and data file reads since the cache was opened; `None` if the server refuses the report `latency`.
    pub latency: Option<[Histogram; 2]>,
    /// Reads while serving and while bypassed; `None` if the server does not report them.
    pub reads: Option<[Reads; 2]>,
}

impl Sample {
    /// # Errors
    /// When the server does not answer.
    pub fn take(server: &mut Server) -> Result<Self, Failure> {
        let pairs = server
            .pairs(&format!(
                "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'bpe%' OR Variable_name IN ({OF_THE_SERVER})"
            ))
            .map_err(gone)?;
        let taken = Instant::now();
        let status: BTreeMap<_, _> = pairs.into_iter().filter_map(wanted).collect();
        let mut report = None;
        if status.contains_key("bpe_state") {
            report = match server.report("latency") {
                // The server has neither the function nor the variable.
                Err(mysql::Error::MySqlError(_)) => None,
                answer => answer.map_err(gone)?,
            };
        }
        const POOL: &str = "SELECT @@innodb_buffer_pool_size";
        let pool_bytes: Option<u64> = server.row(POOL).map_err(gone)?;
        let report: Option<Value> = report.and_then(|text: String| report::parse(&text).ok());
        Ok(Self {
            taken,
            at_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            status,
            pool_bytes: pool_bytes.unwrap_or_default(),
            latency: report.as_ref().and_then(histograms),
            reads: report.as_ref().and_then(reads),
        })
    }

    /// Quantiles of cache and data file reads since the cache was opened.
    pub fn quantiles(&self) -> [Option<Quantiles>; 2] {
        let all = self.latency.as_ref();
        all.map_or([None; 2], |all| all.each_ref().map(Histogram::quantiles))
    }

    pub fn installed(&self) -> bool {
        self.status.contains_key("bpe_state")
    }

    /// `active`, `bypass`, `disabled`, `passive`, `failed` or `not installed`.
    pub fn state(&self) -> &str {
        if self.installed() {
            self.text("bpe_state")
        } else {
            "not installed"
        }
    }

    /// A status variable; empty if it does not exist.
    pub fn text(&self, name: &str) -> &str {
        self.status.get(name).map_or("", String::as_str)
    }

    /// A status variable; 0 if it does not exist.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name)
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .unwrap_or(0.0)
    }

    /// A counter; 0 if it does not exist.
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Growth of a counter since `before`. Reopening the cache or restarting the server resets it to 0.
    pub fn growth(&self, before: &Self, name: &str) -> u64 {
        let (before, now) = (before.count(name), self.count(name));
        if now >= before { now - before } else { now }
    }
}

/// A status variable that was asked for, by its lower-case name. Others, and the ends of long values, are dropped, because
/// samples and their figures stay in memory.
fn wanted((name, mut value): (String, String)) -> Option<(String, String)> {
    let name = name.to_ascii_lowercase();
    let status = Status::by_name(&name).filter(|_| name.starts_with("bpe_"));
    let is_of_the_server = || {
        let mut names = OF_THE_SERVER.split(',');
        names.any(|known| known.trim_matches('\'').eq_ignore_ascii_case(&name))
    };
    if status.is_none() && !is_of_the_server() {
        return None;
    }
    let is_text = status.is_some_and(|status| status.kind() == Kind::Text);
    cut(&mut value, if is_text { MAX_TEXT } else { MAX_NUMBER });
    Some((name, value))
}

fn histograms(report: &Value) -> Option<[Histogram; 2]> {
    Some([
        Histogram::of(report.get("cache_read")?)?,
        Histogram::of(report.get("data_read")?)?,
    ])
}

fn reads(report: &Value) -> Option<[Reads; 2]> {
    let of = |mode: &str| {
        let groups = report.get(mode)?;
        Some(Reads {
            control: Histogram::of(groups.get("control")?)?,
            others: Histogram::of(groups.get("others")?)?,
        })
    };
    Some([of("serving")?, of("bypass")?])
}

fn gone(error: mysql::Error) -> Failure {
    Failure::new(
        Exit::Connect,
        format!("the server does not answer: {}", plain(&error)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_keeps_bounded_values_of_known_names() {
        let kept = |name: &str, value: &str| {
            wanted((name.to_owned(), value.to_owned())).map(|(name, value)| (name, value.len()))
        };
        let long = "x".repeat(10_000);
        assert_eq!(
            kept("Bpe_state_reason", &"x".repeat(900)),
            Some(("bpe_state_reason".into(), 900))
        );
        assert_eq!(
            kept("Bpe_state_reason", &long),
            Some(("bpe_state_reason".into(), MAX_TEXT))
        );
        assert_eq!(
            kept("Bpe_hits", &long),
            Some(("bpe_hits".into(), MAX_NUMBER))
        );
        assert_eq!(kept("Uptime", "17"), Some(("uptime".into(), 2)));
        assert_eq!(
            kept("Innodb_row_lock_waits", "1"),
            Some(("innodb_row_lock_waits".into(), 1))
        );
        for other in ["hits", "Bpe-other", "Com_select", "", "bpe_"] {
            assert_eq!(kept(other, "1"), None, "{other}");
        }
    }
}
