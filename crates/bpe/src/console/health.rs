//! HTTP health checks for load balancers: readiness and traffic share of a server.
//!
//! A check needs no token. Its answer contains only the verdict and the reason, without texts from a server. By default
//! it listens on the loopback. Answers come from the samplers' state, so a check costs the server nothing. A separate
//! thread answers, so that page requests do not delay checks.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde::Deserialize;

use super::clusters::View;
use super::guard::{self, Names};
use super::listen;
use super::state::Console;
use super::watched::Watched;
use crate::cluster::ready::{Limits, Verdict, Wanted};
use crate::support::failure::Failure;
use crate::support::terminal::{complain, say};

/// Time limit for the first poll of the servers.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "checks")]
pub struct Args {
    /// Answer whether a server may get traffic, on this port of the loopback: GET /ready?server=NAME says 200 or 503
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    health: Option<SocketAddr>,
    #[command(flatten)]
    limits: Limits,
}

impl Args {
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn is_wanted(&self) -> bool {
        self.health.is_some()
    }
}

/// Requires unique server names, because a check names its server.
///
/// # Errors
/// Two servers have the same name.
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

/// Starts to listen, if requested.
///
/// # Errors
/// The address is taken, or the system cannot start a thread.
pub fn open(args: &Args, console: &Arc<Console>) -> Result<(), Failure> {
    let Some(wanted) = args.health else {
        return Ok(());
    };
    if !wanted.ip().is_loopback() {
        complain!(
            "bpe: note: anyone who reaches {wanted} learns which servers are ready (--health)"
        );
    }
    let failed = |error: std::io::Error| {
        Failure::refused(format!("cannot listen on {wanted} (--health): {error}"))
            .advise("choose another port")
    };
    let tcp = listen::bind(wanted).map_err(failed)?;
    let at = tcp.local_addr().map_err(failed)?;
    say!("Readiness:          http://{at}/ready?server=NAME");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(failed)?;
    let names = console.guard.names().of_checks(at.ip());
    let console = Arc::clone(console);
    let serve = move || {
        runtime.block_on(async {
            looked_at(&console).await;
            match listen::Listener::new(tcp) {
                Ok(listener) => {
                    listen::serve(listener, router(console, names), listen::HEAD_TIMEOUT).await
                }
                Err(error) => complain!("bpe: cannot watch the socket of --health: {error}"),
            }
        });
    };
    std::thread::Builder::new()
        .name("health".into())
        .spawn(serve)
        .map_err(failed)?;
    Ok(())
}

fn router(console: Arc<Console>, names: Names) -> Router {
    Router::new()
        .route("/ready", any(ready))
        .route("/weight", any(weight))
        .layer(middleware::from_fn_with_state(
            Arc::new(names),
            guard::stand,
        ))
        .with_state(console)
}

/// Waits for the first poll of each server. Earlier checks wait in the kernel's queue; otherwise they would see no ready server.
async fn looked_at(console: &Console) {
    let begin = Instant::now();
    let known = |server: &Arc<Watched>| server.place().is_some() || server.trouble().is_some();
    while begin.elapsed() < FIRST_PROBE_TIMEOUT && !console.servers.iter().all(known) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Question {
    /// Name or console id of the server.
    server: Option<String>,
    role: Option<String>,
    /// Overrides the console's own limit.
    min_warm: Option<f64>,
    max_lag: Option<f64>,
}

/// With `http-check send-state`, HAProxy names the backend server that it checks: `UP 2/3; name=backend/server; ...`.
const STATE: &str = "x-haproxy-server-state";

fn named_by_haproxy(headers: &HeaderMap) -> Option<String> {
    let state = headers.get(STATE)?.to_str().ok()?;
    let name = state
        .split(';')
        .find_map(|part| part.trim().strip_prefix("name="))?;
    Some(name.rsplit('/').next().unwrap_or(name).to_owned())
}

/// The verdict on the server of this name or id; `None` if it does not exist.
fn judge(console: &Console, name: &str, limits: &Limits, wanted: Wanted) -> Option<Verdict> {
    let view = View::for_strangers(console);
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
            &format!(
                "the console knows no server `{}`",
                interface::Untrusted::new(&name).cut_at(100)
            ),
        ),
        Some(verdict) if verdict.ready => text(StatusCode::OK, &verdict.reason),
        Some(verdict) => text(StatusCode::SERVICE_UNAVAILABLE, &verdict.reason),
    }
}

/// A server's traffic share, for scripts.
async fn weight(State(console): State<Arc<Console>>, Query(asked): Query<Question>) -> Response {
    let name = asked.server.unwrap_or_default();
    let verdict = judge(&console, &name, &console.limits, Wanted::Any);
    let status = match verdict {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    text(status, &share_of(verdict.as_ref()))
}

/// A cold server gets a smaller share, but stays in rotation.
fn share_of(verdict: Option<&Verdict>) -> String {
    match verdict {
        None => "failed #the console knows no server of this name".to_owned(),
        Some(verdict) if verdict.weight == 0 => format!("down #{}", verdict.reason),
        Some(verdict) => format!("up {}%", verdict.weight),
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
    fn share_follows_weight() {
        let verdict = |ready, weight| Verdict {
            ready,
            reason: "a is far behind".into(),
            weight,
        };
        assert_eq!(share_of(Some(&verdict(true, 60))), "up 60%");
        assert_eq!(share_of(Some(&verdict(false, 41))), "up 41%");
        assert_eq!(share_of(Some(&verdict(false, 0))), "down #a is far behind");
        assert!(share_of(None).starts_with("failed #"));
    }
}
