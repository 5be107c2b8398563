//! A run: request, state and result.

use serde::{Deserialize, Serialize};

use super::load::{OwnScript, Side};
use crate::demo::args::Workload;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    #[serde(rename = "oltp_read_only")]
    ReadOnly,
    #[serde(rename = "oltp_write_only")]
    WriteOnly,
    #[serde(rename = "oltp_read_write")]
    ReadWrite,
    /// One's own in Lua.
    #[serde(rename = "script")]
    Script,
    #[serde(rename = "sql")]
    Sql,
}

impl Test {
    pub fn workload(self) -> Option<Workload> {
        match self {
            Self::ReadOnly => Some(Workload::ReadOnly),
            Self::WriteOnly => Some(Workload::WriteOnly),
            Self::ReadWrite => Some(Workload::ReadWrite),
            Self::Script | Self::Sql => None,
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
    /// Name of the script, and options that it declares, as `name=value`.
    #[serde(default)]
    pub script: Option<String>,
    #[serde(default)]
    pub options: Vec<String>,
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
    /// Of a script of one's own: its name and its options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
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
    pub fn title(&self) -> &str {
        match (self.test.workload(), &self.script) {
            (Some(workload), _) => workload.script(),
            (None, Some(script)) => script,
            (None, None) => "Own SQL",
        }
    }
}

/// A validated request.
pub enum Work {
    Test(Workload),
    Script(OwnScript),
    Statements(Vec<String>),
}
