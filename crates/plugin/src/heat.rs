//! Which pages this server has cached, and how hot they are, for another server that wants to be warm: through `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `heat` | the list from its beginning |
//! | `heat:FILE:PAGE` | the list from there on: what stood in `next` |
//!
//! | `heat-prints FILE:PAGES` | of pages of a file, numbers separated by commas, by what they are told if they are cached: the number of the index, and three sums of 16 bits of the first record |
//!
//! An answer has `files`: for each its name below the data directory and that of its table, `page_size`, `pages` (how many the file has), `space` and `flags`
//! as page 0 says, `from`, and `list` ([`interface::heat`], in base64); `next`, null at the end. It takes [`TIME`] and
//! [`MOST_BYTES`] of lists, about, reads no data file but the first page of each file once, and changes nothing. So it needs no key: it shows
//! names and numbers, as `bpe_report('files')` does.
//!
//! Lock: what is known of the first pages is a leaf.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use coherence::warm::{RunBuffer, Tablespace};
use extension::{EXTENT_SHIFT, FileId};
use interface::heat::{BITS_GIVEN, Encoder, MOST_BYTES, is_listed};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::controller;
use crate::files::DataFile;
use crate::process::{CORE, KNOWN};
use crate::switch::Active;
use crate::table_name;

/// Time that an answer takes, about.
const TIME: Duration = Duration::from_millis(200);
/// Extents between two looks at the clock.
const EXTENTS_A_LOOK: u32 = 16;
/// Files in an answer, and files whose first page is remembered.
const MOST_FILES: usize = 512;
const MOST_KNOWN: usize = 100_000;

/// What the first pages of files say, which never changes while the file is the same.
pub struct Heads(Mutex<Option<HashMap<u32, (FileId, Tablespace)>>>);

/// Prints that may be asked for in a second: each costs a read of a cache disk. Lock: a leaf.
pub struct Prints(Mutex<Option<(Instant, u32)>>);

const PRINTS_A_SECOND: u32 = 512;
/// Pages that are asked for at once.
const MOST_PRINTS: usize = 16;

impl Prints {
    pub(crate) const fn new() -> Prints {
        Prints(Mutex::new(None))
    }

    fn may(&self, pages: usize) -> bool {
        let mut since = self.0.lock();
        let now = Instant::now();
        let (began, asked) = since.get_or_insert((now, 0));
        if began.elapsed() >= Duration::from_secs(1) {
            (*began, *asked) = (now, 0);
        }
        *asked += pages as u32;
        *asked <= PRINTS_A_SECOND
    }

    /// The answer to `FILE:PAGES`. `may_read`: a page that is not cached is read from the data file.
    pub fn answer(&self, argument: &str, may_read: bool) -> Option<Result<Value, String>> {
        let (name, pages) = argument.rsplit_once(':')?;
        let pages: Result<Vec<u32>, _> = pages.split(',').map(str::parse).collect();
        let pages = pages.ok().filter(|pages| pages.len() <= MOST_PRINTS)?;
        if !self.may(pages.len()) {
            return Some(Err(
                "too much was asked for at once; try again in a second".into()
            ));
        }
        let (mut files, names) = (CORE.files.all().into_iter(), Names::below_here());
        let file = files.find(|file| names.of(file).as_deref() == Some(name));
        let mut buffer = RunBuffer::new()?;
        let prints = pages.into_iter().map(|page| {
            let print = CORE.print(file?, page, may_read, &mut buffer)?;
            Some(json!({ "index": print.index, "first": print.first }))
        });
        let prints: Vec<_> = prints.collect();
        Some(Ok(json!({ "prints": prints })))
    }
}

impl Heads {
    pub(crate) const fn new() -> Heads {
        Heads(Mutex::new(None))
    }

    pub fn of(&self, file: &'static DataFile) -> Option<Tablespace> {
        let id = file.id();
        let known = |all: &Option<HashMap<u32, (FileId, Tablespace)>>| {
            let (of, head) = all.as_ref()?.get(&file.owner)?;
            (*of == id).then_some(*head)
        };
        if let Some(head) = known(&self.0.lock()) {
            return Some(head);
        }
        let head = CORE.tablespace(file, &mut RunBuffer::new()?)?;
        let mut all = self.0.lock();
        let all = all.get_or_insert_default();
        if all.len() >= MOST_KNOWN {
            all.clear();
        }
        all.insert(file.owner, (id, head));
        Some(head)
    }

