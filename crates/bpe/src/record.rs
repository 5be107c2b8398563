//! What `enable` changed on a server, kept for `disable`: one small JSON file per server, in
//! /var/lib/innodb-bpe for root and ~/.local/state/innodb-bpe for others. It holds no secrets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::library::write_new;
use crate::server::Server;

/// Everything `disable` needs to know. Paths are as this command reached them, sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// For people: which server this is.
    pub server: String,
    pub pool_before: Option<u64>,
    pub pool_after: Option<u64>,
    /// The persisted value before (MySQL).
    pub pool_persisted_before: Option<String>,
    /// Files as the server sees them, so that they can be found below its root.
    pub library: Option<PathBuf>,
    pub snippet: Option<PathBuf>,
    pub folders: Vec<PathBuf>,
    /// Schema `bpe` was there before the views were made in it.
    pub schema_was_there: bool,
}

/// The place of one server's record.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
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
        let folder = folder.map_or_else(default_folder, Path::to_path_buf);
        Ok(Self {
            path: folder.join(format!("{:016x}.json", fnv1a(identity.as_bytes()))),
        })
    }

    /// The record; None when there is none.
    pub fn read(&self) -> Result<Option<Record>, Failure> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Failure::refused(format!(
                    "the record {} cannot be understood: {error}",
                    self.path.display()
                ))
                .advise("mend it, or remove it and set innodb_buffer_pool_size by hand")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
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
        return "/var/lib/innodb-bpe".into();
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))
        .unwrap_or_else(|| "/var/tmp".into())
        .join("innodb-bpe")
}

/// FNV-1a, 64 bits: a file name only, nothing depends on its strength.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            path: folder.path().join("deep/er.json"),
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
    fn a_damaged_record_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            path: folder.path().join("r.json"),
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
