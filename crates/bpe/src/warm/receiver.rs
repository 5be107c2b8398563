//! The server that is made warm: hands the list over, and watches what it loads.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::behind;
use super::list::{Granule, List, Measures, Table, encoded};
use super::prints;
use super::prints::misunderstood;
use crate::connection::plain;
use crate::failure::Failure;
use crate::quote::sql_name;
use crate::report;
use crate::server::{Flavour, Server, error_code};

/// Bytes of a statement that hands something over, about.
const MOST_OF_A_STATEMENT: usize = 60 << 10;
/// Files that are asked for at once.
const FILES_AT_ONCE: usize = 200;
/// Part of a granule that must have changed before it is handed over again.
const CHANGED: f64 = 0.05;
/// Pages of the cache that are left to the server's own, one in so many.
const OWN: u64 = 32;
/// The server forgets a command that it does not hear of for 15 s.
const HEARD_EVERY: Duration = Duration::from_secs(4);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// More pages do not fit into the memory that a server keeps for a list (64 MiB), at two bytes a page and something for each granule.
const MOST_PAGES: u64 = 28 << 20;
/// A table that somebody has locked is left alone: by default servers wait for a day, or for a year.
const WAIT_FOR_NO_LOCK: &str = "SET SESSION lock_wait_timeout = 1";

/// Why nothing of a file is loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    PageSize,
    Flags,
    Contents,
    Space,
    NotOpen,
    Locked,
    Denied,
    Missing,
}

impl LeftOut {
    pub fn text(&self) -> &'static str {
        match self {
            Self::PageSize => "their pages have another size there",
            Self::Flags => "their tablespaces are of another format there",
            Self::Contents => {
                "they hold other pages under the same numbers there: no physical copy"
            }
            Self::Space => {
                "they are other tablespaces there: this server's data are no physical copy"
            }
            Self::NotOpen => "the server does not have them open",
            Self::Locked => "another session has locked them, or changes them",
            Self::Denied => "the account may not read them",
            Self::Missing => "there are no such tables",
        }
    }
}

/// What is known of a warming.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub done: bool,
    pub state: String,
    pub percent: f64,
    pub listed: u64,
    pub loaded: u64,
    pub skipped: u64,
    pub reads: u64,
    /// Loading is slowed down, as the server falls behind.
    pub slowed: bool,
}

pub struct Receiver {
    pub server: Server,
    /// When it was asked last.
    heard: Instant,
    name: String,
    /// Pages that fit, more or less.
    bytes_capacity: u64,
    /// What was handed over.
    given: BTreeMap<(String, u32), Granule>,
    /// `bpe_warm_io_capacity` before, if it was set here.
    before: Option<u64>,
    /// Whether pages of a tablespace are the same here, by its file and the source's number of it; `None` if that cannot be told.
    compared: BTreeMap<(String, Option<u32>), Option<bool>>,
    /// Only tables count, not pages.
    by_name: bool,
    /// What was seen of the files.
    measures: BTreeMap<String, Measures>,
    /// The first denial, in the server's words.
    pub denied: Option<String>,
}

