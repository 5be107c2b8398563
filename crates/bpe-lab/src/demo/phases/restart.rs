//! Restarts under oltp_read_write: a clean one, one after kill -9, and a comparison with an empty cache.
//!
//! The load ends with the server, and starts again when the server accepts connections. It prepares no statements: with 64
//! clients and 30 tables that would take seconds before the first query. The cache is filled again before each restart.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context, Result};
use private_server::Server;

use super::second::Second;
use crate::demo::bench::Bench;
use crate::demo::extension;
use crate::demo::observer::Observer;
use crate::demo::rig::{Rig, live};
use crate::report::percent;
use crate::sysbench::Workload;

mod figures;
mod presentation;

pub use figures::Restarts;
use figures::{FIRST, How, Restart, THROUGHPUT, TOLD};

/// Additional seconds that the load before a restart may take.
const SPARE: u64 = 60;

/// # Errors
/// The server does not stop or start, a statement of the load after a start fails, or the extension is not active then.
pub fn run(bench: &Bench, rig: &mut Rig) -> Result<Restarts> {
    // The pool was reduced by the extension's memory, and is to stay so at the next start.
    let pool = rig
        .server()?
        .value("SELECT @@GLOBAL.innodb_buffer_pool_size")?
        .and_then(|text| text.parse().ok())
        .context("the server does not tell the size of its pool")?;
    rig.options = rig.options.take().map(|options| options.buffer_pool(pool));
    let mut restarts = Vec::new();
    for how in How::ALL {
        if !restarts.is_empty() {
            fill(bench, rig)?;
        }
        restarts.push(restart(bench, rig, how)?);
    }
    Ok(Restarts { restarts })
}

fn fill(bench: &Bench, rig: &Rig) -> Result<()> {
    let server = rig.server()?;
    let sysbench = bench.sysbench(server.socket());
    let mut observer = Observer::new(server)?;
    extension::warm_up(bench, &sysbench, &mut observer, rig.volume.as_ref()).map(drop)
}

fn restart(bench: &Bench, rig: &mut Rig, how: How) -> Result<Restart> {
    let mut result = load_until_end(bench, rig, how)?;
    let title = format!("on: {}", how.title());
    let stage = bench.progress.stage(&title, bench.plan.times.after);
    stage.message("starting the server");
    let begun = Instant::now();
    if how == How::Cold {
        // Removes the persisted state of any version of the library.
        bench.workspace.empty(&bench.workspace.fast())?;
        rig.start(bench.installation, &["--loose-bpe-persist-path="])?;
    } else {
        rig.start(bench.installation, &[])?;
    }
    let accepts = Instant::now();
    result.start = (accepts - begun).as_secs_f64();
    let server = rig.server()?;
    let volume = rig.volume.as_ref();
    let mut observer = Observer::new(server)?;
    let mut before = observer.snapshot(volume)?;
    let mut began: Option<f64> = None;
    let seconds = bench.plan.times.after;
    let name = bench.log_name(&format!("on-{}-after", how.name()));
    let sysbench = bench.sysbench(server.socket());
    sysbench.run(Workload::ReadWrite, seconds, &name, &mut |interval| {
        // sysbench's clock starts with its first query.
        let began = *began.get_or_insert(accepts.elapsed().as_secs_f64() - interval.t);
        let now = observer.snapshot(volume)?;
        let mut second = Second::new(interval, &now.since(&before));
        second.t += began;
        result.after.push(second);
        before = now;
        stage.message(&live(interval));
        Ok(ControlFlow::Continue(()))
    })?;
    result.first_query = began.context("the load ended early")?;
    extension::require_active(server)?;
    result.told = told(server)?;
    stage.finish(&format!(
        "{title}: accepts connections after {:.1} s, hit ratio of the first {FIRST} s {} of that before, {THROUGHPUT:.0} % of the \
         throughput {}",
        result.start,
        percent(result.hits_kept(), false, 0),
        result.back()
    ));
    Ok(result)
}

/// Runs the load, and ends the server during it. The load ends with the server.
fn load_until_end(bench: &Bench, rig: &mut Rig, how: How) -> Result<Restart> {
    let times = bench.plan.times;
    let (lead, all) = (times.lead as f64, (times.lead + times.test) as f64);
    let title = format!("on: load before {}", how.title());
    let stage = bench.progress.stage(&title, times.lead + times.test);
    let server = rig.server()?;
    let socket = server.socket().to_owned();
    let mut observer = Observer::new(server)?;
    let volume = rig.volume.as_ref();
    let mut before = observer.snapshot(volume)?;
    let mut result = Restart::of(how);
    let mut ended = None;
    let name = bench.log_name(&format!("on-{}-before", how.name()));
    let sysbench = bench.sysbench(&socket);
    let seconds = times.lead + times.test + SPARE;
    sysbench.run(Workload::ReadWrite, seconds, &name, &mut |interval| {
        let now = observer.snapshot(volume)?;
        if interval.t > lead {
            let second = Second::new(interval, &now.since(&before));
            result.before.push(second);
        }
        before = now;
        stage.message(&live(interval));
        if interval.t < all {
            return Ok(ControlFlow::Continue(()));
        }
        stage.message(how.ending());
        let begun = Instant::now();
        end(how, rig.server.take().context("no server")?)?;
        ended = Some(begun.elapsed().as_secs_f64());
        Ok(ControlFlow::Break(()))
    })?;
    result.stop = ended.context("the load ended before the server")?;
    result.cached = before.bytes_cached();
    stage.finish(&format!(
        "on: {:.0} QPS before {}, hit ratio {:.1} %; the server has ended in {:.1} s",
        result.qps_before(),
        how.title(),
        result.hits_before(),
        result.stop
    ));
    Ok(result)
}

fn end(how: How, server: Server) -> Result<()> {
    match how {
        How::Kill => server.kill(),
        How::Clean | How::Cold => drop(server.stop()?),
    }
    Ok(())
}

/// Reads those of [`TOLD`] that the server has.
fn told(server: &Server) -> Result<Vec<(String, u64)>> {
    let status = server.status("Bpe\\_%")?;
    let value = |name: &str| status.get(&format!("Bpe_{name}"))?.parse().ok();
    let all = TOLD
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), value(name)?)));
    Ok(all.collect())
}
