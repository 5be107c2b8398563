//! Heat: the pages that this server has cached and how hot they are, through `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `heat` | the first part of the list |
//! | `heat:FILE:PAGE` | the part from there on: the `next` of the previous part |
//! | `heat-prints SECRET FILES` | fingerprints ([`coherence::fingerprint`]) of leaf pages, keyed by `SECRET` (32 hexadecimal digits): `FILES` is JSON, `[[FILE, [PAGE, ...]], ...]` |
//!
//! A part has `first` (whether it is the first one), `next` (null at the end), and `files`. Each file has its name below
//! the data directory and that of its table, `page_size`, `pages` (length of the file), `space` by page 0, `from`, and
//! `list` ([`interface::heat`], in base64). [`warm-put`](crate::reports::warm) accepts a part unchanged. A part takes
//! about [`ANSWER_TIME`] and [`MAX_BYTES`] of lists. It reads no data file, except the first page of each file once, and
//! changes nothing.
//!
//! Fingerprints are made of cached pages; other pages are read from the data files. They require the right to `SET GLOBAL`:
//! an account that chooses the secret can find short keys by trying all of them, so `PROCESS` alone is not enough.
//!
//! Lock: the known first pages are a leaf.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cache::{EXTENT_SHIFT, FileId};
use coherence::files::DataFile;
use coherence::fingerprint::Secret;
use coherence::switch::Active;
use coherence::warm::{RunBuffer, Tablespace};
use interface::heat::{Encoder, MAX_BYTES, is_listed};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::control;
use crate::platform::CORE;
use crate::tables::table_name;

/// Time limit of an answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// Extents between two checks of the clock.
const EXTENTS_PER_CHECK: u32 = 16;
/// Maximum numbers of files in an answer, and of files whose first page is remembered.
const MAX_FILES: usize = 512;
const MAX_KNOWN: usize = 100_000;

/// Contents of the files' first pages. They never change during the life of a file.
pub struct FirstPages(Mutex<BTreeMap<FileId, Tablespace>>);

/// A file, and page numbers in it.
type Pages = (String, Vec<u32>);

/// Pages in an answer with fingerprints.
const MAX_FINGERPRINTS: usize = 1024;

/// The answer to `heat-prints SECRET FILES`; `None` if that is malformed.
fn fingerprints(argument: &str) -> Option<Value> {
    let (secret, files) = parse(argument)?;
    let by_name = files_by_name();
    let mut buffer = RunBuffer::new();
    let mut of_file = |(name, pages): &Pages| -> Value {
        let file = by_name.get(name);
        let fingerprints = pages.iter().map(|page| {
            let print = CORE.print(file?, *page, &secret, buffer.as_mut()?)?;
            Some(print.0.map(|hash| format!("{hash:016x}")))
        });
        json!(fingerprints.collect::<Vec<_>>())
    };
    Some(json!({ "prints": files.iter().map(&mut of_file).collect::<Vec<_>>() }))
}

/// Parses `SECRET FILES`.
fn parse(argument: &str) -> Option<(Secret, Vec<Pages>)> {
    let (secret, files) = argument.split_once(' ')?;
    let is_hexadecimal = secret.len() == 32 && secret.bytes().all(|b| b.is_ascii_hexdigit());
    let secret = is_hexadecimal.then(|| u128::from_str_radix(secret, 16).ok())??;
    let files: Vec<Pages> = serde_json::from_str(files).ok()?;
    let pages: usize = files.iter().map(|(_, pages)| pages.len()).sum();
    (pages <= MAX_FINGERPRINTS).then_some((secret.to_be_bytes(), files))
}

/// The reason why nothing is cached, if the extension is off.
pub fn off_reason() -> Option<String> {
    if CORE.switch().active().is_some() {
        return None;
    }
    let (state, reason) = control::state();
    let why = format!("the extension is {}: {reason}", state.name());
    Some(why.trim_end_matches(": ").to_owned())
}

