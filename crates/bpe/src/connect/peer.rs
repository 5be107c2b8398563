//! Identifies the process at the other end of a connection, based only on the kernel. With a forwarded connection, the
//! server's own statements would name a wrong process.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::process_name::{is_server, is_server_name};

/// Since Linux 6.5: a descriptor of the peer's process.
const SO_PEERPIDFD: libc::c_int = 77;
/// `__SO_ACCEPTCON` in /proc/net/unix.
const LISTENS: u32 = 1 << 16;

/// The process that began to listen on a Unix socket, and its effective user at that time.
pub struct Peer {
    pub uid: u32,
    /// 0 if the process is not visible here.
    pub pid: i32,
    handle: Option<OwnedFd>,
}

impl Peer {
    /// The peer of a connection to a Unix socket; `None` for other connections.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        // SAFETY: SO_PEERCRED fills in a `ucred`, for which all bytes are valid.
        let is_known = unsafe { option(socket, libc::SO_PEERCRED, &mut credentials) };
        let mut handle: libc::c_int = -1;
        // SAFETY: SO_PEERPIDFD fills in a C integer.
        let has_handle = unsafe { option(socket, SO_PEERPIDFD, &mut handle) } && handle >= 0;
        // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
        let handle = has_handle.then(|| unsafe { OwnedFd::from_raw_fd(handle) });
        // A connection without a Unix socket has no user.
        (is_known && credentials.uid != u32::MAX).then_some(Self {
            uid: credentials.uid,
            pid: credentials.pid,
            handle,
        })
    }

    /// Whether `pid` still names that process: it has not ended, or still owns the socket.
    pub fn is_alive(&self, socket: (u64, u64)) -> bool {
        match &self.handle {
            Some(handle) => {
                let at_once = Timespec::default();
                let ended = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&at_once));
                ended == Ok(0)
            }
            None => !listening(self.pid, socket).is_empty(),
        }
    }
}

/// Reads a socket option into `value`; returns false if it does not exist.
///
/// # Safety
/// The kernel fills in a value of type `T`, for which all bytes are valid.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> bool {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers refer to a value of that length and to the length; the caller guarantees its type.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    result == 0 && length as usize == size_of::<T>()
}

/// Real, effective, saved and file-system user of a process.
pub fn users(pid: i32) -> Option<[u32; 4]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let ids: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
    ids.try_into().ok()
}

/// Whether a process sees the same processes, users and files as this one. User 0 of a container is not root of the host.
pub fn shares_namespaces(pid: i32) -> bool {
    let of = |who: &str, name: &str| fs::read_link(format!("/proc/{who}/ns/{name}")).ok();
    let root = |who: &str| {
        let meta = fs::metadata(format!("/proc/{who}/root")).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let theirs = pid.to_string();
    let is_same = |name| of(&theirs, name).is_some_and(|theirs| Some(theirs) == of("self", name));
    is_same("pid") && is_same("user") && root(&theirs).is_some() && root(&theirs) == root("self")
}

/// Whether its program is a database server that only root may change.
pub fn runs_installed_server(pid: i32) -> bool {
    let path = format!("/proc/{pid}/exe");
    let Ok(program) = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let is_roots = fstat(&program).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == 0
            && stat.st_mode & 0o022 == 0
    });
    is_roots && fs::read_link(path).is_ok_and(|program| is_server_name(&program))
}

/// Sockets on which a process listens, among those bound to this inode in the file system.
pub fn listening(pid: i32, place: (u64, u64)) -> BTreeSet<u64> {
    let Ok(table) = fs::read(format!("/proc/{pid}/net/unix")) else {
        return BTreeSet::new();
    };
    let table = String::from_utf8_lossy(&table);
    let held = sockets(pid).unwrap_or_default();
    // A relative path refers to the data directory, which is a server's working directory when it listens.
    let is_there = |path: &str| {
        let from = if path.starts_with('/') { "root" } else { "cwd" };
        let path = format!("/proc/{pid}/{from}/{path}");
        fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == place)
    };
    listed(&table)
        .filter(|(inode, path)| held.contains(inode) && is_there(path))
        .map(|(inode, _)| inode)
        .collect()
}

/// Inode and path of listening sockets in the kernel's table.
fn listed(table: &str) -> impl Iterator<Item = (u64, &str)> {
    table.lines().skip(1).filter_map(|line| {
        let (head, path) = line.split_once('/').map_or_else(
            || line.rsplit_once(' '),
            |(head, _)| Some((head, &line[head.len()..])),
        )?;
        let fields: Vec<_> = head.split_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        let inode = fields.get(6)?.parse().ok()?;
        (flags & LISTENS != 0).then_some((inode, path))
    })
}

