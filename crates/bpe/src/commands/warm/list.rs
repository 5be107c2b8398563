//! A heat list in the command: the parts of one server's answers, which another server accepts unchanged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use interface::heat::{Decoder, MAX_BYTES, is_listed, pieces};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fingerprints::{self, Compared, Sample, Secret, misunderstood};
use crate::commands::walk::Walk;
use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Upper limits for any server's list and file: 8 and 4 TiB in pages of 16 KiB.
const MAX_PAGES: u64 = 1 << 29;
const MAX_FILE_PAGES: u32 = 1 << 28;
/// Maximum memory of a list in bytes.
const MAX_MEMORY: u64 = 1 << 30;
/// Maximum number and time of the answers with a list. Each has up to 48 KiB of it, or took the server 0.2 s.
const MAX_ANSWERS: u32 = 1 << 16;
const FETCH_TIMEOUT: Duration = Duration::from_secs(3600);
/// Size limit of a part of a list in bytes, because it becomes a statement.
const PART_BYTES: usize = 16 << 10;
/// Maximum number of files in a part.
pub const PART_FILES: usize = 200;
/// Bytes that InnoDB allocates at the end of a file in advance.
const SPARE: u64 = 4 << 20;
/// Share of a table's pages that must be cached for all of them to be loaded by its name.
const WHOLE: f64 = 0.8;
/// Number of files whose pages are compared.
const SAMPLED: usize = 64;

/// A table's name in SQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub schema: String,
    pub table: String,
    pub partition: Option<String>,
}

/// Cached pages of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub file: String,
    #[serde(flatten)]
    pub table: Option<Table>,
    /// Bytes.
    pub page_size: u32,
    /// Length of the file in pages.
    pub pages: u32,
    /// Its tablespace number.
    pub space: Option<u32>,
    pub from: u32,
    /// Number of listed pages.
    pub count: u32,
    /// The pages and their heat, in base64.
    pub list: String,
}

/// Cached pages of a server.
#[derive(Clone, Debug)]
pub struct List {
    pub pieces: Vec<Piece>,
    /// Memory of the pieces that came from outside, in bytes.
    memory: u64,
    /// Number of pages in the extension's cache; all others are only in InnoDB's pool.
    pub cached: u64,
    pub taken: Instant,
    /// Number of queries for the list.
    pub queries: u64,
    /// Fingerprints of some pages of the largest files.
    pub samples: Vec<Sample>,
    /// Keys the fingerprints. `None`: there are none.
    pub secret: Option<Secret>,
}

impl Piece {
    /// A copy of the piece with these pages, which must be in ascending order.
    pub fn with(&self, hot: impl IntoIterator<Item = (u32, u8)>) -> Vec<Piece> {
        let pieces = pieces(hot).into_iter();
        let piece = |(from, bytes): (u32, Vec<u8>)| Piece {
            from,
            count: Decoder::new(&bytes, from).count() as u32,
            list: BASE64.encode(bytes),
            ..self.clone()
        };
        pieces.map(piece).collect()
    }

    /// Whether the list has as many pages as it claims.
    fn is_sound(&self) -> bool {
        is_listed(&self.file)
            && self.list.len() <= MAX_BYTES * 4 / 3 + 4
            && hot(&[self]).is_some_and(|hot| hot.len() as u64 == u64::from(self.count))
    }

    /// Bytes of memory.
    fn memory(&self) -> u64 {
        let of_table = |table: &Table| {
            let partition = table.partition.as_ref().map_or(0, String::len);
            table.schema.len() + table.table.len() + partition
        };
        let texts = self.file.len() + self.list.len() + self.table.as_ref().map_or(0, of_table);
        (size_of::<Self>() + texts) as u64
    }

    /// A file of the table `d.t` in pages of 16 KiB.
    #[cfg(test)]
    pub fn of_table(file: &str, pages: u32) -> Piece {
        Piece {
            table: Some(Table {
                schema: "d".into(),
                table: "t".into(),
                partition: None,
            }),
            page_size: 16384,
            pages,
            space: Some(7),
            ..Piece::empty(file.to_owned())
        }
    }

    pub fn empty(file: String) -> Piece {
        Piece {
            file,
            table: None,
            page_size: 0,
            pages: 0,
            space: None,
            from: 0,
            count: 0,
            list: String::new(),
        }
    }
}

