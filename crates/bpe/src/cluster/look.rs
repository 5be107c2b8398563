//! Asks several servers at once what they are, so that one that hangs keeps nobody waiting for the others.

use std::time::Duration;

use super::group::Known;
use super::membership::Membership;
use super::warmth::Warmth;
use crate::connection::Target;
use crate::failure::Failure;
use crate::server::Server;
use crate::servers_file::Named;

/// How long an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What a server said.
#[derive(Clone, Debug)]
pub struct Seen {
    pub membership: Membership,
    pub warmth: Warmth,
}

impl Seen {
    /// # Errors
    /// When the server does not answer.
    pub fn of(server: &mut Server) -> Result<Self, Failure> {
        let membership = Membership::look(server)?;
        let warmth = Warmth::of(&server.status("bpe\\_%")?);
        Ok(Self { membership, warmth })
    }
}

/// A server of a file, and how to reach it.
#[derive(Clone)]
pub struct Node {
    pub name: String,
    /// The cluster that the file puts it in.
    pub cluster: Option<String>,
    pub target: Target,
}

/// What is known of each of them after a look.
pub fn known<'a>(nodes: &'a [Node], seen: &'a [Result<Seen, Failure>]) -> Vec<Known<'a>> {
    nodes
        .iter()
        .zip(seen)
        .map(|(node, seen)| Known {
            name: &node.name,
            cluster: node.cluster.as_deref(),
            membership: seen.as_ref().ok().map(|seen| &seen.membership),
        })
        .collect()
}

/// Asks for passwords where that is wished, one after the other.
///
/// # Errors
/// When an option file or an address cannot be used, or two servers have the same name.
pub fn nodes(servers: &[Named]) -> Result<Vec<Node>, Failure> {
    servers
        .iter()
        .map(|server| {
            crate::servers_file::by_name(servers, &server.name)?;
            Ok(Node {
                name: server.name.clone(),
                cluster: server.cluster.clone(),
                target: server.target()?,
            })
        })
        .collect()
}

/// Asks all of them, in the order of `nodes`.
pub fn at_all(nodes: &[Node], patience: Duration) -> Vec<Result<Seen, Failure>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| {
                let mut target = node.target.clone();
                scope.spawn(move || {
                    Server::open(&mut target, Some(patience))
                        .and_then(|mut server| Seen::of(&mut server))
                })
            })
            .collect();
        asked
            .into_iter()
            .map(|asked| {
                asked
                    .join()
                    .unwrap_or_else(|_| Err(Failure::step("looking at the server failed")))
            })
            .collect()
    })
}
