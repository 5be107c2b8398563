//! Users whose process is accepted at a Unix socket: root, the caller, the user of the server packages, or the user in
//! `--server-user`. For the packages' user, root also requires a server program that only root may change. The program
//! proves nothing about other users, because they can run an installed server with modified libraries.

use std::fs;
use std::path::Path;

use interface::canary;

use super::socket_path::SocketPath;
use crate::connect::peer::{self, Peer};
use crate::connect::process_name::is_server;

/// A server's process with its start time, because process numbers are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub pid: i32,
    pub start: u64,
}

/// Users that a caller trusts.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub caller: u32,
    /// The user that the server packages create.
    pub package: Option<u32>,
    /// From `--server-user`.
    pub named: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// Accepted if its program is an installed server.
    OnlyServers,
    Refused,
}

impl Rule {
    pub fn verdict(self, uid: u32) -> Verdict {
        match self.named {
            Some(named) if named == uid => Verdict::Accepted,
            Some(_) => Verdict::Refused,
            None if uid == 0 || uid == self.caller => Verdict::Accepted,
            None if self.package == Some(uid) && self.caller == 0 => Verdict::OnlyServers,
            None if self.package == Some(uid) => Verdict::Accepted,
            None => Verdict::Refused,
        }
    }

    /// Checks the process that listens at a socket. Returns it if it is known to be a server.
    ///
    /// # Errors
    /// A message with the process and the reason of the refusal.
    pub fn check(self, peer: Option<Peer>, place: &SocketPath) -> Result<Option<Holder>, String> {
        if canary!("peer") {
            return Ok(None);
        }
        let Some(peer) = peer else {
            return Err("the kernel names no process that listens there".to_owned());
        };
        let refused = |why: &str| {
            let user = user_name(&[Path::new("/")], peer.uid);
            let program = fs::read_link(format!("/proc/{}/exe", peer.pid)).ok();
            Err(match program {
                Some(program) => format!(
                    "process {} of user {user} listens there ({program:?}): {why}",
                    peer.pid
                ),
                None => format!("a process of user {user} listens there: {why}"),
            })
        };
        let users = peer::users(peer.pid);
        // Another user started a program that changes its user.
        if users.is_some_and(|users| users != [peer.uid; 4]) {
            return refused("it has another user now, or several");
        }
        // Callers other than root cannot inspect the process, and change nothing on the host.
        let is_here = || peer.is_alive(place.identity) && peer::shares_namespaces(peer.pid);
        let is_known = users.is_some() && (self.caller != 0 || is_here());
        match self.verdict(peer.uid) {
            Verdict::Accepted if self.named.is_some() || is_known || self.caller != 0 => {}
            Verdict::Accepted => return refused("it has ended, or runs in another container"),
            Verdict::OnlyServers
                if is_known
                    && peer::runs_installed_server(peer.pid)
                    && !peer::listening(peer.pid, place.identity).is_empty() => {}
            Verdict::OnlyServers => {
                return refused("it is not a server whose program belongs to root alone");
            }
            Verdict::Refused if self.named.is_some() => {
                return refused("this is not the user that --server-user names");
            }
            Verdict::Refused => {
                return refused(
                    "it is neither root's, nor yours, nor of the user that servers' packages make (mysql)",
                );
            }
        }
        if !is_known {
            return Ok(None);
        }
        // Root's process 1 listens for servers that systemd starts on demand.
        let pid = match (peer.pid, peer.uid) {
            (1, 0) if !is_server(1) => peer::started_on_demand(place.identity),
            (pid, _) => Some(pid).filter(|&pid| is_server(pid)),
        };
        Ok(pid.and_then(|pid| {
            Some(Holder {
                pid,
                start: peer::start(pid)?,
            })
        }))
    }
}

/// The user that MariaDB and MySQL packages create on all distributions.
pub fn package_user() -> Option<u32> {
    user("mysql").ok()
}

/// Whether root, a package or the caller set up servers of this user.
pub fn is_usual(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || package_user() == Some(uid)
}

/// Resolves a user name or number.
///
/// # Errors
/// The user does not exist; a message.
pub fn user(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    users(Path::new("/"))
        .into_iter()
        .find_map(|(user, number)| (user == name).then_some(number))
        .ok_or_else(|| format!("/etc/passwd has no user `{name}`; a number is taken, too"))
}

/// The name of a user by one of these root directories, or its number.
pub fn user_name(roots: &[&Path], number: u32) -> String {
    roots
        .iter()
        .flat_map(|root| users(root))
        .find_map(|(user, of)| (of == number).then_some(user))
        .unwrap_or_else(|| number.to_string())
}

fn users(root: &Path) -> Vec<(String, u32)> {
    let text = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((name, fields.nth(1)?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn rule(caller: u32, package: Option<u32>, named: Option<u32>) -> Rule {
        Rule {
            caller,
            package,
            named,
        }
    }

    #[test]
    fn expected_users_are_accepted() {
        use Verdict::*;
        let (mysql, stranger, me) = (27, 65_534, 1000);
        for (rule, uid, wanted) in [
            (rule(0, None, None), 0, Accepted),
            (rule(me, None, None), 0, Accepted),
            (rule(me, None, None), me, Accepted),
            (rule(me, Some(mysql), None), mysql, Accepted),
            (rule(0, Some(mysql), None), mysql, OnlyServers),
            (rule(0, None, None), mysql, Refused),
            (rule(0, Some(mysql), None), stranger, Refused),
            (rule(me, None, None), stranger, Refused),
            (rule(0, None, Some(stranger)), stranger, Accepted),
            // The option names the only accepted user.
            (rule(0, Some(mysql), Some(stranger)), mysql, Refused),
            (rule(0, None, Some(mysql)), 0, Refused),
            (rule(me, None, Some(mysql)), me, Refused),
        ] {
            assert_eq!(rule.verdict(uid), wanted, "{rule:?} {uid}");
        }
    }

    #[test]
    fn peer_of_another_user_is_refused_with_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        let place = SocketPath::open(&path).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let peer = || Peer::of(stream.as_fd());
        let check = |rule: Rule| rule.check(peer(), &place);
        // The test process is no server.
        assert_eq!(check(rule(user, None, None)), Ok(None));
        assert_eq!(check(rule(user, None, Some(user))), Ok(None));
        let why = check(rule(user, None, Some(user + 1))).unwrap_err();
        assert!(why.contains("--server-user names"), "{why}");
        assert!(
            why.contains(&format!("process {}", std::process::id())),
            "{why}"
        );
        if user != 0 {
            let why = check(rule(user + 1, None, None)).unwrap_err();
            assert!(why.contains("neither root's"), "{why}");
            let why = check(rule(0, Some(user), None)).unwrap_err();
            assert!(why.contains("not a server"), "{why}");
        }
        assert!(rule(user, None, None).check(None, &place).is_err());
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("4711"), Ok(4711));
        assert!(user("no such user").unwrap_err().contains("/etc/passwd"));
        assert_eq!(user_name(&[Path::new("/")], 0), "root");
        assert_eq!(user_name(&[], 4711), "4711");
    }
}
