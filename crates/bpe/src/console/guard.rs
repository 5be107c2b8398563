//! Checks every request: the host name, the origin, and the token.
//!
//! The threat is a browser: a page of any site can send requests to its reader's loopback address. Such a page does not
//! know the token, which is in no cookie. In addition, `Origin` and `Sec-Fetch-Site` identify such requests, and `Host`
//! reveals a foreign name that resolves to this host (DNS rebinding). No answer has CORS headers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use interface::canary;

use super::error::Refusal;
use super::listen::Connection;
use super::refusals::Refusals;
use super::token::Token;

/// The host names that a listener accepts.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names besides the loopback names, as in `Host`: `db1.example:8600` or, for every port, `db1.example`.
    hosts: Vec<String>,
    /// Whether to accept requests without a host: health checks in HTTP/1.0 have none. A browser always sends one.
    takes_none: bool,
    /// Whether to accept addresses: remote callers of an open listener use its address. DNS rebinding requires a name.
    takes_addresses: bool,
}

impl Names {
    /// Names of the page's listener.
    pub fn new(hosts: &[String]) -> Self {
        Self {
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            ..Self::default()
        }
    }

    /// Names of the health check listener at this address.
    pub fn of_checks(&self, address: IpAddr) -> Self {
        Self {
            hosts: self.hosts.clone(),
            takes_none: true,
            takes_addresses: !address.is_loopback(),
        }
    }

    /// Checks a request before its token.
    fn may_ask(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
        let is_own = match headers.get_all(header::HOST).iter().count() {
            0 => self.takes_none,
            1 => self.answers_for(&host),
            _ => false,
        };
        if !is_own && !canary!("host") {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                format!("this console does not answer for the name `{host}`"),
            )
            .advise(
                "use the address that `bpe console` printed, or start it with --allow-host for this name",
            ));
        }
        let foreign = || {
            Refusal::new(
                StatusCode::FORBIDDEN,
                "this request comes from a page of another site",
            )
        };
        if headers.contains_key(header::ORIGIN) {
            let origin = text(header::ORIGIN).unwrap_or_default();
            if !is_own_origin(&origin.to_ascii_lowercase(), &host) {
                return Err(foreign());
            }
        }
        match text(HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin" | "none") => Ok(()),
            // Following a link to the console is harmless; reading its answers by a script is not.
            Some(_) if text(HeaderName::from_static("sec-fetch-mode")) == Some("navigate") => {
                Ok(())
            }
            Some(_) => Err(foreign()),
        }
    }

    fn answers_for(&self, host: &str) -> bool {
        let name = without_port(host);
        // Any port: these names lead to no other host, and a tunnel's local port may differ.
        is_loopback(name)
            || self.takes_addresses && address(name).is_some()
            || self
                .hosts
                .iter()
                .any(|known| known == host || known == name)
    }
}

/// Accepts both schemes, because a TLS proxy may be in front of the console.
fn is_own_origin(origin: &str, host: &str) -> bool {
    canary!("origin")
        || matches!(origin.split_once("://"), Some(("http" | "https", authority)) if authority == host)
}

/// Decides which requests to admit.
#[derive(Debug)]
pub struct Guard {
    token: Token,
    names: Names,
    refusals: Mutex<Refusals>,
}

impl Guard {
    pub fn new(token: Token, names: Names) -> Self {
        Self {
            token,
            names,
            refusals: Mutex::default(),
        }
    }

    pub fn token(&self) -> &Token {
        &self.token
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Waits for the delay after a wrong token. Returns whether to answer.
    async fn wait_to_refuse(&self, caller: Option<&Connection>) -> bool {
        let address = caller.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), Connection::address);
        let delay = {
            let mut refusals = self.refusals.lock().unwrap_or_else(|e| e.into_inner());
            refusals.delay(address, Instant::now())
        };
        let Some(delay) = delay else {
            return false;
        };
        if caller.is_some_and(|caller| !caller.refuse()) {
            return false;
        }
        tokio::time::sleep(delay).await;
        true
    }
}

/// Whether a name or address is this host's loopback.
fn is_loopback(name: &str) -> bool {
    name == "localhost" || address(name).is_some_and(|address| address.is_loopback())
}

