//! What load balancers ask: whether a server may get traffic, over HTTP, and how much of it, as HAProxy's agents say it.
//!
//! Neither needs the token, and neither says more than that and why; so both listen on the loopback unless told otherwise. What
//! the samplers saw is judged: a check costs the server nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::clusters::View;
use super::listen;
use super::state::Console;
use super::watched::Watched;
use crate::cluster::ready::{Limits, Verdict, Wanted};
use crate::failure::Failure;
use crate::terminal::{complain, say};

/// Agents at a time; further ones wait in the kernel's queue.
const AGENTS: usize = 64;
/// How long an agent's caller may take to name its server.
const NAMED_WITHIN: Duration = Duration::from_secs(2);
/// How long the first look at the servers is waited for.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Bytes of the name.
const LONGEST: usize = 256;

#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "checks")]
pub struct Args {
    /// Answer whether a server may get traffic, on this port of the loopback: GET /ready?server=NAME says 200 or 503
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    health: Option<SocketAddr>,
    /// Answer HAProxy's agent checks on this port: a line with the server's name (agent-send) gets `up 60%` or `down`
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    agent: Option<SocketAddr>,
    #[command(flatten)]
    limits: Limits,
}

impl Args {
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn is_wanted(&self) -> bool {
        self.health.is_some() || self.agent.is_some()
    }
}

/// A check names its server, so each needs a name of its own.
///
/// # Errors
/// Two have the same.
pub fn tell_apart<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let mut known = BTreeSet::new();
    for name in names {
        if !known.insert(name) {
            return Err(Failure::usage(format!(
                "two servers have the name `{name}`, and checks name the server that they are about"
            ))
            .advise("give each a name of its own, with --name and in the file of servers"));
        }
    }
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_| "must be a port, or an address and a port such as 10.0.0.1:8601".to_owned())
}

/// Begins to listen where that is wished.
///
/// # Errors
/// When an address is taken.
pub async fn open(args: &Args, console: &Arc<Console>) -> Result<(), Failure> {
    if let Some(wanted) = args.health {
        let tcp = bind(wanted, "--health").await?;
        let at = tcp.local_addr().unwrap_or(wanted);
        say!("Readiness:          http://{at}/ready?server=NAME");
        let router = Router::new()
            .route("/ready", any(ready))
            .route("/weight", any(weight))
            .with_state(Arc::clone(console));
        let console = Arc::clone(console);
        tokio::spawn(async move {
            looked_at(&console).await;
            listen::serve(listen::Door::new(tcp, None), router, listen::HEAD).await;
        });
    }
    if let Some(wanted) = args.agent {
        let tcp = bind(wanted, "--agent").await?;
        let at = tcp.local_addr().unwrap_or(wanted);
        say!("Agent checks:       {at}");
        let console = Arc::clone(console);
        tokio::spawn(async move {
            looked_at(&console).await;
            agents(tcp, console).await;
        });
    }
    Ok(())
}

