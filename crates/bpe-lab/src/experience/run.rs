//! A run: request, state and result.

use serde::{Deserialize, Serialize};

use super::load::Side;
use crate::sysbench::Workload;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    #[serde(rename = "oltp_read_only")]
    ReadOnly,
    #[serde(rename = "oltp_write_only")]
    WriteOnly,
    #[serde(rename = "oltp_read_write")]
    ReadWrite,
    #[serde(rename = "sql")]
    Sql,
}

impl Test {
    pub fn workload(self) -> Option<Workload> {
        match self {
            Self::ReadOnly => Some(Workload::ReadOnly),
            Self::WriteOnly => Some(Workload::WriteOnly),
            Self::ReadWrite => Some(Workload::ReadWrite),
            Self::Sql => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Manual,
    Compare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Running,
    Done,
    Stopped,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Switching.
    Prepare,
    Off,
    /// With the extension, while the cache fills: not counted.
    Warm,
    On,
    Manual,
}

/// What a page asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub test: Test,
    #[serde(default)]
    pub sql: Option<String>,
    pub mode: Mode,
    pub threads: u64,
    pub seconds: u64,
}

/// A second of it.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub run: String,
    pub at_ms: u64,
    pub phase: Phase,
    pub qps: f64,
    pub p95_ms: f64,
    pub enabled: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub id: String,
    /// Milliseconds since 1970, of its beginning.
    pub at_ms: u64,
    /// The server's id, and which one it is.
    pub server: String,
    pub server_version: String,
    pub test: Test,
    pub mode: Mode,
    pub threads: u64,
    pub seconds: u64,
    pub state: State,
    pub phase: Phase,
    pub points: Vec<Point>,
    pub off: Option<Side>,
    pub on: Option<Side>,
    /// In statements a second, from off to on.
    pub gain_percent: Option<f64>,
    pub reference_gain_percent: Option<f64>,
    pub error: Option<String>,
}

impl Run {
    /// Title for messages, also a component of a file's name.
    pub fn title(&self) -> &'static str {
        self.test.workload().map_or("Own SQL", Workload::script)
    }
}

/// A validated request.
pub enum Work {
    Test(Workload),
    Statements(Vec<String>),
}
