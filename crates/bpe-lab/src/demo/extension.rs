//! Switches the extension on as a user would, and fills its cache.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bpe::quote::sql_text;
use bpe::size;
use private_server::Server;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::observer::Observer;
use super::volume::Volume;
use crate::sysbench::settled::Rule;
use crate::sysbench::{Sysbench, Workload};

/// Filling ends when the hit ratio meets this rule.
const FILLED: Rule = Rule {
    window: 8,
    rise: 0.5,
};

const MIB: u64 = 1 << 20;

/// Progress of filling the cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Warmup {
    pub points: Vec<WarmPoint>,
    /// Seconds from switching on until the hit ratio stopped rising.
    pub seconds: f64,
    /// Whether it stopped rising within the allowed time.
    pub settled: bool,
}

/// One second of filling.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct WarmPoint {
    pub t: f64,
    pub qps: f64,
    /// Percent of this second's page reads.
    pub hit_ratio: f64,
    /// Bytes in the cache.
    pub cached: u64,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// `Bpe_memory_bytes`, the maximum observed.
    pub extension: u64,
    /// InnoDB's reduced pool.
    pub pool_left: u64,
}

/// Sets path, size and the other variables; does not switch on.
///
/// # Errors
/// The server refused a variable.
pub fn set_up(bench: &Bench, server: &Server) -> Result<()> {
    let path = bench.workspace.fast();
    server.sql(&format!(
        "SET GLOBAL bpe_path = {}",
        sql_text(&path.display().to_string())
    ))?;
    server.sql(&format!("SET GLOBAL bpe_size = {}", bench.plan.cache))?;
    for variable in &bench.plan.variables {
        let statement = variable.statement();
        server
            .sql(&statement)
            .with_context(|| format!("the server refused {statement}"))?;
    }
    Ok(())
}

/// Server options that switch it on at the server's start, with the same path, size and other variables.
pub fn options(bench: &Bench) -> Vec<String> {
    let mut options = vec![
        "--bpe-enabled=ON".into(),
        format!("--bpe-path={}", bench.workspace.fast().display()),
        format!("--bpe-size={}", bench.plan.cache),
    ];
    let variables = bench.plan.variables.iter();
    options.extend(variables.map(|one| format!("--bpe-{}={}", one.name, one.value)));
    options
}

/// Sets path and size, switches on, and reduces InnoDB's pool by the memory that the extension uses: both together get as
/// much as the other sides' pool. Returns the memory of each.
///
/// # Errors
/// The extension cannot be switched on; the error has its reason.
pub fn switch_on(bench: &Bench, server: &Server) -> Result<Memory> {
    set_up(bench, server)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    share_memory(bench, server)
}

/// Reduces InnoDB's pool by the memory that the extension uses. Returns the memory of each.
///
/// # Errors
/// The extension is not active (with its reason), or the server does not reduce its pool.
pub fn share_memory(bench: &Bench, server: &Server) -> Result<Memory> {
    let memory = require_active(server)?;
    let pool_left = lower_pool(server, bench.plan.pool, memory)?;
    Ok(Memory {
        extension: memory,
        pool_left,
    })
}

/// Returns the memory that the extension uses, bytes.
///
/// # Errors
/// The extension is not active; the error has its reason.
pub fn require_active(server: &Server) -> Result<u64> {
    let status = server.status("Bpe_%")?;
    let field = |name: &str| status.get(name).cloned().unwrap_or_default();
    if !field("Bpe_state").eq_ignore_ascii_case("active") {
        bail!(
            "the extension is {} although it was switched on: {}",
            field("Bpe_state"),
            field("Bpe_state_reason")
        );
    }
    Ok(field("Bpe_memory_bytes").parse().unwrap_or(0))
}

/// Resizes the pool on the running server so that it and `memory` fit into `pool` bytes.
fn lower_pool(server: &Server, pool: u64, memory: u64) -> Result<u64> {
    let left = pool.saturating_sub(memory) / MIB * MIB;
    let size = || -> Result<u64> {
        let text = server.value("SELECT @@GLOBAL.innodb_buffer_pool_size")?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    // The pool was reduced at an earlier switch-on. The server would report no resize then.
    if size()? == left {
        return Ok(left);
    }
    server.sql(&format!("SET GLOBAL innodb_buffer_pool_size = {left}"))?;
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let now = size()?;
        let resizing = server
            .status("Innodb_buffer_pool_resize_status")?
            .into_values()
            .next()
            .unwrap_or_default();
        let busy = !(resizing.is_empty() || resizing.starts_with("Completed"));
        if now <= left && !busy {
            return Ok(now);
        }
        if Instant::now() > end {
            bail!(
                "the server did not lower its buffer pool to {} within 30 s (it has {}, {resizing})",
                size::human(left),
                size::human(now)
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs oltp_read_only until the hit ratio has stopped rising.
///
/// # Errors
/// The load fails.
pub fn warm_up(
    bench: &Bench,
    sysbench: &Sysbench,
    observer: &mut Observer,
    volume: Option<&Volume>,
) -> Result<Warmup> {
    let limit = bench.plan.times.warm_max;
    let stage = bench.progress.stage("on: filling the cache", limit);
    let mut before = observer.snapshot(volume)?;
    let mut points: Vec<WarmPoint> = Vec::new();
    let mut settled = false;
    let name = bench.log_name("on-warmup");
    sysbench.run(Workload::ReadOnly, limit, &name, &mut |interval| {
        let now = observer.snapshot(volume)?;
        let work = now.since(&before);
        points.push(WarmPoint {
            t: interval.t,
            qps: interval.qps,
            hit_ratio: work.hit_ratio().unwrap_or(0.0),
            cached: now.bytes_cached(),
        });
        stage.message(&format!(
            "{:.0} QPS, hit ratio {:.1} %, {} cached",
            interval.qps,
            work.hit_ratio().unwrap_or(0.0),
            size::human(now.bytes_cached())
        ));
        before = now;
        settled = FILLED.is_met(points.iter().map(|point| point.hit_ratio));
        Ok(if settled {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    let seconds = points.last().map_or(0.0, |point| point.t);
    let last = points.last().copied().unwrap_or_default();
    stage.finish(&format!(
        "on: cache filled in {seconds:.0} s: hit ratio {:.1} %, {} cached{}",
        last.hit_ratio,
        size::human(last.cached),
        if settled { "" } else { " (still rising)" }
    ));
    Ok(Warmup {
        points,
        seconds,
        settled,
    })
}
