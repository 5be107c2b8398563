//! Pages in InnoDB's pool on the source. The hottest pages never leave the pool. The extension has not seen reads of
//! them for a long time, and may not contain them. Unless they are listed, a standby must read them from its slow disk.
//!
//! `information_schema.INNODB_BUFFER_PAGE` lists them. The server walks its whole pool for each query, so queries are rare.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use interface::heat::is_listed;
use mysql::prelude::FromRow;

use super::fingerprints::misunderstood;
use super::list::{List, Piece, Table, hot};
use crate::connect::plain;
use crate::connect::protocol::Bounds;
use crate::connect::server::{Server, error_code};
use crate::support::failure::Failure;

/// Minimum interval between two queries, absolute and as a multiple of a query's duration.
const RARELY: Duration = Duration::from_secs(600);
const TIMES: u32 = 50;
/// Heat of a page in the young part of InnoDB's list: above every heat in the extension. And heat in the old part,
/// which holds pages that were read once, for example by a scan.
const YOUNG: u8 = 15;
const OLD: u8 = 1;
/// Bounds of the pages: a pool of 2 TiB.
const PAGES: Bounds = Bounds {
    rows: 1 << 27,
    bytes: 32 << 30,
    time: Some(Duration::from_secs(3600)),
};
/// Maximum number of tablespaces, and bounds of their names.
const MAX_SPACES: usize = 1 << 20;
const NAMES: Bounds = Bounds {
    rows: MAX_SPACES,
    bytes: 512 << 20,
    ..PAGES
};

/// The pool's pages at the last query, and the time of the next one.
#[derive(Default)]
pub struct Looks {
    pub held: Option<Pool>,
    asked: Option<(Instant, Duration)>,
}

impl Looks {
    fn is_due(&self) -> bool {
        self.asked
            .is_none_or(|(asked, took)| asked.elapsed() >= RARELY.max(took * TIMES))
    }

    /// Queries the server if the interval has passed. A failed query also starts a new interval.
    ///
    /// # Errors
    /// The account lacks a privilege, or the connection was lost. The previous result stays.
    pub fn look(&mut self, server: &mut Server) -> Result<(), Failure> {
        if self.is_due() {
            let began = Instant::now();
            let found = Pool::fetch(server);
            self.asked = Some((began, began.elapsed()));
            self.held = Some(found?);
        }
        Ok(())
    }
}

/// Pages by tablespace.
pub struct Pool {
    /// Duration of the query.
    pub took: Duration,
    spaces: BTreeMap<u32, Space>,
    pub pages: usize,
}

#[derive(Default)]
struct Space {
    /// Path in the data directory, if it belongs to a table.
    file: Option<String>,
    /// Bytes.
    page_size: u32,
    /// Length of the file in bytes.
    bytes: u64,
    pages: Vec<(u32, u8)>,
}

impl Pool {
    /// Queries the server, which takes about a second or more for each million pages of the pool.
    ///
    /// # Errors
    /// The account lacks a privilege, or the connection was lost.
    pub fn fetch(server: &mut Server) -> Result<Pool, Failure> {
        let began = Instant::now();
        let names = match server.is_mariadb() {
            true => {
                "SELECT SPACE, NAME, PAGE_SIZE, 0, FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES"
            }
            false => {
                "SELECT SPACE, NAME, PAGE_SIZE, ZIP_PAGE_SIZE, FILE_SIZE FROM information_schema.INNODB_TABLESPACES"
            }
        };
        // IS_OLD is a text in MySQL and in MariaDB 10.5, and a number in later MariaDB releases.
        let held: Vec<(u32, u32, bool)> = rows(
            server,
            "SELECT SPACE, PAGE_NUMBER, CAST(IS_OLD AS CHAR) IN ('YES', '1') FROM information_schema.INNODB_BUFFER_PAGE \
             WHERE PAGE_STATE = 'FILE_PAGE' AND SPACE > 0 AND PAGE_NUMBER IS NOT NULL AND IS_OLD IS NOT NULL",
            PAGES,
        )?;
        let mut spaces: BTreeMap<u32, Space> = BTreeMap::new();
        for (space, page, is_old) in held {
            let heat = if is_old { OLD } else { YOUNG };
            spaces.entry(space).or_default().pages.push((page, heat));
            if spaces.len() > MAX_SPACES {
                return Err(misunderstood());
            }
        }
        let names: Vec<(u32, String, u32, u32, u64)> = rows(server, names, NAMES)?;
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for (number, name, page_size, compressed, bytes) in names {
            // Tablespaces of tables have names with a schema.
            let file = format!("{name}.ibd");
            if !seen.insert(file.clone()) {
                twice.insert(file.clone());
            }
            if let Some(space) = spaces.get_mut(&number) {
                space.file = Some(file).filter(|file| is_listed(file) && file.contains('/'));
                space.page_size = if compressed > 0 {
                    compressed
                } else {
                    page_size
                };
                space.bytes = bytes;
            }
        }
        // A name of two tablespaces is ambiguous: ignore it for both.
        for space in spaces.values_mut() {
            space.file = space.file.take().filter(|file| !twice.contains(file));
        }
        for space in spaces.values_mut() {
            space.pages.sort_unstable();
            space.pages.dedup_by_key(|(page, _)| *page);
        }
        Ok(Pool {
            took: began.elapsed(),
            pages: spaces.values().map(|space| space.pages.len()).sum(),
            spaces,
        })
    }

