//! `bpe status --explain` and `bpe top` on real servers, with and without the extension.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use integration_tests::harness::Outcome;
use integration_tests::trace::CREATE_FUNCTION;
use integration_tests::{Place, Server, Suite, sql};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const ROWS: u32 = 20_000;
const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("watching").in_turn("figures_and_sentences", figures_and_sentences)
}

/// Runs the command, which must exit with `code`; returns its standard output, or standard error if that is empty.
fn bpe(server: &Server, code: i32, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args(arguments)
        .args(["--no-defaults", "--user=root", "--socket"])
        .arg(server.socket())
        .stdin(Stdio::null())
        .output()?;
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(
        output.status.code() == Some(code),
        "bpe {arguments:?}: {} instead of {code}:\n{text}",
        output.status
    );
    Ok(text)
}

fn contains(text: &str, parts: &[&str]) -> Outcome {
    for part in parts {
        ensure!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    Ok(())
}

fn figures_and_sentences(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let explain = ["status", "--explain", "--seconds", "1"];
    contains(
        &bpe(&server, 1, &explain)?,
        &[
            "not installed",
            "come from the data disk",
            "data_reads_per_s",
        ],
    )?;
    contains(
        &bpe(&server, 1, &["top", "--once"])?,
        &["not installed", "bpe doctor"],
    )?;

    place.install(&server, CACHE)?;
    contains(&bpe(&server, 1, &explain)?, &["switched off"])?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    sql::read_all(&mut connection, "d.t", ROWS)?;

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Outcome {
            while !done.load(Ordering::Relaxed) {
                sql::read_all(&mut connection, "d.t", ROWS)?;
            }
            Ok(())
        });
        let looked = look(&server);
        done.store(true, Ordering::Relaxed);
        load.join().expect("the load does not panic")?;
        looked
    })?;
    on_a_terminal(&server)?;
    server.stop()?;
    Ok(())
}

/// Checks the commands under load.
fn look(server: &Server) -> Outcome {
    let json = |arguments: &[&str]| -> anyhow::Result<Value> {
        let text = bpe(server, 0, arguments)?;
        serde_json::from_str(&text).with_context(|| text.clone())
    };
    let arguments = ["status", "--json", "--seconds", "1"];
    // The reports come from the plugin's variable.
    let report = json(&arguments)?;
    ensure!(report["figures"]["latency_refused"] == false, "{report:#}");
    server.sql(CREATE_FUNCTION)?;
    let report = json(&arguments)?;
    let figures = &report["figures"];
    let number = |name: &str| -> anyhow::Result<f64> {
        let number = figures[name].as_f64();
        number.with_context(|| format!("{name} in {figures:#}"))
    };
    ensure!(figures["state"] == "active" && figures["latency_refused"] == false);
    for name in [
        "qps",
        "pool_reads_per_s",
        "cache_reads_per_s",
        "pages_cached",
        "memory_bytes",
        "capacity_bytes",
        "saved_reads_total",
        "lock_accesses_per_s",
    ] {
        ensure!(number(name)? > 0.0, "{name} is 0 in {figures:#}");
    }
    let interval = number("interval_s")?;
    ensure!((0.9..60.0).contains(&interval), "{interval} s");
    let ratio = number("hit_ratio_percent")?;
    ensure!(ratio > 0.0 && ratio <= 100.0, "{ratio} %");
    let of_cache = ["p50", "p95", "p99"].map(|q| figures["cache_read_us"][q].as_f64());
    ensure!(
        of_cache[0] > Some(0.0) && of_cache[0] <= of_cache[1] && of_cache[1] <= of_cache[2],
        "{of_cache:?}"
    );
    let sentences = report["explain"].as_array().context("no sentences")?;
    let key = |at: usize| sentences[at]["text_key"].as_str().unwrap_or_default();
    ensure!(key(0).starts_with("verdict."), "{sentences:#?}");
    for sentence in sentences {
        let values = sentence["values"].as_object().context("no values")?;
        let text = sentence["text"].as_str().context("no text")?;
        ensure!(!values.is_empty() && !text.contains('{'), "{sentence:#}");
    }

    let once = bpe(server, 0, &["top", "--once"])?;
    contains(
        &once,
        &["active", "Queries/s", "p99", "not timed", "0 disk errors"],
    )?;
    ensure!(
        !once.contains('\x1b'),
        "colours without a terminal:\n{once}"
    );
    contains(
        &bpe(server, 0, &["top", "--once", "--view", "files"])?,
        &["d/t.ibd"],
    )?;
    contains(
        &bpe(server, 0, &["top", "--once", "--view", "explain"])?,
        &["hit_ratio_percent"],
    )?;
    contains(&bpe(server, 2, &["top"])?, &["bpe status --json", "--once"])
}

/// The screen is restored after an end by key and by signal.
fn on_a_terminal(server: &Server) -> Outcome {
    // A shell would cut paths with blanks into pieces.
    let command = "stty rows 24 cols 80; echo pid=$$.; exec \"$BPE\" top --no-defaults --user=root --socket \"$SOCKET\"";
    for by_signal in [false, true] {
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", command, "/dev/null"])
            .env("BPE", env!("CARGO_BIN_EXE_bpe"))
            .env("SOCKET", server.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("script")?;
        let mut input = child.stdin.take().context("no input")?;
        let mut output = child.stdout.take().context("no output")?;
        let mut screen = Vec::new();
        while !String::from_utf8_lossy(&screen).contains("Queries/s") {
            let mut buffer = [0; 4096];
            let length = output.read(&mut buffer)?;
            ensure!(length > 0, "{}", String::from_utf8_lossy(&screen));
            screen.extend(&buffer[..length]);
        }
        if by_signal {
            let text = String::from_utf8_lossy(&screen);
            let pid = text
                .split("pid=")
                .nth(1)
                .and_then(|text| text.split('.').next());
            let pid = pid.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            rustix::process::kill_process(pid.context("no pid")?, Signal::TERM)?;
        } else {
            input.write_all(b"4q")?;
        }
        output.read_to_end(&mut screen)?;
        let text = String::from_utf8_lossy(&screen);
        let status = child.wait()?;
        ensure!(status.success(), "{status}: {text}");
        contains(&text, &["\x1b[?1049h", "\x1b[?1049l"])?;
    }
    Ok(())
}
