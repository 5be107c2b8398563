//! Data of `bpe status`, as the server reports it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Data of `bpe status`.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub server: String,
    pub address: String,
    pub installed: bool,
    pub status: BTreeMap<String, String>,
    pub variables: BTreeMap<String, String>,
    pub devices: Option<Value>,
    pub instances: Option<Value>,
    /// The report of this name; null if the server refuses it.
    pub summary: Value,
    pub pool_bytes: u64,
    /// The account, if it lacks the privilege for reports.
    pub denied: Option<String>,
}

impl Snapshot {
    pub fn take(server: &mut Server) -> Result<Self, Failure> {
        let status = server.status("bpe%")?;
        let mut asked = |name: &str| {
            let text = server.report(name).ok()??;
            report::parse(&text).ok()
        };
        let (devices, instances) = (asked("devices"), asked("instances"));
        let summary = asked("summary").unwrap_or_default();
        let denied = report::denied_account(server);
        Ok(Self {
            server: format!("{} {}", server.flavour, server.version),
            address: server.address.to_string(),
            installed: !status.is_empty(),
            variables: server.variables("bpe%")?,
            pool_bytes: server.number("innodb_buffer_pool_size")?.unwrap_or(0),
            status,
            devices,
            instances,
            summary,
            denied,
        })
    }

    pub fn state(&self) -> &str {
        if self.installed {
            self.text_of("bpe_state")
        } else {
            "not installed"
        }
    }

    pub fn text_of(&self, name: &str) -> &str {
        self.status.get(name).map_or("", String::as_str)
    }

    pub fn number(&self, name: &str) -> f64 {
        self.text_of(name).parse().unwrap_or(0.0)
    }

    pub fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    pub fn json(&self) -> Value {
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
            "state_reason": self.text_of("bpe_state_reason"),
            "innodb_buffer_pool_size": self.pool_bytes,
            "status": typed(&self.status),
            "variables": typed(&self.variables),
            "devices": self.devices,
            "instances": self.instances,
            "summary": self.summary,
            "reports_denied_to": self.denied,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers() {
        assert_eq!(typed_value("12"), 12);
        assert_eq!(typed_value("0.5"), 0.5);
        assert_eq!(typed_value("0.1.0"), "0.1.0");
        assert_eq!(typed_value("inf"), "inf");
    }
}
