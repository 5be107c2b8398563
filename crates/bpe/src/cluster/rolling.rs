//! A change of several servers, one after the other: replicas first, the primary last.
//!
//! Reads the state of all servers and makes every plan before the first change. Then each server is watched, changed,
//! watched again once it is in step and not behind. The first server that fails, leaves, or has worse figures
//! ([`super::regression`]) stops the change. Servers changed before stay as they are, and the report tells how to continue or
//! revert.

use std::cell::RefCell;
use std::time::Duration;

use super::group::{self, Group, GroupMember};
use super::node_change::NodeChange;
use super::probe::{self, Node, NodeState};
use super::regression::Window;
use super::topology_check;
use crate::change::{Plan, confirmed};
use crate::connect::server::Server;
use crate::connect::servers_file::ListedServer;
use crate::support::failure::{Exit, Failure};
use crate::support::notifier::{self, Notifier};
use crate::support::terminal::say;

/// How a rolling change goes about.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Pace {
    /// With --all: the cluster of the file to change, where it has several
    #[arg(long, value_name = "NAME", requires = "all")]
    pub cluster: Option<String>,
    /// With --all: most seconds that a server may be behind before the next one is changed
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "all")]
    pub max_lag: u64,
    /// With --all: seconds to wait until a changed server is in step again
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "all")]
    pub wait: u64,
    /// With --all: seconds to watch each server before and after its change
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "all",
          value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub watch: u64,
}

/// A change that is applied to each server.
pub struct Change<'a> {
    /// Whether the extension is on afterwards.
    pub is_on: bool,
    /// The command that undoes it.
    pub revert: String,
    /// Plans the change of the server with this number, without changing anything.
    pub plan: &'a dyn Fn(&mut Server, usize) -> Result<Plan, Failure>,
}

/// Progress of the rolling change.
#[derive(Default)]
struct RollingReport {
    done: Vec<String>,
    /// Servers that needed no change.
    same: Vec<String>,
    failed: Option<String>,
    left: Vec<String>,
}

impl RollingReport {
    fn lines(&self) -> String {
        let mut text = String::new();
        for (what, names) in [("changed:    ", &self.done), ("as wished:  ", &self.same)] {
            if !names.is_empty() {
                text.push_str(&format!("\n  {what}{}", names.join(", ")));
            }
        }
        if let Some(failed) = &self.failed {
            text.push_str(&format!("\n  stopped at: {failed}"));
        }
        if !self.left.is_empty() {
            text.push_str(&format!("\n  not reached: {}", self.left.join(", ")));
        }
        text
    }
}

/// Changes all servers of one cluster in the servers file.
///
/// # Errors
/// The reason for stopping, with the servers changed and not reached.
pub fn run(
    servers: &[ListedServer],
    pace: &Pace,
    yes: bool,
    change: &Change<'_>,
) -> Result<Exit, Failure> {
    let nodes = &probe::nodes(servers)?;
    let seen = probe::at_all(nodes, probe::ANSWER_TIMEOUT);
    // A server that does not answer may belong to any cluster, unless the file names one.
    let elsewhere = |node: &Node| match (&pace.cluster, &node.cluster) {
        (Some(wanted), Some(of)) => wanted != of,
        _ => false,
    };
    for (node, seen) in nodes.iter().zip(&seen) {
        if let (Err(failure), false) = (seen, elsewhere(node)) {
            let mut refused = Failure::new(
                failure.exit,
                format!("{}: {}; nothing was changed", node.name, failure.what),
            );
            refused.advice.clone_from(&failure.advice);
            return Err(refused);
        }
    }
    let (group, order) = choose(nodes, &seen, pace)?;
    say!(
        "Cluster {}: {} servers, one after the other",
        group.name,
        order.len()
    );
    let mut nothing = true;
    let mut shown = Vec::new();
    for number in &order {
        let node = &nodes[*number];
        let mut server = open(node)?;
        let plan = planned(change, &mut server, *number);
        let plan = plan.map_err(|failure| failure.about(&node.name))?;
        let role = seen[*number]
            .as_ref()
            .map(|seen| seen.membership.describe());
        say!("\n{} ({})", node.name, role.unwrap_or_default());
        say!("{plan}");
        nothing &= plan.is_empty();
        shown.push(plan.digest.text());
    }
    if nothing {
        return Ok(Exit::Ok);
    }
    say!("");
    if !confirmed(yes)? {
        return Ok(Exit::No);
    }
    let mut notifier = notifier::TerminalNotifier::catching_signals()?;
    let mut report = RollingReport::default();
    let memberships = order
        .iter()
        .map(|i| seen[*i].as_ref().ok().map(|seen| &seen.membership));
    let memberships = memberships.enumerate();
    let confirmed = Confirmed {
        primaries: topology_check::primaries(
            memberships.filter_map(|(place, seen)| Some((place, seen?))),
        ),
        plans: shown,
        all: yes,
    };
    for (place, number) in order.iter().enumerate() {
        let node = &nodes[*number];
        say!("\n{} ({} of {})", node.name, place + 1, order.len());
        match one(
            nodes,
            &order,
            &confirmed,
            place,
            pace,
            change,
            &mut notifier,
        ) {
            Ok(true) => report.done.push(node.name.clone()),
            Ok(false) => report.same.push(node.name.clone()),
            Err(failure) => {
                let later = &order[place + 1..];
                report.left = later.iter().map(|i| nodes[*i].name.clone()).collect();
                report.failed = Some(node.name.clone());
                let mut advice = format!(
                    "to go on, mend that and run the same command again: servers that are as wished are left as they are\n\
                     to go back: {}",
                    change.revert
                );
                if let Some(more) = &failure.advice {
                    advice = format!("{more}\n{advice}");
                }
                return Err(Failure::new(
                    Exit::Failed,
                    format!("{}: {}{}", node.name, failure.what, report.lines()),
                )
                .advise(advice));
            }
        }
    }
    say!(
        "\nAll servers of cluster {} are done.{}",
        group.name,
        report.lines()
    );
    Ok(Exit::Ok)
}

