//! A heat list as the command holds it: which pages of which files a server has cached, and how hot each is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use interface::heat::{Decoder, LEVELS, is_listed, pieces};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prints::{self, Compared, Sample, Secret, misunderstood};
use crate::failure::Failure;
use crate::report;
use crate::server::Server;

/// No server has a longer list.
const MAX_PAGES: u64 = 1 << 32;
/// Pages that fit into the memory that a server keeps for a list (64 MiB), at two bytes a page and some for each part.
const MAX_PUT: u64 = 28 << 20;
/// Bytes after which a part of a list ends: it goes into a statement.
const PART_BYTES: usize = 16 << 10;
/// Files that a part names at most.
pub const PART_FILES: usize = 200;
/// Bytes by which InnoDB makes a file longer than it needs.
const SPARE: u64 = 4 << 20;
/// Share of a table's pages that must be cached for all of them to be loaded by its name.
const WHOLE: f64 = 0.8;
/// Files of which pages are compared.
const SAMPLED: usize = 64;

/// A table, as SQL names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub schema: String,
    pub table: String,
    pub partition: Option<String>,
}

/// Pages of a file, as servers write and read them.
#[derive(Serialize, Deserialize)]
pub struct Piece {
    file: String,
    #[serde(flatten)]
    table: Option<Table>,
    page_size: u32,
    pages: u32,
    space: Option<u32>,
    flags: Option<u32>,
    from: u32,
    list: String,
}

/// A file of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub table: Option<Table>,
    /// Bytes.
    pub page_size: u32,
    /// Length of the file.
    pub pages: u32,
    pub space: Option<u32>,
    pub flags: Option<u32>,
    /// Cached pages in ascending order, and their heat.
    pub hot: Vec<(u32, u8)>,
}

/// What a server has cached.
#[derive(Clone, Debug)]
pub struct List {
    pub files: BTreeMap<String, File>,
    /// Pages that the extension has cached; the others are in InnoDB's pool alone.
    pub cached: u64,
    pub taken: Instant,
    /// Queries that it took.
    pub queries: u64,
    /// Fingerprints of some pages of the largest files.
    pub samples: Vec<Sample>,
    /// Keys the fingerprints. `None`: there are none.
    pub secret: Option<Secret>,
}

impl List {
    pub fn empty() -> List {
        List {
            files: BTreeMap::new(),
            cached: 0,
            taken: Instant::now(),
            queries: 0,
            samples: Vec::new(),
            secret: None,
        }
    }

    /// Asks a server for the pages that it has cached. `progress` gets the number of pages so far.
    ///
    /// # Errors
    /// The server has no such report, is off, or went away. The account lacks a right.
    pub fn fetch(server: &mut Server, mut progress: impl FnMut(u64)) -> Result<List, Failure> {
        let mut list = List::empty();
        let mut argument = "heat".to_owned();
        loop {
            let answer = report::ask(server, &argument, "has no heat list")
                .map_err(|failure| server.without_answer(failure))?;
            list.queries += 1;
            if let Some(why) = answer["error"].as_str() {
                return Err(Failure::refused(format!("it has no heat list: {why}"))
                    .advise("switch the extension on there with SET GLOBAL bpe_enabled = ON, and let it fill"));
            }
            list.cached += list.add(&answer["files"]).ok_or_else(misunderstood)?;
            progress(list.cached);
            let next = match &answer["next"] {
                Value::Null => break,
                next => next.as_str().filter(|next| is_cursor(next)),
            };
            next.ok_or_else(misunderstood)?.clone_into(&mut argument);
        }
        list.cached = list.pages();
        Ok(list)
    }

    /// Adds fingerprints of the largest files, except those that were compared before.
    ///
    /// # Errors
    /// As [`prints::fetch`].
    pub fn fetch_prints(&mut self, server: &mut Server, known: &Compared) -> Result<(), Failure> {
        let mut largest: Vec<(&String, &File)> = self.files.iter().collect();
        largest.sort_by_key(|(_, file)| std::cmp::Reverse(file.hot.len()));
        let largest = largest.into_iter().take(SAMPLED);
        let mut samples: Vec<Sample> = largest
            .filter(|(name, file)| !known.contains_key(&((*name).clone(), file.space)))
            .map(|(name, file)| Sample {
                file: name.clone(),
                space: file.space,
                pages: prints::spread(&file.hot),
                prints: Vec::new(),
            })
            .collect();
        samples.retain(|sample| !sample.pages.is_empty());
        if samples.is_empty() {
            return Ok(());
        }
        let secret = Secret::new()?;
        let asked: Vec<&Sample> = samples.iter().collect();
        let prints = prints::fetch(server, &secret, &asked)?;
        self.queries += 1;
        for (sample, prints) in samples.iter_mut().zip(prints) {
            sample.prints = prints;
        }
        (self.samples, self.secret) = (samples, Some(secret));
        Ok(())
    }

