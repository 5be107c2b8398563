//! `bpe doctor`: checks beforehand whether the extension will work on a server, and help.
//!
//! It changes nothing. With `--server-binary` it judges only an executable ([`executable`]). Each module checks one
//! topic. [`server`] checks the version, the executable's imports and the I/O method. [`cache_path`] checks the cache paths,
//! and [`restart`] what a restart keeps. [`confinement`] checks AppArmor, SELinux and systemd. [`cluster`] checks the
//! server's cluster role, and [`buffering`] the page cache. [`benefit`] estimates memory and gain. [`instances`] checks
//! the number of instances of InnoDB's pool and of the extension. [`measure`] measures both disks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::connect;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::pool::Pool;
use crate::installation::{disk, install_state, size_percent};
use crate::support::failure::{Exit, Failure};
use crate::support::size::CacheSize;
use crate::support::terminal::{self, Paint, say};
use finding::{Finding, Level};

mod benefit;
mod buffering;
mod cache_path;
mod cluster;
mod confinement;
mod executable;
mod finding;
mod instances;
mod library;
mod measure;
mod restart;
mod server;

#[derive(clap::Args)]
pub struct Args {
    /// Folders (or files) on fast local disks for the cache, separated by `:`
    #[arg(
        long,
        value_name = "PATH[:PATH...]",
        required_unless_present = "server_binary"
    )]
    path: Option<String>,
    /// Size of the cache, all disks together, such as 100G, or as a part of the room there, such as 80%
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = CacheSize::parse, required_unless_present = "server_binary")]
    size: Option<CacheSize>,
    /// Judge a server's executable instead, even one that cannot run here; no server is asked
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["path", "size"])]
    server_binary: Option<PathBuf>,
    /// Do not measure the disks
    #[arg(long)]
    no_measure: bool,
    /// Seconds for each measurement
    #[arg(long, value_name = "N", default_value_t = 2, hide = true,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    measure_seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: connect::Args,
}

const WILL_NOT_WORK: &str = "It will not work like this: fix what is marked fail.";

/// Collects findings. On a terminal or in a pipe, they appear immediately.
struct Doctor {
    findings: Vec<Finding>,
    silent: bool,
    paint: Paint,
}

impl Doctor {
    fn add(&mut self, finding: Finding) {
        if !self.silent {
            say!("{}", finding.line(self.paint));
        }
        self.findings.push(finding);
    }

    fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.add(finding);
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.server_binary {
        return Ok(look_at_executable(&args, file));
    }
    let path = args.path.as_deref().unwrap_or_default();
    let paths = disk::split(path).map_err(|why| Failure::usage(format!("--path: {why}")))?;
    if args.size == Some(CacheSize::Bytes(0)) {
        return Err(Failure::usage("--size is 0: give the cache some room, such as 100G").into());
    }
    let mut doctor = Doctor {
        findings: Vec::new(),
        silent: args.json,
        paint: Paint::stdout(),
    };
    let mut connected = Server::connect(&args.connection);
    let process = match &mut connected {
        Ok(server) => look_at_server(&mut doctor, server),
        Err(failure) => {
            let mut finding = Finding::fail("server", failure.what.clone());
            finding.advice.clone_from(&failure.advice);
            doctor.add(finding);
            None
        }
    };
    let size = match size_in_bytes(&args, &paths, &mut connected, process.as_ref(), &mut doctor) {
        Ok(size) => size,
        Err(failure) => {
            let mut finding = Finding::fail("size", failure.what.clone());
            finding.advice.clone_from(&failure.advice);
            doctor.add(finding);
            let worst = doctor.findings.iter().map(|finding| finding.level).max();
            conclude(&doctor, worst, WILL_NOT_WORK, args.json);
            return Ok(Exit::No.into());
        }
    };
    // A server on another host has other disks, about which this host says nothing.
    let elsewhere = connected.is_ok() && process.is_none();
    if !elsewhere {
        let data = connected
            .as_mut()
            .ok()
            .and_then(|server| server.variable("datadir").ok().flatten())
            .map(PathBuf::from);
        look_at_paths(
            &mut doctor,
            &args,
            size,
            &paths,
            process.as_ref(),
            data.clone(),
        );
        if let (Ok(server), Some(data)) = (&mut connected, &data) {
            doctor.extend(cluster::paths(server, &paths, data));
        }
        if let (Ok(server), Some(process)) = (&mut connected, &process) {
            let data = data.map(|path| process.seen(&path));
            doctor.extend(restart::check(server, process, size, data.as_deref()));
        }
    }
    if let Ok(server) = &mut connected {
        doctor.extend(benefit::memory(server, size, process.is_some())?);
        doctor.extend(benefit::gain(server, size)?);
        doctor.extend(instances::check(server, process.is_some())?);
    }
    let worst = doctor.findings.iter().map(|finding| finding.level).max();
    let exit = match (worst, &connected) {
        (_, Err(_)) => Exit::Connect,
        (Some(Level::Fail), _) => Exit::No,
        _ => Exit::Ok,
    };
    conclude(&doctor, worst, verdict(&doctor.findings), args.json);
    Ok(exit.into())
}

