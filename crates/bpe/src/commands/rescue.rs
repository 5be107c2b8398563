//! Saves pages that are damaged in the data files but intact in the cache.
//!
//! `bpe` creates the directory with mode 0700 and each file in it with mode 0600. Neither a name from the server nor
//! another user determines where it writes.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;
use crate::support::files::Directory;
use crate::support::text::cut;

/// The largest number of saved pages. The limit keeps a server from filling the disk.
const MAX_PAGES: usize = 16384;
/// Maximum page size of InnoDB in bytes.
const MAX_PAGE_BYTES: usize = 64 << 10;
/// Bytes kept of a file's name.
const MAX_NAME: usize = 4096;
/// The list: the saved file of each page.
const LIST: &str = "pages.json";

/// A new directory for pages.
pub struct Rescue {
    shown: PathBuf,
    folder: Directory,
    saved: Vec<Value>,
    /// Number of pages that the cache no longer contained.
    gone: u64,
}

impl Rescue {
    /// Creates the directory.
    ///
    /// # Errors
    /// The name already exists, or the directory cannot be created.
    pub fn begin(folder: &Path) -> Result<Rescue, Failure> {
        let shown = folder.display();
        let made = make(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::usage(format!("{shown} exists: name a folder to be made"))
            }
            _ => Failure::refused(format!("cannot make the folder {shown}: {error}")),
        })?;
        Ok(Rescue {
            shown: folder.to_owned(),
            folder: made,
            saved: Vec::new(),
            gone: 0,
        })
    }

    /// Fetches a page from the verification of this name, and writes it.
    ///
    /// # Errors
    /// The server does not answer, the file cannot be written, or too many pages are damaged.
    pub fn fetch(
        &mut self,
        server: &mut Server,
        verification: &str,
        page: &Value,
    ) -> Result<(), Failure> {
        let (Some(file), Some(number)) = (page["number"].as_u64(), page["page"].as_u64()) else {
            return Ok(());
        };
        if self.saved.len() >= MAX_PAGES {
            return Err(Failure::step(format!(
                "{MAX_PAGES} pages were saved, and more are damaged"
            ))
            .advise("restore the data from a backup; this disk is not to be trusted"));
        }
        let argument = format!("verify-page {verification} {file} {number}");
        let answer = report::ask(server, &argument, "cannot fetch a page")?;
        if let Some(why) = answer["error"].as_str() {
            return Err(Failure::step(format!("the verification stopped: {why}"))
                .advise("verify again, and save the pages in another folder"));
        }
        let bytes = answer["bytes"].as_str();
        let bytes = bytes.and_then(|text| BASE64.decode(text).ok());
        match bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= MAX_PAGE_BYTES) {
            Some(bytes) => self.write(page, file, number, &bytes),
            None => {
                self.gone += 1;
                Ok(())
            }
        }
    }

    fn write(&mut self, page: &Value, file: u64, number: u64, bytes: &[u8]) -> Result<(), Failure> {
        let name = format!("file-{file}-page-{number}");
        self.create(&name, bytes)?;
        let mut shown = page["file"].as_str().unwrap_or_default().to_owned();
        cut(&mut shown, MAX_NAME);
        self.saved.push(json!({
            "file": shown,
            "page": number,
            "offset": number.saturating_mul(bytes.len() as u64),
            "bytes": bytes.len(),
            "saved_as": name,
        }));
        Ok(())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.folder.write_new(OsStr::new(name), bytes, 0o600);
        written.map_err(|error| {
            let path = self.shown.join(name);
            Failure::step(format!("cannot write {}: {error}", path.display())).advise(
                "the pages are still cached: make room, and save them again in another folder",
            )
        })
    }

    /// Writes the list, or removes the directory if no page was saved. Returns the numbers of saved and missing pages.
    ///
    /// # Errors
    /// The list cannot be written.
    pub fn end(self) -> Result<(usize, u64), Failure> {
        if self.saved.is_empty() {
            let _ = remove(&self.shown);
            return Ok((0, self.gone));
        }
        let list = serde_json::to_string_pretty(&self.saved).unwrap_or_default();
        self.create(LIST, list.as_bytes())?;
        Ok((self.saved.len(), self.gone))
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Ok(());
    };
    Directory::open(parent)?.remove_directory(name)
}

fn make(folder: &Path) -> io::Result<Directory> {
    let folder = std::path::absolute(folder)?;
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::AlreadyExists.into());
    };
    let user = rustix::process::geteuid().as_raw();
    Directory::open(parent)?.make(name, user, None)?;
    Directory::open(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn pages_are_written_to_a_new_folder_with_a_list() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("pages");
        let mut rescue = Rescue::begin(&folder).unwrap();
        let mode = folder.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let page = json!({ "file": "./d/t.ibd", "number": 3, "page": 7 });
        rescue.write(&page, 3, 7, &[5; 4096]).unwrap();
        assert!(
            rescue.write(&page, 3, 7, &[5; 4096]).is_err(),
            "it is made anew"
        );
        assert_eq!(rescue.end().unwrap(), (1, 0));
        let bytes = std::fs::read(folder.join("file-3-page-7")).unwrap();
        assert_eq!(bytes, [5; 4096]);
        let list = std::fs::read(folder.join(LIST)).unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(
            (&list[0]["file"], &list[0]["offset"]),
            (&page["file"], &json!(28672))
        );
        assert_eq!(list[0]["saved_as"], "file-3-page-7");
    }

    #[test]
    fn a_folder_without_pages_does_not_stay() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("pages");
        let rescue = Rescue::begin(&folder).unwrap();
        assert!(folder.exists());
        assert_eq!(rescue.end().unwrap(), (0, 0));
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_exists_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let refused = |folder: &Path| Rescue::begin(folder).err().unwrap().to_string();
        let folder = outer.path().join("pages");
        drop(Rescue::begin(&folder).unwrap());
        assert!(refused(&folder).contains("exists"));
        // Another user could take the name first.
        let shared = refused(&std::env::temp_dir().join("bpe-pages"));
        assert!(shared.contains("other users"), "{shared}");
        let nowhere = outer.path().join("a/b");
        assert!(Rescue::begin(&nowhere).is_err());
    }
}
