//! Which process is at the other end of a connection.
//!
//! What a server says of itself, such as the path of its socket, is true on its own host; a forwarded connection would
//! lead to the wrong process here. So the kernel is asked about the connection itself. Only where it cannot know the
//! server, as systemd listens for it, its pid file is believed, and only if the process is as old as the server says.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use super::name::is_server;

/// Seconds between the start of a process and what the server takes for its start.
const STARTING: u64 = 10;

/// The process that listens on a Unix socket, by a connection to it. Other sockets, and processes that this one cannot
/// see, have the number 0 there; so this is not left to a library whose numbers cannot be 0.
pub fn of_unix(socket: BorrowedFd<'_>) -> Option<i32> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to a ucred of that length and to the length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (result == 0 && credentials.pid > 0).then_some(credentials.pid)
}

/// The server process on this host that has the other end of a TCP connection.
///
/// # Errors
/// Why it is not known, in words.
pub fn of_tcp(socket: BorrowedFd<'_>) -> Result<i32, String> {
    let inode = other_end(socket)
        .map_err(|error| format!("cannot inspect the connection: {error}"))?
        .ok_or("the other end of the connection is not on this host")?;
    let mut hidden = false;
    for pid in processes().filter(|&pid| is_server(pid)) {
        match holds(pid, inode) {
            Ok(true) => return Ok(pid),
            Ok(false) => {}
            Err(_) => hidden = true,
        }
    }
    Err(if hidden {
        "only root and the server's user can see whose connection over TCP it is (use its socket, or sudo)"
    } else {
        "the other end of the connection is not a server's process on this host (a forwarded port or a container?)"
    }
    .to_owned())
}

/// The inode of the socket at the other end, if that is in this network namespace.
fn other_end(socket: BorrowedFd<'_>) -> std::io::Result<Option<u64>> {
    let stream = TcpStream::from(socket.try_clone_to_owned()?);
    let (own, peer) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(["tcp", "tcp6"].into_iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).ok()?;
        inode(&text, peer, own)
    }))
}

/// The inode of the socket with these addresses in the kernel's table.
fn inode(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let same = |text: &str, wanted: SocketAddr| {
        address(text) == Some((wanted.ip().to_canonical(), wanted.port()))
    };
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        (same(fields.get(1)?, local) && same(fields.get(2)?, remote))
            .then(|| fields.get(9)?.parse().ok())?
            .filter(|&inode| inode != 0)
    })
}

/// An address as in `0100007F:0CEA`: words of 32 bits as they lie in memory, and the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has this socket open.
fn holds(pid: i32, inode: u64) -> std::io::Result<bool> {
    let wanted = format!("socket:[{inode}]");
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == Path::new(&wanted))))
}

/// Whether systemd, which listens for services that it starts on demand.
pub fn starts_on_demand(pid: i32) -> bool {
    pid == 1
        || fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim_end() == "systemd")
}

/// Whether a process has been running for about so many seconds.
pub fn is_as_old(pid: i32, seconds: u64) -> bool {
    age(pid).is_some_and(|age| age.abs_diff(seconds) <= STARTING)
}

fn age(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses with anything in it; the start is the 22nd.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let started = ticks / rustix::param::clock_ticks_per_second();
    Some((up as u64).saturating_sub(started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn own() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn peers_are_told_by_the_kernel() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(of_unix(one.as_fd()), Some(own()));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(of_unix(tcp.as_fd()), None);
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(of_unix(file.as_fd()), None);
    }

    #[test]
    fn the_other_end_of_a_connection_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            // On [::] by IPv4, as servers listen.
            let host = if address == "[::1]:0" {
                "::1"
            } else {
                "127.0.0.1"
            };
            let port = listener.local_addr().unwrap().port();
            let Ok(stream) = TcpStream::connect((host, port)) else {
                continue;
            };
            let (accepted, _) = listener.accept().unwrap();
            let inode = other_end(stream.as_fd()).unwrap().unwrap();
            let link = fs::read_link(format!("/proc/self/fd/{}", accepted.as_raw_fd())).unwrap();
            assert_eq!(link, Path::new(&format!("socket:[{inode}]")), "{address}");
            assert!(holds(own(), inode).unwrap());
            // As with a tunnel: a process is there, but it is no server.
            assert!(of_tcp(stream.as_fd()).is_err());
            drop(accepted);
            assert!(!holds(own(), inode).unwrap());
        }
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let hex = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let four = hex([127, 0, 0, 1]);
        let wanted = Some(("127.0.0.1".parse().unwrap(), 3306));
        assert_eq!(address(&format!("{four}:0CEA")), wanted);
        let mapped = [[0; 4], [0; 4], [0, 0, 255, 255], [127, 0, 0, 1]].map(hex);
        assert_eq!(address(&format!("{}:0CEA", mapped.concat())), wanted);
        for wrong in ["", "1:2", "é000000:1", &four, "0100007F:x"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
        let table = format!(
            "  sl local rem\n 0: {four}:0CEA {four}:0001 01 0:0 0:0 0 5 0 0 1 0\n \
             1: {four}:0CEA {four}:0002 01 0:0 0:0 0 5 0 4711 1 0\n"
        );
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(inode(&table, at(3306), at(2)), Some(4711));
        assert_eq!(inode(&table, at(3306), at(1)), None, "nobody's any more");
        assert_eq!(inode(&table, at(2), at(3306)), None, "the other direction");
    }

    #[test]
    fn a_process_is_as_old_as_it_is() {
        let age = age(own()).unwrap();
        assert!(is_as_old(own(), age) && !is_as_old(own(), age + 3600));
        assert!(!is_as_old(-1, 0));
    }
}
