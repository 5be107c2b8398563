//! A heat list in a file (`--save`, `--load`): JSON with the server's answers. Only its owner may read it, because it
//! contains table names, and fingerprints of keys with their secret.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interface::heat::is_listed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fingerprints::{PAGES, Sample, Secret};
use super::list::List;
use crate::support::failure::Failure;
use crate::support::files;
use crate::support::private_file::PrivateFile;

/// Format name at the beginning of the file.
const FORMAT: &str = "innodb-bpe heat list 3";
/// Maximum bytes read.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Deserialize)]
struct Saved {
    format: String,
    /// Seconds since the epoch.
    taken: u64,
    files: Value,
    secret: Option<String>,
    prints: Vec<Sample>,
}

/// Writes the list atomically.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &Path, list: &List) -> Result<(), Failure> {
    let taken = SystemTime::now() - list.age();
    let saved = json!({
        "format": FORMAT,
        "taken": taken.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        "files": list.pieces,
        "secret": list.secret,
        "prints": list.samples,
    });
    files::save(path, saved.to_string().as_bytes(), 0o600)
        .map_err(|error| Failure::step(format!("cannot write {}: {error}", path.display())))
}

/// Reads a saved list.
///
/// # Errors
/// The file cannot be read or parsed, or belongs to another user.
pub fn load(path: &Path) -> Result<List, Failure> {
    let failed = |why: String| Failure::usage(format!("--load {}: {why}", path.display()));
    let mut file = PrivateFile::open_secret(path).map_err(|error| failed(error.to_string()))?;
    let none = || failed("it is no heat list of this version, or is damaged".into());
    let text = file.text(MAX_BYTES).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => none(),
        _ => failed(error.to_string()),
    })?;
    parse(&text).ok_or_else(none)
}

fn parse(text: &str) -> Option<List> {
    let saved: Saved = serde_json::from_str(text).ok()?;
    if saved.format != FORMAT {
        return None;
    }
    let taken = UNIX_EPOCH.checked_add(Duration::from_secs(saved.taken))?;
    let age = SystemTime::now().duration_since(taken).unwrap_or_default();
    let mut list = List::empty();
    // After a reboot of the host, the monotonic clock cannot represent the original time.
    list.taken = Instant::now().checked_sub(age).unwrap_or(list.taken);
    list.add(&saved.files)?;
    let secret = saved.secret.map(|secret| Secret::parse(&secret).ok_or(()));
    list.secret = secret.transpose().ok()?;
    let is_sound = |sample: &Sample| {
        let pages = sample.pages.len();
        pages == sample.prints.len() && pages <= PAGES && is_listed(&sample.file)
    };
    // They become part of one statement.
    let sound = saved.prints.len() <= 64 && saved.prints.iter().all(is_sound);
    list.samples = sound.then_some(saved.prints)?;
    Some(list)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::commands::warm::list::Piece;

    fn list() -> List {
        let mut list = List::empty();
        list.pieces = Piece::of_table("d/t.ibd", 100).with([(3, 1), (4, 15), (90, 2)]);
        list.samples.push(Sample {
            file: "d/t.ibd".into(),
            space: Some(7),
            pages: vec![4, 90],
            prints: vec![None, Some(["1", "2", "3"].map(str::to_owned))],
        });
        list.secret = Secret::parse("0123456789abcdef0123456789abcdef");
        list
    }

    #[test]
    fn saved_list_is_private_and_loads_again() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot");
        for _ in 0..2 {
            save(&path, &list()).unwrap();
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let back = load(&path).unwrap();
        assert_eq!(back.pieces, list().pieces);
        assert_eq!(back.samples, list().samples);
        assert!(back.secret.is_some() && back.secret == list().secret);
        assert!(back.age() < Duration::from_secs(60));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_list_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot");
        save(&path, &list()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        for wrong in [
            String::new(),
            "{}".into(),
            good[..good.len() / 2].to_owned(),
            good.replace("d/t.ibd", "../t.ibd"),
            good.replace("list 3", "list 2"),
            good.replace("0123456789abcdef\"", "0123456789abcde'\""),
            good.replace("[4,90]", "[4]"),
        ] {
            fs::write(&path, wrong).unwrap();
            let text = load(&path).unwrap_err().to_string();
            assert!(
                text.contains("--load") && text.contains("no heat list"),
                "{text}"
            );
        }
    }
}