impl Receiver {
    /// Begins a warming. `capacity`: what `bpe_warm_io_capacity` is set to, if anything. `by_name`: whole tables are loaded, whatever
    /// their pages are.
    ///
    /// # Errors
    /// The account lacks the right, the server refuses, or is older.
    pub fn begin(
        mut server: Server,
        capacity: Option<u64>,
        by_name: bool,
    ) -> Result<Receiver, Failure> {
        report::require_plugin(&mut server)?;
        server
            .execute(WAIT_FOR_NO_LOCK)
            .map_err(|error| Failure::step(plain(&error)))?;
        let now = server.number("bpe_warm_io_capacity")?.ok_or_else(|| {
            Failure::refused(
                "the plugin on the server that is to be made warm is older and cannot load pages",
            )
            .advise("install the bpe.so that belongs to this command, and restart the server")
        })?;
        let before = match capacity {
            Some(capacity) if capacity != now => {
                let set = format!("SET GLOBAL bpe_warm_io_capacity = {capacity}");
                server
                    .execute(&set)
                    .map_err(|error| Failure::step(plain(&error)))?;
                Some(now)
            }
            _ => None,
        };
        let asked = report::ask(&mut server, "warm-start", "cannot load pages");
        let answer = asked.inspect_err(|_| put_back(&mut server, before))?;
        if let Some(why) = answer["error"].as_str() {
            let refused = Failure::refused(why);
            let refused = match now {
                0 if capacity.is_none() => refused.advise(
                    "or give --io-capacity, which sets it for as long as this command runs",
                ),
                _ if why.contains("another warming") => refused.advise(
                    "end the other `bpe warm`; one that was killed is forgotten after 15 s",
                ),
                _ => refused,
            };
            put_back(&mut server, before);
            return Err(refused);
        }
        let name = answer["warming"].as_str().filter(|name| is_word(name));
        // A server that hangs is left, and tried again.
        server.wait_for_answers(Some(PATIENCE));
        Ok(Receiver {
            heard: Instant::now(),
            name: name.ok_or_else(misunderstood)?.to_owned(),
            bytes_capacity: answer["bytes_capacity"].as_u64().unwrap_or(0),
            server,
            given: BTreeMap::new(),
            before,
            compared: BTreeMap::new(),
            by_name,
            measures: BTreeMap::new(),
            denied: None,
        })
    }

    fn ask(&mut self, what: &str, rest: &str) -> Result<Value, Failure> {
        let argument = format!("warm-{what} {}{rest}", self.name);
        let answer = report::ask(&mut self.server, &argument, "cannot load pages")
            .map_err(|failure| self.server.without_answer(failure))?;
        self.heard = Instant::now();
        match answer["error"].as_str() {
            Some(why) => Err(Failure::step(why)),
            None => Ok(answer),
        }
    }

    /// Whether nothing was handed over yet.
    pub fn is_new(&self) -> bool {
        self.given.is_empty()
    }

    /// Pages of this list that fit into the cache, more or less.
    pub fn room_for(&self, list: &List) -> u64 {
        let (pages, bytes) = (list.pages(), list.bytes());
        let usual = bytes.checked_div(pages).unwrap_or(16384).max(1024);
        let fits = self.bytes_capacity / usual;
        (fits - fits / OWN).min(MOST_PAGES)
    }

    /// Hands over what has changed since it was handed over last, and lets the server load. Which files are left out, and why.
    ///
    /// # Errors
    /// The server went away, or refuses what it is given.
    pub fn hand_over(&mut self, list: &List) -> Result<BTreeMap<String, LeftOut>, Failure> {
        let left_out = self.look_at_files(list)?;
        if let Some((others, all)) = self.is_no_copy() {
            return Err(Failure::refused(format!(
                "its data are no physical copy: of {all} files that were compared {others} hold other pages under the same numbers, so a \
                 list of pages means nothing there"
            ))
            .advise(
                "make the standby by mariadb-backup, an SST, MySQL's clone, or a copy of the files; or give --by-name, which loads the \
                 tables that are cached nearly whole on the other server",
            ));
        }
        let by_name = self.by_name.then(|| list.by_name(&self.measures));
        let list = by_name.as_ref().unwrap_or(list);
        let granules = list.granules(self.room_for(list));
        let mut changed: Vec<(String, u32, u32, String)> = Vec::new();
        for ((name, number), granule) in &granules {
            let Some(file) = list
                .files
                .get(*name)
                .filter(|_| !left_out.contains_key(*name))
            else {
                continue;
            };
            let key = ((*name).to_owned(), *number);
            if self
                .given
                .get(&key)
                .is_none_or(|given| differ(given, granule))
            {
                changed.push((
                    key.0.clone(),
                    file.page_size,
                    *number,
                    encoded(*number, granule),
                ));
                self.given.insert(key, granule.clone());
            }
        }
        let gone: Vec<(String, u32)> = self
            .given
            .keys()
            .filter(|(name, number)| {
                !granules.contains_key(&(name.as_str(), *number)) || left_out.contains_key(name)
            })
            .cloned()
            .collect();
        for key in gone {
            self.given.remove(&key);
            let page_size = list.files.get(&key.0).map_or(16384, |file| file.page_size);
            changed.push((key.0, page_size, key.1, String::new()));
        }
        self.put(&changed)?;
        self.ask("go", &format!(" {}", list.age().as_secs()))?;
        Ok(left_out)
    }

