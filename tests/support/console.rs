//! A console under test, and a client for it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::harness::Outcome;
use crate::sql;

/// A console, ended on drop.
pub struct Console {
    child: Child,
    pub address: SocketAddr,
    pub token: String,
}

impl Console {
    /// Opens the console of the command `program`, for the server at this socket.
    pub fn start(
        program: &str,
        folder: &Path,
        socket: &Path,
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let socket = socket.display().to_string();
        let mut all = vec!["--no-defaults", "--name=main", "--socket", &socket];
        all.extend(more);
        if !more.iter().any(|option| option.starts_with("--user=")) {
            all.push("--user=root");
        }
        Self::start_with(program, folder, &all)
    }

    /// As [`Console::start`], with the servers that these options name.
    pub fn start_with(program: &str, folder: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let token = folder.join("token");
        let mut child = Command::new(program)
            .args(["console", "--listen=127.0.0.1:0", "--token-file"])
            .arg(&token)
            .arg("--state-dir")
            .arg(folder.join("state"))
            .args(options)
            .env_remove("MYSQL_PWD")
            .env_remove("MYSQL_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdout = child.stdout.take().context("its output")?;
        let mut lines = BufReader::new(stdout).lines();
        let address = loop {
            let line = lines.next().context("the console ended")??;
            if let Some((_, rest)) = line.split_once("://") {
                // The output is no terminal and the token is persistent, so the token must not be printed.
                let token = fs::read_to_string(&token)?;
                ensure!(!line.contains(token.trim()), "the token is in the output");
                break rest.split('/').next().unwrap_or_default().parse()?;
            }
        };
        // Drains the output, because a full pipe would block the console.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            address,
            token: fs::read_to_string(token)?.trim().to_owned(),
        })
    }

    /// Ends the console by SIGTERM, and waits for its end.
    pub fn end(mut self) -> Outcome {
        let pid = i32::try_from(self.child.id())?;
        let pid = rustix::process::Pid::from_raw(pid).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        // HTTP/1.0, so that the answer ends with the connection.
        let mut text = format!(
            "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n",
            body.len()
        );
        let own = [
            ("Host", self.address.to_string()),
            ("Content-Type", "application/json".to_owned()),
        ];
        for (name, value) in own {
            if !headers.iter().any(|(given, _)| *given == name) {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes())?;
        Ok(stream)
    }

    /// Returns status, headers in lower case, and body.
    pub fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> anyhow::Result<(u16, String, String)> {
        let mut text = String::new();
        self.begin(method, path, headers, body)?
            .read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no headers")?;
        let status = head.split(' ').nth(1).unwrap_or_default().parse()?;
        Ok((status, head.to_ascii_lowercase(), body.to_owned()))
    }

    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, _, text) =
            self.raw(method, path, &[("Authorization", &self.bearer())], &body)?;
        let value = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).with_context(|| text.clone())?
        };
        Ok((status, value))
    }

    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        let (status, value) = self.ask("GET", path, None)?;
        ensure!(status == 200, "{path}: {status} {value}");
        Ok(value)
    }

    /// A server's entry in the list.
    pub fn server(&self, id: &str) -> anyhow::Result<Value> {
        let list = self.get("/api/servers")?;
        let found = list
            .as_array()
            .into_iter()
            .flatten()
            .find(|server| server["id"] == id);
        found
            .cloned()
            .with_context(|| format!("no server {id} in {list}"))
    }

    pub fn wait(&self, what: &str, mut done: impl FnMut(&Value) -> bool) -> Outcome {
        sql::wait_until(what, Duration::from_secs(60), || {
            Ok(done(&self.server("main")?))
        })
    }

    pub fn events(&self) -> anyhow::Result<String> {
        Ok(self.get("/api/events")?.to_string())
    }

    /// Uses the switch, and waits for the end of the task.
    pub fn switch(&self, body: Value) -> anyhow::Result<Value> {
        let (status, task) = self.ask("POST", "/api/servers/main/switch", Some(body))?;
        ensure!(status == 202, "{status} {task}");
        self.end_of(&task)
    }

    pub fn end_of(&self, task: &Value) -> anyhow::Result<Value> {
        let path = format!("/api/tasks/{}", task["id"].as_str().unwrap_or_default());
        let begun = Instant::now();
        loop {
            let task = self.get(&path)?;
            if task["state"] != "running" {
                return Ok(task);
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(120),
                "it does not end: {task}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lines of the live stream.
    pub fn live(&self) -> anyhow::Result<impl Iterator<Item = Value> + use<>> {
        let stream = self.begin(
            "GET",
            "/api/servers/main/live",
            &[("Authorization", &self.bearer())],
            "",
        )?;
        let mut lines = BufReader::new(stream).lines();
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        Ok(lines.map_while(|line| serde_json::from_str(&line.ok()?).ok()))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn expect(answer: &(u16, Value), status: u16, parts: &[&str]) -> Outcome {
    ensure!(
        answer.0 == status,
        "{} instead of {status}: {}",
        answer.0,
        answer.1
    );
    let text = answer.1.to_string();
    for part in parts {
        ensure!(text.contains(part), "`{part}` is missing in {text}");
    }
    Ok(())
}