    /// Gives the memory back.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    /// The answer to an argument of `bpe_report()`; `None` for one that is not known.
    pub fn answer(&self, argument: &str) -> Option<Value> {
        let (file, page) = match argument.strip_prefix("heat")? {
            "" => (0, 0),
            rest => {
                let (file, page) = rest.strip_prefix(':')?.split_once(':')?;
                (file.parse().ok()?, page.parse().ok()?)
            }
        };
        let guard = CORE.switch().active();
        let Some(active) = &*guard else {
            let (state, reason) = controller::state();
            let why = format!("the extension is {}: {reason}", state.name());
            return Some(json!({ "error": why.trim_end_matches(": ") }));
        };
        Some(self.list(active, file, page))
    }

    fn list(&self, active: &Active, first: u32, from: u32) -> Value {
        let until = Instant::now() + TIME;
        let mut all = CORE.files.all();
        all.retain(|file| file.owner >= first);
        all.sort_unstable_by_key(|file| file.owner);
        let (mut files, mut bytes) = (Vec::new(), 0);
        let (mut next, names) = (Value::Null, Names::below_here());
        for file in all {
            let from = if file.owner == first { from } else { 0 };
            let Some(name) = names.of(file) else {
                continue;
            };
            let walked = walk(
                active,
                file,
                from,
                MOST_BYTES - bytes.min(MOST_BYTES),
                until,
            );
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
                    "flags": head.map(|head| head.flags),
                    "from": from,
                    "count": list.pages(),
                    "list": BASE64.encode(list.bytes()),
                }));
            }
            let is_over = Instant::now() >= until || files.len() >= MOST_FILES;
            if let Some(page) = stopped.or_else(|| is_over.then_some(pages)) {
                next = json!(format!("heat:{}:{page}", file.owner));
                break;
            }
        }
        json!({ "files": files, "next": next })
    }
}

/// The list of a file from a page on, how many pages it has, and where the list stopped because there was no time or room left.
/// `None` if nothing of the file can be cached.
fn walk(
    active: &Active,
    file: &'static DataFile,
    from: u32,
    room: usize,
    until: Instant,
) -> Option<(Encoder, u32, Option<u32>)> {
    let (_, pages) = CORE.open_pages(file)?;
    let mut list = Encoder::new(from, BITS_GIVEN);
    let first = from >> EXTENT_SHIFT;
    for extent in first..pages.div_ceil(1 << EXTENT_SHIFT) {
        let page = extent << EXTENT_SHIFT;
        // An extent takes two bytes a page at most, and four at its beginning.
        let is_full = list.bytes().len() + 192 > room;
        let is_late = extent % EXTENTS_A_LOOK == 0 && Instant::now() >= until;
        if extent > first && (is_full || is_late) {
            return Some((list, pages, Some(page)));
        }
        let Some(id) = file.cacheable() else {
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

/// The names of files in a list.
pub struct Names {
    /// The data directory, which is the current directory of a server.
    here: String,
}

impl Names {
    pub fn below_here() -> Names {
        let here = std::env::current_dir().unwrap_or_default();
        Names {
            here: here.to_string_lossy().into_owned(),
        }
    }

    /// That of a file: below the data directory. Of a table elsewhere its folder and file. `None` if it is never listed.
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

/// Whether pages may be loaded: reads of the data disk in a second, if any.
pub fn io_capacity() -> Option<u64> {
    let capacity = KNOWN
        .warm_io_capacity
        .load(std::sync::atomic::Ordering::SeqCst);
    (capacity > 0).then_some(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_arguments_are_answered() {
        let heads = Heads::new();
        for unknown in [
            "hea",
            "heat:",
            "heat:1",
            "heat:1:x",
            "heat:-1:0",
            "heats",
            "heat:1:2:3",
        ] {
            assert_eq!(heads.answer(unknown), None, "{unknown}");
        }
        let _turn = crate::process::UNDER_TEST.lock();
        let error = heads
            .answer("heat")
            .map(|answer| answer["error"].to_string());
        assert!(error.is_some_and(|error| error.contains("disabled")));
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
