//! State file: the record of what `enable` changed on a server, for `disable`. One small JSON file per server, in
//! /var/lib/innodb-bpe for root and ~/.local/state/innodb-bpe for others. Only this user may enter the directory. A
//! record contains no secrets.

use std::ffi::OsStr;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};

use interface::untrusted::one_line;
use serde::{Deserialize, Serialize};

use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::support::failure::Failure;
use crate::support::files::{Directory, split};

/// Root's directory of records.
const ROOT_DIRECTORY: &str = "/var/lib/innodb-bpe";
/// Name of the directory of records of other users than root.
const OWN_DIRECTORY: &str = "innodb-bpe";
/// Maximum size of a record in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of pool sizes in a record; the newest is last.
const MAX_LOWERINGS: usize = 100;

/// Everything that `disable` needs. Paths are as this command reached them, sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstallState {
    /// For human readers: which server this is.
    pub server: String,
    /// Records of earlier versions have none: their file name alone is compared.
    pub identity: Option<Identity>,
    pub pool_before: Option<u64>,
    pub pool_after: Option<u64>,
    /// Every size that the pool was set to, because a restart may restore an earlier one. Records of earlier versions
    /// have only the two fields above.
    pub pool_lowered: Vec<Lowering>,
    /// Whether a pool size was persisted, too (MySQL). `None` means a record of an earlier version, which persisted it.
    pub pool_persisted: Option<bool>,
    /// The previously persisted value (MySQL).
    pub pool_persisted_before: Option<String>,
    /// Files as the server sees them; they are resolved below its root.
    pub library: Option<PathBuf>,
    pub snippet: Option<PathBuf>,
    pub folders: Vec<PathBuf>,
    /// The snippet disables InnoDB's native asynchronous I/O, which the hooks cannot see on this server.
    pub native_aio_off: bool,
    /// Schema `bpe` existed before the views were created in it.
    pub schema_was_there: bool,
}

/// Which server a record belongs to. The file name is only a short hash of it, which another server could have, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// User and data directory of the server's process.
    Process { user: u32, data_directory: String },
    /// Where a server without a visible process was reached, and the variables by which it identifies itself.
    Remote {
        address: String,
        variables: Vec<String>,
    },
}

impl Identity {
    /// # Errors
    /// The server does not answer.
    fn of(server: &mut Server, process: Option<&Process>) -> Result<Self, Failure> {
        // Without the permission to inspect the process there is no identity of it.
        if let Some(of_process) = process.and_then(Self::of_process) {
            return Ok(of_process);
        }
        Ok(Self::Remote {
            variables: says(server)?,
            address: server.address.to_string(),
        })
    }

    fn of_process(process: &Process) -> Option<Self> {
        // Numbers of devices and inodes change with a reboot or a restored directory.
        let (user, data) = process.data_directory().ok()?;
        Some(Self::Process {
            user,
            data_directory: data.display().to_string(),
        })
    }

    fn describe(&self) -> String {
        match self {
            Self::Process {
                user,
                data_directory,
            } => format!("user {user}, data directory {}", one_line(data_directory)),
            Self::Remote { address, .. } => one_line(address).to_string(),
        }
    }

    /// The file name. Names of remote servers have a prefix that other names never have.
    fn file_name(&self) -> String {
        match self {
            Self::Process {
                user,
                data_directory,
            } => format!("{:016x}.json", fnv1a(&format!("{user}\0{data_directory}"))),
            Self::Remote { variables, .. } => {
                let all: String = variables.iter().map(|one| format!("{one}\0")).collect();
                format!("remote-{:016x}.json", fnv1a(&all))
            }
        }
    }
}

/// A pool size that was set, and the size without the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lowering {
    pub from: u64,
    pub to: u64,
}

impl InstallState {
    /// The pool size before it got its current size; `None` if no lowering led to the current size.
    pub fn original(&self, now: u64) -> Option<u64> {
        if self.pool_after == Some(now) {
            return self.pool_before;
        }
        let lowerings = self.pool_lowered.iter().rev();
        lowerings
            .filter(|lowering| lowering.to == now)
            .map(|lowering| lowering.from)
            .next()
    }

    /// Records that the pool is lowered.
    pub fn lower(&mut self, from: u64, to: u64) {
        // Records of earlier versions contain only the last lowering.
        if let (Some(from), Some(to)) = (self.pool_before, self.pool_after) {
            self.keep(Lowering { from, to });
        } else if self.pool_persisted.is_none() {
            self.pool_persisted = Some(false);
        }
        self.keep(Lowering { from, to });
        (self.pool_before, self.pool_after) = (Some(from), Some(to));
    }

    fn keep(&mut self, lowering: Lowering) {
        self.pool_lowered.retain(|known| known.to != lowering.to);
        if self.pool_lowered.len() == MAX_LOWERINGS {
            self.pool_lowered.remove(0);
        }
        self.pool_lowered.push(lowering);
    }

    /// The record without the server description, which only humans read and which changes on its own.
    #[must_use]
    pub fn nameless(mut self) -> Self {
        self.server.clear();
        self
    }

