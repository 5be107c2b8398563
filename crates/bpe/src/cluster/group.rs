//! Groups servers into clusters: by the servers file, or by their own replication state (nodes of a Galera cluster or
//! replication group, replica and source).

use super::membership::{Membership, Role};

/// A server and its known cluster state.
#[derive(Clone, Copy)]
pub struct GroupMember<'a> {
    pub name: &'a str,
    /// Cluster name in the servers file.
    pub cluster: Option<&'a str>,
    /// Its state, now or at the last answer.
    pub membership: Option<&'a Membership>,
}

/// Servers of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// Whether the servers file defines the cluster.
    pub configured: bool,
    /// Indexes of the servers, in the order of the file.
    pub members: Vec<usize>,
}

/// Groups servers into clusters. A server without relations is in none.
pub fn groups(all: &[GroupMember]) -> Vec<Group> {
    let mut part: Vec<usize> = (0..all.len()).collect();
    let same = |part: &mut [usize], a: usize, b: usize| {
        let (from, to) = (part[a].max(part[b]), part[a].min(part[b]));
        part.iter_mut()
            .filter(|of| **of == from)
            .for_each(|of| *of = to);
    };
    for a in 0..all.len() {
        for b in 0..a {
            let together = match (all[a].cluster, all[b].cluster) {
                (Some(one), Some(other)) => one == other,
                _ => false,
            };
            if together {
                same(&mut part, a, b);
            }
        }
    }
    // Reported relations join two sets of servers unless the file assigns both to clusters.
    for a in 0..all.len() {
        for b in 0..all.len() {
            if a == b || part[a] == part[b] || !says(all, a, b) {
                continue;
            }
            let placed =
                |of: usize| (0..all.len()).any(|i| part[i] == part[of] && all[i].cluster.is_some());
            if !(placed(a) && placed(b)) {
                same(&mut part, a, b);
            }
        }
    }
    let mut found: Vec<Group> = Vec::new();
    for first in 0..all.len() {
        if part[first] != first {
            continue;
        }
        let members: Vec<usize> = (0..all.len()).filter(|i| part[*i] == first).collect();
        let configured = members.iter().find_map(|i| all[*i].cluster);
        if configured.is_none() && members.len() == 1 {
            continue;
        }
        let mut name = configured.map_or_else(|| own_name(all, &members), str::to_owned);
        // Many clusters keep Galera's default name.
        if found.iter().any(|group| group.name == name) {
            name = format!("{name} of {}", all[members[0]].name);
        }
        found.push(Group {
            name,
            configured: configured.is_some(),
            members,
        });
    }
    found
}

/// Whether `a` reports that it belongs to the same cluster as `b`, or replicates from it.
fn says(all: &[GroupMember], a: usize, b: usize) -> bool {
    let (Some(one), Some(other)) = (all[a].membership, all[b].membership) else {
        return false;
    };
    if let (Some(name), Some(of_other)) = (&one.cluster, &other.cluster) {
        let ids = one.cluster_id.as_ref().zip(other.cluster_id.as_ref());
        return name == of_other && ids.is_none_or(|(one, other)| one == other);
    }
    source_of(all, one).contains(&b)
}

/// The sources of this replica. A source that matches several servers is left out.
fn source_of(all: &[GroupMember], replica: &Membership) -> Vec<usize> {
    let of = |source: &super::membership::Source| {
        let fits = |server: &Membership| match (&source.uuid, &server.uuid) {
            (Some(one), Some(other)) => one == other,
            _ => source.server_id == server.server_id && source.port == server.port,
        };
        let mut fitting = (0..all.len()).filter(|i| all[*i].membership.is_some_and(fits));
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    };
    replica.sources.iter().filter_map(of).collect()
}

