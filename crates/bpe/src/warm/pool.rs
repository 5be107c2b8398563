//! What InnoDB's own pool holds on the serving server. The hottest pages never leave it, so the extension has seen no read of them for
//! long, and may not have them at all. A standby reads them from its slow disk, unless they are listed, too.
//!
//! `information_schema.INNODB_BUFFER_PAGE` names them. The server walks its whole pool for it, so it is asked for rarely.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use interface::heat::is_listed;

use super::list::{File, List};
use crate::connection::plain;
use crate::failure::Failure;
use crate::server::{Server, error_code};

/// Between two looks, at least; and in so many times as a look takes.
const RARELY: Duration = Duration::from_secs(600);
const TIMES: u32 = 50;
/// Heat of a page in the young part of InnoDB's list: above all that the extension knows of. And of one in its old part, where those are
/// that were read once, as by a scan.
const YOUNG: u8 = 15;
const OLD: u8 = 1;
/// More would be no server's.
const MOST_PAGES: usize = 1 << 30;

/// Pages by tablespace.
pub struct Pool {
    taken: Instant,
    took: Duration,
    spaces: BTreeMap<u32, Space>,
    pub pages: usize,
}

#[derive(Default)]
struct Space {
    /// In the data directory, if it is a table's.
    file: Option<String>,
    /// Bytes.
    page_size: u32,
    pages: Vec<(u32, u8)>,
}

impl Pool {
    /// Asks the server. Its answer takes about a second for each million pages of the pool, and may take more.
    ///
    /// # Errors
    /// The account may not, or the server went away.
    pub fn fetch(server: &mut Server) -> Result<Pool, Failure> {
        let began = Instant::now();
        let (names, is_old) = match server.is_mariadb() {
            true => (
                "SELECT SPACE, NAME, PAGE_SIZE, 0 FROM information_schema.INNODB_SYS_TABLESPACES",
                "IS_OLD = 1",
            ),
            false => (
                "SELECT SPACE, NAME, PAGE_SIZE, ZIP_PAGE_SIZE FROM information_schema.INNODB_TABLESPACES",
                "IS_OLD = 'YES'",
            ),
        };
        let held: Vec<(u32, u32, bool)> = rows(
            server,
            &format!(
                "SELECT SPACE, PAGE_NUMBER, {is_old} FROM information_schema.INNODB_BUFFER_PAGE \
                 WHERE PAGE_STATE = 'FILE_PAGE' AND SPACE > 0 AND PAGE_NUMBER IS NOT NULL AND IS_OLD IS NOT NULL"
            ),
        )?;
        let mut spaces: BTreeMap<u32, Space> = BTreeMap::new();
        for (space, page, is_old) in held.into_iter().take(MOST_PAGES) {
            let heat = if is_old { OLD } else { YOUNG };
            spaces.entry(space).or_default().pages.push((page, heat));
        }
        let names: Vec<(u32, String, u32, u32)> = rows(server, names)?;
        for (space, name, page_size, compressed) in names {
            // Those of tables have the name of a schema.
            let file = format!("{name}.ibd");
            if let Some(space) = spaces.get_mut(&space) {
                space.file = Some(file).filter(|file| is_listed(file) && file.contains('/'));
                space.page_size = if compressed > 0 {
                    compressed
                } else {
                    page_size
                };
            }
        }
        for space in spaces.values_mut() {
            space.pages.sort_unstable();
            space.pages.dedup_by_key(|(page, _)| *page);
        }
        Ok(Pool {
            taken: began,
            took: began.elapsed(),
            pages: spaces.values().map(|space| space.pages.len()).sum(),
            spaces,
        })
    }

    /// How long the server took.
    pub fn took(&self) -> Duration {
        self.took
    }

    pub fn is_due(&self) -> bool {
        self.taken.elapsed() >= RARELY.max(self.took * TIMES)
    }

