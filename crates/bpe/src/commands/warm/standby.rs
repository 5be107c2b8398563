//! The server to warm: receives the list, and loads it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::fingerprints::{self, Compared, Sample, misunderstood};
use super::lag::Lag;
use super::list::{List, PART_FILES, Piece, Table};
use crate::connect::server::{Flavour, Server, error_code};
use crate::connect::{Target, plain, report};
use crate::support::failure::{Exit, Failure};
use crate::support::quote::sql_name;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Skips a table that another session has locked; the servers' default timeouts are a day or a year.
const LOCK_TIMEOUT: &str = "SET SESSION lock_wait_timeout = 1";
const IO_CAPACITY: &str = interface::variables::WARM_IO_CAPACITY.name;
/// Divisor of the capacity for loading while the server falls behind.
const BEHIND_PART: u64 = 10;
/// ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL.
const TOOK_TOO_LONG: [u16; 2] = [1969, 3024];

/// Files from which nothing is loaded, grouped by reason. Only some are named.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LeftOut {
    pub reason: String,
    pub files: usize,
    pub names: Vec<String>,
}

/// The answer to `warm-status`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WarmProgress {
    pub state: String,
    pub percent: f64,
    pub listed: u64,
    pub loaded: u64,
    pub skipped: u64,
    pub reads: u64,
    pub left_out: Vec<LeftOut>,
    /// Whether loading is slowed down because the server falls behind.
    #[serde(skip)]
    pub is_slowed: bool,
}

/// The server's description of an open file.
#[derive(Clone, Debug, Deserialize)]
struct Here {
    page_size: u32,
    pages: u32,
}

impl WarmProgress {
    pub fn is_done(&self) -> bool {
        !matches!(&*self.state, "loading" | "paused")
    }
}

/// `bpe_warm_io_capacity` while this command runs.
struct Capacity {
    /// Value to restore at the end.
    before: u64,
    full: u64,
    set: u64,
}

impl Capacity {
    fn of(now: u64) -> Capacity {
        Capacity {
            before: now,
            full: now,
            set: now,
        }
    }

    fn set(&mut self, server: &mut Server, capacity: u64) -> Result<(), Failure> {
        if capacity != self.set {
            let set = format!("SET GLOBAL {IO_CAPACITY} = {capacity}");
            let failed =
                |error| Failure::refused(format!("{IO_CAPACITY} cannot be set: {}", plain(&error)));
            server.execute(&set).map_err(failed)?;
            self.set = capacity;
        }
        Ok(())
    }

    /// Slows loading down, or restores its speed. Adopts a value set by an administrator.
    fn slow(&mut self, server: &mut Server, is_behind: bool) -> Result<(), Failure> {
        if is_behind == (self.set < self.full) {
            return Ok(());
        }
        if let Some(now) = server.number(IO_CAPACITY)?.filter(|now| *now != self.set) {
            *self = Capacity::of(now);
        }
        let part = (self.full / BEHIND_PART).max(1).min(self.full);
        self.set(server, if is_behind { part } else { self.full })
    }

    fn put_back(&mut self, server: &mut Server) {
        // A value set by an administrator stays.
        if matches!(server.number(IO_CAPACITY), Ok(Some(now)) if now == self.set) {
            let _ = self.set(server, self.before);
        }
    }
}

pub struct Standby {
    target: Target,
    server: Server,
    /// When the capacity was set.
    since: Instant,
    capacity: Capacity,
    wanted_capacity: Option<u64>,
    /// Whether to load whole tables instead of listed pages.
    by_name: bool,
    pub compared: Compared,
    pub lag: Lag,
    /// Files of the last list that were not sent, by reason.
    left_out: BTreeMap<&'static str, Vec<String>>,
    /// The first denied privilege, as the server's message.
    pub denied: Option<String>,
}

/// Connects, and reads `bpe_warm_io_capacity`.
fn connect(target: &mut Target) -> Result<(Server, u64), Failure> {
    let mut server = Server::log_in(target)?;
    report::require_plugin(&mut server)?;
    server
        .execute(LOCK_TIMEOUT)
        .map_err(|error| Failure::step(plain(&error)))?;
    server.wait_for_answers(Some(ANSWER_TIMEOUT));
    let capacity = server.number(IO_CAPACITY)?.ok_or_else(|| {
        Failure::refused("the plugin on this server is older and cannot load pages")
            .advise("install the bpe.so that belongs to this command, and restart the server")
    })?;
    Ok((server, capacity))
}