/// State of the cluster that the administrator has confirmed, in the order of the change.
struct Confirmed {
    /// Indexes of the primaries.
    primaries: Vec<usize>,
    /// Digest of each server's plan.
    plans: Vec<String>,
    /// `--yes`.
    all: bool,
}

/// The plan for the server with this number, with its text in its digest.
fn planned(change: &Change<'_>, server: &mut Server, number: usize) -> Result<Plan, Failure> {
    let mut plan = (change.plan)(server, number)?;
    plan.add_text_to_digest();
    Ok(plan)
}

/// Asks for a plan that differs from the one that was shown. `--yes` confirms every plan, which may hold free room or the size of
/// the pool.
///
/// # Errors
/// The plan is not confirmed.
fn confirm_changed(plan: &Plan, shown: &str, yes: bool) -> Result<(), Failure> {
    let differing = plan.digest.differing(shown);
    if yes || differing.is_empty() {
        return Ok(());
    }
    say!("the plan has changed since it was shown ({differing:?}):\n{plan}");
    match confirmed(false)? {
        true => Ok(()),
        false => Err(Failure::refused("the changed plan was not confirmed")),
    }
}

fn open(node: &Node) -> Result<Server, Failure> {
    Server::log_in(&mut node.target.clone()).map_err(|failure| failure.about(&node.name))
}

/// The requested group and the order of its members.
fn choose(
    nodes: &[Node],
    seen: &[Result<NodeState, Failure>],
    pace: &Pace,
) -> Result<(Group, Vec<usize>), Failure> {
    let known = probe::known(nodes, seen);
    if known.is_empty() {
        return Err(Failure::usage("the file names no server"));
    }
    let mut groups = group::groups(&known);
    let names: Vec<_> = groups.iter().map(|group| group.name.clone()).collect();
    let group = match &pace.cluster {
        Some(name) => groups
            .into_iter()
            .find(|group| group.name == *name)
            .ok_or_else(|| {
                Failure::usage(format!("there is no cluster `{name}`"))
                    .advise(format!("the file has: {}", names.join(", ")))
            })?,
        None if groups.len() > 1 => {
            return Err(Failure::usage(format!(
                "the file names servers of several clusters: {}",
                names.join(", ")
            ))
            .advise("choose one with --cluster NAME"));
        }
        // Without relations between them, the group must contain all servers of the file.
        None => match groups
            .pop()
            .filter(|group| group.members.len() == nodes.len())
        {
            Some(group) => group,
            None if nodes.len() == 1 => Group {
                name: nodes[0].name.clone(),
                configured: false,
                members: vec![0],
            },
            None => {
                return Err(lonely(nodes, &known));
            }
        },
    };
    group::check(&known, &group).map_err(|(what, advice)| {
        Failure::refused(format!("{what}; nothing was changed")).advise(advice)
    })?;
    let order = group::order(&known, &group);
    Ok((group, order))
}

