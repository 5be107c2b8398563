//! The plugin's side of a recording, over SQL: the reports `trace-start`, `trace-next`, `trace-stop`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::connect::server::Server;
use crate::connect::{plain, report};
use crate::support::failure::Failure;

/// Bytes per record, as in a trace file.
pub const RECORD_BYTES: usize = 16;
/// Page sizes kept; InnoDB has 7.
const MAX_PAGE_SIZES: usize = 16;

/// A running recording.
pub struct Drain<'a> {
    server: &'a mut Server,
    name: String,
    /// Number of the next event.
    next: u64,
    lost: u64,
    page_sizes: Vec<u64>,
}

/// Events since the previous request.
#[derive(Debug)]
pub struct Answer {
    /// Complete records in sequence order.
    pub records: Vec<u8>,
    /// More events are ready.
    pub more: bool,
    /// Why the recording has stopped.
    pub ended: Option<String>,
    /// This was the last answer.
    pub done: bool,
}

impl<'a> Drain<'a> {
    /// Begins a recording.
    pub fn start(server: &'a mut Server) -> Result<Self, Failure> {
        report::require_plugin(server)?;
        // Test with another report first: if the function is missing, its error has the right advice.
        report::ask(server, "summary", "cannot record")?;
        let answer = report::ask(server, "trace-start", "cannot record")?;
        if let Some(why) = answer["error"].as_str() {
            return Err(Failure::step(format!("the recording cannot start: {why}")));
        }
        let name = answer["recording"].as_str().unwrap_or_default();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Failure::step(format!(
                "the server's answer cannot be understood: {answer}"
            )));
        }
        let name = name.to_owned();
        Ok(Self {
            server,
            name,
            next: 0,
            lost: 0,
            page_sizes: Vec::new(),
        })
    }

    /// Fetches the events since the previous call.
    ///
    /// # Errors
    /// Why the recording is over.
    pub fn next(&mut self) -> Result<Answer, String> {
        let (name, next) = (&self.name, self.next);
        let answer = self.ask(&format!("trace-next {name} {next}"))?;
        let (first, records) = (answer["first"].as_u64(), &answer["records"]);
        let records = records
            .as_str()
            .and_then(|text| BASE64.decode(text).ok())
            .filter(|records| records.len() % RECORD_BYTES == 0)
            .filter(|_| first == Some(next))
            .ok_or("the server's answer cannot be understood")?;
        self.next += (records.len() / RECORD_BYTES) as u64;
        self.lost = answer["lost"].as_u64().unwrap_or(0);
        self.page_sizes = answer["page_sizes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .take(MAX_PAGE_SIZES)
            .collect();
        Ok(Answer {
            records,
            more: answer["more"].as_bool().unwrap_or(false),
            ended: answer["ended"].as_str().map(str::to_owned),
            done: answer["done"].as_bool().unwrap_or(false),
        })
    }

    /// Stops the recording. Fetch the remaining events with [`next`](Self::next).
    pub fn stop(&mut self) -> Result<(), String> {
        self.ask(&format!("trace-stop {}", self.name)).map(drop)
    }

    /// Events lost because the buffer was full before they were fetched.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Page sizes seen, in bytes.
    pub fn page_sizes(&self) -> &[u64] {
        &self.page_sizes
    }

    fn ask(&mut self, argument: &str) -> Result<Value, String> {
        let text = self
            .server
            .report(argument)
            .map_err(|error| plain(&error))?
            .ok_or("the plugin does not answer")?;
        let answer = parse(&text)?;
        match answer["error"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        // Ignore errors: the recording may have ended, and the server ends an abandoned one anyway.
        let _ = self.stop();
        let _ = self.next();
        let _ = self.next();
    }
}

fn parse(text: &str) -> Result<Value, String> {
    report::parse(text).map_err(|_| "the server's answer cannot be understood".to_owned())
}
