//! One failover: the load fills the primary's cache, the standby is kept warm or not, and the primary is killed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::figures::{Failover, MINUTE, Moments};
use super::load::Load;
use super::nodes::Nodes;
use super::plan::{ClusterPlan, Standby};
use super::processors::Processors;
use super::warmth::Warmth;
use crate::demo::bench::Bench;
use crate::demo::dataset::Dataset;
use crate::demo::progress::Stage;
use crate::report::percent;
use crate::sysbench::settled::Rule;

/// Node numbers of the roles.
const PRIMARY: usize = 0;
const STANDBY: usize = 1;

/// Filling ends when the hit ratio meets this rule.
const FILLED: Rule = Rule {
    window: 10,
    rise: 1.0,
};
/// Seconds after the promotion for measuring the new primary's hit ratio.
const FIRST: f64 = 10.0;

/// # Errors
/// A node, the load or the promotion fails. Everything is ended then.
pub fn run(
    bench: &Bench,
    plan: &ClusterPlan,
    image: &Dataset,
    standby: Standby,
) -> Result<Failover> {
    let mut nodes = Nodes::set_up(bench, plan, image, standby)?;
    let primary = nodes.server(PRIMARY)?.socket().to_owned();
    let load = Load::begin(&primary, plan.size.tables(), plan.demand)?;
    fill(bench, plan, standby, &nodes, &load)?;
    let mut warmth = match standby {
        Standby::Warm => Some(Warmth::begin(
            bench,
            plan,
            &nodes,
            [PRIMARY, STANDBY],
            &load,
        )?),
        Standby::Cold | Standby::Off => None,
    };
    let title = standby.title();

    let stage = bench
        .progress
        .stage(&format!("{title}: before the primary dies"), plan.before);
    let (begun, processors) = (load.now(), Processors::now());
    let earlier = nodes.snapshot(PRIMARY)?;
    if let Some(warmth) = &mut warmth {
        warmth.measure(&nodes, &load)?;
    }
    until(&stage, &load, begun + plan.before as f64)?;
    let keeping = warmth.map(|warmth| warmth.end(&nodes, &load)).transpose()?;
    let work = nodes.snapshot(PRIMARY)?.since(&earlier);
    let free_before = Processors::now().free_since(&processors);
    let killed = load.now();
    load.follow(None);
    nodes.kill(PRIMARY);
    stage.finish(&format!(
        "{title}: {:.0} statements a second before, hit ratio {}; the primary is killed",
        load.recent(plan.before as f64),
        percent(work.hit_ratio(), false, 1)
    ));

    let stage = bench
        .progress
        .stage(&format!("{title}: after the promotion"), plan.after);
    stage.message("waiting for a new primary");
    let server = nodes.server(STANDBY)?;
    plan.name
        .promote(&primary, server)
        .context("the standby was not promoted")?;
    load.follow(Some(server.socket()));
    let (promoted, processors) = (load.now(), Processors::now());
    let earlier = nodes.snapshot(STANDBY)?;
    let disk = nodes.volume(STANDBY)?.statistics()?;
    until(&stage, &load, promoted + FIRST)?;
    let first = nodes.snapshot(STANDBY)?.since(&earlier);
    until(&stage, &load, promoted + MINUTE.min(plan.after as f64))?;
    let disk_reads = nodes.volume(STANDBY)?.statistics()?.reads - disk.reads;
    let free_after = Processors::now().free_since(&processors);
    until(&stage, &load, promoted + plan.after as f64)?;
    let ended = load.now();
    let at = Moments {
        begun,
        killed,
        promoted,
        ended,
    };
    let failover = Failover {
        disk_reads,
        hits_before: work.hit_ratio(),
        hits_after: first.hit_ratio(),
        free_before,
        free_after,
        keeping,
        ..Failover::of_requests(standby, &load.end(), at)
    };
    stage.finish(&format!("{title}: {}", failover.words()));
    nodes.end()?;
    Ok(failover)
}

/// Waits until the load's clock reaches `t`, and reports progress.
fn until(stage: &Stage, load: &Load, t: f64) -> Result<()> {
    loop {
        let left = t - load.now();
        if left <= 0.0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs_f64(left.min(1.0)));
        stage.message(&format!("{:.0} statements a second", load.recent(1.0)));
    }
}

/// Waits until the load reaches its rate and the hit ratio has stopped rising. With the extension off, only the pool fills.
fn fill(
    bench: &Bench,
    plan: &ClusterPlan,
    standby: Standby,
    nodes: &Nodes,
    load: &Load,
) -> Result<()> {
    let title = standby.title();
    let (what, most) = match standby {
        Standby::Off => ("the load begins", plan.before / 2),
        _ => ("filling the primary's cache", plan.fill),
    };
    let stage = bench.progress.stage(&format!("{title}: {what}"), most);
    let end = Instant::now() + Duration::from_secs(most);
    let mut earlier = nodes.snapshot(PRIMARY)?;
    let mut ratios: Vec<f64> = Vec::new();
    while Instant::now() < end {
        until(&stage, load, load.now() + 1.0)?;
        let now = nodes.snapshot(PRIMARY)?;
        ratios.push(now.since(&earlier).hit_ratio().unwrap_or(0.0));
        earlier = now;
        stage.message(&format!(
            "{:.0} statements a second, hit ratio {}",
            load.recent(1.0),
            percent(ratios.last().copied(), false, 1)
        ));
        let is_served = load.recent(FILLED.window as f64) > plan.demand.statements() * 0.98;
        if standby != Standby::Off && is_served && FILLED.is_met(ratios.iter().copied()) {
            break;
        }
    }
    let served = load.recent(FILLED.window as f64);
    if served == 0.0 {
        bail!("the primary answers nothing");
    }
    let took = stage.elapsed().as_secs_f64();
    stage.finish(&format!(
        "{title}: {what}: {took:.0} s, {served:.0} of {:.0} statements a second, hit ratio {}",
        plan.demand.statements(),
        percent(ratios.last().copied(), false, 1)
    ));
    Ok(())
}
