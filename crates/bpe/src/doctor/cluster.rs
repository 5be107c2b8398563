//! A server's cluster role, and the effects of the extension on other members.

use std::path::{Path, PathBuf};

use super::finding::Finding;
use crate::cluster::membership::{Membership, Role};
use crate::connect::server::Server;
use crate::installation::disk;

/// Statements that reach the other nodes, and their effect on a node without the library.
pub fn check(server: &mut Server) -> Vec<Finding> {
    let Ok(membership) = Membership::read(server) else {
        // Another finding reports that the server does not answer.
        return Vec::new();
    };
    let words = membership.describe();
    let mut findings = Vec::new();
    if let Some(unseen) = membership.unseen.first() {
        findings.push(Finding::warn("cluster", unseen.clone()));
    }
    let text = match membership.role {
        Role::Standalone | Role::Unknown => return findings,
        Role::Galera => format!(
            "{words}: `bpe enable` changes this node alone. By hand, INSTALL SONAME and CREATE FUNCTION reach all nodes: one \
             without bpe.so logs an error and goes on (wsrep_ignore_apply_errors)"
        ),
        Role::Primary | Role::GroupPrimary => format!(
            "{words}: `bpe enable` changes this server alone. By hand, CREATE FUNCTION goes to the replicas: one without bpe.so \
             stops replicating with error 1126"
        ),
        Role::Replica | Role::GroupSecondary => {
            format!(
                "{words}: `bpe enable` changes this server alone, and the primary needs nothing"
            )
        }
    };
    findings.push(match membership.in_step {
        true => Finding::ok("cluster", text),
        false => Finding::warn("cluster", text)
            .advise("have it follow the others again before you change it"),
    });
    let all = "copies of its data directory name the function bpe_report and, on MariaDB, the plugin: a node without bpe.so starts \
               all the same, and its log says that the library is missing";
    findings.push(
        Finding::ok("copies", all)
            .advise("have bpe.so in the plugin directory of every node: `bpe enable --all SERVERS.toml` sees to it"),
    );
    findings
}

/// Findings about cache paths below the data directory of a Galera node.
pub fn paths(server: &mut Server, paths: &[PathBuf], data: &Path) -> Vec<Finding> {
    let copied = server.variable("wsrep_on").ok().flatten();
    if copied.as_deref() != Some("ON") {
        return Vec::new();
    }
    paths
        .iter()
        .filter(|path| path.starts_with(data))
        .map(|path| {
            Finding::fail("cluster", format!("{} {}", path.display(), disk::COPIED))
                .advise(disk::COPIED_ADVICE)
        })
        .collect()
}
