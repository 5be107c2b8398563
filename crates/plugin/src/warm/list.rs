//! A heat list as the server keeps it: encoded, about a byte a page, at most [`MAX_MEMORY`].

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use extension::is_page_length;
use interface::heat::{CLASSES, Decoder, LEVELS, MAX_BYTES, classes, is_listed, pieces};
use serde::Deserialize;

/// Memory limit of a list, bytes.
pub const MAX_MEMORY: usize = 64 << 20;
/// What is counted for a piece besides its bytes, and for a file besides its name.
const OVERHEAD: usize = 160;
/// One page of the cache in so many is left to the server's own pages.
const OWN_SHARE: u64 = 32;
/// Files of one part.
const MAX_FILES: usize = 1024;

/// The argument of `warm-put`. A member that is not named here is ignored, so what `heat` answers is one.
#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    first: bool,
    files: Vec<GivenFile>,
}

#[derive(Deserialize)]
struct GivenFile {
    file: String,
    #[serde(default)]
    page_size: u32,
    #[serde(default)]
    from: u32,
    list: Option<String>,
}

/// A part of a list.
pub struct Part {
    /// It begins a new list.
    pub is_first: bool,
    /// Names of files. A file without a piece is only asked about.
    pub files: Vec<(String, Option<(u32, Piece)>)>,
}

/// Pages of a file in ascending order, and their heat.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    from: u32,
    bytes: Box<[u8]>,
    /// The first page number after it.
    end: u64,
    /// Pages of each level of heat.
    pub counts: [u32; LEVELS],
}

/// A file of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Bytes.
    pub page_size: u32,
    /// In ascending order of their pages.
    pub pieces: Vec<Arc<Piece>>,
}

/// Pages to load.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub files: BTreeMap<Arc<str>, Listed>,
    memory: usize,
    /// The class of each level of heat: see [`rank`](Self::rank).
    pub classes: [u8; LEVELS],
    /// Pages to load of each class.
    pub listed: [u64; CLASSES],
}

impl Piece {
    fn new(from: u32, bytes: Vec<u8>) -> Option<Piece> {
        let (mut counts, mut end) = ([0; LEVELS], from.into());
        for entry in Decoder::new(&bytes, from) {
            let (page, heat) = entry.ok()?;
            end = u64::from(page) + 1;
            counts[usize::from(heat)] += 1;
        }
        Some(Piece {
            from,
            bytes: bytes.into_boxed_slice(),
            end,
            counts,
        })
    }

    /// Its pages and their heat.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u8)> {
        Decoder::new(&self.bytes, self.from).map_while(Result::ok)
    }

    fn memory(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

impl Listed {
    fn memory(&self) -> usize {
        self.pieces.iter().map(|piece| piece.memory()).sum()
    }

    /// Its pages and their heat.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u8)> {
        self.pieces.iter().flat_map(|piece| piece.pages())
    }
}

impl Part {
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Part, String> {
        let given: Given = serde_json::from_str(text)
            .map_err(|error| format!("the list is malformed: {error}"))?;
        if given.files.len() > MAX_FILES {
            return Err(format!("a part of a list has at most {MAX_FILES} files"));
        }
        let mut files = Vec::new();
        for one in given.files {
            if !is_listed(&one.file) {
                return Err("the list has an invalid file name".into());
            }
            let decoded = one.list.map(|list| {
                if !is_page_length(one.page_size as usize) {
                    return Err(format!("{} is not a page size", one.page_size));
                }
                if list.len() > MAX_BYTES * 4 / 3 + 4 {
                    return Err("the list of pages of a file is too long".into());
                }
                let bytes = BASE64.decode(&list);
                let bytes = bytes.map_err(|error| format!("a list of pages: {error}"))?;
                let piece = Piece::new(one.from, bytes).ok_or("a list of pages is malformed")?;
                Ok((one.page_size, piece))
            });
            files.push((one.file, decoded.transpose()?));
        }
        Ok(Part {
            is_first: given.first,
            files,
        })
    }
}

impl List {
    pub const fn new() -> List {
        List {
            files: BTreeMap::new(),
            memory: 0,
            classes: [0; LEVELS],
            listed: [0; CLASSES],
        }
    }

    /// Adds a part; the first one replaces the list.
    ///
    /// # Errors
    /// The list has no room for all of it.
    pub fn put(&mut self, part: Part) -> Result<(), String> {
        if part.is_first {
            *self = List::new();
        }
        for (name, piece) in part.files {
            if let Some((page_size, piece)) = piece {
                self.put_piece(&name, page_size, piece)?;
            }
        }
        Ok(())
    }

    /// Adds pages of a file, in ascending order with their heat. Returns their number, or 0 if there is no room.
    pub fn add(&mut self, name: &str, page_size: u32, pages: &[(u32, u8)]) -> u64 {
        let put = pieces(pages.iter().copied())
            .into_iter()
            .all(|(from, bytes)| {
                let piece = Piece::new(from, bytes);
                piece.is_some_and(|piece| self.put_piece(name, page_size, piece).is_ok())
            });
        if put { pages.len() as u64 } else { 0 }
    }