/// The files of this server, by their names in lists.
pub fn files_by_name() -> HashMap<String, &'static DataFile> {
    let (files, names) = (CORE.files.all().into_iter(), ListNames::below_here());
    files
        .filter_map(|file| Some((names.of(file)?, file)))
        .collect()
}

impl FirstPages {
    pub(crate) const fn new() -> FirstPages {
        FirstPages(Mutex::new(BTreeMap::new()))
    }

    pub fn of(&self, file: &'static DataFile) -> Option<Tablespace> {
        let id = file.id();
        if let Some(head) = self.0.lock().get(&id) {
            return Some(*head);
        }
        let head = CORE.tablespace(file, &mut RunBuffer::new()?)?;
        let mut all = self.0.lock();
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert(id, head);
        Some(head)
    }

    /// Frees the memory.
    pub fn forget(&self) {
        self.0.lock().clear();
    }

    /// The answer to an argument of `bpe_report()` that begins with `heat`; `None` for an unknown one.
    pub fn answer(&self, argument: &str) -> Option<Value> {
        if let Some(argument) = argument.strip_prefix("heat-prints ") {
            return fingerprints(argument);
        }
        let (file, page) = match argument.strip_prefix("heat")? {
            "" => (0, 0),
            rest => {
                let (file, page) = rest.strip_prefix(':')?.split_once(':')?;
                (file.parse().ok()?, page.parse().ok()?)
            }
        };
        let guard = CORE.switch().active();
        let Some(active) = &*guard else {
            return Some(json!({ "error": off_reason() }));
        };
        let mut list = self.list(active, file, page);
        list["first"] = (argument == "heat").into();
        Some(list)
    }

    fn list(&self, active: &Active, first: u32, from: u32) -> Value {
        let until = Instant::now() + ANSWER_TIME;
        let mut all = CORE.files.all();
        all.retain(|file| file.owner >= first);
        all.sort_unstable_by_key(|file| file.owner);
        let (mut files, mut bytes) = (Vec::new(), 0);
        let (mut next, names) = (Value::Null, ListNames::below_here());
        for file in all {
            let from = if file.owner == first { from } else { 0 };
            let Some(name) = names.of(file) else {
                continue;
            };
            let walked = walk(active, file, from, MAX_BYTES - bytes.min(MAX_BYTES), until);
            let Some((list, pages, stopped)) = walked else {
                continue;
            };
            bytes += list.bytes().len();
            if list.pages() > 0 {
                let head = self.of(file);
                let table = table_name::of_path(&file.name());
                files.push(json!({
                    "file": name,
                    "schema": table.as_ref().map(|table| &table.schema),
                    "table": table.as_ref().map(|table| &table.table),
                    "partition": table.as_ref().and_then(|table| table.partition.as_ref()),
                    "page_size": file.page_size(),
                    "pages": pages,
                    "space": head.map(|head| head.space),
                    "from": from,
                    "count": list.pages(),
                    "list": BASE64.encode(list.bytes()),
                }));
            }
            let is_over = Instant::now() >= until || files.len() >= MAX_FILES;
            if let Some(page) = stopped.or_else(|| is_over.then_some(pages)) {
                next = json!(format!("heat:{}:{page}", file.owner));
                break;
            }
        }
        json!({ "files": files, "next": next })
    }
}

/// Returns the list of a file from a page on, its number of pages, and the page where the list stopped for lack of time or
/// room. `None` if nothing of the file can be cached.
fn walk(
    active: &Active,
    file: &'static DataFile,
    from: u32,
    room: usize,
    until: Instant,
) -> Option<(Encoder, u32, Option<u32>)> {
    let (_, pages) = CORE.open_pages(file)?;
    let mut list = Encoder::new(from);
    let first = from >> EXTENT_SHIFT;
    for extent in first..pages.div_ceil(1 << EXTENT_SHIFT) {
        let page = extent << EXTENT_SHIFT;
        // An extent takes at most two bytes a page, and four at its beginning.
        let is_full = list.bytes().len() + 192 > room;
        let is_late = extent % EXTENTS_PER_CHECK == 0 && Instant::now() >= until;
        if extent > first && (is_full || is_late) {
            return Some((list, pages, Some(page)));
        }
        let Some(id) = file.usable_id() else {
            continue;
        };
        let heat = active.extension.heat(id, extent);
        let mut cached = heat.cached;
        while cached != 0 {
            let n = cached.trailing_zeros();
            cached &= cached - 1;
            if page + n >= from && page + n < pages {
                list.push(page + n, heat.of[n as usize]);
            }
        }
    }
    Some((list, pages, None))
}