impl Standby {
    /// Connects. `capacity`: value for `bpe_warm_io_capacity`, if any. `by_name`: load whole tables.
    ///
    /// # Errors
    /// The account lacks a privilege, the server cannot load pages, or it does not answer.
    pub fn connect(
        target: &mut Target,
        capacity: Option<u64>,
        by_name: bool,
    ) -> Result<Standby, Failure> {
        let (server, now) = connect(target)?;
        let mut standby = Standby {
            target: target.clone(),
            server,
            since: Instant::now(),
            capacity: Capacity::of(now),
            wanted_capacity: capacity,
            by_name,
            compared: Compared::new(),
            lag: Lag::default(),
            left_out: BTreeMap::new(),
            denied: None,
        };
        standby.begin()?;
        Ok(standby)
    }

    /// Sets the capacity, and checks that the server can load pages before there is a list.
    fn begin(&mut self) -> Result<(), Failure> {
        self.since = Instant::now();
        self.capacity.full = self.wanted_capacity.unwrap_or(self.capacity.before);
        let full = self.capacity.full;
        self.capacity.set(&mut self.server, full)?;
        let asked = self.files(&[]);
        asked.map(drop).map_err(|failure| {
            self.capacity.put_back(&mut self.server);
            match full {
                0 => failure.advise(
                    "or give --io-capacity, which sets it for as long as this command runs",
                ),
                _ => failure,
            }
        })
    }

