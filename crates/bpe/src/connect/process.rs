//! A server's process on this host: its executable, user and command line.
//!
//! `/proc/PID/root/...` reaches files as a server under systemd restrictions sees them, so all of the server's paths
//! are resolved below it. A server with another root, for example in a container, counts as remote.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Architecture;

use crate::connect::Address;
use crate::connect::server::Server;
use crate::connect::trust::{Verdict, user_name};
use crate::support::elf::Symbols;
use crate::support::files::{self, Directory};

use super::peer;
use super::process_name::{is_server_name, strings};

#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    /// Identifies the process together with its number, see [`peer::start`].
    pub start: u64,
    pub uid: u32,
    pub groups: Vec<u32>,
    pub command_line: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The server's `/` as seen by this process.
    pub root: PathBuf,
}

impl Process {
    /// Finds the process that serves this connection by means of the connection, see [`peer`].
    ///
    /// # Errors
    /// The reason; usually the server runs on another host.
    pub fn find(server: &mut Server) -> Result<Self, String> {
        let process = match &server.address {
            Address::Tcp { host, .. } => {
                if !is_loopback(host) {
                    return Err(format!("the server runs on another host ({host})"));
                }
                let process = Self::read(peer::of_tcp(server.as_fd())?)?;
                // Any user can listen on a port.
                let is_same = peer::users(process.pid) == Some([process.uid; 4]);
                if !is_same || server.rule().verdict(process.uid) != Verdict::Accepted {
                    return Err(format!(
                        "user {0} runs the server at this port (use its socket, or --server-user {0})",
                        process.user_name()
                    ));
                }
                process
            }
            Address::Socket(_) => {
                let holder = server.holder().ok_or(
                    "the server's process was not found on this host (a forwarded socket or a container?)",
                )?;
                let process = Self::read(holder.pid)?;
                if process.start != holder.start {
                    return Err("the server's process has ended".to_owned());
                }
                process
            }
        };
        let datadir = server.variable("datadir").map_err(|failure| failure.what)?;
        if process.has_data_directory(Path::new(&datadir.unwrap_or_default())) == Some(false) {
            return Err("the server names another data directory than its process has".to_owned());
        }
        Ok(process)
    }