    /// Pieces of a file ascend. One that does not is of a newer file of that name, and replaces what was put.
    fn put_piece(&mut self, name: &str, page_size: u32, piece: Piece) -> Result<(), String> {
        let before = self.files.get(name);
        let end = before
            .and_then(|file| file.pieces.last())
            .map(|last| last.end);
        let is_newer = before.is_some_and(|file| file.page_size != page_size)
            || end.is_some_and(|end| u64::from(piece.from) < end);
        if is_newer {
            self.remove(name);
        }
        if piece.bytes.is_empty() {
            return Ok(());
        }
        let of_name = match self.files.contains_key(name) {
            true => 0,
            false => name.len() + OVERHEAD,
        };
        let memory = self.memory + of_name + piece.memory();
        if memory > MAX_MEMORY {
            return Err(format!(
                "the list takes more than {} MiB of memory",
                MAX_MEMORY >> 20
            ));
        }
        self.memory = memory;
        let file = self.files.entry(name.into()).or_default();
        file.page_size = page_size;
        file.pieces.push(Arc::new(piece));
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        if let Some(file) = self.files.remove(name) {
            self.memory -= name.len() + OVERHEAD + file.memory();
        }
    }

    /// Assigns classes to the levels of heat, and lists the hottest pages that fit. `capacity`: bytes of the cache.
    pub fn rank(&mut self, capacity: u64) {
        let (mut levels, mut bytes) = ([0; LEVELS], 0);
        for file in self.files.values() {
            for piece in &file.pieces {
                for (sum, count) in levels.iter_mut().zip(piece.counts) {
                    *sum += u64::from(count);
                    bytes += u64::from(count) * u64::from(file.page_size);
                }
            }
        }
        let page_size = bytes.checked_div(levels.iter().sum()).unwrap_or(0);
        let fits = capacity / page_size.max(1024);
        let mut room = fits - fits / OWN_SHARE;
        self.classes = classes(levels);
        let mut listed = [0; CLASSES];
        for (class, pages) in self.classes.iter().zip(levels) {
            listed[usize::from(*class)] += pages;
        }
        self.listed = listed.map(|pages| {
            let pages = pages.min(room);
            room -= pages;
            pages
        });
    }

    /// Pages of a class in a piece.
    pub fn count(&self, piece: &Piece, class: u8) -> u64 {
        let counts = self.classes.iter().zip(piece.counts);
        let of_class = counts.filter(|(of, _)| **of == class);
        of_class.map(|(_, count)| u64::from(count)).sum()
    }

    /// Keeps these files only.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let names: Vec<Arc<str>> = self.files.keys().cloned().collect();
        for name in names.iter().filter(|name| !is_wanted(name)) {
            self.remove(name);
        }
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
        list.put(Part::parse(
            &json!({ "files": files, "next": null }).to_string(),
        )?)
    }

    fn levels(list: &List) -> Vec<(u32, u8)> {
        list.files.values().flat_map(Listed::pages).collect()
    }

    #[test]
    fn parts_add_up_to_a_list() {
        let mut list = List::new();
        put(&mut list, "d/t.ibd", 0, &[(3, 15), (4, 1), (90, 3)]).unwrap();
        put(&mut list, "d/t.ibd", 128, &[(128, 2)]).unwrap();
        assert_eq!(levels(&list), [(3, 15), (4, 1), (90, 3), (128, 2)]);
        let before = list.memory();
        put(&mut list, "d/u.ibd", 0, &[]).unwrap();
        assert_eq!(list.memory(), before, "an empty one takes nothing");
        // A newer file of this name.
        put(&mut list, "d/t.ibd", 64, &[(70, 0)]).unwrap();
        assert_eq!(levels(&list), [(70, 0)]);
        assert!(list.memory() < before);
        assert_eq!(list.add("d/u.ibd", 4096, &[(5, 1), (9, 2)]), 2);
        let memory = list.memory();
        list.retain(|name| name == "d/t.ibd");
        assert!(list.files.len() == 1 && list.memory() < memory);
        let first = Part::parse(r#"{"first": true, "files": [{"file": "d/t.ibd"}]}"#).unwrap();
        assert!(first.files[0].1.is_none());
        list.put(first).unwrap();
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
        assert_eq!(list.add("d/t.ibd", 16384, &pages), 1000);
        list.rank(1 << 40);
        assert_eq!(list.listed, [50, 150, 300, 500]);
        let piece = &list.files["d/t.ibd"].pieces[0];
        assert_eq!(
            [0, 1, 2, 3].map(|class| list.count(piece, class)),
            list.listed
        );
        list.rank(320 * 16384);
        assert_eq!(list.listed, [50, 150, 110, 0]);
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
            (one("d/t.ibd", 16384, 0, "AA="), "a list of pages"),
            (one("d/t.ibd", 16384, 0, "gA=="), "malformed"),
            (one("d/t.ibd", 16384, u32::MAX.into(), "AAA="), "malformed"),
            (one("d/t.ibd", 16384, 1 << 40, "AA=="), "malformed"),
            (
                one("d/t.ibd", 16384, 0, &"A".repeat(MAX_BYTES * 2)),
                "too long",
            ),
        ] {
            let why = Part::parse(&text).err();
            assert!(why.is_some_and(|why| why.contains(part)), "{text:.200}");
        }
    }

    #[test]
    fn list_memory_is_bounded() {
        let mut list = List::new();
        let pages: Vec<_> = (0..16_384).map(|page| (page, 1)).collect();
        let refused =
            (0..6000).find_map(|n| put(&mut list, &format!("d/t{n}.ibd"), 0, &pages).err());
        assert!(refused.is_some_and(|why| why.contains("64 MiB")));
        assert!(list.memory() <= MAX_MEMORY && list.add("d/u.ibd", 16384, &pages) == 0);
    }
}