/// Waits until each server was looked at once. Who asks before waits in the kernel's queue, instead of hearing that none is ready.
async fn looked_at(console: &Console) {
    let begin = Instant::now();
    let known = |server: &Arc<Watched>| server.place().is_some() || server.trouble().is_some();
    while begin.elapsed() < FIRST_LOOK && !console.servers.iter().all(known) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn bind(wanted: SocketAddr, option: &str) -> Result<TcpListener, Failure> {
    if !wanted.ip().is_loopback() {
        complain!(
            "bpe: note: anyone who reaches {wanted} learns which servers are ready, and why not ({option})"
        );
    }
    TcpListener::bind(wanted).await.map_err(|error| {
        Failure::refused(format!("cannot listen on {wanted} ({option}): {error}"))
            .advise("choose another port")
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Question {
    /// Its name, or its id in the console.
    server: Option<String>,
    role: Option<String>,
    /// In place of the console's own.
    min_warm: Option<f64>,
    max_lag: Option<f64>,
}

/// With `http-check send-state` HAProxy says which of a backend's servers it asks about: `UP 2/3; name=backend/server; ...`.
const STATE: &str = "x-haproxy-server-state";

fn named_by_haproxy(headers: &HeaderMap) -> Option<String> {
    let state = headers.get(STATE)?.to_str().ok()?;
    let name = state
        .split(';')
        .find_map(|part| part.trim().strip_prefix("name="))?;
    Some(name.rsplit('/').next().unwrap_or(name).to_owned())
}

/// The server of this name or id, judged; `None` where there is none.
fn judge(console: &Console, name: &str, limits: &Limits, wanted: Wanted) -> Option<Verdict> {
    let view = View::of(console);
    let is = |of: &str| of == name;
    let number = view
        .servers
        .iter()
        .position(|server| is(&server.name))
        .or_else(|| view.servers.iter().position(|server| is(&server.id)))?;
    Some(view.judge(number, limits, wanted))
}

fn text(status: StatusCode, line: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, format!("{line}\n")).into_response()
}

async fn ready(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    Query(asked): Query<Question>,
) -> Response {
    let wanted = match asked.role.as_deref() {
        None | Some("any") => Wanted::Any,
        Some("primary") => Wanted::Primary,
        Some("replica") => Wanted::Replica,
        Some(_) => {
            return text(
                StatusCode::BAD_REQUEST,
                "role must be any, primary or replica",
            );
        }
    };
    let Some(name) = asked.server.or_else(|| named_by_haproxy(&headers)) else {
        return text(StatusCode::BAD_REQUEST, "name a server: /ready?server=NAME");
    };
    let numbers = [asked.min_warm, asked.max_lag];
    if numbers
        .iter()
        .flatten()
        .any(|number| !(0.0..=1e9).contains(number))
    {
        return text(
            StatusCode::BAD_REQUEST,
            "min-warm and max-lag must be numbers from 0 on",
        );
    }
    let limits = Limits {
        min_warm: asked.min_warm.unwrap_or(console.limits.min_warm),
        max_lag: asked.max_lag.unwrap_or(console.limits.max_lag),
        ..console.limits
    };
    match judge(&console, &name, &limits, wanted) {
        None => text(
            StatusCode::NOT_FOUND,
            &format!("the console knows no server `{name}`"),
        ),
        Some(verdict) if verdict.ready => text(StatusCode::OK, &verdict.reason),
        Some(verdict) => text(StatusCode::SERVICE_UNAVAILABLE, &verdict.reason),
    }
}

/// The line of an agent, for scripts.
async fn weight(State(console): State<Arc<Console>>, Query(asked): Query<Question>) -> Response {
    let name = asked.server.unwrap_or_default();
    let verdict = judge(&console, &name, &console.limits, Wanted::Any);
    let status = match verdict {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    text(status, agent_line(verdict.as_ref()).trim_end())
}

async fn agents(tcp: TcpListener, console: Arc<Console>) {
    let room = Arc::new(Semaphore::new(AGENTS));
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(&room).acquire_owned().await;
        let Ok((stream, _)) = tcp.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let console = Arc::clone(&console);
        tokio::spawn(async move {
            let _place = place;
            // It goes wrong when the caller goes away, which is nobody's concern.
            let _ = tokio::time::timeout(NAMED_WITHIN, answer(stream, &console)).await;
        });
    }
}

async fn answer(stream: TcpStream, console: &Console) -> std::io::Result<()> {
    let mut said = Vec::new();
    while said.len() < LONGEST && !said.contains(&b'\n') {
        stream.readable().await?;
        let mut some = [0; LONGEST];
        match stream.try_read(&mut some) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let said = String::from_utf8_lossy(&said);
    let name = said.lines().next().unwrap_or_default().trim();
    let line = agent_line(judge(console, name, &console.limits, Wanted::Any).as_ref());
    let mut left = line.as_bytes();
    while !left.is_empty() {
        stream.writable().await?;
        match stream.try_write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// In HAProxy's words. A node that is only cold gets a smaller share, and is not taken out.
fn agent_line(verdict: Option<&Verdict>) -> String {
    match verdict {
        // `#` begins a reason, which its log shows.
        None => "failed #the console knows no server of this name\n".to_owned(),
        Some(verdict) if verdict.weight == 0 => format!("down #{}\n", verdict.reason),
        Some(verdict) => format!("up {}%\n", verdict.weight),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_the_loopback() {
        assert_eq!(address("8601").unwrap().to_string(), "127.0.0.1:8601");
        assert_eq!(
            address("10.0.0.1:8601").unwrap().to_string(),
            "10.0.0.1:8601"
        );
        assert!(address("here").is_err() && address("70000").is_err());
    }

    #[test]
    fn haproxy_says_which_server_it_asks_about() {
        let mut headers = HeaderMap::new();
        assert_eq!(named_by_haproxy(&headers), None);
        let state = "UP 2/3; name=replicas/db2; node=lb1; weight=1/2; scur=13/22; qcur=0";
        headers.insert(STATE, state.parse().unwrap());
        assert_eq!(named_by_haproxy(&headers).as_deref(), Some("db2"));
    }

    #[test]
    fn agents_speak_as_haproxy_listens() {
        let verdict = |ready, weight| Verdict {
            ready,
            reason: "a is far behind".into(),
            weight,
        };
        assert_eq!(agent_line(Some(&verdict(true, 60))), "up 60%\n");
        assert_eq!(agent_line(Some(&verdict(false, 41))), "up 41%\n");
        assert_eq!(
            agent_line(Some(&verdict(false, 0))),
            "down #a is far behind\n"
        );
        assert!(agent_line(None).starts_with("failed #"));
    }
}
