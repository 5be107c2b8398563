//! A heat list in the server's memory: encoded, about one byte a page, at most [`MAX_MEMORY`].

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cache::is_page_length;
use interface::heat::{CLASSES, Decoder, LEVELS, MAX_BYTES, classes, is_listed, pieces};
use serde::Deserialize;

/// Memory limit of a list, bytes: a cache of 2 TiB in pages of 16 KiB.
pub const MAX_MEMORY: usize = 256 << 20;
/// Memory of a piece besides its bytes, and of a file besides its name.
const OVERHEAD: usize = 160;
/// Inverse of the cache's share that is left to the server's own pages.
const OWN_SHARE: u64 = 32;
/// Maximum number of files in one part.
const MAX_FILES: usize = 1024;

/// The argument of `warm-put`: an answer of `heat`. Other members are ignored.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    first: bool,
    files: Vec<Given>,
}

/// A file of a part. Without `list`, only its properties are requested.
#[derive(Deserialize)]
struct Given {
    file: String,
    #[serde(default)]
    page_size: u32,
    space: Option<u32>,
    #[serde(default)]
    from: u32,
    list: Option<String>,
}

/// Pages of a file in ascending order, and their heat.
#[derive(Debug)]
pub struct Piece {
    from: u32,
    bytes: Box<[u8]>,
    /// Pages of each level of heat.
    counts: [u32; LEVELS],
}

/// A file of the list.
#[derive(Clone, Debug, Default)]
pub struct ListedFile {
    /// Bytes.
    pub page_size: u32,
    /// Tablespace number, if it has to match this server's.
    pub space: Option<u32>,
    pub pieces: Vec<Arc<Piece>>,
}

/// Pages to load.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub files: BTreeMap<Arc<str>, ListedFile>,
    memory: usize,
    /// The class of each level of heat: see [`rank`](Self::rank).
    pub classes: [u8; LEVELS],
    /// Number of its pages, and of the listed pages of each class.
    pub pages: u64,
    pub listed: [u64; CLASSES],
    /// The first class whose pages are not all listed.
    pub cut: u8,
}

impl Piece {
    fn new(from: u32, bytes: Vec<u8>) -> Option<Piece> {
        let mut counts = [0; LEVELS];
        for entry in Decoder::new(&bytes, from) {
            counts[usize::from(entry.ok()?.1)] += 1;
        }
        Some(Piece {
            from,
            bytes: bytes.into_boxed_slice(),
            counts,
        })
    }

    /// Its pages and their heat.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u8)> {
        Decoder::new(&self.bytes, self.from).map_while(Result::ok)
    }
}

impl Given {
    fn piece(&self) -> Result<Option<Piece>, String> {
        if !is_listed(&self.file) {
            return Err("the list has an invalid file name".into());
        }
        let Some(list) = &self.list else {
            return Ok(None);
        };
        if !is_page_length(self.page_size as usize) {
            return Err(format!("{} is not a page size", self.page_size));
        }
        if list.len() > MAX_BYTES * 4 / 3 + 4 {
            return Err("the list of pages of a file is too long".into());
        }
        let bytes = BASE64.decode(list).ok();
        let piece = bytes.and_then(|bytes| Piece::new(self.from, bytes));
        piece.map(Some).ok_or("a list of pages is malformed".into())
    }
}

impl List {
    pub const fn new() -> List {
        List {
            files: BTreeMap::new(),
            memory: 0,
            classes: [0; LEVELS],
            pages: 0,
            listed: [0; CLASSES],
            cut: 0,
        }
    }

    /// Adds a part, or nothing if it is malformed. The first part replaces the list. Returns the names of its files.
    ///
    /// # Errors
    /// The part is malformed, or the list has no room for all of it.
    pub fn put(&mut self, part: &str) -> Result<Vec<String>, String> {
        let part: Part = serde_json::from_str(part)
            .map_err(|error| format!("the list is malformed: {error}"))?;
        if part.files.len() > MAX_FILES {
            return Err(format!("a part of a list has at most {MAX_FILES} files"));
        }
        let pieces: Result<Vec<_>, String> = part.files.iter().map(Given::piece).collect();
        let pieces = pieces?;
        if part.first {
            *self = List::new();
        }
        let mut names = Vec::new();
        for (given, piece) in part.files.into_iter().zip(pieces) {
            if let Some(piece) = piece {
                self.put_piece(&given.file, given.page_size, given.space, piece)?;
            }
            names.push(given.file);
        }
        Ok(names)
    }

