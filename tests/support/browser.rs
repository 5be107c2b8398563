//! The console's page in headless Chromium. `web/tests/browser` drives it and contains the scenarios.
//!
//! For actions outside the browser, a scenario prints a line `do: COMMAND` to standard output. Each is answered with a line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::harness::{Outcome, skip};

/// The web directory of the repository.
pub fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

/// Checks for the required tools; the error names the missing one.
pub fn look_for_tools() -> Outcome {
    let node = Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !node.is_ok_and(|status| status.success()) {
        return Err(skip("node is not installed: apt-get install nodejs npm"));
    }
    if !Path::new("/usr/bin/chromium").exists() {
        return Err(skip("Chromium is not installed: apt-get install chromium"));
    }
    for needed in ["dist/index.html", "node_modules/playwright-core"] {
        if !web().join(needed).exists() {
            return Err(skip(format!("web/{needed} is missing: scripts/build-page")));
        }
    }
    Ok(())
}

/// Runs the scenarios with these options; `obey` executes their commands. Returns their output.
///
/// # Errors
/// When a scenario fails, with the output.
pub fn run(options: &[&str], mut obey: impl FnMut(&str) -> Outcome) -> anyhow::Result<String> {
    let mut command = Command::new("node");
    command
        .arg(web().join("tests/browser/main.mjs"))
        .args(options);
    if let Some(folder) = std::env::var_os("BPE_TEST_SCREENSHOTS") {
        command.arg("--screenshots").arg(folder);
    }
    let mut browser = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("node")?;
    let mut answers = browser.stdin.take().context("no input")?;
    let output = BufReader::new(browser.stdout.take().context("no output")?);
    let mut said = String::new();
    for line in output.lines() {
        let line = line?;
        match line.strip_prefix("do: ") {
            Some(command) => match obey(command) {
                Ok(()) => writeln!(answers, "ok")?,
                Err(error) => writeln!(answers, "{}", format!("{error:#}").replace('\n', " "))?,
            },
            None => said.push_str(&format!("{line}\n")),
        }
    }
    let status = browser.wait()?;
    ensure!(
        status.success(),
        "the browser's tests ended with {status}:\n{said}"
    );
    Ok(said)
}