    fn put(&mut self, changed: &[(String, u32, u32, String)]) -> Result<(), Failure> {
        let mut statement = String::new();
        for (n, (file, page_size, granule, list)) in changed.iter().enumerate() {
            let one =
                json!({ "file": file, "page_size": page_size, "granule": granule, "list": list });
            let _ = write!(
                statement,
                "{}{one}",
                if statement.is_empty() { "" } else { "," }
            );
            let next = changed
                .get(n + 1)
                .map_or(0, |next| next.0.len() + next.3.len() + 100);
            if n + 1 == changed.len() || statement.len() + next > MOST_OF_A_STATEMENT {
                self.ask("put", &format!(" [{statement}]"))?;
                statement.clear();
            }
        }
        Ok(())
    }

    /// Lets the server open what it has not opened, and compares what it says of each file with the list.
    fn look_at_files(&mut self, list: &List) -> Result<BTreeMap<String, LeftOut>, Failure> {
        let mut left_out = BTreeMap::new();
        let names: Vec<&String> = list.files.keys().collect();
        for names in names.chunks(FILES_AT_ONCE) {
            let mut told = self.ask_files(names)?;
            let closed = |told: &[Value], n: usize| !told[n]["open"].as_bool().unwrap_or(false);
            let mut touched = false;
            for (n, name) in names.iter().enumerate() {
                if !closed(&told, n) {
                    continue;
                }
                if let Some(table) = &list.files[*name].table {
                    if let Err(why) = self.touch(table)? {
                        left_out.insert((*name).clone(), why);
                    }
                    touched = true;
                    self.is_here()?;
                }
            }
            if touched {
                told = self.ask_files(names)?;
            }
            for (n, name) in names.iter().enumerate() {
                if left_out.contains_key(*name) {
                    continue;
                }
                let (file, here) = (&list.files[*name], &told[n]);
                let number = |name: &str| here[name].as_u64();
                let differs = |of: Option<u32>, name: &str, mask: u64| {
                    let both = of.zip(number(name));
                    both.is_some_and(|(of, here)| u64::from(of) & mask != here & mask)
                };
                let pages = number("pages").and_then(|pages| u32::try_from(pages).ok());
                let size = number("page_size").and_then(|size| u32::try_from(size).ok());
                if let (Some(pages), Some(page_size)) = (pages, size) {
                    self.measures
                        .insert((*name).clone(), Measures { page_size, pages });
                }
                let why = if closed(&told, n) {
                    Some(LeftOut::NotOpen)
                } else if self.by_name {
                    None
                } else if number("page_size")
                    .is_some_and(|size| size != 0 && size != u64::from(file.page_size))
                {
                    Some(LeftOut::PageSize)
                } else if differs(file.flags, "flags", !(DATA_DIRECTORY | DICTIONARY)) {
                    Some(LeftOut::Flags)
                } else {
                    // Copies may have given other numbers to tables that were made since, which pages tell better.
                    match self.compare(name, list)? {
                        Some(true) => None,
                        Some(false) => Some(LeftOut::Contents),
                        None if differs(file.space, "space", u64::MAX) => Some(LeftOut::Space),
                        None => None,
                    }
                };
                if let Some(why) = why {
                    left_out.insert((*name).clone(), why);
                }
            }
        }
        Ok(left_out)
    }