/// The server for which process 1, systemd, listens: the process that now owns its socket.
pub fn started_on_demand(place: (u64, u64)) -> Option<i32> {
    let own = listening(1, place);
    processes().find(|&pid| {
        pid != 1
            && (runs_installed_server(pid) || is_server(pid) && users(pid) == Some([0; 4]))
            && sockets(pid).is_ok_and(|held| held.intersection(&own).next().is_some())
    })
}

/// The server process on this host at the other end of a TCP connection.
///
/// # Errors
/// The reason why it is unknown, as a message.
pub fn of_tcp(socket: BorrowedFd<'_>) -> Result<i32, String> {
    let inode = other_end(socket)
        .map_err(|error| format!("cannot inspect the connection: {error}"))?
        .ok_or("the other end of the connection is not on this host")?;
    let mut hidden = false;
    for pid in processes().filter(|&pid| is_server(pid)) {
        match sockets(pid) {
            Ok(held) if held.contains(&inode) => return Ok(pid),
            Ok(_) => {}
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

/// The inode of the socket at the other end, if it is in this network namespace.
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

/// Parses an address such as `0100007F:0CEA`: 32-bit words in memory order, and the port.
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

/// Sockets that a process has opened.
fn sockets(pid: i32) -> std::io::Result<BTreeSet<u64>> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse().ok()
        })
        .collect())
}

/// Start time of a process, in ticks since boot; identifies it together with its number.
pub fn start(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses with arbitrary characters; the start time is field 22.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    fn own() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn unix_sockets_have_peers() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(one.as_fd()).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!((peer.pid, peer.uid), (own(), user));
        assert_eq!(users(own()), Some([user; 4]));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Peer::of(tcp.as_fd()).is_none());
        let file = fs::File::open("/dev/null").unwrap();
        assert!(Peer::of(file.as_fd()).is_none());
    }

    #[test]
    fn listening_sockets_are_found_by_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(path("one")).unwrap();
        let stream = UnixStream::connect(path("one")).unwrap();
        let _other = UnixListener::bind(path("two")).unwrap();
        let place = |name: &str| {
            let meta = fs::metadata(path(name)).unwrap();
            (meta.dev(), meta.ino())
        };
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let found = listening(own(), place("one"));
        let found: Vec<_> = found
            .iter()
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        assert_eq!(found, [link.to_str().unwrap()]);
        let peer = Peer::of(stream.as_fd()).unwrap();
        assert!(peer.is_alive(place("one")));
        let without = Peer {
            handle: None,
            ..peer
        };
        assert!(without.is_alive(place("one")));
        // Another socket with that name: a listener that has ended proves nothing.
        drop(listener);
        fs::remove_file(path("one")).unwrap();
        let _later = UnixListener::bind(path("one")).unwrap();
        assert_ne!(listening(own(), place("one")), BTreeSet::new());
        assert!(listening(own(), (0, 0)).is_empty());
    }

    #[test]
    fn table_of_sockets_is_read() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a b/s\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4712 relative\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 4713 /run/a b/s\n\
            0000000000000000: 00000003 00000000 00010000 0001 01 4714\nx\n";
        let found: Vec<_> = listed(table).collect();
        assert_eq!(found, [(4711, "/run/a b/s"), (4712, "relative")]);
    }

    #[test]
    fn program_of_another_kind_is_no_installed_server() {
        assert!(!runs_installed_server(own()));
        assert!(!runs_installed_server(1 << 30));
    }

    #[test]
    fn ended_process_is_not_alive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let meta = fs::metadata(&path).unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let peer = Peer {
            uid: 0,
            pid: child.id() as i32,
            handle: handle.ok(),
        };
        let is_alive = || peer.is_alive((meta.dev(), meta.ino()));
        assert_eq!(is_alive(), peer.handle.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive());
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
            assert!(sockets(own()).unwrap().contains(&inode));
            // Like a tunnel: the process exists, but is no server.
            assert!(of_tcp(stream.as_fd()).is_err());
            drop(accepted);
            assert!(!sockets(own()).unwrap().contains(&inode));
        }
    }

    #[test]
    fn own_process_shares_all_namespaces() {
        assert!(shares_namespaces(std::process::id() as i32));
        assert!(!shares_namespaces(-1));
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
    fn process_has_one_start() {
        assert!(start(own()).is_some());
        assert_eq!(start(own()), start(own()));
        assert_eq!(start(-1), None);
    }
}
