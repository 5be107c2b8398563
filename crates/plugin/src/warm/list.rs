//! The list of pages that another server has cached, as it was handed over: kept encoded, about a byte a page.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use extension::is_page_length;
use interface::heat::{
    BITS_TAKEN, CLASSES, Decoder, Encoder, GRANULE_PAGES, MOST_BYTES, is_listed,
};
use serde::Deserialize;

/// Bytes that a list takes at most, and what is counted for each granule besides its pages.
pub const MOST_MEMORY: usize = 64 << 20;
const OF_A_GRANULE: usize = 96;

/// A granule as a client gives it. An empty list: there is nothing of it any more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    file: String,
    page_size: u32,
    granule: u32,
    list: String,
}

/// Pages of a file that begin at the same multiple of [`GRANULE_PAGES`].
#[derive(Debug, PartialEq, Eq)]
pub struct Granule {
    /// Number of it in its file.
    pub number: u32,
    bytes: Box<[u8]>,
    /// Pages of each class.
    pub counts: [u32; CLASSES],
}

/// A file of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Bytes.
    pub page_size: u32,
    pub granules: BTreeMap<u32, Arc<Granule>>,
}

/// Which pages another server has cached.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub files: BTreeMap<Arc<str>, Listed>,
    memory: usize,
}

impl Granule {
    /// # Errors
    /// Says what is wrong with it.
    fn new(number: u32, bytes: Vec<u8>) -> Result<Granule, String> {
        let wrong = || "a list of pages cannot be understood".to_owned();
        let from = number.checked_mul(GRANULE_PAGES).ok_or_else(wrong)?;
        let mut counts = [0; CLASSES];
        for entry in Decoder::new(&bytes, from, BITS_TAKEN) {
            let (page, class) = entry.map_err(|_| wrong())?;
            if page / GRANULE_PAGES != number {
                return Err(wrong());
            }
            counts[usize::from(class)] += 1;
        }
        Ok(Granule {
            number,
            bytes: bytes.into_boxed_slice(),
            counts,
        })
    }

    /// Its pages and their classes, in ascending order.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u8)> {
        Decoder::new(&self.bytes, self.number * GRANULE_PAGES, BITS_TAKEN).map_while(Result::ok)
    }

    fn memory(&self) -> usize {
        self.bytes.len() + OF_A_GRANULE
    }
}