    /// Whether pages of a file are those of the list; `None` if that cannot be told.
    fn compare(&mut self, name: &str, list: &List) -> Result<Option<bool>, Failure> {
        let Some((sample, secret)) = list.prints.get(name).zip(list.secret.as_ref()) else {
            return Ok(None);
        };
        let key = (name.to_owned(), sample.space);
        if let Some(known) = self.compared.get(&key) {
            return Ok(*known);
        }
        let files: &[(&str, &[u32])] = &[(name, &sample.pages)];
        let here = prints::of_all(&mut self.server, &self.name, secret, files)?;
        let here = here.into_iter().next().ok_or_else(misunderstood)?;
        let agree = prints::agree(&sample.prints, &here);
        // A table may be too cold or too new to tell; that may change.
        if agree.is_some() {
            self.compared.insert(key, agree);
        }
        Ok(agree)
    }

    /// Whether most files that could be compared are others.
    fn is_no_copy(&self) -> Option<(usize, usize)> {
        let told = self.compared.values().flatten();
        let (all, others) = told.fold((0, 0), |(all, others), agree| {
            (all + 1, others + usize::from(!agree))
        });
        (others * 2 > all).then_some((others, all))
    }

    fn ask_files(&mut self, names: &[&String]) -> Result<Vec<Value>, Failure> {
        let answer = self.ask("files", &format!(" {}", json!(names)))?;
        let files = answer["files"]
            .as_array()
            .filter(|files| files.len() == names.len());
        Ok(files.ok_or_else(misunderstood)?.clone())
    }

    /// Says that this command is still there, if it has not been heard of for a while.
    ///
    /// # Errors
    /// As of [`progress`](Self::progress).
    pub fn is_here(&mut self) -> Result<(), Failure> {
        if self.heard.elapsed() >= HEARD_EVERY {
            self.ask("next", "")?;
        }
        Ok(())
    }

    /// Reads a row, so that the server opens the file.
    fn touch(&mut self, table: &Table) -> Result<Result<(), LeftOut>, Failure> {
        match self.server.value(&touch(self.server.flavour, table)) {
            Ok(_) => Ok(Ok(())),
            // It took a second: there are many rows that nobody sees any more. The file is open by then.
            Err(error) if TOOK_TOO_LONG.contains(&error_code(&error)) => Ok(Ok(())),
            Err(error) if self.server.lost().is_some() => Err(Failure::new(
                crate::failure::Exit::Connect,
                format!("the server does not answer: {}", plain(&error)),
            )),
            Err(error) => Ok(Err(match error_code(&error) {
                // Access to a schema, a table, a column.
                1044 | 1142 | 1143 => {
                    self.denied.get_or_insert_with(|| plain(&error));
                    LeftOut::Denied
                }
                // No such schema, table, partition.
                1049 | 1146 | 1735 => LeftOut::Missing,
                1205 => LeftOut::Locked,
                // No key for an encrypted table, and whatever else keeps it shut.
                _ => LeftOut::NotOpen,
            })),
        }
    }

    /// How far it is. Says, too, that this command is still there: to be asked every few seconds. `slowed`: loading is to leave the
    /// disk to the server, until it is asked again.
    ///
    /// # Errors
    /// The server went away, or has ended the warming.
    pub fn progress(&mut self, slowed: bool) -> Result<Progress, Failure> {
        let rest = match slowed {
            true => format!(" {}", behind::PERCENT),
            false => String::new(),
        };
        let answer = self.ask("next", &rest)?;
        let number = |name: &str| answer[name].as_u64().unwrap_or(0);
        Ok(Progress {
            done: answer["done"].as_bool().unwrap_or(false),
            state: answer["state"].as_str().unwrap_or_default().to_owned(),
            percent: answer["percent"].as_f64().unwrap_or(-1.0),
            listed: number("listed"),
            loaded: number("loaded"),
            skipped: number("skipped"),
            reads: number("reads"),
            slowed,
        })
    }

