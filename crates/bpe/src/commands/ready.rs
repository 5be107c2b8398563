//! `bpe ready`: readiness of a server for traffic as an exit code and a line, for load balancer checks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::cluster::group;
use crate::cluster::probe::{self, Node};
use crate::cluster::ready::{self, Limits, Wanted};
use crate::connect;
use crate::connect::servers_file;
use crate::support::failure::{Exit, Failure};
use crate::support::terminal::say;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    limits: Limits,
    /// Which nodes are wanted
    #[arg(long, value_enum, default_value_t)]
    role: Wanted,
    /// File of servers, so that warmth is judged among the nodes of a cluster; see `bpe console`
    #[arg(long, value_name = "FILE", requires = "server")]
    servers: Option<PathBuf>,
    /// Name of the server in that file
    #[arg(
        long,
        value_name = "NAME",
        requires = "servers",
        conflicts_with = "connection"
    )]
    server: Option<String>,
    /// Seconds to wait for the answers of all servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (nodes, name) = match (&args.servers, &args.server) {
        (Some(path), Some(name)) => {
            let servers = servers_file::read(path)?;
            servers_file::by_name(&servers, name)?;
            (probe::nodes(&servers)?, name.clone())
        }
        _ => {
            let mut target = args.connection.target()?;
            target.ask_password()?;
            let name = target.address.to_string();
            let cluster = None;
            (
                vec![Node {
                    name: name.clone(),
                    cluster,
                    target,
                }],
                name,
            )
        }
    };
    let seen = probe::at_all(&nodes, Duration::from_secs(args.timeout));
    let verdict = among(&nodes, &seen, &name, &args.limits, args.role);
    say!("{}", verdict.reason);
    Ok(if verdict.ready { Exit::Ok } else { Exit::No }.into())
}

/// Judges a server within its group.
fn among(
    nodes: &[Node],
    seen: &[Result<probe::NodeState, Failure>],
    name: &str,
    limits: &Limits,
    wanted: Wanted,
) -> ready::Verdict {
    let known = probe::known(nodes, seen);
    let number = nodes.iter().position(|node| node.name == name).unwrap_or(0);
    let members = group::groups(&known)
        .into_iter()
        .find(|group| group.members.contains(&number))
        .map_or(vec![number], |group| group.members);
    let roles = group::roles(&known, &members);
    let of_group: Vec<ready::Candidate> = members
        .iter()
        .zip(roles)
        .map(|(i, role)| ready::Candidate {
            name: &nodes[*i].name,
            role,
            seen: seen[*i].as_ref(),
        })
        .collect();
    let among = members.iter().position(|i| *i == number).unwrap_or(0);
    ready::judge(among, &of_group, limits, wanted)
}
