//! A heat list, as the command holds it: which pages of which files a server has cached, and how hot each is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use interface::heat::{
    BITS_GIVEN, BITS_TAKEN, CLASSES, Decoder, Encoder, GRANULE_PAGES, LEVELS, classes, is_listed,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::prints::{self, Print, Secret, misunderstood};
use crate::failure::Failure;
use crate::report;
use crate::server::Server;

/// A list that is longer cannot be of any server.
const MOST_PAGES: u64 = 1 << 32;

/// A table, as SQL names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub schema: String,
    pub table: String,
    pub partition: Option<String>,
}

/// A file of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub table: Option<Table>,
    /// Bytes.
    pub page_size: u32,
    /// How many the file has.
    pub pages: u32,
    pub space: Option<u32>,
    pub flags: Option<u32>,
    /// Pages that are cached in ascending order, and how hot each is.
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
    pub prints: BTreeMap<String, Sample>,
    /// Keys the fingerprints. `None`: there are none.
    pub secret: Option<Secret>,
}

/// Some pages of a file, and their fingerprints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Of the tablespace that they are of.
    pub space: Option<u32>,
    pub pages: Vec<u32>,
    pub prints: Vec<Option<Print>>,
}

/// How large a file is on another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measures {
    /// Bytes.
    pub page_size: u32,
    pub pages: u32,
}

/// Bytes by which InnoDB makes a file longer than it needs.
const SPARE: u64 = 4 << 20;
/// Share of a table's pages that must be cached for all of them to be loaded by its name.
const WHOLE: f64 = 0.8;
/// Files of which pages are looked at.
const SAMPLED: usize = 64;

/// A part of a list as a server takes it: pages and their classes.
pub type Granule = Vec<(u32, u8)>;

impl List {
    /// Nothing is cached.
    pub fn empty() -> List {
        List {
            files: BTreeMap::new(),
            cached: 0,
            taken: Instant::now(),
            queries: 0,
            prints: BTreeMap::new(),
            secret: None,
        }
    }

    /// Asks a server for its list. `tell` hears how many pages there are so far. `before`: the list of the last round.
    /// `compares`: with fingerprints. `add` adds what else is to be listed.
    ///
    /// # Errors
    /// The server has no such report, is off, or went away. The account lacks a right.
    pub fn fetch(
        server: &mut Server,
        before: Option<&List>,
        compares: bool,
        add: impl FnOnce(&mut List),
        tell: impl FnMut(u64),
    ) -> Result<List, Failure> {
        let mut list = List::empty();
        list.fetch_pages(server, tell)?;
        list.cached = list.pages();
        // Before pages are added that are not cached: those have no fingerprint.
        if compares {
            list.fetch_prints(server, before)?;
        }
        add(&mut list);
        Ok(list)
    }

    fn fetch_pages(
        &mut self,
        server: &mut Server,
        mut tell: impl FnMut(u64),
    ) -> Result<(), Failure> {
        let list = self;
        let mut argument = "heat".to_owned();
        let mut pages = 0;
        loop {
            let answer = report::ask(server, &argument, "has no heat list")
                .map_err(|failure| server.without_answer(failure))?;
            list.queries += 1;
            if let Some(why) = answer["error"].as_str() {
                return Err(Failure::refused(format!("it has no heat list: {why}"))
                    .advise("switch the extension on there with SET GLOBAL bpe_enabled = ON, and let it fill"));
            }
            pages += list.add(&answer).ok_or_else(misunderstood)?;
            tell(pages);
            let next = match &answer["next"] {
                Value::Null => return Ok(()),
                next => next.as_str().filter(|next| is_cursor(next)),
            };
            next.ok_or_else(misunderstood)?.clone_into(&mut argument);
        }
    }