impl List {
    pub fn empty() -> List {
        List {
            pieces: Vec::new(),
            memory: 0,
            cached: 0,
            taken: Instant::now(),
            queries: 0,
            samples: Vec::new(),
            secret: None,
        }
    }

    /// Reads the list of cached pages from a server. `progress` gets the number of pages so far.
    ///
    /// # Errors
    /// The server lacks the report, the extension is off, the connection was lost, or the account lacks a privilege.
    pub fn fetch(server: &mut Server, mut progress: impl FnMut(u64)) -> Result<List, Failure> {
        let mut list = List::empty();
        let mut argument = "heat".to_owned();
        let mut walk = Walk::new(MAX_ANSWERS);
        loop {
            let answer = report::ask(server, &argument, "has no heat list")
                .map_err(|failure| server.without_answer(failure))?;
            list.queries += 1;
            if let Some(why) = answer["error"].as_str() {
                return Err(Failure::refused(format!("it has no heat list: {why}"))
                    .advise("switch the extension on there with SET GLOBAL bpe_enabled = ON, and let it fill"));
            }
            list.add(&answer["files"]).ok_or_else(misunderstood)?;
            list.cached = list.pages();
            progress(list.cached);
            let next = match &answer["next"] {
                Value::Null => return Ok(list),
                next => next.as_str().filter(|next| goes_on(&mut walk, next)),
            };
            let next = next.filter(|_| list.age() < FETCH_TIMEOUT);
            next.ok_or_else(misunderstood)?.clone_into(&mut argument);
        }
    }

    /// Adds fingerprints of the largest files, except those with a known comparison.
    ///
    /// # Errors
    /// As [`fingerprints::fetch`].
    pub fn fetch_prints(&mut self, server: &mut Server, known: &Compared) -> Result<(), Failure> {
        let mut largest: Vec<Vec<&Piece>> = self.files().into_values().collect();
        largest.sort_by_key(|pieces| std::cmp::Reverse(count(pieces)));
        let mut samples = Vec::new();
        for pieces in largest.into_iter().take(SAMPLED) {
            let (file, space) = (pieces[0].file.clone(), pieces[0].space);
            if !known.contains_key(&(file.clone(), space)) {
                let hot = hot(&pieces).ok_or_else(misunderstood)?;
                samples.push(Sample {
                    file,
                    space,
                    pages: fingerprints::spread(&hot),
                    prints: Vec::new(),
                });
            }
        }
        samples.retain(|sample| !sample.pages.is_empty());
        if samples.is_empty() {
            return Ok(());
        }
        let secret = Secret::new()?;
        let asked: Vec<&Sample> = samples.iter().collect();
        let prints = fingerprints::fetch(server, &secret, &asked)?;
        self.queries += 1;
        for (sample, prints) in samples.iter_mut().zip(prints) {
            sample.prints = prints;
        }
        (self.samples, self.secret) = (samples, Some(secret));
        Ok(())
    }

    /// Adds pieces of files; `None` if they are malformed.
    pub fn add(&mut self, files: &Value) -> Option<()> {
        let pieces = Vec::<Piece>::deserialize(files).ok()?;
        let memory: u64 = pieces.iter().map(Piece::memory).sum();
        self.memory += memory;
        if self.memory > MAX_MEMORY || !pieces.iter().all(Piece::is_sound) {
            return None;
        }
        self.pieces.extend(pieces);
        (self.pages() <= MAX_PAGES).then_some(())
    }

    /// The pieces of each file.
    pub fn files(&self) -> BTreeMap<&str, Vec<&Piece>> {
        let mut files: BTreeMap<&str, Vec<&Piece>> = BTreeMap::new();
        for piece in &self.pieces {
            files.entry(&piece.file).or_default().push(piece);
        }
        files
    }

    /// The list as arguments of `warm-put`.
    pub fn parts(&self) -> Vec<String> {
        let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (n, piece) in self.pieces.iter().enumerate() {
            bytes += piece.list.len() + piece.file.len() + 200;
            part.push(piece);
            let is_last = n + 1 == self.pieces.len();
            if is_last || bytes > PART_BYTES || part.len() >= PART_FILES {
                let part = std::mem::take(&mut part);
                parts.push(json!({ "first": parts.is_empty(), "files": part }).to_string());
                bytes = 0;
            }
        }
        parts
    }

