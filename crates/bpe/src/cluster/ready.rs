//! Readiness of a node for traffic: it answers, participates, is not far behind, and is warm.
//!
//! Warmth never removes the last node. A cold node is held back only while another node of its group is ready and warm
//! enough. With fewer than two candidates, warmth is ignored.

use super::membership::Role;
use super::probe::NodeState;
use crate::support::failure::{Exit, Failure};

/// Which nodes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    #[default]
    Any,
    /// One that applications may write to: a primary, a server without replicas, or a Galera node.
    Primary,
    /// One that follows another: a replica, a secondary, or a Galera node.
    Replica,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Limits {
    /// Least warmth in percent of the list that was fetched last; 0 ignores warmth
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub min_warm: f64,
    /// Most seconds that a node may be behind
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub max_lag: f64,
    /// Take a node without a list of hot pages for a cold one, not for a warm one
    #[arg(long)]
    pub require_list: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_warm: 0.0,
            max_lag: 10.0,
            require_list: false,
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("must be 0 to 100".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds".to_owned()),
    }
}

/// A node's last known state.
pub struct Candidate<'a> {
    pub name: &'a str,
    /// Role within its group.
    pub role: Role,
    pub seen: Result<&'a NodeState, &'a Failure>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub ready: bool,
    /// One line.
    pub reason: String,
    /// Share of traffic in percent relative to other nodes: its warmth, or 100. At least 1, so that a group of cold nodes still serves.
    pub weight: u8,
}

/// Whether applications can write to it.
fn takes_writes(node: &Candidate) -> bool {
    let seen = node.seen.map(|seen| &seen.membership);
    node.role.is_primary() && seen.is_ok_and(|seen| seen.in_step && !seen.read_only)
}

/// Whether it is a primary that other servers follow, or a group's primary.
fn is_followed(node: &Candidate) -> bool {
    matches!(node.role, Role::Primary | Role::GroupPrimary)
}

/// Another node that accepts writes, so that this one may not be the primary. A replication group may have several primaries.
fn rival<'a>(number: usize, nodes: &'a [Candidate]) -> Option<&'a Candidate<'a>> {
    let node = &nodes[number];
    let others = nodes.iter().enumerate().filter(|(i, _)| *i != number);
    others.map(|(_, other)| other).find(|other| {
        let both_of_a_group = node.role == Role::GroupPrimary && other.role == Role::GroupPrimary;
        takes_writes(other) && !both_of_a_group && (is_followed(other) || !is_followed(node))
    })
}

/// Why a node must not get traffic, apart from warmth.
fn obstacle(number: usize, nodes: &[Candidate], limits: &Limits, wanted: Wanted) -> Option<String> {
    let node = &nodes[number];
    let seen = match node.seen {
        Ok(seen) => &seen.membership,
        Err(failure) => return Some(failure.what.clone()),
    };
    let fits = match (wanted, node.role) {
        (Wanted::Any, _) | (_, Role::Galera | Role::Unknown) => true,
        (Wanted::Primary, role) => role.is_primary(),
        (Wanted::Replica, role) => matches!(role, Role::Replica | Role::GroupSecondary),
    };
    if !seen.unseen.is_empty() {
        return Some(seen.unseen.join("; "));
    }
    if !fits {
        return Some(format!("it is {}", node.role.describe()));
    }
    if !seen.in_step {
        return Some(seen.describe());
    }
    if wanted == Wanted::Primary && node.role.is_primary() {
        if seen.read_only {
            return Some("it is read-only".to_owned());
        }
        if let Some(rival) = rival(number, nodes) {
            return Some(format!(
                "it replicates from nobody, and {} takes writes, too",
                rival.name
            ));
        }
    }
    // For example a former primary: it does not receive current writes.
    if node.role == Role::Standalone {
        if let Some(primary) = nodes
            .iter()
            .find(|other| is_followed(other) && takes_writes(other))
        {
            return Some(format!(
                "it follows nobody, while {} is the primary",
                primary.name
            ));
        }
    }
    match seen.lag_s {
        None => Some("it does not tell how far it is behind".to_owned()),
        Some(lag) if lag > limits.max_lag => Some(format!(
            "it is {lag:.0} s behind, and {} are allowed",
            limits.max_lag
        )),
        Some(_) => None,
    }
}

/// The state that a check without a token may see: role, lag and warmth. Removes texts that come from the server or name an account.
///
/// # Errors
/// The node does not answer.
pub fn for_strangers(seen: Result<&NodeState, &Failure>) -> Result<NodeState, Failure> {
    let silent = |_| Failure::new(Exit::Connect, "it does not answer");
    let mut seen = seen.cloned().map_err(silent)?;
    let membership = &mut seen.membership;
    membership.state = match membership.in_step {
        true => String::new(),
        false => "not in step".to_owned(),
    };
    membership.errors.clear();
    if !membership.unseen.is_empty() {
        membership.unseen = vec!["how it replicates cannot be seen".to_owned()];
    }
    Ok(seen)
}

