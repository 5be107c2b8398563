//! Polls several servers in parallel, so that one that hangs does not delay the others.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::group::GroupMember;
use super::membership::Membership;
use super::warmth::Warmth;
use crate::connect::Target;
use crate::connect::server::Server;
use crate::connect::servers_file::ListedServer;
use crate::support::failure::{Exit, Failure};

/// Answer timeout.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// State of a server that answered.
#[derive(Clone, Debug)]
pub struct NodeState {
    pub membership: Membership,
    pub warmth: Warmth,
}

impl NodeState {
    /// # Errors
    /// When the server does not answer.
    pub fn of(server: &mut Server) -> Result<Self, Failure> {
        let membership = Membership::read(server)?;
        let warmth = Warmth::of(&server.status("bpe\\_%")?);
        Ok(Self { membership, warmth })
    }
}

/// A server of the servers file, and its address.
#[derive(Clone)]
pub struct Node {
    pub name: String,
    /// Cluster name in the servers file.
    pub cluster: Option<String>,
    pub target: Target,
}

/// Combines the servers with their polled states.
pub fn known<'a>(
    nodes: &'a [Node],
    seen: &'a [Result<NodeState, Failure>],
) -> Vec<GroupMember<'a>> {
    nodes
        .iter()
        .zip(seen)
        .map(|(node, seen)| GroupMember {
            name: &node.name,
            cluster: node.cluster.as_deref(),
            membership: seen.as_ref().ok().map(|seen| &seen.membership),
        })
        .collect()
}

/// Resolves the servers' addresses. Asks for passwords one after the other, where requested.
///
/// # Errors
/// When an option file or an address cannot be used, or two servers have the same name.
pub fn nodes(servers: &[ListedServer]) -> Result<Vec<Node>, Failure> {
    servers
        .iter()
        .map(|server| {
            crate::connect::servers_file::by_name(servers, &server.name)?;
            Ok(Node {
                name: server.name.clone(),
                cluster: server.cluster.clone(),
                target: server.target()?,
            })
        })
        .collect()
}

/// Polls all servers, and returns results in the order of `nodes`. A server without a complete answer within `patience`
/// counts as unreachable.
pub fn at_all(nodes: &[Node], patience: Duration) -> Vec<Result<NodeState, Failure>> {
    let (said, answers) = mpsc::channel();
    let deadline = Instant::now() + patience;
    for (number, node) in nodes.iter().enumerate() {
        let mut target = node.target.clone();
        let said = said.clone();
        // If the thread cannot start, its server counts as unreachable.
        let _ = std::thread::Builder::new()
            .name("look".into())
            .spawn(move || {
                let seen = Server::open(&mut target, Some(patience))
                    .and_then(|mut server| NodeState::of(&mut server));
                let _ = said.send((number, seen));
            });
    }
    drop(said);
    let mut all: Vec<Option<Result<NodeState, Failure>>> = nodes.iter().map(|_| None).collect();
    while all.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        match answers.recv_timeout(left) {
            Ok((number, seen)) => all[number] = Some(seen),
            Err(_) => break,
        }
    }
    let silent = || {
        let what = format!(
            "the server does not answer: it took longer than {} s",
            patience.as_secs()
        );
        Err(Failure::new(Exit::Connect, what))
    };
    all.into_iter()
        .map(|seen| seen.unwrap_or_else(silent))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Args;
    use crate::connect::target::tests::full;

    #[test]
    fn hung_server_does_not_delay_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("full");
        let _both = full(&socket);
        let node = |name: &str, socket: &std::path::Path| {
            let args = Args {
                socket: Some(socket.display().to_string()),
                no_defaults: true,
                ..Args::default()
            };
            Node {
                name: name.to_owned(),
                cluster: None,
                target: args.target().unwrap(),
            }
        };
        let nodes = [
            node("hangs", &socket),
            node("away", &folder.path().join("none")),
        ];
        let seen = at_all(&nodes, Duration::from_secs(1));
        let why = |i: usize| seen[i].as_ref().unwrap_err().what.clone();
        // The login alone may take twice as long, and would fail with another message.
        assert!(why(0).contains("longer than 1 s"), "{}", why(0));
        assert!(why(1).contains("cannot connect"), "{}", why(1));
    }
}
