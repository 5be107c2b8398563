//! What `enable` changed on a server, kept for `disable`: one small JSON file per server, in
//! /var/lib/innodb-bpe for root and ~/.local/state/innodb-bpe for others. It holds no secrets.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::library::write_new;
use crate::server::Server;

/// Where root keeps them.
const SHARED: &str = "/var/lib/innodb-bpe";
/// Sizes of the pool that a record remembers, newest last.
const KEPT: usize = 100;

/// Everything `disable` needs to know. Paths are as this command reached them, sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// For people: which server this is.
    pub server: String,
    pub pool_before: Option<u64>,
    pub pool_after: Option<u64>,
    /// Every size that the pool was given, as a restart may come back to one of before. Records of earlier versions
    /// have only the two above.
    pub pool_lowered: Vec<Lowering>,
    /// Whether a size of the pool was persisted, too (MySQL). None is a record of an earlier version, which did.
    pub pool_persisted: Option<bool>,
    /// The persisted value before (MySQL).
    pub pool_persisted_before: Option<String>,
    /// Files as the server sees them, so that they can be found below its root.
    pub library: Option<PathBuf>,
    pub snippet: Option<PathBuf>,
    pub folders: Vec<PathBuf>,
    /// The snippet keeps InnoDB from native asynchronous I/O, which would go unseen on this server.
    pub native_aio_off: bool,
    /// Schema `bpe` was there before the views were made in it.
    pub schema_was_there: bool,
}

/// A size that the pool was given, and what it was without the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lowering {
    pub from: u64,
    pub to: u64,
}

impl Record {
    /// What the pool was before it got the size it has now; None when that is no size it was given here.
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

    /// Notes that the pool is lowered.
    pub fn lower(&mut self, from: u64, to: u64) {
        // Records of earlier versions have the last one only.
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
        if self.pool_lowered.len() == KEPT {
            self.pool_lowered.remove(0);
        }
        self.pool_lowered.push(lowering);
    }

    /// The record without what is there for people alone, and changes by itself.
    #[must_use]
    pub fn nameless(mut self) -> Self {
        self.server.clear();
        self
    }

    /// Whether the persisted size of the pool is ours.
    pub fn has_persisted(&self) -> bool {
        self.pool_persisted.unwrap_or(true)
    }
}

/// The place of one server's record.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    /// Root's, which others may read.
    shared: Option<PathBuf>,
}

impl Place {
    /// Names the file after what tells servers on one host apart.
    pub fn of(server: &mut Server, folder: Option<&Path>) -> Result<Self, Failure> {
        let mut identity = String::new();
        for name in [
            "server_uuid",
            "server_uid",
            "hostname",
            "datadir",
            "socket",
            "port",
        ] {
            identity.push_str(&server.variable(name)?.unwrap_or_default());
            identity.push('\0');
        }
        let shared = folder.is_none().then_some(SHARED);
        let folder = folder.map_or_else(default_folder, Path::to_path_buf);
        let name = format!("{:016x}.json", fnv1a(identity.as_bytes()));
        Ok(Self {
            shared: shared
                .map(|folder| Path::new(folder).join(&name))
                .filter(|path| path.parent() != Some(&folder)),
            path: folder.join(name),
        })
    }

    /// Whether the record that is read is this user's own, and not the one that root has written.
    pub fn is_own(&self) -> bool {
        self.path.exists()
    }

    /// The record; None when there is none. Root's where the user has none: root may have enabled the extension.
    pub fn read(&self) -> Result<Option<Record>, Failure> {
        match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Root's may be out of reach or half understood here; then there is none for this user.
                let shared = self.shared.as_ref().and_then(|path| fs::read(path).ok());
                Ok(shared.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
            }
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Failure::refused(format!(
                    "the record {} cannot be understood: {error}",
                    self.path.display()
                ))
                .advise("fix it, or remove it and set innodb_buffer_pool_size by hand")
            }),
            Err(error) => Err(Failure::refused(format!(
                "cannot read the record {}: {error}",
                self.path.display()
            ))
            .advise("run as the user who ran `bpe enable` (sudo?)")),
        }
    }

    /// Replaces the record, whole or not at all.
    pub fn write(&self, record: &Record) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        let new = self
            .path
            .with_extension(format!("new-{}", std::process::id()));
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)
            .and_then(|()| write_new(&new, &text, 0o644))
            .and_then(|()| fs::rename(&new, &self.path))
            .map_err(|error| {
                let _ = fs::remove_file(&new);
                format!("cannot write the record {}: {error}", self.path.display())
            })
    }

    pub fn remove(&self) -> Result<(), String> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!(
                "cannot remove the record {}: {error}",
                self.path.display()
            )),
            _ => Ok(()),
        }
    }
}

fn default_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return SHARED.into();
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))
        .unwrap_or_else(|| "/var/tmp".into())
        .join("innodb-bpe")
}

/// A file name only: nothing depends on its strength, but a later release must find the file.
fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            path: folder.path().join("deep/er.json"),
            shared: None,
        };
        assert_eq!(place.read().unwrap(), None);
        let mut record = Record {
            server: "MariaDB".into(),
            pool_before: Some(5),
            folders: vec!["/a".into()],
            ..Record::default()
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
        let mut record: Record = serde_json::from_str(old).unwrap();
        assert!(record.has_persisted());
        assert_eq!(record.original(1020), Some(1024));
        assert_eq!(record.original(1000), None);
        record.lower(1024, 1000);
        assert!(record.has_persisted(), "what `bpe enable` persisted");
        assert_eq!(record.original(1020), Some(1024));
    }

    #[test]
    fn every_size_that_was_set_is_known_again() {
        let mut record = Record::default();
        assert_eq!(record.original(1024), None);
        record.lower(1024, 1020);
        record.lower(1024, 1000);
        assert!(!record.has_persisted());
        for ours in [1020, 1000] {
            assert_eq!(record.original(ours), Some(1024));
        }
        assert_eq!(record.original(1010), None);
        // Another size by the administrator, lowered from there.
        record.lower(2048, 2000);
        assert_eq!(record.original(2000), Some(2048));
        assert_eq!(record.original(1020), Some(1024));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        for size in 1..1000 {
            record.lower(2048, size);
        }
        assert_eq!(record.pool_lowered.len(), KEPT);
    }

    #[test]
    fn roots_record_is_read_where_there_is_no_own() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str, shared: Option<&str>| Place {
            path: folder.path().join(path),
            shared: shared.map(|path| folder.path().join(path)),
        };
        let record = |size| Record {
            pool_before: Some(size),
            ..Record::default()
        };
        place("root.json", None).write(&record(5)).unwrap();
        let own = place("own.json", Some("root.json"));
        assert!(own.read().unwrap() == Some(record(5)) && !own.is_own());
        own.write(&record(6)).unwrap();
        assert!(own.read().unwrap() == Some(record(6)) && own.is_own());
        own.remove().unwrap();
        assert_eq!(own.read().unwrap(), Some(record(5)));
        assert_eq!(place("a", Some("b")).read().unwrap(), None);
    }

    #[test]
    fn a_damaged_record_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            path: folder.path().join("r.json"),
            shared: None,
        };
        fs::write(&place.path, "{").unwrap();
        let text = place.read().unwrap_err().to_string();
        assert!(
            text.contains("r.json") && text.contains("what to do"),
            "{text}"
        );
    }

    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
