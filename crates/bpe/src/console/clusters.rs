//! The console's servers as clusters: groups, roles, lag and warmth.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::error::Refusal;
use super::state::Console;
use super::watched::Watched;
use crate::cluster::group::{self, Group, GroupMember};
use crate::cluster::membership::Role;
use crate::cluster::probe::NodeState;
use crate::cluster::ready::{self, Limits, Verdict, Wanted};
use crate::support::failure::Failure;

/// The last known state of all servers. Groups are based on each server's last answer.
pub struct View {
    pub servers: Vec<Arc<Watched>>,
    clusters: Vec<Option<String>>,
    locations: Vec<Option<Arc<NodeState>>>,
    present: Vec<Result<Arc<NodeState>, Failure>>,
    /// Verdicts contain no texts from a server, and name only the server that they are about.
    is_for_strangers: bool,
}

impl View {
    /// The view for callers without the token.
    pub fn for_strangers(console: &Console) -> Self {
        Self {
            is_for_strangers: true,
            ..Self::of(console)
        }
    }

    pub fn of(console: &Console) -> Self {
        let servers = console.servers.clone();
        Self {
            clusters: servers
                .iter()
                .map(|server| server.cache_defaults().cluster)
                .collect(),
            locations: servers.iter().map(|server| server.place()).collect(),
            present: servers.iter().map(|server| server.present()).collect(),
            servers,
            is_for_strangers: false,
        }
    }

    fn known(&self) -> Vec<GroupMember<'_>> {
        (0..self.servers.len())
            .map(|i| GroupMember {
                name: &self.servers[i].name,
                cluster: self.clusters[i].as_deref(),
                membership: self.locations[i].as_ref().map(|seen| &seen.membership),
            })
            .collect()
    }

    pub fn groups(&self) -> Vec<Group> {
        group::groups(&self.known())
    }

    /// The group of this name.
    ///
    /// # Errors
    /// It does not exist.
    pub fn group(&self, name: &str) -> Answer<Group> {
        self.groups()
            .into_iter()
            .find(|group| group.name == name)
            .ok_or_else(|| Refusal::not_found(format!("the console knows no cluster `{name}`")))
    }

    /// The members in the order of a rolling change.
    ///
    /// # Errors
    /// The last server cannot be determined.
    pub fn order(&self, group: &Group) -> Result<Vec<Arc<Watched>>, Failure> {
        let known = self.known();
        group::check(&known, group)
            .map_err(|(what, advice)| Failure::refused(what).advise(advice))?;
        let order = group::order(&known, group);
        Ok(order
            .iter()
            .map(|i| Arc::clone(&self.servers[*i]))
            .collect())
    }

    /// The verdict on a server within its group.
    pub fn judge(&self, number: usize, limits: &Limits, wanted: Wanted) -> Verdict {
        let members = self
            .groups()
            .into_iter()
            .find(|group| group.members.contains(&number))
            .map_or(vec![number], |group| group.members);
        let roles = group::roles(&self.known(), &members);
        let without_texts: Vec<_> = members
            .iter()
            .filter(|_| self.is_for_strangers)
            .map(|i| ready::for_strangers(self.present[*i].as_deref()))
            .collect();
        let nodes: Vec<ready::Candidate> = members
            .iter()
            .zip(roles)
            .enumerate()
            .map(|(place, (i, role))| ready::Candidate {
                name: match self.is_for_strangers && *i != number {
                    true => "another node",
                    false => &self.servers[*i].name,
                },
                role,
                seen: match without_texts.get(place) {
                    Some(seen) => seen.as_ref(),
                    None => self.present[*i].as_deref(),
                },
            })
            .collect();
        let among = members.iter().position(|i| *i == number).unwrap_or(0);
        ready::judge(among, &nodes, limits, wanted)
    }

    fn member(&self, number: usize, role: Role, limits: &Limits) -> Value {
        let server = &self.servers[number];
        let summary = server.summary();
        let figures = server.latest();
        let verdict = self.judge(number, limits, Wanted::Any);
        let place = self.locations[number].as_ref();
        let present = self.present[number].is_ok();
        let membership = place.filter(|_| present).map(|place| &place.membership);
        let warmth = place.filter(|_| present).map(|place| &place.warmth);
        json!({
            "id": server.id,
            "name": server.name,
            "address": server.address,
            "reachable": present,
            "error": self.present[number].as_ref().err().map(|failure| &failure.what),
            "role": role,
            "state": membership.map(|membership| &membership.state),
            "errors": membership.map(|membership| &membership.errors),
            "in_step": membership.is_some_and(|membership| membership.in_step),
            "lag_s": membership.and_then(|membership| membership.lag_s),
            "read_only": membership.is_some_and(|membership| membership.read_only),
            "unseen": membership.map(|membership| membership.unseen.clone()).unwrap_or_default(),
            "extension": summary["state"],
            "installed": summary["installed"],
            "hit_ratio_percent": figures.as_ref().and_then(|figures| figures.hit_ratio_percent),
            "qps": figures.as_ref().map(|figures| figures.qps),
            "warm_percent": warmth.and_then(|warmth| warmth.percent),
            "warm_age_s": warmth.and_then(|warmth| warmth.age_s),
            "ready": verdict.ready,
            "ready_reason": verdict.reason,
        })
    }
}

/// A cluster's first server, whose turns its requests use.
pub fn first(console: &Console, name: &str) -> Answer<Arc<Watched>> {
    let view = View::of(console);
    let group = view.group(name)?;
    Ok(Arc::clone(&view.servers[group.members[0]]))
}

/// All clusters, as entries of a list.
pub fn summaries(console: &Console) -> Vec<Value> {
    let view = View::of(console);
    let known = view.known();
    let limits = &console.limits;
    view.groups()
        .iter()
        .map(|group| {
            let roles = group::roles(&known, &group.members);
            let members: Vec<Value> = group
                .members
                .iter()
                .zip(roles)
                .map(|(i, role)| view.member(*i, role, limits))
                .collect();
            let problem = group::check(&known, group).err();
            let order = group::order(&known, group);
            let order: Vec<_> = order.iter().map(|i| &view.servers[*i].id).collect();
            json!({
                "name": group.name,
                "configured": group.configured,
                "problem": problem.as_ref().map(|(what, _)| what),
                "advice": problem.as_ref().map(|(_, advice)| advice),
                "members": members,
                "order": order,
                "task": console.rolling.task(&group.name),
            })
        })
        .collect()
}
