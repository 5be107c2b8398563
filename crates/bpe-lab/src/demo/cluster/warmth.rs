//! Keeps a standby warm: `bpe warm` transfers the primary's list of cached pages while the load runs. At first it may use
//! half of the volume's capacity; later `bpe warm --follow` uses a small part of it.
//!
//! The cost comes from the payers' counters: the standby's status variables and volume, and the primary's statement count
//! for the account of the command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use private_server::{Server, process};
use serde_json::Value;

use super::account::ACCOUNT;
use super::figures::Keeping;
use super::load::Load;
use super::nodes::Nodes;
use super::plan::{ClusterPlan, IOPS};
use crate::demo::bench::Bench;

/// Seconds between two rounds.
const INTERVAL: u64 = 10;
/// Reads per second of the standby's volume for warming: at first, and later.
const FIRST_RATE: u64 = IOPS / 2;
const FOLLOWING_RATE: u64 = IOPS / 25;
/// Timeout for the command to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const PAGE: u64 = 16 << 10;

/// The running command, until this value is dropped.
pub struct Warmth {
    command: Child,
    primary: usize,
    standby: usize,
    /// When measuring began, by the load's clock, and the counters at that time.
    measured: Option<(f64, Costs)>,
    keeping: Keeping,
}

/// Counters at one moment.
#[derive(Clone, Copy, Default)]
struct Costs {
    reads: u64,
    loaded: u64,
    volume_ios: u64,
    statements: u64,
    primary_statements: u64,
}

/// The administrators' command, in the same directory as this program.
///
/// # Errors
/// The file does not exist.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let bpe = own.with_file_name("bpe");
    if !bpe.is_file() {
        bail!(
            "a standby is kept warm by {}, which is missing: make build",
            bpe.display()
        );
    }
    Ok(bpe)
}

fn start(from: &Server, to: &Server, log: &Path, how: &[String]) -> Result<Child> {
    let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let mut command = Command::new(program()?);
    command
        .arg("warm")
        .arg("--from")
        .arg(from.socket())
        .arg("--to")
        .arg(to.socket())
        .args(["--user", ACCOUNT, "--no-defaults"])
        .args(how)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    process::spawn(command, libc::SIGTERM).context("cannot start bpe warm")
}

fn figure(server: &Server, name: &str) -> Result<f64> {
    let all = server.status(&format!("Bpe\\_{name}"))?;
    let text = all.into_values().next();
    let text = text.with_context(|| format!("this bpe.so has no Bpe_{name}"))?;
    text.parse()
        .with_context(|| format!("Bpe_{name} is {text}"))
}

/// Reads of the data disk by loading.
fn warm_reads(server: &Server) -> Result<u64> {
    let summary = server.value("SELECT bpe_report('summary')")?;
    let summary: Value = serde_json::from_str(&summary.unwrap_or_default())?;
    let reads = summary["warm"]["reads"].as_u64();
    reads.context("this bpe.so does not report warm.reads")
}