    /// Whether a path leads this server to its data directory, which is its working directory. `None` for servers of
    /// other users, whose working directory is not visible.
    pub fn has_data_directory(&self, path: &Path) -> Option<bool> {
        let own = fs::metadata(format!("/proc/{}/cwd", self.pid)).ok()?;
        let named = fs::metadata(self.seen(path));
        Some(named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())))
    }

    fn read(pid: i32) -> Result<Self, String> {
        let start = peer::start(pid).ok_or("the server's process has ended")?;
        let file = |name: &str| {
            fs::read(format!("/proc/{pid}/{name}"))
                .map_err(|error| format!("cannot read /proc/{pid}/{name}: {error}"))
        };
        let status = String::from_utf8_lossy(&file("status")?).into_owned();
        let numbers = |label: &str| -> Vec<u32> {
            status
                .lines()
                .find_map(|line| line.strip_prefix(label))
                .map(|rest| rest.split_whitespace().flat_map(str::parse).collect())
                .unwrap_or_default()
        };
        // Real, effective, saved, file system: the last one decides about file access.
        let uid = numbers("Uid:").get(3).copied().unwrap_or(0);
        let mut groups = numbers("Groups:");
        groups.extend(numbers("Gid:").get(3));
        let environment = file("environ")
            .map(|bytes| {
                strings(&bytes)
                    .filter_map(|text| {
                        let (name, value) = text.split_once('=')?;
                        Some((name.to_owned(), value.to_owned()))
                    })
                    .collect()
            })
            .unwrap_or_default();
        // Only root and the server's user may read this link. For other users, the server's files are expected at the
        // same path here, which is correct outside containers.
        let own_root = PathBuf::from(format!("/proc/{pid}/root"));
        // This path disappears with the process, which would make a later undo impossible. Use it only if it leads elsewhere.
        if fs::metadata(&own_root).is_ok() && !is_same(&own_root, Path::new("/")) {
            // Symbolic links there would resolve in this root, and its user numbers may mean other users here.
            return Err(
                "the server runs in another root (a container or a chroot): run the command in there, as in `podman exec NAME bpe ...`"
                    .to_owned(),
            );
        }
        let root = if fs::metadata(&own_root).is_ok() && !sees_what_we_see(pid) {
            own_root
        } else {
            PathBuf::from("/")
        };
        let process = Self {
            pid,
            start,
            uid,
            root,
            groups,
            command_line: strings(&file("cmdline")?).collect(),
            environment,
        };
        // Another process may have taken the number in between.
        match peer::start(pid) == Some(start) {
            true => Ok(process),
            false => Err("the server's process has ended".to_owned()),
        }
    }

    /// A path of the server as seen by this process.
    pub fn seen(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(rest) => self.root.join(rest),
            Err(_) => PathBuf::from(format!("/proc/{}/cwd", self.pid)).join(path),
        }
    }

    /// Opens a directory of the server, to create, replace or remove an entry.
    ///
    /// # Errors
    /// A message: another user can change the directory or one above it, or the server sees another directory at this
    /// path (`PrivateTmp=` of its unit).
    pub fn directory(&self, path: &Path) -> Result<Directory, String> {
        self.same(path, Directory::open(path))
    }

    /// Opens the directory of a file, and returns the file's name in it.
    ///
    /// # Errors
    /// As [`Self::directory`].
    pub fn directory_of<'a>(&self, file: &'a Path) -> Result<(Directory, &'a OsStr), String> {
        let (directory, name) = files::split(file).map_err(|error| error.to_string())?;
        Ok((self.directory(directory)?, name))
    }

    fn same(&self, path: &Path, opened: io::Result<Directory>) -> Result<Directory, String> {
        let directory = opened.map_err(|error| error.to_string())?;
        let own = directory.identity().map_err(|error| error.to_string())?;
        let servers = fs::metadata(self.seen(path)).map(|meta| (meta.dev(), meta.ino()));
        match servers {
            Ok(servers) if servers != own => Err(format!(
                "the server sees another directory as {}",
                path.display()
            )),
            _ => Ok(directory),
        }
    }

    /// Opens a directory to create one in it for the server's user. Also returns whether to use that user's rights,
    /// because it can change the directory or one above it.
    ///
    /// # Errors
    /// A third user can change one of them, or as [`Self::directory`].
    pub fn directory_for_cache(&self, path: &Path) -> Result<(Directory, bool), String> {
        match Directory::open(path) {
            Ok(directory) => Ok((self.same(path, Ok(directory))?, false)),
            Err(_) => {
                let opened = Directory::open_of(path, self.uid);
                Ok((self.same(path, opened)?, true))
            }
        }
    }

    /// Creates a directory of mode 0700 for the server's user.
    ///
    /// # Errors
    /// A message: as [`Self::directory_for_cache`], or the kernel's error.
    pub fn make_directory(&self, path: &Path) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let (above, name) = files::split(path).map_err(text)?;
        let group = self.groups.last().copied();
        match self.directory_for_cache(above)? {
            (above, false) => above.make(name, self.uid, group),
            (above, true) => above.make_as(name, self.uid, group),
        }
        .map_err(text)
    }

    /// Removes an empty directory that [`Self::make_directory`] created.
    ///
    /// # Errors
    /// As [`Self::make_directory`], or the directory is not empty.
    pub fn remove_directory(&self, path: &Path) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let (above, name) = files::split(path).map_err(text)?;
        let group = self.groups.last().copied();
        match self.directory_for_cache(above)? {
            (above, false) => above.remove_directory(name),
            (above, true) => above.remove_directory_as(name, self.uid, group),
        }
        .map_err(text)
    }

    /// Identifies a server on this host without asking it: its user, and its working directory, which is its data directory.
    ///
    /// # Errors
    /// Only root and the server's user may read it.
    pub fn data_directory(&self) -> io::Result<(u32, PathBuf)> {
        Ok((self.uid, fs::read_link(format!("/proc/{}/cwd", self.pid))?))
    }

    /// The server's executable, even if replaced on disk.
    pub fn executable(&self) -> PathBuf {
        let own = PathBuf::from(format!("/proc/{}/exe", self.pid));
        // If the dynamic loader starts the program, as in some bundles, the process's executable is the loader. The
        // program is then among the mapped files.
        if fs::read_link(&own).is_ok_and(|target| is_server_name(&target)) {
            return own;
        }
        self.mapped(is_server_name)
            .map_or(own, |path| self.seen(&path))
    }

    /// The processor architecture of the program; `None` if its file is unreadable.
    pub fn architecture(&self) -> Option<Architecture> {
        let symbols = Symbols::of(&self.executable()).ok()?;
        Some(symbols.architecture)
    }

    /// The first mapped file that matches, by the server's path.
    pub fn mapped(&self, is_one: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        maps.lines()
            .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
            .find(|path| is_one(path))
            .map(Path::to_path_buf)
    }

    /// Whether the server and this process have the same `/`.
    pub fn shares_root(&self) -> bool {
        is_same(&self.root, Path::new("/"))
    }

    /// The value of `--name=value` on the server's command line; `-` and `_` are equivalent.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.command_line.iter().rev().find_map(|argument| {
            let (option, value) = argument.strip_prefix("--")?.split_once('=')?;
            (crate::connect::option_file::option_name(option) == name).then_some(value)
        })
    }

    /// The systemd unit of the process, from its control group.
    pub fn unit(&self) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).ok()?;
        text.lines()
            .flat_map(|line| line.rsplit('/'))
            .find(|part| part.ends_with(".service") && !part.starts_with("user@"))
            .map(str::to_owned)
    }

    /// The name of the process's user, or its number.
    pub fn user_name(&self) -> String {
        user_name(&[Path::new("/"), &self.root], self.uid)
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Whether a path leads a process to the same file as this one: equal root directory and mount namespace.
fn sees_what_we_see(pid: i32) -> bool {
    let mounts = |who: &str| fs::read_link(format!("/proc/{who}/ns/mnt")).ok();
    let theirs = mounts(&pid.to_string());
    theirs.is_some()
        && theirs == mounts("self")
        && is_same(Path::new(&format!("/proc/{pid}/root")), Path::new("/"))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_on_the_command_line() {
        let process = Process {
            pid: 1,
            start: 0,
            uid: 0,
            groups: vec![],
            command_line: [
                "mysqld",
                "--defaults-file=/a",
                "--innodb_buffer-pool-size=5M",
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: BTreeMap::new(),
            root: "/".into(),
        };
        assert_eq!(process.option("defaults_file"), Some("/a"));
        assert_eq!(process.option("innodb_buffer_pool_size"), Some("5M"));
        assert_eq!(process.option("port"), None);
    }

    #[test]
    fn a_directory_that_the_server_does_not_see_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        let mut process = Process {
            pid: 1,
            start: 0,
            uid: 0,
            groups: vec![],
            command_line: vec![],
            environment: BTreeMap::new(),
            root: "/".into(),
        };
        process.directory(&own).unwrap();
        // Another root with a directory at the same path.
        process.root = folder.path().join("root");
        fs::create_dir_all(process.seen(&own)).unwrap();
        let why = process.directory(&own).unwrap_err();
        assert!(why.contains("another directory"), "{why}");
    }

    #[test]
    fn this_process_can_be_read() {
        let own = Process::read(std::process::id() as i32).unwrap();
        assert!(own.shares_root());
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        assert!(!own.command_line.is_empty());
        let here = std::env::current_dir().unwrap();
        assert_eq!(own.has_data_directory(&here), Some(true));
        assert_eq!(own.has_data_directory(Path::new("/")), Some(false));
    }
}