/// The address in a host name, with brackets for IPv6.
fn address(name: &str) -> Option<IpAddr> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Checks names and origin of every request, and sets the headers of every answer.
pub async fn stand(State(names): State<Arc<Names>>, request: Request, next: Next) -> Response {
    let mut response = match names.may_ask(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(HeaderName::from_static(name))
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Checks the token of every request below `/api`.
pub async fn ask_token(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Connection>().cloned();
    let given = request.headers().get(header::AUTHORIZATION);
    if guard.token.admits(given.map(HeaderValue::as_bytes)) {
        if let Some(caller) = caller {
            caller.admit();
        }
        return next.run(request).await;
    }
    if !guard.wait_to_refuse(caller.as_ref()).await {
        if let Some(caller) = caller {
            caller.close();
        }
        // Dropped when the connection ends.
        return std::future::pending().await;
    }
    let what = if given.is_some() {
        "the token is wrong"
    } else {
        "a token is needed"
    };
    let mut response = Refusal::new(StatusCode::UNAUTHORIZED, what)
        .advise("open the address that `bpe console` printed when it started: the token is in it")
        .into_response();
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &[&str]) -> Names {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        Names::new(&hosts)
    }

    fn asked(names: &Names, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for &(name, value) in headers {
            map.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        names.may_ask(&map).is_ok()
    }

    #[test]
    fn it_answers_for_the_loopback_and_what_it_was_told() {
        let own = names(&["db1.example", "db2.example:8600"]);
        for host in [
            "localhost",
            "localhost:8600",
            "LOCALHOST:1",
            "127.0.0.1:8600",
            "127.3.2.1",
            "[::1]:8600",
            "[::1]",
            "db1.example",
            "DB1.example:9",
            "db2.example:8600",
        ] {
            assert!(asked(&own, &[("host", host)]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8600",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8600",
            "db2.example",
            "db2.example:8601",
            "10.0.0.1:8600",
            "localhost:8600:8600",
        ] {
            assert!(!asked(&own, &[("host", host)]), "{host}");
        }
        assert!(!asked(&own, &[]));
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert!(!asked(&own, &twice));
    }

    #[test]
    fn checks_refuse_foreign_names() {
        let at = |address: &str| names(&["lb.example"]).of_checks(address.parse().unwrap());
        let (near, open) = (at("127.0.0.1"), at("0.0.0.0"));
        for own in [&near, &open] {
            // HTTP/1.0, as sent by HAProxy.
            assert!(asked(own, &[]));
            for host in ["127.0.0.1:8601", "localhost", "[::1]:8601", "LB.example"] {
                assert!(asked(own, &[("host", host)]), "{host}");
            }
            for host in [
                "",
                ":8601",
                "evil.example",
                "127.0.0.1.evil.example:8601",
                "evil.example:80:80",
            ] {
                assert!(!asked(own, &[("host", host)]), "{host}");
            }
            let origin = ("origin", "http://evil.example");
            assert!(!asked(own, &[("host", "127.0.0.1:8601"), origin]));
            assert!(!asked(own, &[origin]));
            let site = ("sec-fetch-site", "cross-site");
            assert!(!asked(own, &[("host", "127.0.0.1:8601"), site]));
        }
        for host in ["10.0.0.1:8601", "[2001:db8::1]:8601"] {
            assert!(asked(&open, &[("host", host)]), "{host}");
            assert!(!asked(&near, &[("host", host)]), "{host}");
        }
    }

    #[test]
    fn other_origins_are_refused() {
        let own = names(&[]);
        let host = ("host", "localhost:8600");
        for origin in ["http://localhost:8600", "https://localhost:8600"] {
            assert!(asked(&own, &[host, ("origin", origin)]), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:8600",
            "http://evil.example",
            "http://localhost:8600.evil.example",
            "file://localhost:8600",
        ] {
            assert!(!asked(&own, &[host, ("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn the_browsers_word_for_cross_site_counts() {
        let own = names(&[]);
        let host = ("host", "localhost:8600");
        let asked = |site: &str, mode: &str| {
            asked(
                &own,
                &[host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)],
            )
        };
        assert!(asked("same-origin", "cors") && asked("none", "navigate"));
        assert!(asked("cross-site", "navigate"));
        assert!(!asked("cross-site", "no-cors") && !asked("same-site", "cors"));
    }
}