fn own_name(all: &[GroupMember], members: &[usize]) -> String {
    let of_cluster = members
        .iter()
        .find_map(|i| all[*i].membership?.cluster.clone());
    of_cluster.unwrap_or_else(|| {
        let roles = roles(all, members);
        let primary = members
            .iter()
            .zip(roles)
            .find(|(_, role)| role.is_primary());
        let first = primary.map_or(members[0], |(i, _)| *i);
        all[first].name.to_owned()
    })
}

/// Roles of a group's members, in their order. A server that another member replicates from is a primary, even if its
/// own status does not show that.
pub fn roles(all: &[GroupMember], members: &[usize]) -> Vec<Role> {
    let sources: Vec<usize> = members
        .iter()
        .filter_map(|i| all[*i].membership)
        .flat_map(|membership| source_of(all, membership))
        .collect();
    members
        .iter()
        .map(
            |i| match all[*i].membership.map(|membership| membership.role) {
                Some(Role::Standalone) if sources.contains(i) => Role::Primary,
                Some(role) => role,
                None => Role::Unknown,
            },
        )
        .collect()
}

/// Checks that the order of a rolling change is well defined.
///
/// # Errors
/// The reason and an advice.
pub fn check(all: &[GroupMember], group: &Group) -> Result<(), (String, String)> {
    let roles = roles(all, &group.members);
    let named = |wanted: fn(Role) -> bool| -> Vec<&str> {
        group
            .members
            .iter()
            .zip(&roles)
            .filter(|(_, role)| wanted(**role))
            .map(|(i, _)| all[*i].name)
            .collect()
    };
    // A replication group may have several primaries, because any of them accepts writes. They are not counted here.
    let primaries = named(|role| matches!(role, Role::Primary | Role::Standalone));
    if primaries.len() > 1 {
        return Err((
            format!(
                "cluster `{}` has more than one primary: {} replicate from nobody",
                group.name,
                primaries.join(" and ")
            ),
            "have the others follow the one that is right, or put servers that do not belong together into different \
             clusters (`cluster = \"NAME\"` in the file of servers)"
                .to_owned(),
        ));
    }
    let unknown: Vec<_> = group
        .members
        .iter()
        .filter_map(|i| Some((all[*i].name, all[*i].membership?)))
        .filter(|(_, membership)| membership.role == Role::Unknown)
        .collect();
    if let Some((name, membership)) = unknown.first() {
        return Err((
            format!(
                "the role of {name} cannot be seen: {}",
                membership.unseen.join("; ")
            ),
            "grant that, or log in as an administrator".to_owned(),
        ));
    }
    Ok(())
}