    /// Whether somebody has set `bpe_warm_io_capacity` to 0, which ends the warming.
    pub fn is_stopped(&mut self) -> bool {
        matches!(self.server.number("bpe_warm_io_capacity"), Ok(Some(0)))
    }

    /// Ends the warming. What was loaded stays.
    pub fn end(mut self) {
        let _ = self.ask("stop", "");
        put_back(&mut self.server, self.before);
    }

    /// Between two questions of [`progress`](Self::progress).
    pub const PAUSE: Duration = Duration::from_millis(300);
}

fn put_back(server: &mut Server, before: Option<u64>) {
    if let Some(before) = before {
        let _ = server.execute(&format!("SET GLOBAL bpe_warm_io_capacity = {before}"));
    }
}

/// A flag of MySQL's that says where the file lies.
const DATA_DIRECTORY: u64 = 1 << 10;
/// A flag of MySQL's that says that the tablespace describes its tables. A new table's file has it once its first page is flushed.
const DICTIONARY: u64 = 1 << 14;

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL.
const TOOK_TOO_LONG: [u16; 2] = [1969, 3024];

/// For a second at most.
fn touch(flavour: Flavour, table: &Table) -> String {
    // A subpartition stands after a colon; its partition is enough for a look, but not for its file.
    let partition = table.partition.as_ref().map(|partition| {
        let last = partition.rsplit(':').next().unwrap_or(partition);
        format!(" PARTITION ({})", sql_name(last))
    });
    let select = match flavour {
        Flavour::MariaDb => "SET STATEMENT max_statement_time = 1 FOR SELECT",
        Flavour::MySql => "SELECT /*+ MAX_EXECUTION_TIME(1000) */",
    };
    format!(
        "{select} 1 FROM {}.{}{} LIMIT 1",
        sql_name(&table.schema),
        sql_name(&table.table),
        partition.unwrap_or_default()
    )
}

/// Whether two granules differ so much that the new one should be handed over.
fn differ(old: &Granule, new: &Granule) -> bool {
    let mut olds = old.iter().peekable();
    let mut changes = 0;
    for one in new {
        while olds.next_if(|old| old.0 < one.0).is_some() {
            changes += 1;
        }
        match olds.next_if(|old| old.0 == one.0) {
            Some(old) if old.1 == one.1 => {}
            _ => changes += 1,
        }
    }
    changes += olds.count();
    changes as f64 > old.len().max(new.len()) as f64 * CHANGED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_touched_by_their_names() {
        let table = |flavour, partition: Option<&str>| {
            let table = Table {
                schema: "a`b".into(),
                table: "t".into(),
                partition: partition.map(str::to_owned),
            };
            touch(flavour, &table)
        };
        let mysql = "SELECT /*+ MAX_EXECUTION_TIME(1000) */ 1 FROM `a``b`.`t`";
        for (partition, rest) in [
            (None, ""),
            (Some("p0"), " PARTITION (`p0`)"),
            (Some("p0:s1"), " PARTITION (`s1`)"),
        ] {
            assert_eq!(
                table(Flavour::MySql, partition),
                format!("{mysql}{rest} LIMIT 1")
            );
        }
        assert_eq!(
            table(Flavour::MariaDb, None),
            "SET STATEMENT max_statement_time = 1 FOR SELECT 1 FROM `a``b`.`t` LIMIT 1"
        );
    }

    #[test]
    fn small_changes_wait() {
        let of = |pages: std::ops::Range<u32>, class| {
            pages.map(|page| (page, class)).collect::<Granule>()
        };
        assert!(!differ(&of(0..100, 1), &of(0..100, 1)));
        assert!(!differ(&of(0..100, 1), &of(2..103, 1)));
        assert!(differ(&of(0..100, 1), &of(4..104, 1)));
        assert!(differ(&of(0..100, 1), &of(0..100, 2)));
        assert!(differ(&Vec::new(), &of(0..1, 1)) && differ(&of(0..1, 1), &Vec::new()));
    }
}