    fn fetch_prints(&mut self, server: &mut Server, before: Option<&List>) -> Result<(), Failure> {
        let mut largest: Vec<(&String, &File)> = self.files.iter().collect();
        largest.sort_by_key(|(_, file)| std::cmp::Reverse(file.hot.len()));
        let mut prints = BTreeMap::new();
        let mut asked: Vec<(&str, Sample)> = Vec::new();
        for (name, file) in largest.into_iter().take(SAMPLED) {
            let known = before.and_then(|before| before.prints.get(name));
            // Pages that had no fingerprint may have one now.
            let known = known.filter(|known| known.prints.iter().any(Option::is_some));
            if let Some(known) = known.filter(|known| known.space == file.space) {
                prints.insert(name.clone(), known.clone());
                continue;
            }
            let pages = prints::spread(&file.hot);
            if !pages.is_empty() {
                let (space, prints) = (file.space, Vec::new());
                asked.push((
                    name,
                    Sample {
                        space,
                        pages,
                        prints,
                    },
                ));
            }
        }
        let secret = match before.and_then(|before| before.secret.clone()) {
            Some(secret) => secret,
            None => Secret::new()?,
        };
        if !asked.is_empty() {
            let files: Vec<(&str, &[u32])> = asked
                .iter()
                .map(|(name, sample)| (*name, &*sample.pages))
                .collect();
            let answer = prints::of_cached(server, &secret, &files)?;
            self.queries += 1;
            for ((name, mut sample), of_file) in asked.into_iter().zip(answer) {
                sample.prints = of_file;
                prints.insert(name.to_owned(), sample);
            }
        }
        (self.prints, self.secret) = (prints, Some(secret));
        Ok(())
    }

    /// Takes the files of an answer in. How many pages they had; `None` if it cannot be understood.
    pub fn add(&mut self, answer: &Value) -> Option<u64> {
        let mut pages = 0;
        for one in answer["files"].as_array()? {
            let name = one["file"].as_str().filter(|name| is_listed(name))?;
            let number = |name: &str| one[name].as_u64().and_then(|n| u32::try_from(n).ok());
            let from = number("from")?;
            let bytes = BASE64.decode(one["list"].as_str()?).ok()?;
            let file = self.files.entry(name.to_owned()).or_default();
            let text = |name: &str| one[name].as_str().map(str::to_owned);
            if let (Some(schema), Some(table)) = (text("schema"), text("table")) {
                file.table = Some(Table {
                    schema,
                    table,
                    partition: text("partition"),
                });
            }
            file.page_size = number("page_size")?;
            file.pages = number("pages")?;
            file.space = number("space");
            file.flags = number("flags");
            // It may have been made anew in between, or be two of a name.
            file.hot
                .truncate(file.hot.partition_point(|&(page, _)| page < from));
            for entry in Decoder::new(&bytes, from, BITS_GIVEN) {
                file.hot.push(entry.ok()?);
                pages += 1;
            }
        }
        (self.pages() <= MOST_PAGES).then_some(pages)
    }