/// The last line: the worst of the findings in words.
fn verdict(findings: &[Finding]) -> &'static str {
    let predicts_harm = |finding: &Finding| finding.text.ends_with(measure::SLOWER);
    match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Fail) => WILL_NOT_WORK,
        _ if findings.iter().any(predicts_harm) => {
            "It would work, but do harm: choose another disk."
        }
        Some(Level::Warn) => "It will work; read the warnings first.",
        _ => "It will work.",
    }
}

fn size_in_bytes(
    args: &Args,
    paths: &[PathBuf],
    connected: &mut Result<Server, Failure>,
    process: Option<&Process>,
    doctor: &mut Doctor,
) -> Result<u64, Failure> {
    match (args.size, connected) {
        (Some(CacheSize::Percent(percent)), Ok(server)) => {
            let place = install_state::StateFile::of(server, process, None)?;
            let pool = Pool::of(server)?.size;
            let pool = place
                .read()?
                .unwrap_or_default()
                .original(pool)
                .unwrap_or(pool);
            let resolved = size_percent::resolve(percent, paths, server, process, pool)?;
            doctor.add(Finding::ok("size", resolved.reason));
            Ok(resolved.bytes)
        }
        // Without a server, the limit by its pool is unknown.
        (Some(CacheSize::Percent(percent)), Err(_)) => {
            Ok(disk::part(percent, paths, Path::to_path_buf))
        }
        (Some(CacheSize::Bytes(bytes)), _) => Ok(bytes),
        (None, _) => Ok(0),
    }
}

fn look_at_executable(args: &Args, file: &Path) -> ExitCode {
    let mut doctor = Doctor {
        findings: Vec::new(),
        silent: args.json,
        paint: Paint::stdout(),
    };
    doctor.extend(executable::check(file));
    let worst = doctor.findings.iter().map(|finding| finding.level).max();
    let verdict = match worst {
        Some(Level::Fail) => "The extension cannot follow this server.",
        Some(Level::Warn) => "The extension can follow this server; read the warnings first.",
        _ => "The extension can follow this server.",
    };
    conclude(&doctor, worst, verdict, args.json);
    match worst {
        Some(Level::Fail) => Exit::No.into(),
        _ => Exit::Ok.into(),
    }
}

fn look_at_server(doctor: &mut Doctor, server: &mut Server) -> Option<Process> {
    doctor.add(server::version(server));
    doctor.extend(server::bypass(server));
    doctor.extend(cluster::check(server));
    doctor.extend(buffering::page_cache(server));
    match Process::find(server) {
        Ok(process) => {
            doctor.extend(server::engine(server, &process));
            doctor.extend(library::check(server, &process));
            doctor.extend(server::load_modes(server, &process));
            Some(process)
        }
        Err(why) => {
            doctor.add(
                Finding::warn(
                    "host",
                    format!("{why}: its executable and disks cannot be seen"),
                )
                .advise("run `bpe doctor` on the server's host"),
            );
            None
        }
    }
}

fn look_at_paths(
    doctor: &mut Doctor,
    args: &Args,
    size: u64,
    paths: &[PathBuf],
    process: Option<&Process>,
    data: Option<PathBuf>,
) {
    let see =
        |path: &Path| process.map_or_else(|| path.to_path_buf(), |process| process.seen(path));
    let shares = disk::shares(size, paths, see);
    let data = data.map(|path| process.map_or(path.clone(), |process| process.seen(&path)));
    let duration = Duration::from_secs(args.measure_seconds);
    let mut data_speed = None;
    for (path, share) in paths.iter().zip(shares) {
        let checked = cache_path::check(path, share, process, data.as_deref());
        let usable = checked.usable.clone();
        doctor.extend(checked.findings);
        if let Some(process) = process {
            doctor.extend(confinement::check(process, path));
        }
        let Some(folder) = usable.filter(|_| !args.no_measure) else {
            continue;
        };
        if let (None, Some(data)) = (&data_speed, &data) {
            let (finding, speed) = measure::data_disk(data, duration);
            doctor.add(finding);
            data_speed = speed;
        }
        doctor.extend(measure::cache_disk(
            path,
            &folder,
            share,
            duration,
            data_speed.as_ref(),
        ));
    }
}

fn conclude(doctor: &Doctor, worst: Option<Level>, verdict: &str, as_json: bool) {
    if as_json {
        let findings: Vec<_> = doctor.findings.iter().map(Finding::json).collect();
        let works = worst != Some(Level::Fail);
        terminal::say_json(&json!({ "works": works, "verdict": verdict, "findings": findings }));
    } else {
        say!("{}", doctor.paint.bold(verdict));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_harm_of_a_slower_disk() {
        let speed = |milliseconds, rate| measure::Speed {
            latency: Duration::from_millis(milliseconds),
            rate,
        };
        let slower = measure::compare(&speed(9, 100.0), &speed(1, 5000.0));
        let hint = Finding::warn("gain", "there is little to save");
        assert_eq!(
            verdict(&[hint.clone(), slower.clone()]),
            "It would work, but do harm: choose another disk."
        );
        assert_eq!(verdict(&[hint]), "It will work; read the warnings first.");
        assert_eq!(verdict(&[slower, Finding::fail("path", "")]), WILL_NOT_WORK);
        assert_eq!(verdict(&[]), "It will work.");
    }
}