/// Names of files in lists.
pub struct ListNames {
    /// The data directory, which is a server's working directory.
    here: String,
}

impl ListNames {
    pub fn below_here() -> ListNames {
        let here = std::env::current_dir().unwrap_or_default();
        ListNames {
            here: here.to_string_lossy().into_owned(),
        }
    }

    /// Returns the file's name below the data directory. For a table elsewhere, its directory and file. `None` if it is
    /// never listed.
    pub fn of(&self, file: &DataFile) -> Option<String> {
        name_of_path(&file.name(), &self.here)
    }
}

fn name_of_path(path: &str, here: &str) -> Option<String> {
    let below = path
        .strip_prefix("./")
        .or_else(|| path.strip_prefix(here)?.strip_prefix('/'))
        .unwrap_or(path);
    let name = if below.starts_with('/') {
        let (above, file) = below.rsplit_once('/')?;
        let (_, folder) = above.rsplit_once('/')?;
        format!("{folder}/{file}")
    } else {
        below.to_owned()
    };
    is_listed(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_arguments_are_answered() {
        let first_pages = FirstPages::new();
        for unknown in [
            "hea",
            "heat:",
            "heat:1",
            "heat:1:x",
            "heat:-1:0",
            "heats",
            "heat:1:2:3",
        ] {
            assert_eq!(first_pages.answer(unknown), None, "{unknown}");
        }
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let error = first_pages
            .answer("heat")
            .map(|answer| answer["error"].to_string());
        assert!(error.is_some_and(|error| error.contains("disabled")));
    }

    #[test]
    fn fingerprint_requests_are_bounded() {
        let secret = "0123456789abcdef0123456789abcdef";
        let pages = |text: &str| {
            let (_, files) = parse(text)?;
            Some(files.iter().map(|(_, pages)| pages.len()).sum::<usize>())
        };
        let two = format!(r#"{secret} [["d/t.ibd",[4,5]],["d/u.ibd",[9]]]"#);
        assert_eq!(pages(&two), Some(3));
        let many = |pages: usize| format!("{secret} {}", json!([["d/t.ibd", vec![4; pages]]]));
        assert_eq!(pages(&many(MAX_FINGERPRINTS)), Some(MAX_FINGERPRINTS));
        for wrong in [
            many(MAX_FINGERPRINTS + 1),
            secret.to_owned(),
            format!("{secret} d/t.ibd:4"),
            format!("{secret}0 []"),
            format!("+{} []", &secret[1..]),
            " []".to_owned(),
        ] {
            assert_eq!(pages(&wrong), None, "{wrong:.100}");
        }
        let answer =
            FirstPages::new().answer(&format!("heat-prints {secret} [[\"d/no.ibd\", [4]]]"));
        assert_eq!(answer, Some(json!({ "prints": [[null]] })));
    }

    #[test]
    fn names_are_those_below_the_data_directory() {
        let name = |path: &str| name_of_path(path, "/var/lib/mysql");
        for path in [
            "./d/t.ibd",
            "d/t.ibd",
            "/var/lib/mysql/d/t.ibd",
            "/mnt/d/t.ibd",
        ] {
            assert_eq!(name(path).as_deref(), Some("d/t.ibd"), "{path}");
        }
        for path in [
            "./ibdata1",
            "/var/lib/mysql/undo_001",
            "./mysql/user.ibd",
            "mysql.ibd",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
    }
}
