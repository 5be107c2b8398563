//! A heat list in a file (`--save`, `--load`): JSON, with what a server has answered. Only its owner may read it: it holds names of
//! tables, and fingerprints of keys with their secret.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use interface::heat::{BITS_GIVEN, Encoder};
use serde_json::{Value, json};

use super::list::{List, Sample};
use super::prints::{Secret, parse_print, written};
use crate::failure::Failure;
use crate::files;
use crate::private_file::PrivateFile;

/// What the file begins with.
const FORMAT: &str = "innodb-bpe heat list 2";
/// Bytes read of it.
const MOST: u64 = 1 << 30;

/// Writes the list, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn save(path: &Path, list: &List) -> Result<(), Failure> {
    let files = list.files.iter().map(|(name, file)| {
        let mut pages = Encoder::new(0, BITS_GIVEN);
        for &(page, heat) in &file.hot {
            pages.push(page, heat);
        }
        json!({
            "file": name,
            "schema": file.table.as_ref().map(|table| &table.schema),
            "table": file.table.as_ref().map(|table| &table.table),
            "partition": file.table.as_ref().and_then(|table| table.partition.as_ref()),
            "page_size": file.page_size,
            "pages": file.pages,
            "space": file.space,
            "flags": file.flags,
            "from": 0,
            "list": BASE64.encode(pages.bytes()),
        })
    });
    let prints = list.prints.iter().map(|(name, sample)| {
        let prints: Value = sample.prints.iter().map(written).collect();
        json!({ "file": name, "space": sample.space, "pages": sample.pages, "prints": prints })
    });
    let taken = SystemTime::now() - list.age();
    let taken = taken.duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = json!({
        "format": FORMAT,
        "taken": taken.as_secs(),
        "files": files.collect::<Vec<_>>(),
        "secret": list.secret.as_ref().map(Secret::text),
        "prints": prints.collect::<Vec<_>>(),
    });
    files::save(path, text.to_string().as_bytes(), 0o600)
        .map_err(|error| Failure::step(format!("cannot write {}: {error}", path.display())))
}

/// Reads a list back.
///
/// # Errors
/// When it cannot be read or understood, or is another user's.
pub fn load(path: &Path) -> Result<List, Failure> {
    let failed = |why: String| Failure::usage(format!("--load {}: {why}", path.display()));
    let mut file = PrivateFile::open_secret(path).map_err(|error| failed(error.to_string()))?;
    let none = || failed("it is no heat list of this version, or is damaged".into());
    let text = file.text(MOST).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => none(),
        _ => failed(error.to_string()),
    })?;
    parse(&text).ok_or_else(none)
}

fn parse(text: &str) -> Option<List> {
    let saved: Value = serde_json::from_str(text).ok()?;
    if saved["format"] != FORMAT {
        return None;
    }
    let taken = UNIX_EPOCH.checked_add(Duration::from_secs(saved["taken"].as_u64()?))?;
    let age = SystemTime::now().duration_since(taken).unwrap_or_default();
    let mut list = List::empty();
    // A machine that was started since knows no earlier moment.
    list.taken = Instant::now().checked_sub(age).unwrap_or(list.taken);
    list.add(&saved)?;
    list.secret = match &saved["secret"] {
        Value::Null => None,
        secret => Some(Secret::parse(secret.as_str()?)?),
    };
    for one in saved["prints"].as_array()? {
        let pages: Vec<u32> = serde_json::from_value(one["pages"].clone()).ok()?;
        let prints: Option<Vec<_>> = one["prints"].as_array()?.iter().map(parse_print).collect();
        let sample = Sample {
            space: serde_json::from_value(one["space"].clone()).ok()?,
            pages,
            prints: prints?,
        };
        // They go into a statement, together.
        let sound = sample.pages.len() == sample.prints.len() && sample.pages.len() <= 16;
        let name = one["file"]
            .as_str()
            .filter(|name| sound && list.files.contains_key(*name))?;
        list.prints.insert(name.to_owned(), sample);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::warm::list::{File, Table};

    fn list() -> List {
        let mut list = List::empty();
        let file = File {
            table: Some(Table {
                schema: "d".into(),
                table: "t".into(),
                partition: None,
            }),
            page_size: 16384,
            pages: 100,
            space: Some(7),
            flags: Some(21),
            hot: vec![(3, 1), (4, 15), (90, 2)],
        };
        list.files.insert("d/t.ibd".into(), file);
        let sample = Sample {
            space: Some(7),
            pages: vec![4, 90],
            prints: vec![None, Some([1, 2, 3])],
        };
        list.prints.insert("d/t.ibd".into(), sample);
        list.secret = Secret::parse("0123456789abcdef0123456789abcdef");
        list
    }

    #[test]
    fn lists_come_back_and_belong_to_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot");
        for _ in 0..2 {
            save(&path, &list()).unwrap();
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let back = load(&path).unwrap();
        assert_eq!((&back.files, &back.prints), (&list().files, &list().prints));
        assert!(back.secret.is_some() && back.secret == list().secret);
        assert!(back.age() < Duration::from_secs(60));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_list_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot");
        save(&path, &list()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        for wrong in [
            String::new(),
            "{}".into(),
            good[..good.len() / 2].to_owned(),
            good.replace("d/t.ibd", "../t.ibd"),
            good.replace("list 2", "list 1"),
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