/// Warmth of a node in percent; `None` if nothing indicates that it is cold.
fn percent_of(node: &Candidate, limits: &Limits) -> Option<f64> {
    let known = node.seen.ok().and_then(|seen| seen.warmth.percent);
    // The other nodes are warmed from it.
    if node.role.is_primary() {
        return None;
    }
    known.or(limits.require_list.then_some(0.0))
}

/// Judges the node with this index. `nodes` is its whole group.
pub fn judge(number: usize, nodes: &[Candidate], limits: &Limits, wanted: Wanted) -> Verdict {
    let node = &nodes[number];
    if let Some(why) = obstacle(number, nodes, limits, wanted) {
        return Verdict {
            ready: false,
            reason: format!("{} is not ready: {why}", node.name),
            weight: 0,
        };
    }
    let warmth = percent_of(node, limits);
    let weight = warmth.map_or(100, |percent| percent.clamp(1.0, 100.0) as u8);
    let mut what = vec![node.role.describe().to_owned()];
    if let Ok(seen) = node.seen {
        if !seen.membership.state.is_empty() {
            what.push(seen.membership.state.clone());
        }
        let lag = seen.membership.lag_s.unwrap_or(0.0);
        what.push(format!("{lag:.0} s behind"));
        what.push(match seen.warmth.percent {
            Some(percent) => format!("{percent:.0} % warm"),
            None => "no list of hot pages".to_owned(),
        });
    }
    let what = what.join(", ");
    let is_cold = |node: &Candidate| {
        percent_of(node, limits).is_some_and(|percent| percent < limits.min_warm)
    };
    if !is_cold(node) {
        return Verdict {
            ready: true,
            reason: format!("{} is ready: {what}", node.name),
            weight,
        };
    }
    let other = nodes.iter().enumerate().find(|(other, node)| {
        *other != number && obstacle(*other, nodes, limits, wanted).is_none() && !is_cold(node)
    });
    match other {
        Some((_, other)) => Verdict {
            ready: false,
            reason: format!(
                "{} is not ready: {what}, and {} % is asked for; {} is warm enough",
                node.name, limits.min_warm, other.name
            ),
            weight,
        },
        None => Verdict {
            ready: true,
            reason: format!(
                "{} is ready though cold, as no other node is both ready and warm enough: {what}",
                node.name
            ),
            weight,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{replica, server};
    use super::super::membership::Membership;
    use super::super::warmth::Warmth;
    use super::*;

    const LIMITS: Limits = Limits {
        min_warm: 90.0,
        max_lag: 5.0,
        require_list: false,
    };

    fn seen(membership: Membership, percent: Option<f64>) -> NodeState {
        NodeState {
            membership,
            warmth: Warmth {
                percent,
                age_s: None,
            },
        }
    }

    fn node(seen: &NodeState) -> Candidate<'_> {
        Candidate {
            name: "a",
            role: seen.membership.role,
            seen: Ok(seen),
        }
    }

    #[test]
    fn a_cold_node_waits_while_another_is_warm() {
        let (cold, warm) = (
            seen(replica(1, 9), Some(41.0)),
            seen(replica(2, 9), Some(95.0)),
        );
        let both = [node(&cold), node(&warm)];
        let verdict = judge(0, &both, &LIMITS, Wanted::Replica);
        assert!(!verdict.ready && verdict.weight == 41, "{verdict:?}");
        assert!(verdict.reason.contains("41 % warm"), "{verdict:?}");
        assert!(judge(1, &both, &LIMITS, Wanted::Replica).ready);
        // Alone or among cold nodes, a cold node serves.
        let alone = [node(&cold)];
        let verdict = judge(0, &alone, &LIMITS, Wanted::Any);
        assert!(
            verdict.ready && verdict.reason.contains("though cold"),
            "{verdict:?}"
        );
        let cold_too = seen(replica(2, 9), Some(3.0));
        for number in 0..2 {
            assert!(
                judge(
                    number,
                    &[node(&cold), node(&cold_too)],
                    &LIMITS,
                    Wanted::Any
                )
                .ready
            );
        }
        // The warm node is too far behind to be a candidate.
        let mut behind = warm.clone();
        behind.membership.lag_s = Some(60.0);
        let both = [node(&cold), node(&behind)];
        assert!(judge(0, &both, &LIMITS, Wanted::Any).ready);
        let verdict = judge(1, &both, &LIMITS, Wanted::Any);
        assert!(
            !verdict.ready && verdict.reason.contains("60 s behind"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_primary_is_warm_and_only_wanted_as_one() {
        let (primary, cold) = (
            seen(server(9, Role::Primary), None),
            seen(replica(1, 9), Some(10.0)),
        );
        let both = [node(&primary), node(&cold)];
        assert!(judge(0, &both, &LIMITS, Wanted::Any).ready);
        assert!(!judge(0, &both, &LIMITS, Wanted::Replica).ready);
        // It is the only replica.
        assert!(judge(1, &both, &LIMITS, Wanted::Replica).ready);
        assert!(!judge(1, &both, &LIMITS, Wanted::Any).ready);
    }

    #[test]
    fn only_one_node_that_takes_writes_is_the_primary() {
        let named = |name, seen| Candidate { name, ..node(seen) };
        let why = |number, nodes: &[Candidate], wanted| {
            let verdict = judge(number, nodes, &LIMITS, wanted);
            (!verdict.ready).then_some(verdict.reason)
        };
        let old = seen(server(8, Role::Standalone), None);
        let (new, follower) = (
            seen(server(9, Role::Primary), None),
            seen(replica(1, 9), Some(100.0)),
        );
        // The former primary is back and does not know about the promotion.
        let all = [
            named("old", &old),
            named("new", &new),
            named("c", &follower),
        ];
        let reason = why(0, &all, Wanted::Primary).unwrap();
        assert!(reason.contains("new takes writes, too"), "{reason}");
        let reason = why(0, &all, Wanted::Any).unwrap();
        assert!(reason.contains("follows nobody, while new is"), "{reason}");
        assert_eq!(why(1, &all, Wanted::Primary), None);
        assert_eq!(why(2, &all, Wanted::Replica), None);
        // Without replicas on either side, neither is known to be the primary.
        let other = seen(server(9, Role::Standalone), None);
        let both = [named("old", &old), named("other", &other)];
        assert!(
            why(0, &both, Wanted::Primary).is_some() && why(1, &both, Wanted::Primary).is_some()
        );
        // One of them is read-only.
        let mut old = old.clone();
        old.membership.read_only = true;
        let both = [named("old", &old), named("other", &other)];
        let reason = why(0, &both, Wanted::Primary).unwrap();
        assert!(reason.contains("read-only"), "{reason}");
        assert_eq!(why(1, &both, Wanted::Primary), None);
        // A replication group with several primaries.
        let member = |id| seen(server(id, Role::GroupPrimary), None);
        let (a, b) = (member(1), member(2));
        let both = [named("a", &a), named("b", &b)];
        assert_eq!(why(0, &both, Wanted::Primary), None);
    }

    #[test]
    fn who_has_no_list_is_cold_only_where_that_is_said() {
        let (without, warm) = (seen(replica(1, 9), None), seen(replica(2, 9), Some(99.0)));
        let both = [node(&without), node(&warm)];
        assert!(judge(0, &both, &LIMITS, Wanted::Any).ready);
        let strict = Limits {
            require_list: true,
            ..LIMITS
        };
        let verdict = judge(0, &both, &strict, Wanted::Any);
        assert!(!verdict.ready && verdict.weight == 1, "{verdict:?}");
    }

    #[test]
    fn who_stands_still_or_may_not_be_seen_is_not_ready() {
        let mut stopped = seen(replica(1, 9), Some(100.0));
        stopped.membership.in_step = false;
        stopped.membership.state = "SQL thread: No".into();
        let verdict = judge(0, &[node(&stopped)], &LIMITS, Wanted::Any);
        assert!(
            !verdict.ready && verdict.reason.contains("SQL thread: No"),
            "{verdict:?}"
        );
        let mut hidden = seen(server(1, Role::Unknown), None);
        hidden.membership.in_step = false;
        hidden.membership.unseen = vec!["GRANT it".into()];
        let verdict = judge(0, &[node(&hidden)], &LIMITS, Wanted::Any);
        assert!(
            !verdict.ready && verdict.reason.contains("GRANT it"),
            "{verdict:?}"
        );
        let lost = Failure::step("cannot connect");
        let lost = Candidate {
            name: "l",
            role: Role::Unknown,
            seen: Err(&lost),
        };
        assert!(!judge(0, &[lost], &LIMITS, Wanted::Any).ready);
    }

    #[test]
    fn strangers_read_no_words_of_a_server() {
        const SECRET: &str = "'bpe'@'localhost'";
        let reason = |seen: Result<NodeState, Failure>| {
            let seen = for_strangers(seen.as_ref());
            let node = Candidate {
                name: "a",
                role: seen
                    .as_ref()
                    .map_or(Role::Unknown, |seen| seen.membership.role),
                seen: seen.as_ref(),
            };
            let verdict = judge(0, &[node], &LIMITS, Wanted::Any);
            assert!(!verdict.reason.contains(SECRET), "{verdict:?}");
            verdict.reason
        };
        let lost = Failure::new(Exit::Connect, format!("Access denied for user {SECRET}"));
        assert_eq!(reason(Err(lost)), "a is not ready: it does not answer");
        let mut seen_node = seen(replica(1, 9), Some(100.0));
        seen_node.membership.state = SECRET.into();
        seen_node.membership.errors = SECRET.into();
        assert_eq!(
            reason(Ok(seen_node.clone())),
            "a is ready: replica, 0 s behind, 100 % warm"
        );
        seen_node.membership.in_step = false;
        seen_node.membership.lag_s = None;
        assert_eq!(
            reason(Ok(seen_node.clone())),
            "a is not ready: replica, not in step, lag unknown"
        );
        seen_node.membership.unseen = vec![format!("GRANT it TO {SECRET}")];
        assert_eq!(
            reason(Ok(seen_node)),
            "a is not ready: how it replicates cannot be seen"
        );
    }
}