impl Warmth {
    /// Warms the standby, within the time of the plan, and starts to keep it warm.
    ///
    /// # Errors
    /// The command fails.
    pub fn begin(
        bench: &Bench,
        plan: &ClusterPlan,
        nodes: &Nodes,
        [primary, standby]: [usize; 2],
        load: &Load,
    ) -> Result<Warmth> {
        let stage = bench.progress.stage("warm standby: bpe warm", plan.warming);
        let log = |name: &str| bench.workspace.logs().join(name);
        let (from, to) = (nodes.server(primary)?, nodes.server(standby)?);
        let first = log("bpe-warm.log");
        let mut warmth = Warmth {
            command: start(from, to, &first, &[format!("--io-capacity={FIRST_RATE}")])?,
            primary,
            standby,
            measured: None,
            keeping: Keeping::default(),
        };
        let (began, before) = (load.now(), warmth.costs(nodes)?);
        let status = loop {
            if let Some(status) = warmth.command.try_wait()? {
                break Some(status);
            }
            if load.now() > began + plan.warming as f64 {
                process::end(&mut warmth.command, libc::SIGTERM, END_TIMEOUT);
                break None;
            }
            std::thread::sleep(Duration::from_millis(200));
            stage.message(&format!(
                "{:.0} % warm, {:.0} statements a second",
                figure(to, "warm_percent")?,
                load.recent(1.0)
            ));
        };
        if let Some(status) = status.filter(|status| !status.success()) {
            let said = std::fs::read_to_string(&first).unwrap_or_default();
            bail!("bpe warm ended with {status}: {}", said.trim());
        }
        let costs = warmth.costs(nodes)?;
        warmth.keeping.first_seconds = load.now() - began;
        warmth.keeping.first_reads = costs.reads - before.reads;
        warmth.keeping.first_bytes = (costs.loaded - before.loaded) * PAGE;
        stage.finish(&format!(
            "warm standby: {:.0} % of the list is warm after {:.0} s and {} reads",
            figure(to, "warm_percent")?,
            warmth.keeping.first_seconds,
            warmth.keeping.first_reads
        ));
        let how = [
            "--follow".to_owned(),
            format!("--every={INTERVAL}"),
            format!("--io-capacity={FOLLOWING_RATE}"),
        ];
        warmth.command = start(from, to, &log("bpe-warm-follow.log"), &how)?;
        Ok(warmth)
    }

    fn costs(&self, nodes: &Nodes) -> Result<Costs> {
        let (primary, standby) = (nodes.server(self.primary)?, nodes.server(self.standby)?);
        let question = match primary.flavour().is_mysql() {
            true => format!(
                "SELECT SUM(COUNT_STAR) FROM performance_schema.events_statements_summary_by_user_by_event_name \
                 WHERE USER = '{ACCOUNT}'"
            ),
            false => format!(
                "SELECT SELECT_COMMANDS + UPDATE_COMMANDS + OTHER_COMMANDS FROM information_schema.USER_STATISTICS \
                 WHERE USER = '{ACCOUNT}'"
            ),
        };
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Costs {
            reads: warm_reads(standby)?,
            loaded: figure(standby, "warm_pages_loaded")? as u64,
            volume_ios: nodes.volume(self.standby)?.statistics()?.billed_ios,
            statements: number(primary.value(&question)?),
            primary_statements: number(primary.status("Questions")?.into_values().next()),
        })
    }

    /// Starts measuring the cost.
    ///
    /// # Errors
    /// A server or a volume does not answer.
    pub fn measure(&mut self, nodes: &Nodes, load: &Load) -> Result<()> {
        self.measured = Some((load.now(), self.costs(nodes)?));
        Ok(())
    }

    /// Ends the command. Returns the cost.
    ///
    /// # Errors
    /// A server or a volume does not answer.
    pub fn end(mut self, nodes: &Nodes, load: &Load) -> Result<Keeping> {
        let (from, before) = self.measured.context("nothing was measured")?;
        let (seconds, costs) = (load.now() - from, self.costs(nodes)?);
        let percent = figure(nodes.server(self.standby)?, "warm_percent")?;
        process::end(&mut self.command, libc::SIGTERM, END_TIMEOUT);
        Ok(Keeping {
            percent,
            seconds,
            reads: costs.reads - before.reads,
            bytes: (costs.loaded - before.loaded) * PAGE,
            volume_ios: costs.volume_ios - before.volume_ios,
            volume_could: (IOPS as f64 * seconds) as u64,
            statements: costs.statements - before.statements,
            primary_statements: costs.primary_statements - before.primary_statements,
            ..std::mem::take(&mut self.keeping)
        })
    }
}

impl Drop for Warmth {
    fn drop(&mut self) {
        process::end(&mut self.command, libc::SIGTERM, END_TIMEOUT);
    }
}
