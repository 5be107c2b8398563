//! Runs fio.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::options::Outcome;

const INSTALL: &str =
    "install it with `scripts/install-dependencies tests` or `apt-get install fio`";

/// # Errors
/// fio is not installed.
pub fn version() -> Outcome<String> {
    let output = Command::new("fio")
        .arg("--version")
        .output()
        .map_err(|error| format!("fio does not start ({error}); {INSTALL}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Random direct reads of 16 KiB per second by all threads together, of `bytes` starting at `offset` of an existing
/// file.
pub fn random_reads(
    file: &Path,
    offset: u64,
    bytes: u64,
    threads: usize,
    time: Duration,
) -> Outcome<f64> {
    let job = run(&[
        "--rw=randread".into(),
        "--bs=16k".into(),
        "--readonly".into(),
        "--allow_file_create=0".into(),
        "--norandommap".into(),
        "--randrepeat=0".into(),
        "--thread".into(),
        "--group_reporting".into(),
        "--time_based".into(),
        format!("--filename={}", file.display()),
        format!("--offset={offset}"),
        format!("--size={bytes}"),
        format!("--numjobs={threads}"),
        format!("--runtime={}ms", time.as_millis()),
    ])?;
    figure(&job, "/read/iops")
}

/// Bytes per second of sequential writes of a file of `bytes`, in blocks of `block` bytes with `depth` in flight.
pub fn sequential_writes(file: &Path, bytes: u64, block: usize, depth: usize) -> Outcome<f64> {
    let job = run(&[
        "--rw=write".into(),
        "--ioengine=libaio".into(),
        format!("--iodepth={depth}"),
        "--fallocate=native".into(),
        format!("--filename={}", file.display()),
        format!("--size={bytes}"),
        format!("--bs={block}"),
    ])?;
    figure(&job, "/write/bw_bytes")
}

/// Bytes per second of random rewrites of an existing file of `bytes`, in blocks of `block` bytes with `depth` in
/// flight; and microseconds of CPU time per write.
pub fn random_writes(file: &Path, bytes: u64, block: usize, depth: usize) -> Outcome<(f64, f64)> {
    let job = run(&[
        "--rw=randwrite".into(),
        "--ioengine=libaio".into(),
        format!("--iodepth={depth}"),
        "--allow_file_create=0".into(),
        format!("--filename={}", file.display()),
        format!("--size={bytes}"),
        format!("--bs={block}"),
    ])?;
    // In percent of the runtime.
    let share = figure(&job, "/usr_cpu")? + figure(&job, "/sys_cpu")?;
    let time = figure(&job, "/write/runtime")? * 1000.0;
    let cpu = share / 100.0 * time / (bytes / block as u64) as f64;
    Ok((figure(&job, "/write/bw_bytes")?, cpu))
}

/// fio's report on its only job.
fn run(arguments: &[String]) -> Outcome<Value> {
    let output = Command::new("fio")
        .args([
            "--name=bpe",
            "--ioengine=psync",
            "--direct=1",
            "--output-format=json",
        ])
        .args(arguments)
        .output()
        .map_err(|error| format!("fio does not start ({error}); {INSTALL}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || {
        format!(
            "fio failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    };
    if !output.status.success() {
        return Err(said().into());
    }
    // Warnings may precede the report.
    let begin = text.find('{').ok_or_else(said)?;
    let mut said: Value = serde_json::from_str(&text[begin..])?;
    Ok(said["jobs"][0].take())
}

fn figure(job: &Value, path: &str) -> Outcome<f64> {
    job.pointer(path)
        .and_then(Value::as_f64)
        .filter(|&figure| figure > 0.0)
        .ok_or_else(|| format!("fio reports no {path}").into())
}
