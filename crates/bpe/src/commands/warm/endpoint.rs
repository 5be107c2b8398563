//! The two servers of `bpe warm`, by name in the servers file, or by address.

use std::path::Path;

use crate::connect::{self, Target, servers_file};
use crate::support::failure::Failure;

/// Resolves `text`: a server of the file, a socket, or HOST:PORT.
///
/// # Errors
/// It is none of these, or the file cannot be read.
pub fn target(
    text: &str,
    servers: Option<&Path>,
    login: &connect::Args,
) -> Result<Target, Failure> {
    let named = servers.map(servers_file::read).transpose()?;
    if let Some(server) = named.iter().flatten().find(|server| server.name == text) {
        return server.target();
    }
    let (mut socket, mut host, mut port) = (None, None, None);
    if text.contains('/') {
        socket = Some(text.to_owned());
    } else if let Some((name, number)) = text.rsplit_once(':') {
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        host = Some(bare.unwrap_or(name).to_owned()).filter(|host| !host.is_empty());
        port = number.parse().ok();
    }
    if socket.is_none() && host.as_ref().zip(port).is_none() {
        let known = servers.map_or("it".to_owned(), |path| {
            format!("no server of {} has this name, and it", path.display())
        });
        return Err(Failure::usage(format!(
            "`{text}`: {known} is neither the path of a socket nor HOST:PORT"
        ))
        .advise("give --servers FILE for names, a path with a slash, or a host with its port, such as db2:3306"));
    }
    let login = login.clone();
    connect::Args {
        socket,
        host,
        port,
        ..login
    }
    .target()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_hosts_with_ports() {
        let of =
            |text: &str| target(text, None, &connect::Args::default()).map(|target| target.address);
        assert_eq!(
            of("/run/a.sock").unwrap(),
            connect::Address::Socket("/run/a.sock".into())
        );
        for (text, host) in [("db2:3307", "db2"), ("[::1]:3307", "::1")] {
            let tcp = connect::Address::Tcp {
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
