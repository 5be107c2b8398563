//! What stands before every request: the names the console answers for, where a request comes from, and the token.
//!
//! A browser is the danger here. A page of anybody's can send requests to the loopback address of whoever looks at it.
//! It cannot know the token, which never is in a cookie. Besides, `Origin` and `Sec-Fetch-Site` tell such requests
//! apart, and `Host` tells when a foreign name was made to point here (DNS rebinding). No answer has CORS headers.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::Refusal;
use super::token::Token;

/// Who may ask.
#[derive(Debug)]
pub struct Guard {
    token: Token,
    /// Names besides those of the loopback, as in `Host`: `db1.example:8600` or, for every port, `db1.example`.
    hosts: Vec<String>,
    tls: bool,
}

impl Guard {
    pub fn new(token: Token, hosts: Vec<String>, tls: bool) -> Self {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { token, hosts, tls }
    }

    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Whether a request may be looked at at all, before it shows its token.
    fn may_ask(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
        if !self.answers_for(&host) {
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
            if !self.is_own(&origin.to_ascii_lowercase(), &host) {
                return Err(foreign());
            }
        }
        match text(HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin" | "none") => Ok(()),
            // Following a link to the console is no attack; reading its answers with a script would be.
            Some(_) if text(HeaderName::from_static("sec-fetch-mode")) == Some("navigate") => {
                Ok(())
            }
            Some(_) => Err(foreign()),
        }
    }

    fn answers_for(&self, host: &str) -> bool {
        let name = without_port(host);
        // Any port: nobody else can be reached by these names, and a tunnel may have another one at its near end.
        is_loopback(name)
            || self
                .hosts
                .iter()
                .any(|known| known == host || known == name)
    }

    fn is_own(&self, origin: &str, host: &str) -> bool {
        match origin.split_once("://") {
            // Before a console without TLS there may be a proxy that speaks it.
            Some(("https", authority)) => authority == host,
            Some(("http", authority)) => authority == host && !self.tls,
            _ => false,
        }
    }
}

/// Whether a name or address is this machine's loopback.
pub fn is_loopback(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Names and origin of every request, and the headers of every answer.
pub async fn stand(
    State(guard): State<std::sync::Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match guard.may_ask(request.headers()) {
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

/// The token, for everything below `/api`.
pub async fn ask_token(
    State(guard): State<std::sync::Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    if guard.token.admits(given.map(HeaderValue::as_bytes)) {
        return next.run(request).await;
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

    fn guard(hosts: &[&str], tls: bool) -> Guard {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        Guard::new(Token::random().unwrap(), hosts, tls)
    }

    fn asked(guard: &Guard, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for &(name, value) in headers {
            map.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        guard.may_ask(&map).is_ok()
    }

    #[test]
    fn it_answers_for_the_loopback_and_what_it_was_told() {
        let own = guard(&["db1.example", "db2.example:8600"], false);
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
    }

    #[test]
    fn other_origins_are_refused() {
        let own = guard(&[], false);
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
        let tls = guard(&[], true);
        assert!(!asked(&tls, &[host, ("origin", "http://localhost:8600")]));
        assert!(asked(&tls, &[host, ("origin", "https://localhost:8600")]));
    }

    #[test]
    fn the_browsers_word_for_cross_site_counts() {
        let own = guard(&[], false);
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