    /// Adds its pages to a list of the same server. A page in both gets the higher heat.
    ///
    /// # Errors
    /// The list is malformed.
    pub fn add_to(&self, list: &mut List) -> Result<(), Failure> {
        let files = list.files();
        let (mut added, mut merged) = (Vec::new(), BTreeSet::new());
        let space_of = |pieces: &Vec<&Piece>| pieces[0].space;
        let known: BTreeMap<_, _> = files
            .iter()
            .map(|(name, all)| (space_of(all), *name))
            .collect();
        for (number, space) in &self.spaces {
            let (file, mut pages) = match (known.get(&Some(*number)), &space.file) {
                (Some(name), _) => {
                    let pieces = &files[*name];
                    merged.insert((*name).to_owned());
                    (pieces[0].clone(), hot(pieces).ok_or_else(misunderstood)?)
                }
                // A listed file with that name belongs to another or a newer tablespace.
                (None, Some(file)) if !files.contains_key(&**file) => {
                    (space.unseen(*number, file), Vec::new())
                }
                _ => continue,
            };
            // The file may have been truncated since.
            let there = space.pages.iter().filter(|(page, _)| *page < file.pages);
            pages.extend(there);
            pages.sort_unstable_by_key(|&(page, heat)| (page, Reverse(heat)));
            pages.dedup_by_key(|(page, _)| *page);
            added.extend(file.with(pages));
        }
        list.pieces.retain(|piece| !merged.contains(&piece.file));
        list.pieces.extend(added);
        Ok(())
    }
}

impl Space {
    /// A file without cached pages.
    fn unseen(&self, number: u32, name: &str) -> Piece {
        let pages = self.bytes / u64::from(self.page_size.max(1));
        Piece {
            table: table(name),
            page_size: self.page_size,
            pages: u32::try_from(pages).unwrap_or(u32::MAX),
            space: Some(number),
            ..Piece::empty(name.to_owned())
        }
    }
}

/// The table of a file, if its name is plain. Other names are encoded in the servers' character set `filename`; a
/// standby leaves them out unless it has opened them.
fn table(name: &str) -> Option<Table> {
    let (schema, table) = name.strip_suffix(".ibd")?.split_once('/')?;
    let is_plain = |name: &str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    (is_plain(schema) && is_plain(table)).then(|| Table {
        schema: schema.to_owned(),
        table: table.to_owned(),
        partition: None,
    })
}

fn rows<T: FromRow>(server: &mut Server, sql: &str, bounds: Bounds) -> Result<Vec<T>, Failure> {
    server.rows_within(sql, bounds).map_err(|error| {
        let what = format!(
            "what InnoDB's pool holds cannot be asked for: {}",
            plain(&error)
        );
        let failure = match error_code(&error) {
            1227 | 1142 => Failure::refused(what)
                .advise("grant PROCESS to the account there, or leave out --pool"),
            _ => Failure::step(what),
        };
        server.without_answer(failure)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(file: &str, pages: &[(u32, u8)]) -> Space {
        Space {
            file: Some(file.into()),
            page_size: 16384,
            bytes: 300 * 16384,
            pages: pages.to_vec(),
        }
    }

    fn pool(spaces: Vec<(u32, Space)>) -> Pool {
        Pool {
            took: Duration::ZERO,
            pages: spaces.iter().map(|(_, space)| space.pages.len()).sum(),
            spaces: spaces.into_iter().collect(),
        }
    }

    #[test]
    fn pages_of_the_pool_are_added() {
        let mut list = List::empty();
        let cached = Piece {
            page_size: 16384,
            pages: 100,
            space: Some(7),
            ..Piece::empty("d/t.ibd".into())
        };
        list.pieces = cached.with([(3, 2), (9, 1), (50, 4)]);
        let of_pool = pool(vec![
            // Only the extension knows this path.
            (
                7,
                space(
                    "d/@t.ibd",
                    &[(2, YOUNG), (9, YOUNG), (50, OLD), (200, YOUNG)],
                ),
            ),
            (8, space("d/u.ibd", &[(4, OLD), (6, YOUNG)])),
            // Recreated after the list.
            (10, space("d/t.ibd", &[(5, YOUNG)])),
            (
                9,
                Space {
                    file: None,
                    ..space("undo", &[(1, YOUNG)])
                },
            ),
        ]);
        of_pool.add_to(&mut list).unwrap();
        let files = list.files();
        assert_eq!(
            hot(&files["d/t.ibd"]).unwrap(),
            [(2, YOUNG), (3, 2), (9, YOUNG), (50, 4)]
        );
        let unseen = files["d/u.ibd"][0];
        assert_eq!((unseen.pages, unseen.space), (300, Some(8)));
        assert_eq!(hot(&[unseen]).unwrap(), [(4, OLD), (6, YOUNG)]);
        assert_eq!(files.len(), 2);
    }

    #[test]
    fn plain_names_are_tables() {
        let of = |name| table(name).map(|table| (table.schema, table.table));
        assert_eq!(of("d/t_1.ibd"), Some(("d".into(), "t_1".into())));
        for other in ["d/t#p#p0.ibd", "d/@0024.ibd", "t.ibd", "d/t"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn pool_is_asked_for_rarely() {
        let mut looks = Looks::default();
        assert!(looks.is_due());
        looks.asked = Some((Instant::now(), Duration::ZERO));
        assert!(!looks.is_due(), "whatever came of it");
        let Some(before) = Instant::now().checked_sub(RARELY) else {
            return;
        };
        looks.asked = Some((before, Duration::ZERO));
        assert!(looks.is_due());
        looks.asked = Some((before, RARELY));
        assert!(!looks.is_due(), "a pool so large is looked at more rarely");
    }
}