    /// Adds pages of a file, in ascending order with their heat.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub fn add(&mut self, name: &str, page_size: u32, pages: &[(u32, u8)]) -> Result<(), String> {
        for (from, bytes) in pieces(pages.iter().copied()) {
            if let Some(piece) = Piece::new(from, bytes) {
                self.put_piece(name, page_size, None, piece)?;
            }
        }
        Ok(())
    }

    fn put_piece(
        &mut self,
        name: &str,
        page_size: u32,
        space: Option<u32>,
        piece: Piece,
    ) -> Result<(), String> {
        let memory = self.memory + name.len() + piece.bytes.len() + 2 * OVERHEAD;
        if memory > MAX_MEMORY {
            return Err(format!(
                "the list takes more than {} MiB of memory",
                MAX_MEMORY >> 20
            ));
        }
        self.memory = memory;
        let file = self.files.entry(name.into()).or_default();
        (file.page_size, file.space) = (page_size, space);
        file.pieces.push(Arc::new(piece));
        Ok(())
    }

    /// Assigns classes to the levels of heat, and lists the hottest pages that fit. `capacity`: bytes of the cache.
    pub fn rank(&mut self, capacity: u64) {
        let (mut levels, mut bytes) = ([0; LEVELS], 0);
        for file in self.files.values() {
            for (level, count) in file
                .pieces
                .iter()
                .flat_map(|piece| piece.counts.iter().enumerate())
            {
                levels[level] += u64::from(*count);
                bytes += u64::from(*count) * u64::from(file.page_size);
            }
        }
        self.pages = levels.iter().sum();
        let page_size: u64 = bytes.checked_div(self.pages).unwrap_or(0);
        let fits = capacity / page_size.max(1024);
        let mut room = fits - fits / OWN_SHARE;
        self.classes = classes(levels);
        let mut listed = [0; CLASSES];
        for (class, pages) in self.classes.iter().zip(levels) {
            listed[usize::from(*class)] += pages;
        }
        self.listed = listed.map(|pages| {
            let fit = pages.min(room);
            room -= fit;
            fit
        });
        let whole = self
            .listed
            .iter()
            .zip(listed)
            .take_while(|(fit, all)| *fit == all);
        self.cut = whole.count() as u8;
    }

    /// Whether a piece has pages of a listed class.
    pub fn has(&self, piece: &Piece, class: u8) -> bool {
        let mut counts = self.classes.iter().zip(piece.counts);
        self.listed[usize::from(class)] > 0 && counts.any(|(of, count)| *of == class && count > 0)
    }

    /// Keeps these files only.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Arc<str>, &ListedFile) -> bool) {
        self.files.retain(|name, listed| is_wanted(name, listed));
        let pieces = self.files.iter().flat_map(|(name, listed)| {
            let memory = |piece: &Arc<Piece>| name.len() + piece.bytes.len() + 2 * OVERHEAD;
            listed.pieces.iter().map(memory)
        });
        self.memory = pieces.sum();
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interface::heat::Encoder;
    use serde_json::json;

    fn encoded(from: u32, pages: &[(u32, u8)]) -> String {
        let mut list = Encoder::new(from);
        pages
            .iter()
            .for_each(|&(page, heat)| assert!(list.push(page, heat)));
        BASE64.encode(list.bytes())
    }

    fn put(list: &mut List, file: &str, from: u32, pages: &[(u32, u8)]) -> Result<(), String> {
        let files = json!([{ "file": file, "page_size": 16384, "from": from, "list": encoded(from, pages), "pages": 9 }]);
        let names = list.put(&json!({ "files": files, "next": null }).to_string())?;
        assert_eq!(names, [file]);
        Ok(())
    }

    #[test]
    fn parts_add_up_to_a_list() {
        let mut list = List::new();
        put(&mut list, "d/t.ibd", 0, &[(3, 15), (4, 1), (90, 3)]).unwrap();
        put(&mut list, "d/t.ibd", 128, &[(128, 2)]).unwrap();
        let pieces = list.files["d/t.ibd"].pieces.iter();
        let pages: Vec<_> = pieces.flat_map(|piece| piece.pages()).collect();
        assert_eq!(pages, [(3, 15), (4, 1), (90, 3), (128, 2)]);
        let before = list.memory();
        list.add("d/u.ibd", 4096, &[(5, 1), (9, 2)]).unwrap();
        assert!(list.files.len() == 2 && list.memory() > before);
        list.retain(|name, _| &**name == "d/t.ibd");
        assert!(list.files.len() == 1 && list.memory() == before);
        let first = list.put(r#"{"first": true, "files": [{"file": "d/t.ibd"}]}"#);
        assert_eq!(first.unwrap(), ["d/t.ibd"]);
        assert!(list.files.is_empty() && list.memory() == 0);
    }

    #[test]
    fn smaller_cache_gets_the_hottest_pages() {
        let mut list = List::new();
        let heat = |n| match n {
            0..50 => 15,
            50..200 => 9,
            200..500 => 4,
            _ => 1,
        };
        let pages: Vec<_> = (0..1000).map(|n| (n, heat(n))).collect();
        list.add("d/t.ibd", 16384, &pages).unwrap();
        list.rank(1 << 40);
        assert_eq!((list.listed, list.cut), ([50, 150, 300, 500], 4));
        list.rank(320 * 16384);
        assert_eq!((list.listed, list.cut), ([50, 150, 110, 0], 2));
        let piece = &list.files["d/t.ibd"].pieces[0];
        assert!(list.has(piece, 2) && !list.has(piece, 3));
    }

    #[test]
    fn malformed_part_changes_nothing() {
        let one = |file: &str, page_size: u32, from: u64, list: &str| {
            format!(
                r#"{{"first": true, "files": [{{"file":"d/a.ibd","page_size":16384,"list":"AA=="}},
                    {{"file":"{file}","page_size":{page_size},"from":{from},"list":"{list}"}}]}}"#
            )
        };
        let many = json!({ "files": vec![json!({ "file": "d/t.ibd" }); MAX_FILES + 1] });
        for (text, part) in [
            ("nonsense".to_owned(), "malformed"),
            ("[]".to_owned(), "malformed"),
            (many.to_string(), "at most"),
            (one("../t.ibd", 16384, 0, "AA=="), "name"),
            (one("undo_001", 16384, 0, "AA=="), "name"),
            (one("d/t.ibd", 12345, 0, "AA=="), "page size"),
            (one("d/t.ibd", 16384, 0, "AA="), "malformed"),
            (one("d/t.ibd", 16384, 0, "gA=="), "malformed"),
            (one("d/t.ibd", 16384, u32::MAX.into(), "AAA="), "malformed"),
            (one("d/t.ibd", 16384, 1 << 40, "AA=="), "malformed"),
            (
                one("d/t.ibd", 16384, 0, &"A".repeat(MAX_BYTES * 2)),
                "too long",
            ),
        ] {
            let mut list = List::new();
            put(&mut list, "d/t.ibd", 0, &[(3, 1)]).unwrap();
            let why = list.put(&text).unwrap_err();
            assert!(why.contains(part), "{text:.200}: {why}");
            assert_eq!(list.files["d/t.ibd"].pieces.len(), 1);
        }
    }

    #[test]
    fn list_memory_is_bounded() {
        // A list that lacks a MiB of its limit: a whole one takes a minute to encode.
        let mut list = List {
            memory: MAX_MEMORY - (1 << 20),
            ..List::new()
        };
        let pages: Vec<_> = (0..32_000).map(|page| (page, 1)).collect();
        let refused = (0..40).find_map(|n| put(&mut list, &format!("d/t{n}.ibd"), 0, &pages).err());
        assert!(refused.is_some_and(|why| why.contains("256 MiB")));
        assert!(list.files.len() > 20 && list.memory() <= MAX_MEMORY);
        assert!(list.add("d/u.ibd", 16384, &pages).is_err());
    }
}
