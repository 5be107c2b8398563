//! Physical copies of a running server.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use private_server::Server;

use crate::harness::{Outcome, skip};
use crate::place::Place;

/// Copies the data of a running server, whose data directory is `data`, into the new directory `copy`, which is then ready for
/// a start. Uses mariadb-backup, or MySQL's clone plugin.
pub fn of_running(place: &Place, server: &Server, data: &Path, copy: &Path) -> Outcome {
    if place.is_mysql() {
        let installed = "SELECT 1 FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone'";
        if server.value(installed)?.is_none() {
            server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")?;
        }
        server.sql(&format!(
            "CLONE LOCAL DATA DIRECTORY = '{}'",
            copy.display()
        ))?;
        return Ok(());
    }
    let tool = || {
        let mut command = place
            .installation
            .tool("mariadb-backup")
            .context("mariadb-backup is missing")
            .map_err(|_| skip("mariadb-backup is not installed: apt-get install mariadb-backup"))?;
        command
            .arg("--no-defaults")
            .arg(format!("--target-dir={}", copy.display()));
        anyhow::Ok(command)
    };
    run(tool()?
        .arg("--backup")
        .arg("--user=root")
        .arg(format!("--socket={}", server.socket().display()))
        .arg(format!("--datadir={}", data.display())))?;
    run(tool()?.arg("--prepare"))
}

/// Runs a command that must succeed; the error contains its last output.
pub fn run(command: &mut Command) -> Outcome {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        lines[lines.len().saturating_sub(15)..].join("\n")
    );
    Ok(())
}
