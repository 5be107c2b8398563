//! The two servers of a warming: by their names in a file of servers, or by address.

use std::path::Path;

use crate::connection::{self, Target};
use crate::failure::Failure;
use crate::servers_file;

/// Where `text` leads: the server of this name in the file, a socket, or HOST:PORT.
///
/// # Errors
/// It is none of them, or the file cannot be read.
pub fn target(
    text: &str,
    servers: Option<&Path>,
    login: &connection::Args,
) -> Result<Target, Failure> {
    let named = servers.map(servers_file::read).transpose()?;
    if let Some(server) = named.iter().flatten().find(|server| server.name == text) {
        return server.target();
    }
    let address = address(text).ok_or_else(|| {
        let known = match servers {
            Some(path) => format!("no server of {} has this name, and it", path.display()),
            None => "it".to_owned(),
        };
        Failure::usage(format!("`{text}`: {known} is neither the path of a socket nor HOST:PORT"))
            .advise("give --servers FILE for names, a path with a slash, or a host with its port, such as db2:3306")
    })?;
    connection::Args {
        socket: None,
        host: None,
        port: None,
        ..login.clone()
    }
    .reach(address)
    .target()
}

enum Address {
    Socket(String),
    Tcp(String, u16),
}

fn address(text: &str) -> Option<Address> {
    if text.contains('/') {
        return Some(Address::Socket(text.to_owned()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Some(Address::Tcp(host.to_owned(), port.parse().ok()?)).filter(|_| !host.is_empty())
}

trait Reach {
    fn reach(self, address: Address) -> Self;
}

impl Reach for connection::Args {
    fn reach(mut self, address: Address) -> Self {
        match address {
            Address::Socket(path) => self.socket = Some(path),
            Address::Tcp(host, port) => (self.host, self.port) = (Some(host), Some(port)),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_hosts_with_ports() {
        let of = |text: &str| {
            target(text, None, &connection::Args::default()).map(|target| target.address)
        };
        assert_eq!(
            of("/run/a.sock").unwrap(),
            connection::Address::Socket("/run/a.sock".into())
        );
        for (text, host) in [("db2:3307", "db2"), ("[::1]:3307", "::1")] {
            let tcp = connection::Address::Tcp {
                host: host.into(),
                port: 3307,
            };
            assert_eq!(of(text).unwrap(), tcp);
        }
        for wrong in ["db2", "db2:", ":3306", "db2:x", ""] {
            assert!(
                of(wrong).unwrap_err().to_string().contains("HOST:PORT"),
                "{wrong}"
            );
        }
    }
}