    /// The list for a server with the same tables in other pages: all pages of the tables that are cached nearly
    /// completely. `there`: page size and length in pages of each file on that server. `None` if these are too many pages.
    pub fn by_name(&self, there: &BTreeMap<String, (u32, u32)>) -> Option<List> {
        let mut list = List::empty();
        list.taken = self.taken;
        let mut all = Vec::new();
        for (name, pieces) in self.files() {
            let (file, cached) = (pieces[0], count(&pieces));
            let Some(&(page_size, pages)) = there.get(name) else {
                continue;
            };
            let ahead = SPARE / u64::from(file.page_size.max(1));
            let used = u64::from(file.pages).saturating_sub(ahead) as f64;
            if (cached as f64) < used * WHOLE || cached < 4 || pages > MAX_FILE_PAGES {
                continue;
            }
            all.push((name, pieces, page_size, pages));
        }
        // The other server names the lengths, for which memory is taken.
        if all.iter().map(|file| u64::from(file.3)).sum::<u64>() > MAX_PAGES {
            return None;
        }
        for (name, pieces, page_size, pages) in all {
            let hot = hot(&pieces)?;
            let sum: usize = hot.iter().map(|(_, heat)| usize::from(*heat)).sum();
            let heat = (sum / hot.len().max(1)) as u8;
            let whole = Piece {
                page_size,
                pages,
                ..Piece::empty(name.to_owned())
            };
            list.pieces
                .extend(whole.with((0..pages).map(|page| (page, heat))));
        }
        Some(list)
    }

    pub fn pages(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.count)).sum()
    }

    pub fn bytes(&self) -> u64 {
        let bytes = |piece: &Piece| u64::from(piece.count) * u64::from(piece.page_size);
        self.pieces.iter().map(bytes).fold(0, u64::saturating_add)
    }

    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }
}

fn count(pieces: &[&Piece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.count)).sum()
}

/// Pages and heat of these pieces; `None` if they are malformed, or more than a file has.
pub fn hot(pieces: &[&Piece]) -> Option<Vec<(u32, u8)>> {
    if count(pieces) > MAX_FILE_PAGES.into() {
        return None;
    }
    let mut hot = Vec::new();
    for piece in pieces {
        let bytes = BASE64.decode(&piece.list).ok()?;
        for entry in Decoder::new(&bytes, piece.from) {
            hot.push(entry.ok()?);
        }
    }
    Some(hot)
}

