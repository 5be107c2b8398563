//! Prometheus' exporter for both servers, on a loopback port.
//!
//! `scripts/install-dependencies tests` unpacks it and promtool into the product's cache directory. Installed as packages, they
//! would start services.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::{Server, process, root};

use crate::{harness, sql};

/// A program that is on the PATH or was unpacked.
///
/// # Errors
/// The test is skipped where it is missing.
pub fn tool(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(root::tools().ok())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            harness::skip(format!(
                "{name} is missing: scripts/install-dependencies tests"
            ))
        })
}

/// A running exporter; killed when dropped.
pub struct Exporter {
    child: Child,
    port: u16,
}

impl Exporter {
    /// Starts it for a server, with a separate account that has the documented privileges. Files go to `folder`.
    pub fn start(server: &Server, folder: &Path) -> anyhow::Result<Exporter> {
        let program = tool("prometheus-mysqld-exporter")?;
        sql::run(
            server,
            &[
                "CREATE USER exporter@localhost IDENTIFIED BY 'secret' WITH MAX_USER_CONNECTIONS 3",
                "GRANT PROCESS, REPLICATION CLIENT ON *.* TO exporter@localhost",
            ],
        )?;
        let options = folder.join("exporter.cnf");
        std::fs::write(
            &options,
            format!(
                "[client]\nuser=exporter\npassword=secret\nsocket={}\n",
                server.socket().display()
            ),
        )?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = std::fs::File::create(folder.join("exporter.log"))?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.my-cnf={}", options.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // MySQL no longer has the statement SHOW SLAVE STATUS.
            .arg("--no-collect.slave_status")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = process::spawn(command, libc::SIGKILL)?;
        let exporter = Exporter { child, port };
        sql::wait_until("the exporter answers", Duration::from_secs(30), || {
            Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
        })?;
        Ok(exporter)
    }

    /// Current values of the metrics without labels, by name.
    pub fn scrape(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        ensure!(head.contains(" 200 "), "{head}");
        let values = body
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        Ok(values.collect())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        process::end(&mut self.child, libc::SIGTERM, Duration::from_secs(5));
    }
}