    /// Adds its pages to a list of the same server.
    pub fn add_to(&self, list: &mut List) {
        let known: BTreeMap<u32, String> = list
            .files
            .iter()
            .filter_map(|(name, file)| Some((file.space?, name.clone())))
            .collect();
        for (number, space) in &self.spaces {
            let Some(name) = known.get(number).or(space.file.as_ref()) else {
                continue;
            };
            let file = list
                .files
                .entry(name.clone())
                .or_insert_with(|| space.unseen(*number));
            // It may have become shorter meanwhile.
            let there = space.pages.iter().filter(|(page, _)| *page < file.pages);
            file.hot = merged(&file.hot, there.copied());
        }
    }
}

impl Space {
    /// Of a file of which nothing is cached.
    fn unseen(&self, space: u32) -> File {
        let last = self.pages.last().map_or(0, |(page, _)| *page);
        File {
            page_size: self.page_size,
            pages: last + 1,
            space: Some(space),
            ..File::default()
        }
    }
}

fn rows<T: mysql::prelude::FromRow>(server: &mut Server, sql: &str) -> Result<Vec<T>, Failure> {
    server.rows(sql).map_err(|error| {
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

/// All pages of both, which are in ascending order; of a page in both the higher heat.
fn merged(one: &[(u32, u8)], other: impl Iterator<Item = (u32, u8)>) -> Vec<(u32, u8)> {
    let mut merged = Vec::with_capacity(one.len());
    let mut one = one.iter().copied().peekable();
    for (page, heat) in other {
        while let Some(before) = one.next_if(|(at, _)| *at < page) {
            merged.push(before);
        }
        let same = one.next_if(|(at, _)| *at == page);
        merged.push((page, same.map_or(heat, |(_, of)| of.max(heat))));
    }
    merged.extend(one);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(file: &str, pages: &[(u32, u8)]) -> Space {
        Space {
            file: Some(file.into()),
            page_size: 16384,
            pages: pages.to_vec(),
        }
    }

    fn pool(spaces: Vec<(u32, Space)>) -> Pool {
        Pool {
            taken: Instant::now(),
            took: Duration::ZERO,
            pages: spaces.iter().map(|(_, space)| space.pages.len()).sum(),
            spaces: spaces.into_iter().collect(),
        }
    }

    #[test]
    fn pages_of_the_pool_are_added_to_those_that_are_cached() {
        let mut list = List::empty();
        let cached = File {
            page_size: 16384,
            pages: 100,
            space: Some(7),
            hot: vec![(3, 2), (9, 1), (50, 4)],
            ..File::default()
        };
        list.files.insert("d/t.ibd".into(), cached);
        let of_pool = pool(vec![
            // Of a path that only the extension knows.
            (
                7,
                space(
                    "d/@t.ibd",
                    &[(2, YOUNG), (9, YOUNG), (50, OLD), (200, YOUNG)],
                ),
            ),
            (8, space("d/u.ibd", &[(4, OLD), (6, YOUNG)])),
            (
                9,
                Space {
                    file: None,
                    ..space("undo", &[(1, YOUNG)])
                },
            ),
        ]);
        of_pool.add_to(&mut list);
        assert_eq!(
            list.files["d/t.ibd"].hot,
            [(2, YOUNG), (3, 2), (9, YOUNG), (50, 4)]
        );
        let unseen = &list.files["d/u.ibd"];
        assert_eq!(
            (unseen.pages, unseen.space, unseen.hot.as_slice()),
            (7, Some(8), &[(4, OLD), (6, YOUNG)][..])
        );
        assert_eq!(list.files.len(), 2);
    }

    #[test]
    fn it_is_asked_for_rarely() {
        let mut pool = pool(Vec::new());
        assert!(!pool.is_due());
        let Some(before) = Instant::now().checked_sub(RARELY) else {
            return;
        };
        pool.taken = before;
        assert!(pool.is_due());
        pool.took = RARELY;
        assert!(!pool.is_due(), "a pool so large is looked at more rarely");
    }
}