/// Whether this is a request that continues the walk: `heat:FILE:PAGE`. It becomes part of the next statement.
fn goes_on(walk: &mut Walk, next: &str) -> bool {
    let place = next.strip_prefix("heat:");
    let place = place.and_then(|place| place.split_once(':'));
    place.is_some_and(|(file, page)| walk.goes_on(file, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, hot: &[(u32, u8)]) -> Value {
        json!(Piece::of_table(name, 100_000).with(hot.iter().copied()))
    }

    #[test]
    fn answers_add_up_to_a_list() {
        let mut list = List::empty();
        assert!(list.add(&answer("d/t.ibd", &[(3, 1), (4, 9)])).is_some());
        assert!(list.add(&answer("d/t.ibd", &[(70, 1)])).is_some());
        let files = list.files();
        assert_eq!(hot(&files["d/t.ibd"]).unwrap(), [(3, 1), (4, 9), (70, 1)]);
        assert_eq!((list.pages(), list.bytes()), (3, 3 * 16384));
        let table = list.pieces[0].table.as_ref();
        assert_eq!(table.map(|table| &*table.schema), Some("d"));
        let mut without = answer("d/u.ibd", &[(3, 1)]);
        without[0]["schema"] = Value::Null;
        assert!(list.add(&without).is_some());
        assert_eq!(list.files()["d/u.ibd"][0].table, None);
    }

    #[test]
    fn malformed_answer_is_refused() {
        let good = answer("d/t.ibd", &[(3, 1)]);
        for (member, value) in [
            ("file", json!("../t.ibd")),
            ("file", json!("d/t';x.ibd")),
            ("page_size", json!(-1)),
            ("pages", json!(1u64 << 40)),
            ("from", json!(null)),
            ("count", json!("many")),
            ("count", json!(2)),
            ("count", json!(0)),
            ("list", json!(7)),
            ("list", json!("A".repeat(1 << 20))),
        ] {
            let mut wrong = good.clone();
            wrong[0][member] = value.clone();
            assert_eq!(List::empty().add(&wrong), None, "{member}");
        }
        assert_eq!(List::empty().add(&json!({})), None);
        for malformed in ["A", "////////////"] {
            let mut list = List::empty();
            list.add(&good).unwrap();
            list.pieces[0].list = malformed.into();
            assert_eq!(hot(&[&list.pieces[0]]), None, "{malformed}");
        }
        for wrong in ["heat:1:2'", "verify 1", "heat:1 2", &"heat:".repeat(40)] {
            assert!(!goes_on(&mut Walk::new(9), wrong), "{wrong}");
        }
        assert!(goes_on(&mut Walk::new(9), "heat:12:4096"));
    }

    #[test]
    fn parts_fit_into_statements_and_are_complete() {
        let mut list = List::empty();
        let hot: Vec<(u32, u8)> = (0..200_000).map(|n| (n * 9, (n % 16) as u8)).collect();
        list.add(&answer("d/t.ibd", &hot)).unwrap();
        for n in 0..300 {
            list.add(&answer(&format!("d/t{n}.ibd"), &[(n, 1)]));
        }
        assert_eq!(list.pages(), 200_300);
        let parts = list.parts();
        let mut again = List::empty();
        for (n, part) in parts.iter().enumerate() {
            assert!(part.len() < 64 << 10, "{}", part.len());
            let part: Value = serde_json::from_str(part).unwrap();
            assert_eq!(part["first"], n == 0);
            again.add(&part["files"]).unwrap();
        }
        assert_eq!(again.pieces, list.pieces);
        assert!(parts.len() > 2 && List::empty().parts().is_empty());
    }

    #[test]
    fn endless_list_ends() {
        use crate::connect::rogue;
        let piece = Piece::of_table("d/t.ibd", 100).with([(3, 1)]);
        let answer = json!({ "files": piece, "next": "heat:1:64" }).to_string();
        let mut case = rogue::Case::harmless();
        let harmless = case.answer.clone();
        case.answer = std::sync::Arc::new(move |statement: &str| match statement {
            _ if statement.contains("bpe_report") => rogue::rows(1, &[&[&answer]]),
            _ => harmless(statement),
        });
        let (_folder, args) = case.start();
        let mut server = Server::connect(&args).unwrap();
        let failure = List::fetch(&mut server, |_| {}).map(drop).unwrap_err();
        assert!(failure.what.contains("cannot be understood"), "{failure}");
    }

    #[test]
    fn tables_by_name_have_a_bound() {
        let mut list = List::empty();
        let hot: Vec<_> = (0..9).map(|page| (page, 4)).collect();
        for name in ["d/t.ibd", "d/u.ibd", "d/v.ibd"] {
            let mut file = answer(name, &hot);
            file[0]["pages"] = json!(9);
            list.add(&file).unwrap();
        }
        let there = ["d/t.ibd", "d/u.ibd", "d/v.ibd"];
        let of = |pages: u32| there.map(|name| (name.to_owned(), (16384, pages)));
        assert!(list.by_name(&of(9).into()).is_some());
        assert!(list.by_name(&of(MAX_FILE_PAGES).into()).is_none());
        list.memory = MAX_MEMORY;
        assert_eq!(list.add(&answer("d/w.ibd", &hot)), None);
    }

    #[test]
    fn whole_tables_go_by_name() {
        let mut list = List::empty();
        let hot: Vec<_> = (0..90).map(|page| (page, 4)).collect();
        let mut whole = answer("d/t.ibd", &hot);
        whole[0]["pages"] = json!(350);
        let mut part = answer("d/u.ibd", &[(3, 9)]);
        part[0]["pages"] = json!(1000);
        assert!(list.add(&whole).is_some() && list.add(&part).is_some());
        let there = ["d/t.ibd", "d/u.ibd"].map(|name| (name.to_owned(), (8192, 150)));
        let by_name = list.by_name(&there.into()).unwrap();
        assert_eq!(by_name.pages(), 150);
        let file = &by_name.pieces[0];
        let pages = super::hot(&[file]).unwrap();
        assert_eq!((file.page_size, pages[149]), (8192, (149, 4)));
        assert_eq!((&*file.file, file.space), ("d/t.ibd", None));
    }
}