    /// Adds pieces of files. Returns the number of pages; `None` if they are malformed.
    pub fn add(&mut self, files: &Value) -> Option<u64> {
        let mut pages = 0;
        for one in Vec::<Piece>::deserialize(files).ok()? {
            if !is_listed(&one.file) {
                return None;
            }
            let bytes = BASE64.decode(&one.list).ok()?;
            let file = self.files.entry(one.file).or_default();
            let mut hot = std::mem::take(&mut file.hot);
            // The file may be a newer one of this name.
            hot.truncate(hot.partition_point(|&(page, _)| page < one.from));
            for entry in Decoder::new(&bytes, one.from) {
                hot.push(entry.ok()?);
                pages += 1;
            }
            *file = File {
                table: one.table.or(file.table.take()),
                page_size: one.page_size,
                pages: one.pages,
                space: one.space,
                flags: one.flags,
                hot,
            };
        }
        (self.pages() <= MAX_PAGES).then_some(pages)
    }

    /// The pieces of its files: so many pages at most, the hottest.
    pub fn pieces(&self, mut limit: u64) -> Vec<Piece> {
        let mut left = [0u64; LEVELS];
        for (_, heat) in self.files.values().flat_map(|file| &file.hot) {
            left[usize::from(*heat) % LEVELS] += 1;
        }
        for pages in left.iter_mut().rev() {
            *pages = limit.min(*pages);
            limit -= *pages;
        }
        let mut all = Vec::new();
        for (name, file) in &self.files {
            let hot = file.hot.iter().copied().filter(|(_, heat)| {
                let left = &mut left[usize::from(*heat) % LEVELS];
                let less = left.checked_sub(1);
                *left = less.unwrap_or(0);
                less.is_some()
            });
            all.extend(pieces(hot).into_iter().map(|(from, bytes)| Piece {
                file: name.clone(),
                table: file.table.clone(),
                page_size: file.page_size,
                pages: file.pages,
                space: file.space,
                flags: file.flags,
                from,
                list: BASE64.encode(bytes),
            }));
        }
        all
    }

    /// The list as arguments of `warm-put`: the hottest pages that a server takes.
    pub fn parts(&self) -> Vec<String> {
        let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut end = |part: &mut Vec<Piece>| {
            let files = std::mem::take(part);
            parts.push(json!({ "first": parts.is_empty(), "files": files }).to_string());
        };
        for piece in self.pieces(MAX_PUT) {
            bytes += piece.list.len() + piece.file.len() + 200;
            part.push(piece);
            if bytes > PART_BYTES || part.len() >= PART_FILES {
                end(&mut part);
                bytes = 0;
            }
        }
        if !part.is_empty() {
            end(&mut part);
        }
        parts
    }

    /// The list for a server that has the same tables in other pages: all pages of the tables that are cached nearly whole. `there`: the
    /// page size of each file on that server, and its length in pages.
    pub fn by_name(&self, there: &BTreeMap<String, (u32, u32)>) -> List {
        let mut list = List::empty();
        list.taken = self.taken;
        for (name, file) in &self.files {
            let Some(&(page_size, pages)) = there.get(name) else {
                continue;
            };
            let ahead = SPARE / u64::from(file.page_size.max(1));
            let used = u64::from(file.pages).saturating_sub(ahead) as f64;
            if (file.hot.len() as f64) < used * WHOLE || file.hot.len() < 4 {
                continue;
            }
            let sum: u64 = file.hot.iter().map(|(_, heat)| u64::from(*heat)).sum();
            let heat = (sum / file.hot.len().max(1) as u64) as u8;
            let whole = File {
                page_size,
                pages,
                hot: (0..pages).map(|page| (page, heat)).collect(),
                ..File::default()
            };
            list.files.insert(name.clone(), whole);
        }
        list
    }

    pub fn pages(&self) -> u64 {
        self.files.values().map(|file| file.hot.len() as u64).sum()
    }

    pub fn bytes(&self) -> u64 {
        let files = self.files.values();
        files
            .map(|file| file.hot.len() as u64 * u64::from(file.page_size))
            .sum()
    }

    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }
}