    /// Whether `enable` persisted the current pool size.
    pub fn has_persisted(&self) -> bool {
        self.pool_persisted.unwrap_or(true)
    }
}

/// Location of one server's record.
#[derive(Debug, Clone)]
pub struct StateFile {
    folder: PathBuf,
    /// The directory is the one that this command makes where none is named.
    is_default: bool,
    name: String,
    identity: Identity,
}

impl StateFile {
    /// Derives the file name from the user and the data directory of the server's process. A server without a visible
    /// process, for example on another host, is identified by its own variables.
    ///
    /// # Errors
    /// The server does not answer, or there is no folder for records.
    pub fn of(
        server: &mut Server,
        process: Option<&Process>,
        folder: Option<&Path>,
    ) -> Result<Self, Failure> {
        let default = default_folder();
        let (folder, is_default) = match folder {
            Some(folder) => (folder.to_path_buf(), default.is_ok_and(|own| own == folder)),
            None => (default?, true),
        };
        let identity = Identity::of(server, process)?;
        Ok(Self {
            folder,
            is_default,
            name: identity.file_name(),
            identity,
        })
    }

    /// Opens the directory, which only this user may enter; `None` if it does not exist.
    fn open(&self) -> io::Result<Option<Directory>> {
        match Directory::open(&self.folder) {
            Ok(folder) => {
                // An earlier version made its own directory readable for others. They could not write there, because opening
                // would then have failed.
                if !folder.is_private()? && !self.is_default {
                    return Err(io::Error::other(
                        "other users may enter its directory, which is not one for these records alone",
                    ));
                }
                Ok(Some(folder))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read or parsed, other users could have written it, or it belongs to another server.
    pub fn read(&self) -> Result<Option<InstallState>, Failure> {
        let name = OsStr::new(&self.name);
        let read = self.open().and_then(|folder| match folder {
            Some(folder) => folder.read(name, MAX_BYTES),
            None => Ok(None),
        });
        let bytes = read.map_err(|error| {
            let failure = Failure::refused(format!(
                "cannot read the record {}: {error}",
                self.path().display()
            ));
            failure.advise(match error.kind() {
                io::ErrorKind::PermissionDenied => "run as the user who ran `bpe enable` (sudo?)",
                _ => "name a directory that only this user may enter and change with --state-dir",
            })
        })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let record: InstallState = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::refused(format!(
                "the record {} cannot be understood: {error}",
                self.path().display()
            ))
            .advise("fix it, or remove it and set innodb_buffer_pool_size by hand")
        })?;
        match &record.identity {
            Some(identity) if *identity != self.identity => Err(Failure::refused(format!(
                "the record {} belongs to another server: to {}, not to {}",
                self.path().display(),
                identity.describe(),
                self.identity.describe()
            ))
            .advise(
                "if it is this server at another address, use the address of the record; else name another directory with \
                 --state-dir",
            )),
            _ => Ok(Some(record)),
        }
    }

    /// Replaces the record atomically.
    pub fn write(&self, record: &InstallState) -> Result<(), String> {
        let record = InstallState {
            identity: Some(self.identity.clone()),
            ..record.clone()
        };
        let text = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string())?;
        let write = || {
            let folder = match self.open()? {
                Some(folder) => folder,
                None => Directory::open_or_make(&self.folder)?,
            };
            if !folder.is_private()? {
                folder.make_private()?;
            }
            folder.write_over(OsStr::new(&self.name), &text, 0o600)
        };
        write()
            .map_err(|error| format!("cannot write the record {}: {error}", self.path().display()))
    }

    /// Removes the record, and root's directory of records if it is empty then. Users may have made other directories.
    pub fn remove(&self) -> Result<(), String> {
        self.open()
            .and_then(|folder| match folder {
                Some(folder) => folder.remove(OsStr::new(&self.name)),
                None => Ok(()),
            })
            .map_err(|error| {
                format!(
                    "cannot remove the record {}: {error}",
                    self.path().display()
                )
            })?;
        if self.folder == Path::new(ROOT_DIRECTORY) {
            // It stays if it contains records of other servers.
            let _ = split(&self.folder)
                .and_then(|(above, name)| Directory::open(above)?.remove_directory(name));
        }
        Ok(())
    }
}

/// Variables by which a server identifies itself.
fn says(server: &mut Server) -> Result<Vec<String>, Failure> {
    let names = [
        "server_uuid",
        "server_uid",
        "hostname",
        "datadir",
        "socket",
        "port",
    ];
    let value = |name| Ok(server.variable(name)?.unwrap_or_default());
    names.into_iter().map(value).collect()
}

/// Root uses `/var/lib/innodb-bpe`. No directory is shared by several users.
fn default_folder() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(ROOT_DIRECTORY.into());
    }
    let set = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    match set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state"))) {
        Some(state) => Ok(state.join(OWN_DIRECTORY)),
        None => Err(Failure::usage(
            "HOME names no folder to keep the original settings in, for `bpe disable`",
        )
        .advise("name one with --state-dir")),
    }
}

