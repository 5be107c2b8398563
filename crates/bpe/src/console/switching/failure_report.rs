//! Completes the report of a failed change: the server's state, whether it is gone, and leftovers once it is back.

use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::change::enable::Locations;
use crate::change::{Row, disable};
use crate::connect::Address;
use crate::connect::server::Server;
use crate::console::events::Level;
use crate::console::watched::Watched;
use crate::support::failure::Failure;

/// Timeout for a server's first byte.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// Adds the server's state to the failure, and returns whether the server is gone. `remains`: where to search for
/// leftovers, if the change did more than set variables.
pub fn after_failure(
    watched: &Watched,
    remains: Option<Locations>,
    mut failure: Failure,
) -> (Failure, bool) {
    match watched.open() {
        Err(no_answer) => {
            let then = if remains.is_some() {
                "; when it answers, the event log says what remains of this change and how to undo it"
            } else {
                ""
            };
            if let Some(locations) = remains {
                watched.look_for_remains(locations);
            }
            let is_gone = is_gone(&watched.target().address);
            if is_gone {
                failure.what.push_str("\n  The server is gone.");
                failure.advice = Some(format!(
                    "start it again; settings that were not made permanent are gone{then}"
                ));
            } else {
                failure.what.push_str(&format!(
                    "\n  The server does not answer at the moment: {}",
                    no_answer.what
                ));
                failure.advice = Some(format!(
                    "check whether it is busy, still starting, or cut off{then}"
                ));
            }
            (failure, is_gone)
        }
        Ok(mut server) => {
            let state = server.status("bpe\\_state").unwrap_or_default();
            let state = state
                .get("bpe_state")
                .map_or("not installed", String::as_str);
            failure
                .what
                .push_str(&format!("\n  The extension is {state} now."));
            (failure, false)
        }
    }
}

/// Whether the server is gone: the connection is refused or closed at once. A slow server does not count as gone.
fn is_gone(address: &Address) -> bool {
    let greets = |mut stream: Box<dyn Read>| stream.read(&mut [0]);
    let greeting = match address {
        Address::Socket(path) => at_once(path).and_then(|stream| {
            stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
            greets(Box::new(stream))
        }),
        Address::Tcp { host, port } => {
            within((host.as_str(), *port), GREETING_TIMEOUT).and_then(|stream| {
                stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
                greets(Box::new(stream))
            })
        }
    };
    match greeting {
        Ok(bytes) => bytes == 0,
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotFound
        ),
    }
}

/// Connects without waiting for a place in the queue of a server that accepts no connections.
fn at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects to the first address that accepts. `limit` applies to each address.
fn within(addresses: impl ToSocketAddrs, limit: Duration) -> io::Result<TcpStream> {
    let mut result = Err(io::Error::other("the name has no address"));
    for address in addresses.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, limit);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Logs the leftovers of an interrupted change once the server is back.
pub fn note_remains(watched: &Watched, server: &mut Server, locations: &Locations) {
    match disable::plan(server, locations, false) {
        Ok(undo) if undo.is_empty() => {
            watched.note(Level::Info, "nothing remains of the interrupted change".to_owned());
        }
        Ok(undo) => watched.note(
            Level::Warning,
            format!(
                "part of the interrupted change remains; switching on again completes it, uninstalling (or `bpe \
                 disable`) undoes it: {}",
                undo.rows().map(Row::to_string).collect::<Vec<_>>().join("; ")
            ),
        ),
        // Gone again: retry when it is back.
        Err(_) if server.value("SELECT 1").is_err() => watched.look_for_remains(locations.clone()),
        Err(failure) => watched.note(
            Level::Warning,
            format!("cannot find out what remains of the interrupted change: {}", failure.what),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_with_full_queue_is_not_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let kept = crate::connect::target::tests::full(&path);
        assert!(!is_gone(&Address::Socket(path.clone())));
        drop(kept);
        assert!(is_gone(&Address::Socket(path)));
    }

    #[test]
    fn a_slow_server_is_not_gone() {
        use std::net::TcpListener;
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Address::Socket(path.clone());
        assert!(is_gone(&socket), "no socket");
        let listener = UnixListener::bind(&path).unwrap();
        let slow = std::thread::spawn({
            let socket = socket.clone();
            move || is_gone(&socket)
        });
        let (silent, _) = listener.accept().unwrap();
        assert!(!slow.join().unwrap(), "nothing said for a while");
        drop((silent, listener));
        assert!(is_gone(&socket), "refused");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = Address::Tcp {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
        };
        let hanging_up = std::thread::spawn(move || drop(listener.accept()));
        assert!(is_gone(&tcp), "hung up");
        let nobody = Address::Tcp {
            host: "127.0.0.1".into(),
            port: 1,
        };
        assert!(is_gone(&nobody), "refused by TCP");
        hanging_up.join().unwrap();
    }
}