/// It goes into the next statement.
fn is_cursor(next: &str) -> bool {
    next.len() < 64
        && next.starts_with("heat:")
        && next.bytes().all(|b| b.is_ascii_alphanumeric() || b == b':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use interface::heat::Encoder;

    fn answer(name: &str, from: u32, hot: &[(u32, u8)]) -> Value {
        let mut list = Encoder::new(from);
        hot.iter()
            .for_each(|&(page, heat)| assert!(list.push(page, heat)));
        json!([{
            "file": name, "schema": "d", "table": "t", "partition": null, "page_size": 16384, "pages": 100_000, "space": 7,
            "flags": 21, "from": from, "count": 1, "list": BASE64.encode(list.bytes())
        }])
    }

    #[test]
    fn answers_add_up_to_a_list() {
        let mut list = List::empty();
        assert_eq!(list.add(&answer("d/t.ibd", 0, &[(3, 1), (4, 9)])), Some(2));
        assert_eq!(list.add(&answer("d/t.ibd", 64, &[(70, 1)])), Some(1));
        assert_eq!(list.files["d/t.ibd"].hot, [(3, 1), (4, 9), (70, 1)]);
        assert_eq!((list.pages(), list.bytes()), (3, 3 * 16384));
        // A newer file of this name.
        assert_eq!(list.add(&answer("d/t.ibd", 4, &[(5, 2)])), Some(1));
        assert_eq!(list.files["d/t.ibd"].hot, [(3, 1), (5, 2)]);
        let table = list.files["d/t.ibd"].table.as_ref();
        assert_eq!(table.map(|table| &*table.schema), Some("d"));
        let mut without = answer("d/u.ibd", 0, &[(3, 1)]);
        without[0]["schema"] = Value::Null;
        assert_eq!(list.add(&without), Some(1));
        assert_eq!(list.files["d/u.ibd"].table, None);
    }

    #[test]
    fn malformed_answer_is_refused() {
        let good = answer("d/t.ibd", 0, &[(3, 1)]);
        for (member, value) in [
            ("file", json!("../t.ibd")),
            ("file", json!("d/t';x.ibd")),
            ("page_size", json!(-1)),
            ("pages", json!(1u64 << 40)),
            ("from", json!(null)),
            ("list", json!("A")),
            ("list", json!("////////////")),
        ] {
            let mut wrong = good.clone();
            wrong[0][member] = value.clone();
            assert_eq!(List::empty().add(&wrong), None, "{member} {value}");
        }
        assert_eq!(List::empty().add(&json!({})), None);
        for wrong in ["heat:1:2'", "verify 1", "heat:1 2", &"heat:".repeat(40)] {
            assert!(!is_cursor(wrong), "{wrong}");
        }
        assert!(is_cursor("heat:12:4096"));
    }

    #[test]
    fn parts_fit_into_statements_and_are_complete() {
        let mut list = List::empty();
        let hot: Vec<(u32, u8)> = (0..200_000).map(|n| (n * 9, (n % 16) as u8)).collect();
        list.add(&answer("d/t.ibd", 0, &hot)).unwrap();
        for n in 0..300 {
            list.add(&answer(&format!("d/t{n}.ibd"), 0, &[(n, 1)]));
        }
        let parts = list.parts();
        let mut again = List::empty();
        for (n, part) in parts.iter().enumerate() {
            assert!(part.len() < 64 << 10, "{}", part.len());
            let part: Value = serde_json::from_str(part).unwrap();
            assert_eq!(part["first"], n == 0);
            again.add(&part["files"]).unwrap();
        }
        assert_eq!(again.files, list.files);
        assert!(parts.len() > 2 && List::empty().parts().is_empty());
        // The hottest levels, and as much of the next as fits.
        let mut hottest = List::empty();
        let limited = json!(list.pieces(30_000));
        assert_eq!(hottest.add(&limited), Some(30_000));
        let heats = hottest.files["d/t.ibd"].hot.iter().map(|(_, heat)| *heat);
        let count = |level| heats.clone().filter(|heat| *heat == level).count();
        assert_eq!([15, 14, 13, 12].map(count), [12_500, 12_500, 5_000, 0]);
    }

    #[test]
    fn whole_tables_go_by_name() {
        let mut list = List::empty();
        let hot: Vec<_> = (0..90).map(|page| (page, 4)).collect();
        let mut whole = answer("d/t.ibd", 0, &hot);
        whole[0]["pages"] = json!(350);
        let mut part = answer("d/u.ibd", 0, &[(3, 9)]);
        part[0]["pages"] = json!(1000);
        assert!(list.add(&whole).is_some() && list.add(&part).is_some());
        let there = ["d/t.ibd", "d/u.ibd"].map(|name| (name.to_owned(), (8192, 150)));
        let by_name = list.by_name(&there.into());
        assert_eq!(by_name.pages(), 150);
        let file = &by_name.files["d/t.ibd"];
        assert_eq!((file.page_size, file.hot[149]), (8192, (149, 4)));
    }
}