/// The members in the order of a rolling change: replicas first, the primary last.
pub fn order(all: &[GroupMember], group: &Group) -> Vec<usize> {
    let roles = roles(all, &group.members);
    let mut order: Vec<(u8, usize)> = group
        .members
        .iter()
        .zip(roles)
        .map(|(i, role)| {
            let late = match role {
                Role::Replica | Role::GroupSecondary => 0,
                Role::Galera | Role::Unknown => 1,
                Role::Primary | Role::GroupPrimary | Role::Standalone => 2,
            };
            (late, *i)
        })
        .collect();
    order.sort_by_key(|(late, _)| *late);
    order.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
pub mod tests {
    use super::super::membership::Source;
    use super::*;

    pub fn server(id: u64, role: Role) -> Membership {
        Membership {
            role,
            state: String::new(),
            errors: String::new(),
            in_step: true,
            lag_s: Some(0.0),
            delay_s: 0,
            write_sets: None,
            read_only: false,
            cluster: None,
            cluster_id: None,
            nodes: None,
            server_id: id,
            uuid: None,
            port: 3300 + id,
            sources: Vec::new(),
            unseen: Vec::new(),
        }
    }

    pub fn replica(id: u64, of: u64) -> Membership {
        Membership {
            sources: vec![Source {
                server_id: of,
                uuid: None,
                host: "h".into(),
                port: 3300 + of,
            }],
            ..server(id, Role::Replica)
        }
    }

    pub fn known<'a>(
        name: &'a str,
        cluster: Option<&'a str>,
        of: &'a Membership,
    ) -> GroupMember<'a> {
        GroupMember {
            name,
            cluster,
            membership: Some(of),
        }
    }

    #[test]
    fn a_replica_belongs_to_its_source() {
        let (a, b, c, d) = (
            server(1, Role::Standalone),
            replica(2, 1),
            replica(3, 1),
            server(4, Role::Standalone),
        );
        let all = [
            known("b", None, &b),
            known("d", None, &d),
            known("a", None, &a),
            known("c", None, &c),
        ];
        let found = groups(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "a");
        assert!(!found[0].configured);
        assert_eq!(found[0].members, [0, 2, 3]);
        assert_eq!(
            roles(&all, &found[0].members),
            [Role::Replica, Role::Primary, Role::Replica]
        );
        assert_eq!(order(&all, &found[0]), [0, 3, 2]);
        assert!(check(&all, &found[0]).is_ok());
    }

    #[test]
    fn duplicate_server_ids_give_no_source() {
        let (a, b, c) = (
            server(1, Role::Primary),
            server(1, Role::Primary),
            replica(2, 1),
        );
        let all = [
            known("a", None, &a),
            known("b", None, &b),
            known("c", None, &c),
        ];
        assert!(groups(&all).is_empty());
    }

    #[test]
    fn the_file_comes_before_what_they_say() {
        let (a, b, c) = (server(1, Role::Standalone), replica(2, 1), replica(3, 1));
        let all = [
            known("a", Some("shop"), &a),
            known("b", Some("other"), &b),
            known("c", None, &c),
        ];
        let found = groups(&all);
        let names: Vec<_> = found
            .iter()
            .map(|group| (group.name.as_str(), group.members.clone()))
            .collect();
        assert_eq!(names, [("shop", vec![0, 2]), ("other", vec![1])]);
        // A server that does not answer stays in the cluster that the file assigns.
        let lost = GroupMember {
            name: "l",
            cluster: Some("shop"),
            membership: None,
        };
        let all = [known("a", Some("shop"), &a), lost];
        assert_eq!(groups(&all)[0].members, [0, 1]);
    }

    #[test]
    fn two_primaries_are_refused() {
        let (a, b) = (server(1, Role::Primary), server(2, Role::Standalone));
        let all = [known("a", Some("shop"), &a), known("b", Some("shop"), &b)];
        let group = &groups(&all)[0];
        let (what, _) = check(&all, group).unwrap_err();
        assert!(what.contains("more than one primary: a and b"), "{what}");
    }

    #[test]
    fn nodes_of_a_cluster_know_each_other() {
        let node = |id| Membership {
            cluster: Some("x".into()),
            ..server(id, Role::Galera)
        };
        let (a, b) = (node(1), node(2));
        let all = [known("a", None, &a), known("b", None, &b)];
        let found = groups(&all);
        assert_eq!((found.len(), found[0].name.as_str()), (1, "x"));
        assert!(check(&all, &found[0]).is_ok());
        assert_eq!(order(&all, &found[0]), [0, 1]);
    }

    #[test]
    fn clusters_of_one_name_are_told_apart() {
        let node = |id, cluster: &str| Membership {
            cluster: Some("my_wsrep_cluster".into()),
            cluster_id: Some(cluster.into()),
            ..server(id, Role::Galera)
        };
        let (a, b, c, d) = (node(1, "x"), node(2, "y"), node(3, "x"), node(4, "y"));
        let all =
            [("a", &a), ("b", &b), ("c", &c), ("d", &d)].map(|(name, of)| known(name, None, of));
        let found = groups(&all);
        let names: Vec<_> = found
            .iter()
            .map(|group| (group.name.as_str(), group.members.clone()))
            .collect();
        assert_eq!(
            names,
            [
                ("my_wsrep_cluster", vec![0, 2]),
                ("my_wsrep_cluster of b", vec![1, 3])
            ]
        );
    }
}