/// Names the file. Its strength does not matter, but later releases must compute the same name.
fn fnv1a(text: &str) -> u64 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: u32) -> Identity {
        Identity::Process {
            user,
            data_directory: "/var/lib/mysql".into(),
        }
    }

    fn place(folder: PathBuf) -> StateFile {
        StateFile {
            folder,
            is_default: false,
            name: "r.json".into(),
            identity: identity(999),
        }
    }

    #[test]
    fn record_of_another_server_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = place(folder.path().join("records"));
        own.write(&InstallState::default()).unwrap();
        assert!(own.read().unwrap().is_some());
        let remote = |address: &str| Identity::Remote {
            address: address.into(),
            variables: vec!["uuid".into(), "3306".into()],
        };
        assert_eq!(remote("a").file_name(), remote("b").file_name());
        // The name of its file is the same.
        for identity in [identity(998), remote("a")] {
            let other = StateFile {
                identity,
                ..own.clone()
            };
            let failure = other.read().unwrap_err().to_string();
            assert!(failure.contains("belongs to another server"), "{failure}");
        }
        // A record of an earlier version.
        std::fs::write(own.path(), r#"{"pool_before":1024}"#).unwrap();
        let before = own.read().unwrap().and_then(|record| record.pool_before);
        assert_eq!(before, Some(1024));
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path().join("deep/er"));
        assert_eq!(place.read().unwrap(), None);
        let mut record = InstallState {
            server: "MariaDB".into(),
            identity: Some(identity(999)),
            pool_before: Some(5),
            folders: vec!["/a".into()],
            ..InstallState::default()
        };
        place.write(&record).unwrap();
        record.pool_after = Some(4);
        place.write(&record).unwrap();
        assert_eq!(place.read().unwrap(), Some(record));
        place.remove().unwrap();
        place.remove().unwrap();
        assert_eq!(place.read().unwrap(), None);
    }

    #[test]
    fn records_of_earlier_versions_keep_their_meaning() {
        let old = r#"{"server":"MySQL","pool_before":1024,"pool_after":1020,"pool_persisted_before":null,
            "library":null,"snippet":null,"folders":[],"schema_was_there":false}"#;
        let mut record: InstallState = serde_json::from_str(old).unwrap();
        assert!(record.has_persisted());
        assert_eq!(record.original(1020), Some(1024));
        assert_eq!(record.original(1000), None);
        record.lower(1024, 1000);
        assert!(record.has_persisted(), "what `bpe enable` persisted");
        assert_eq!(record.original(1020), Some(1024));
    }

    #[test]
    fn every_size_that_was_set_is_known_again() {
        let mut record = InstallState::default();
        assert_eq!(record.original(1024), None);
        record.lower(1024, 1020);
        record.lower(1024, 1000);
        assert!(!record.has_persisted());
        for ours in [1020, 1000] {
            assert_eq!(record.original(ours), Some(1024));
        }
        assert_eq!(record.original(1010), None);
        // The administrator set another size, which was lowered again.
        record.lower(2048, 2000);
        assert_eq!(record.original(2000), Some(2048));
        assert_eq!(record.original(1020), Some(1024));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<InstallState>(&text).unwrap(), record);
        for size in 1..1000 {
            record.lower(2048, size);
        }
        assert_eq!(record.pool_lowered.len(), MAX_LOWERINGS);
    }

    #[test]
    fn a_folder_that_others_may_change_is_not_believed() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path().join("records"));
        place.write(&InstallState::default()).unwrap();
        let set = |place: &StateFile, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&place.folder, permissions).unwrap();
        };
        let mode = |place: &StateFile| std::fs::metadata(&place.folder).unwrap().mode() & 0o777;
        for mode in [0o777, 0o1777, 0o770] {
            set(&place, mode);
            assert!(place.read().is_err(), "{mode:o}");
        }
        // The directory may be one such as /etc, which stays as it is.
        set(&place, 0o755);
        let failure = place.read().unwrap_err().to_string();
        assert!(failure.contains("--state-dir"), "{failure}");
        assert!(place.write(&InstallState::default()).is_err());
        assert!(place.remove().is_err());
        assert_eq!(mode(&place), 0o755);
        // The own directory of an earlier version. Reading changes nothing.
        let mut own = super::tests::place(folder.path().join(OWN_DIRECTORY));
        own.is_default = true;
        own.write(&InstallState::default()).unwrap();
        set(&own, 0o755);
        assert!(own.read().unwrap().is_some());
        assert_eq!(mode(&own), 0o755);
        own.write(&InstallState::default()).unwrap();
        assert_eq!(mode(&own), 0o700);
    }

    #[test]
    fn a_damaged_record_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path().join("records"));
        place.write(&InstallState::default()).unwrap();
        std::fs::write(place.path(), "{").unwrap();
        let text = place.read().unwrap_err().to_string();
        assert!(
            text.contains("r.json") && text.contains("what to do"),
            "{text}"
        );
    }

    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(identity(999).file_name(), "cb43c05371643579.json");
    }
}