/// The error about servers of the file that belong to no cluster.
fn lonely(nodes: &[Node], known: &[GroupMember]) -> Failure {
    let groups = group::groups(known);
    let alone: Vec<_> = (0..nodes.len())
        .filter(|i| !groups.iter().any(|group| group.members.contains(i)))
        .map(|i| nodes[i].name.as_str())
        .collect();
    Failure::refused(format!(
        "it cannot be told which cluster these belong to: {}; nothing was changed",
        alone.join(", ")
    ))
    .advise("give servers that belong together the same `cluster = \"NAME\"` in the file")
}

/// Changes one server. Returns whether it needed a change.
fn one(
    nodes: &[Node],
    order: &[usize],
    confirmed: &Confirmed,
    place: usize,
    pace: &Pace,
    change: &Change<'_>,
    notifier: &mut notifier::TerminalNotifier,
) -> Result<bool, Failure> {
    let all: Vec<Node> = order.iter().map(|i| nodes[*i].clone()).collect();
    let seen = probe::at_all(&all, probe::ANSWER_TIMEOUT).into_iter();
    let seen = seen.map(|seen| seen.map(|seen| seen.membership));
    let names = all.iter().map(|node| node.name.as_str());
    let max_lag_s = pace.max_lag as f64;
    topology_check::still(names.zip(seen).collect(), max_lag_s, &confirmed.primaries)?;
    let (number, node) = (order[place], &all[place]);
    let mut server = open(node)?;
    let plan = planned(change, &mut server, number)?;
    if plan.is_empty() {
        say!("  nothing to change");
        return Ok(false);
    }
    confirm_changed(&plan, &confirmed.plans[place], confirmed.all)?;
    let notifier = RefCell::new(notifier);
    let node_change = NodeChange {
        is_on: change.is_on,
        watch: Duration::from_secs(pace.watch),
        wait: Duration::from_secs(pace.wait),
        max_lag_s,
        interrupted: &|| notifier.borrow().interrupted(),
        to_the_end: false,
    };
    let say = |text: &str| say!("  {text}");
    let after = node_change.run(node.target.clone(), probe::ANSWER_TIMEOUT, &say, || {
        let reopen = || Server::log_in(&mut node.target.clone());
        let result = plan.carry_out(&mut server, &mut **notifier.borrow_mut(), &reopen);
        drop(server);
        result
    })?;
    say!("  {}", summary(&after));
    Ok(true)
}

/// A server's figures in one line.
fn summary(window: &Window) -> String {
    let figures = &window.figures;
    let hits = figures
        .hit_ratio_percent
        .map_or("no reads yet".to_owned(), |percent| {
            format!("hit ratio {percent:.0} %")
        });
    format!(
        "in step: the extension is {}, {hits}, {}, {:.0} threads running",
        figures.state,
        window.seen.membership.describe(),
        window.threads_running
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::digest::Topic;
    use crate::change::{Kind, Row, Step};

    #[test]
    fn changed_plan_is_asked_for() {
        let plan = |pool: u64, to: &str| {
            let mut plan = Plan::new(Kind::Install, "title".into());
            plan.digest.add(Topic::Pool, &pool);
            let row = Row::new("bpe_size", "", to, "");
            plan.add(Step::new("set it", vec![row], |_| Ok(())));
            plan.add_text_to_digest();
            plan
        };
        let shown = plan(1, "1 GiB").digest.text();
        assert!(confirm_changed(&plan(1, "1 GiB"), &shown, false).is_ok());
        for other in [plan(2, "1 GiB"), plan(1, "2 GiB")] {
            // Without a terminal nobody can be asked.
            assert!(confirm_changed(&other, &shown, false).is_err());
            assert!(confirm_changed(&other, &shown, true).is_ok());
        }
    }

    #[test]
    fn a_report_says_what_was_done_and_what_was_not() {
        let report = RollingReport {
            done: vec!["c".into()],
            same: vec!["d".into()],
            failed: Some("b".into()),
            left: vec!["a".into()],
        };
        let lines = report.lines();
        for part in [
            "changed:    c",
            "as wished:  d",
            "stopped at: b",
            "not reached: a",
        ] {
            assert!(lines.contains(part), "{lines}");
        }
    }
}