impl List {
    /// Puts granules in, in the place of those that were there before. Nothing is put in if one of them is wrong.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn put(&mut self, text: &str) -> Result<(), String> {
        let given: Vec<Given> = serde_json::from_str(text)
            .map_err(|error| format!("what was handed over cannot be understood: {error}"))?;
        let mut granules = Vec::new();
        for one in given {
            if !is_listed(&one.file) {
                return Err("a name that no list may have".into());
            }
            if !is_page_length(one.page_size as usize) {
                return Err(format!("{} is no page size", one.page_size));
            }
            if one.list.len() > MOST_BYTES * 4 / 3 + 4 {
                return Err("a list of pages is too long".into());
            }
            let bytes = BASE64
                .decode(&one.list)
                .map_err(|error| format!("a list of pages is no base64: {error}"))?;
            granules.push((one.file, one.page_size, Granule::new(one.granule, bytes)?));
        }
        for (name, page_size, granule) in granules {
            self.put_one(&name, page_size, granule)?;
        }
        Ok(())
    }

    /// Adds pages of one granule of a file, in ascending order with their classes, in the place of what was there of the granule.
    ///
    /// # Errors
    /// There is no room.
    pub fn add(&mut self, name: &str, page_size: u32, pages: &[(u32, u8)]) -> Result<(), String> {
        let Some(&(first, _)) = pages.first() else {
            return Ok(());
        };
        let number = first / GRANULE_PAGES;
        let mut list = Encoder::new(number * GRANULE_PAGES, BITS_TAKEN);
        for &(page, class) in pages {
            list.push(page, class);
        }
        self.put_one(name, page_size, Granule::new(number, list.into_bytes())?)
    }

    fn put_one(&mut self, name: &str, page_size: u32, granule: Granule) -> Result<(), String> {
        let name: Arc<str> = match self.files.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        };
        let file = self.files.entry(Arc::clone(&name)).or_default();
        if file.page_size != page_size {
            let before = std::mem::take(&mut file.granules);
            self.memory -= before
                .values()
                .map(|granule| granule.memory())
                .sum::<usize>();
            file.page_size = page_size;
        }
        if let Some(before) = file.granules.remove(&granule.number) {
            self.memory -= before.memory();
        }
        if granule.bytes.is_empty() {
            if file.granules.is_empty() {
                self.files.remove(&name);
            }
            return Ok(());
        }
        if self.memory + granule.memory() > MOST_MEMORY {
            return Err(format!(
                "the list takes more than {} MiB of memory; what fits was kept",
                MOST_MEMORY >> 20
            ));
        }
        self.memory += granule.memory();
        file.granules.insert(granule.number, Arc::new(granule));
        Ok(())
    }

    /// Pages of each class.
    pub fn counts(&self) -> [u64; CLASSES] {
        let mut sums = [0; CLASSES];
        for granule in self.files.values().flat_map(|file| file.granules.values()) {
            for (sum, count) in sums.iter_mut().zip(granule.counts) {
                *sum += u64::from(count);
            }
        }
        sums
    }

    /// The same list with these files alone.
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> List {
        let mut list = self.clone();
        list.files.retain(|name, _| is_wanted(name));
        let granules = list.files.values().flat_map(|file| file.granules.values());
        list.memory = granules.map(|granule| granule.memory()).sum();
        list
    }

    /// Bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(file: &str, granule: u32, pages: &[(u32, u8)]) -> String {
        let mut list = Encoder::new(granule * GRANULE_PAGES, BITS_TAKEN);
        pages
            .iter()
            .for_each(|&(page, class)| assert!(list.push(page, class)));
        let list = BASE64.encode(list.bytes());
        format!(r#"[{{"file":"{file}","page_size":16384,"granule":{granule},"list":"{list}"}}]"#)
    }

    #[test]
    fn granules_are_put_in_and_replaced() {
        let mut list = List::default();
        list.put(&given("d/t.ibd", 0, &[(3, 0), (4, 1), (90, 3)]))
            .unwrap();
        list.put(&given("d/t.ibd", 1, &[(GRANULE_PAGES, 2)]))
            .unwrap();
        assert_eq!(list.counts(), [1, 1, 1, 1]);
        let before = list.memory();
        list.put(&given("d/t.ibd", 0, &[(3, 0)])).unwrap();
        assert_eq!(list.counts(), [1, 0, 1, 0]);
        assert!(list.memory() < before);
        let (same, none) = (list.only(|name| name == "d/t.ibd"), list.only(|_| false));
        assert_eq!(
            (same.counts(), same.memory()),
            (list.counts(), list.memory())
        );
        assert!(none.files.is_empty() && none.memory() == 0);
        let pages: Vec<_> = list.files["d/t.ibd"].granules[&1].pages().collect();
        assert_eq!(pages, [(GRANULE_PAGES, 2)]);
        list.put(&given("d/t.ibd", 0, &[])).unwrap();
        list.put(&given("d/t.ibd", 1, &[])).unwrap();
        assert!(list.files.is_empty() && list.memory() == 0);
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let mut list = List::default();
        let one = |file: &str, page_size: u32, granule: u64, list: &str| {
            format!(
                r#"[{{"file":"d/a.ibd","page_size":16384,"granule":0,"list":"AA=="}},
                    {{"file":"{file}","page_size":{page_size},"granule":{granule},"list":"{list}"}}]"#
            )
        };
        for (text, part) in [
            ("nonsense".to_owned(), "cannot be understood"),
            (one("../t.ibd", 16384, 0, "AA=="), "name"),
            (one("undo_001", 16384, 0, "AA=="), "name"),
            (one("d/t.ibd", 12345, 0, "AA=="), "page size"),
            (one("d/t.ibd", 16384, 0, "AA="), "base64"),
            (one("d/t.ibd", 16384, 0, "gA=="), "list of pages cannot"),
            (
                one("d/t.ibd", 16384, u64::from(u32::MAX), "AA=="),
                "list of pages cannot",
            ),
            (
                one("d/t.ibd", 16384, 1 << 40, "AA=="),
                "cannot be understood",
            ),
            (
                one("d/t.ibd", 16384, 0, &"A".repeat(MOST_BYTES * 2)),
                "too long",
            ),
            // A page of the next granule.
            (one("d/t.ibd", 16384, 0, "gIAE"), "list of pages cannot"),
        ] {
            let why = list.put(&text).unwrap_err();
            assert!(why.contains(part), "{text:.200}: {why}");
            assert!(list.files.is_empty());
        }
    }

    #[test]
    fn memory_has_a_bound() {
        let mut list = List::default();
        let pages: Vec<_> = (0..GRANULE_PAGES).map(|page| (page, 1)).collect();
        let mut refused = None;
        for n in 0..6000 {
            if let Err(why) = list.put(&given(&format!("d/t{n}.ibd"), 0, &pages)) {
                refused = Some(why);
                break;
            }
        }
        assert!(refused.is_some_and(|why| why.contains("64 MiB")));
        assert!(list.memory() <= MOST_MEMORY);
    }
}
