//! The trace file: written under a temporary name in the same directory, and renamed when complete.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use replay::trace::TraceWriter;
use tempfile::NamedTempFile;

use crate::support::failure::Failure;

/// A trace in progress. Dropping it unfinished removes the file.
pub struct TraceFile {
    trace: TraceWriter<BufWriter<NamedTempFile>>,
    path: PathBuf,
    replace: bool,
}

impl TraceFile {
    /// Begins a file for `path`. An existing file is replaced only with `replace`.
    pub fn create(path: &Path, replace: bool) -> Result<Self, Failure> {
        let named = path.display();
        if path.is_dir() {
            return Err(Failure::usage(format!("--output {named} is a folder")));
        }
        if !replace && path.symlink_metadata().is_ok() {
            return Err(Failure::refused(format!("{named} exists"))
                .advise("choose another name, or replace it with --force"));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let cannot = |error: io::Error| {
            Failure::refused(format!("cannot write into {}: {error}", folder.display()))
                .advise("name a file in a folder that exists and that you may write to")
        };
        let temporary = tempfile::Builder::new()
            .prefix(".bpe-record-")
            .suffix(".part")
            .tempfile_in(folder)
            .map_err(cannot)?;
        Ok(Self {
            trace: TraceWriter::new(BufWriter::new(temporary)).map_err(cannot)?,
            path: path.to_owned(),
            replace,
        })
    }

    /// Appends complete records, which the plugin returns in trace file format.
    pub fn write(&mut self, records: &[u8]) -> Result<(), Failure> {
        self.trace
            .write_records(records)
            .map_err(|error| failed(&self.path, &error))
    }

    /// Completes the file and renames it. Returns its size in bytes.
    pub fn finish(self) -> Result<u64, Failure> {
        let path = self.path;
        let written = |trace: TraceWriter<BufWriter<NamedTempFile>>| {
            let temporary = trace.finish()?.into_inner().map_err(|e| e.into_error())?;
            temporary.as_file().sync_all()?;
            Ok(temporary)
        };
        let temporary = written(self.trace).map_err(|error: io::Error| failed(&path, &error))?;
        let file: File = if self.replace {
            temporary.persist(&path)
        } else {
            temporary.persist_noclobber(&path)
        }
        .map_err(|error| failed(&path, &error.error))?;
        Ok(file.metadata().map_or(0, |metadata| metadata.len()))
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::step(format!("cannot write {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failure.advise("somebody created a file of that name meanwhile; record again")
        }
        io::ErrorKind::StorageFull => {
            failure.advise("a trace takes about 4 bytes an event; name a file on another disk")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::failure::Exit;
    use std::fs;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.trace.zst");
        let mut file = TraceFile::create(&path, false).unwrap();
        file.write(&[7; 16]).unwrap();
        assert!(!path.exists());
        let bytes = file.finish().unwrap();
        assert_eq!(bytes, fs::metadata(&path).unwrap().len());
        let decoded = zstd::decode_all(File::open(&path).unwrap()).unwrap();
        assert_eq!(decoded, [7; 16]);
        drop(TraceFile::create(&folder.path().join("b"), false).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_overwritten_unless_wished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let early = TraceFile::create(&path, false).unwrap();
        fs::write(&path, "mine").unwrap();
        let refused = TraceFile::create(&path, false).err().unwrap();
        assert_eq!(refused.exit, Exit::No);
        assert!(refused.to_string().contains("--force"));
        // It appeared during the other recording.
        assert!(
            early
                .finish()
                .unwrap_err()
                .to_string()
                .contains("meanwhile")
        );
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        TraceFile::create(&path, true).unwrap().finish().unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"mine");
        assert!(TraceFile::create(folder.path(), true).is_err(), "a folder");
        let nowhere = folder.path().join("no/where");
        let text = TraceFile::create(&nowhere, false)
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains("a folder that exists"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
