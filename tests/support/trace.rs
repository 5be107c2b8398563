//! A recording of page reads and writes, drained during a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use private_server::Server;
use private_server::mysql::{Conn, prelude::Queryable};
use serde_json::Value;

/// The statement that creates the function.
pub const CREATE_FUNCTION: &str = "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'";

/// One page read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub file: u32,
    pub page: u32,
    pub write: bool,
}

/// A recording in progress.
pub struct Recording {
    connection: Conn,
    pub name: String,
    pub events: Vec<Event>,
    pub lost: u64,
    pub page_sizes: Vec<u64>,
    /// The reason why the server ended it.
    pub ended: Option<String>,
}

/// The answer to an argument of `bpe_report()`.
pub fn ask(connection: &mut Conn, argument: &str) -> anyhow::Result<Value> {
    let text: Option<Option<String>> =
        connection.query_first(format!("SELECT bpe_report('{argument}')"))?;
    let text = text
        .flatten()
        .with_context(|| format!("bpe_report('{argument}') is NULL"))?;
    Ok(serde_json::from_str(&text)?)
}

/// The mode byte of the hooks; 0 is off.
pub fn hook_mode(server: &Server) -> anyhow::Result<u64> {
    let summary = ask(&mut server.connect()?, "summary")?;
    summary["hook_mode"].as_u64().context("no hook_mode")
}

impl Recording {
    /// Begins a recording.
    pub fn start(server: &Server) -> anyhow::Result<Recording> {
        let mut connection = server.connect()?;
        let answer = ask(&mut connection, "trace-start")?;
        let name = answer["recording"]
            .as_str()
            .with_context(|| answer.to_string())?;
        Ok(Recording {
            name: name.into(),
            connection,
            events: Vec::new(),
            lost: 0,
            page_sizes: Vec::new(),
            ended: None,
        })
    }

    /// Fetches the available events; true if the recording has ended and all were fetched.
    pub fn drain(&mut self) -> anyhow::Result<bool> {
        loop {
            let next = self.events.len();
            let answer = ask(
                &mut self.connection,
                &format!("trace-next {} {next}", self.name),
            )?;
            let bytes = answer["records"]
                .as_str()
                .with_context(|| answer.to_string())?;
            for record in BASE64.decode(bytes)?.chunks_exact(16) {
                let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
                ensure!(
                    word(12) as usize == self.events.len() && record[8] < 2 && record[9] == 1,
                    "record {} is {record:?}",
                    self.events.len()
                );
                self.events.push(Event {
                    file: word(0),
                    page: word(4),
                    write: record[8] == 1,
                });
            }
            self.lost = answer["lost"].as_u64().unwrap_or(0);
            self.page_sizes = answer["page_sizes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_u64)
                .collect();
            self.ended = answer["ended"].as_str().map(str::to_owned);
            if answer["done"] == true {
                return Ok(true);
            }
            if answer["more"] != true && self.ended.is_none() {
                return Ok(false);
            }
        }
    }

    /// Drains it while `body` runs.
    pub fn during<T>(&mut self, body: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let draining = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && !self.drain()? {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Ok::<_, anyhow::Error>(())
            });
            let result = body();
            over.store(true, Ordering::Relaxed);
            draining
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("panicked")))?;
            result
        })
    }

    /// Ends the recording and fetches the rest.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        ask(&mut self.connection, &format!("trace-stop {}", self.name))?;
        ensure!(self.drain()?, "it goes on after it was stopped");
        Ok(())
    }

    pub fn reads(&self) -> u64 {
        self.events.iter().filter(|event| !event.write).count() as u64
    }

    pub fn writes(&self) -> u64 {
        self.events.iter().filter(|event| event.write).count() as u64
    }
}