    /// Reconnects, because the connection may be old. A value of `bpe_warm_io_capacity` set by an administrator stays,
    /// unless the server was restarted.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_again(&mut self) -> Result<(), Failure> {
        let (server, now) = connect(&mut self.target)?;
        self.server = server;
        let uptime = self.server.number_of_status("uptime")?;
        if uptime.is_some_and(|uptime| uptime < self.since.elapsed().as_secs()) {
            self.capacity = Capacity::of(now);
            self.begin()?;
        }
        Ok(())
    }

    fn ask(&mut self, argument: &str) -> Result<Value, Failure> {
        let answer = report::ask(&mut self.server, argument, "cannot load pages")
            .map_err(|failure| self.server.without_answer(failure))?;
        match answer["error"].as_str() {
            Some(why) => Err(Failure::refused(why)),
            None => Ok(answer),
        }
    }

    /// Sends a list, and starts its loading. Returns the number of pages in files that the server can load.
    ///
    /// # Errors
    /// The connection was lost, or the server refuses the list.
    pub fn hand_over(&mut self, list: &List) -> Result<u64, Failure> {
        self.left_out.clear();
        let sizes = self.open_files(list)?;
        let mut list = match self.by_name {
            true => list.by_name(&sizes).ok_or_else(misunderstood)?,
            false => {
                self.compare(list, &sizes)?;
                list.clone()
            }
        };
        let closed: BTreeSet<String> = self.left_out.values().flatten().cloned().collect();
        let mut others = BTreeSet::new();
        list.pieces.retain_mut(|piece| {
            match self.compared.get(&(piece.file.clone(), piece.space)) {
                // On a copy, tables that were created later may have other tablespace numbers. Their pages are better evidence.
                Some(true) => piece.space = None,
                Some(false) => drop(others.insert(piece.file.clone())),
                None => {}
            }
            !closed.contains(&piece.file) && !others.contains(&piece.file)
        });
        if !others.is_empty() {
            let reason = "they hold other pages under the same numbers there: no physical copy";
            self.left_out.insert(reason, others.into_iter().collect());
        }
        self.files(&[])?;
        for part in list.parts() {
            self.ask(&format!("warm-put {part}"))?;
        }
        let answer = self.ask(&format!("warm-load {}", list.age().as_secs()))?;
        answer["pages"].as_u64().ok_or_else(misunderstood)
    }

    /// Makes the server open closed files. Returns page size and length in pages of each open file.
    fn open_files(&mut self, list: &List) -> Result<BTreeMap<String, (u32, u32)>, Failure> {
        let mut sizes = BTreeMap::new();
        let files: Vec<&Piece> = list.files().into_values().map(|pieces| pieces[0]).collect();
        for files in files.chunks(PART_FILES) {
            let mut here = self.files(files)?;
            let mut is_touched = false;
            for (file, _) in files.iter().zip(&here).filter(|(_, here)| here.is_none()) {
                if let Some(table) = &file.table {
                    is_touched = true;
                    if let Err(reason) = self.touch(table)? {
                        self.left_out
                            .entry(reason)
                            .or_default()
                            .push(file.file.clone());
                    }
                }
            }
            if is_touched {
                here = self.files(files)?;
            }
            let open = files.iter().zip(here);
            sizes.extend(open.filter_map(|(file, here)| {
                let here = here?;
                Some((file.file.clone(), (here.page_size, here.pages)))
            }));
        }
        Ok(sizes)
    }

    /// The server's description of these files; `None` for a closed one. Drops a list that was sent but not loaded.
    fn files(&mut self, files: &[&Piece]) -> Result<Vec<Option<Here>>, Failure> {
        let names = files.iter().map(|file| json!({ "file": file.file }));
        let part = json!({ "first": true, "files": names.collect::<Vec<_>>() });
        let answer = self.ask(&format!("warm-put {part}"))?;
        let here = Vec::<Option<Here>>::deserialize(&answer["files"]).ok();
        let here = here.filter(|here| here.len() == files.len());
        here.ok_or_else(misunderstood)
    }

    /// Compares pages of the open files with those of the list.
    ///
    /// # Errors
    /// Most files differ.
    fn compare(&mut self, list: &List, open: &BTreeMap<String, (u32, u32)>) -> Result<(), Failure> {
        let is_new = |sample: &&Sample| {
            let key = (sample.file.clone(), sample.space);
            open.contains_key(&sample.file) && !self.compared.contains_key(&key)
        };
        let samples: Vec<&Sample> = list.samples.iter().filter(is_new).collect();
        if let Some(secret) = list.secret.as_ref().filter(|_| !samples.is_empty()) {
            let prints = fingerprints::fetch(&mut self.server, secret, &samples)?;
            for (sample, here) in samples.into_iter().zip(prints) {
                // A table may be too cold or too new for a verdict, which may change later.
                if let Some(agree) = fingerprints::agree(&sample.prints, &here) {
                    let key = (sample.file.clone(), sample.space);
                    self.compared.insert(key, agree);
                }
            }
        }
        let others = self.compared.values().filter(|is_same| !**is_same).count();
        if others * 2 <= self.compared.len() {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "its data are no physical copy: of {} files that were compared {others} hold other pages under the same numbers, so a list of \
             pages means nothing there",
            self.compared.len()
        ))
        .advise(
            "make the standby by mariadb-backup, an SST, MySQL's clone, or a copy of the files; or give --by-name, which loads the tables \
             that are cached nearly whole on the other server",
        ))
    }

    /// Reads a row, which makes the server open the file.
    fn touch(&mut self, table: &Table) -> Result<Result<(), &'static str>, Failure> {
        match self.server.value(&touch(self.server.flavour, table)) {
            Ok(_) => Ok(Ok(())),
            // The statement timed out after a second, because many deleted rows are not purged yet. The file is open now.
            Err(error) if TOOK_TOO_LONG.contains(&error_code(&error)) => Ok(Ok(())),
            Err(error) if self.server.lost().is_some() => Err(Failure::new(
                Exit::Connect,
                format!("the server does not answer: {}", plain(&error)),
            )),
            Err(error) => Ok(Err(match error_code(&error) {
                // Access denied to a schema, a table, a column.
                1044 | 1142 | 1143 => {
                    self.denied.get_or_insert_with(|| plain(&error));
                    "the account may not read them"
                }
                // No such schema, table, partition.
                1049 | 1146 | 1735 => "there are no such tables",
                1205 => "another session has locked them, or changes them",
                // For example, a missing key of an encrypted table.
                _ => "the server cannot open them",
            })),
        }
    }

    /// The progress of loading. Slows loading down while the server falls behind.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn progress(&mut self) -> Result<WarmProgress, Failure> {
        let answer = self.ask("warm-status")?;
        let mut progress = WarmProgress::deserialize(answer).map_err(|_| misunderstood())?;
        let is_behind = !progress.is_done() && self.lag.is_growing(&mut self.server);
        self.capacity.slow(&mut self.server, is_behind)?;
        progress.is_slowed = is_behind;
        let own = self.left_out.iter();
        progress.left_out.extend(own.map(|(reason, names)| LeftOut {
            reason: (*reason).to_owned(),
            files: names.len(),
            names: names.clone(),
        }));
        Ok(progress)
    }

    /// Stops loading, and restores `bpe_warm_io_capacity`. Loaded pages stay.
    pub fn end(mut self) {
        let is_lost = self.stop().is_err() && self.server.lost().is_some();
        if is_lost && self.connect_again().is_ok() {
            let _ = self.stop();
        }
        self.capacity.put_back(&mut self.server);
    }

    fn stop(&mut self) -> Result<(), Failure> {
        self.files(&[])?;
        self.ask("warm-load 0").map(drop)
    }
}

/// A statement that takes at most a second.
fn touch(flavour: Flavour, table: &Table) -> String {
    // A colon separates partition and subpartition. The statement must name the subpartition to open its file.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touch_names_the_table_and_partition() {
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
}