    /// The list for a server whose pages are others, though its tables are the same: all pages of the tables that are cached nearly
    /// whole, of which `there` says what their pages are there. Nothing of all others.
    pub fn by_name(&self, there: &BTreeMap<String, Measures>) -> List {
        let mut list = List::empty();
        list.taken = self.taken;
        for (name, file) in &self.files {
            let Some(there) = there.get(name) else {
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
                table: file.table.clone(),
                page_size: there.page_size,
                pages: there.pages,
                space: None,
                flags: None,
                hot: (0..there.pages).map(|page| (page, heat)).collect(),
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

    /// The class of each level of heat: by the share of all pages that are hotter.
    fn classes(&self) -> [u8; LEVELS] {
        let pages = self.files.values().flat_map(|file| &file.hot);
        classes(pages.map(|&(_, heat)| heat))
    }

    /// The granules of each file: by file and number. At most so many pages, the hottest.
    pub fn granules(&self, most: u64) -> BTreeMap<(&str, u32), Granule> {
        let classes = self.classes();
        let mut counts = [0u64; CLASSES];
        for (_, heat) in self.files.values().flat_map(|file| &file.hot) {
            counts[usize::from(classes[usize::from(*heat) % LEVELS])] += 1;
        }
        let mut room = most;
        let room = counts.map(|count| {
            let fits = count.min(room);
            room -= fits;
            fits
        });
        let mut left = room;
        let mut granules: BTreeMap<(&str, u32), Granule> = BTreeMap::new();
        for (name, file) in &self.files {
            for &(page, heat) in &file.hot {
                let class = classes[usize::from(heat) % LEVELS];
                let left = &mut left[usize::from(class)];
                if *left == 0 {
                    continue;
                }
                *left -= 1;
                let granule = (name.as_str(), page / GRANULE_PAGES);
                granules.entry(granule).or_default().push((page, class));
            }
        }
        granules
    }
}

/// A granule as it is handed over.
pub fn encoded(number: u32, granule: &Granule) -> String {
    let mut list = Encoder::new(number * GRANULE_PAGES, BITS_TAKEN);
    for &(page, class) in granule {
        list.push(page, class);
    }
    BASE64.encode(list.bytes())
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
    use serde_json::json;

    fn answer(name: &str, from: u32, hot: &[(u32, u8)]) -> Value {
        let mut list = Encoder::new(from, BITS_GIVEN);
        hot.iter()
            .for_each(|&(page, heat)| assert!(list.push(page, heat)));
        json!({ "files": [{
            "file": name, "schema": "d", "table": "t", "partition": null, "page_size": 16384, "pages": 100_000, "space": 7,
            "flags": 21, "from": from, "list": BASE64.encode(list.bytes())
        }], "next": null })
    }

    #[test]
    fn answers_make_a_list() {
        let mut list = List::empty();
        assert_eq!(list.add(&answer("d/t.ibd", 0, &[(3, 1), (4, 9)])), Some(2));
        assert_eq!(list.add(&answer("d/t.ibd", 64, &[(70, 1)])), Some(1));
        assert_eq!(list.files["d/t.ibd"].hot, [(3, 1), (4, 9), (70, 1)]);
        assert_eq!((list.pages(), list.bytes()), (3, 3 * 16384));
        // Made anew while it was asked for.
        assert_eq!(list.add(&answer("d/t.ibd", 4, &[(5, 2)])), Some(1));
        assert_eq!(list.files["d/t.ibd"].hot, [(3, 1), (5, 2)]);
    }

    #[test]
    fn what_is_no_answer_is_told() {
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
            wrong["files"][0][member] = value.clone();
            assert_eq!(List::empty().add(&wrong), None, "{member} {value}");
        }
        assert_eq!(List::empty().add(&json!({})), None);
        for wrong in ["heat:1:2'", "verify 1", "heat:1 2", &"heat:".repeat(40)] {
            assert!(!is_cursor(wrong), "{wrong}");
        }
        assert!(is_cursor("heat:12:4096"));
    }

    #[test]
    fn whole_tables_go_by_name() {
        let mut list = List::empty();
        let mut whole = answer(
            "d/t.ibd",
            0,
            &(0..90).map(|page| (page, 4)).collect::<Vec<_>>(),
        );
        whole["files"][0]["pages"] = json!(350);
        let mut part = answer("d/u.ibd", 0, &[(3, 9)]);
        part["files"][0]["pages"] = json!(1000);
        assert!(list.add(&whole).is_some() && list.add(&part).is_some());
        let measures = |pages| Measures {
            page_size: 8192,
            pages,
        };
        let there = [
            ("d/t.ibd".to_owned(), measures(150)),
            ("d/u.ibd".to_owned(), measures(150)),
        ];
        let by_name = list.by_name(&there.into_iter().collect());
        assert_eq!(by_name.pages(), 150);
        let file = &by_name.files["d/t.ibd"];
        assert_eq!((file.page_size, file.hot[149]), (8192, (149, 4)));
    }

    #[test]
    fn classes_go_by_shares() {
        let mut list = List::empty();
        let hot: Vec<(u32, u8)> = (0..1000)
            .map(|n| {
                (
                    n,
                    match n {
                        0..50 => 15,
                        50..200 => 9,
                        200..500 => 4,
                        _ => 1,
                    },
                )
            })
            .collect();
        list.add(&answer("d/t.ibd", 0, &hot));
        let granules = list.granules(u64::MAX);
        let granule = &granules[&("d/t.ibd", 0)];
        let count = |class| granule.iter().filter(|(_, of)| *of == class).count();
        assert_eq!([0, 1, 2, 3].map(count), [50, 150, 300, 500]);
        // A smaller cache gets the hottest.
        let granules = list.granules(300);
        let granule = &granules[&("d/t.ibd", 0)];
        assert_eq!(granule.len(), 300);
        assert!(granule.iter().filter(|(_, class)| *class == 2).count() == 100);
        // All alike: all are hot.
        let mut alike = List::empty();
        alike.add(&answer("d/t.ibd", 0, &[(1, 2), (GRANULE_PAGES, 2)]));
        let granules = alike.granules(u64::MAX);
        assert_eq!(granules[&("d/t.ibd", 0)], [(1, 0)]);
        assert_eq!(granules[&("d/t.ibd", 1)], [(GRANULE_PAGES, 0)]);
    }
}
