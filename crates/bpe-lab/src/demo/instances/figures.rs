//! Measurements: the content of `instances.json`, the source of the tables.

use private_server::Installation;
use serde::{Deserialize, Serialize};

use super::super::args::Workload;
use super::super::results::{Machine, server_title};
use super::super::sysbench::Summary;
use super::mutexes::{LRU_LIST, Mutex, PAGE_HASH};

/// Both experiments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Version of this program.
    pub version: String,
    /// Seconds since 1970 at the beginning.
    pub began: u64,
    /// Total wall-clock time, seconds.
    pub seconds: f64,
    pub quick: bool,
    /// For example `MySQL 9.7.4`.
    pub server: String,
    pub server_version: String,
    pub machine: Machine,
    pub in_memory: Option<InMemory>,
    /// The reason if the experiment was skipped.
    pub in_memory_left_out: Option<String>,
    pub beyond_memory: Option<BeyondMemory>,
}

/// All data in InnoDB's pool. Sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InMemory {
    pub pool: u64,
    /// Bytes of the thirty tables and the single one together.
    pub data: u64,
    /// Rows of the single table, and of all thirty together.
    pub rows: u64,
    pub threads: u64,
    /// Server options in addition to the common ones.
    pub options: Vec<String>,
    pub tests: Vec<InMemoryTest>,
}

/// One test of the first experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InMemoryTest {
    /// From 0.
    pub round: usize,
    /// innodb_buffer_pool_instances.
    pub instances: u64,
    /// Tables in use: 1 or 30.
    pub tables: u64,
    pub script: String,
    /// Statements per second, without the lead.
    pub qps: f64,
    /// sysbench's own summary, including the lead.
    pub summary: Summary,
    /// Seconds between the two counter readings.
    pub seconds: f64,
    pub mutexes: Vec<Mutex>,
    /// Pages that InnoDB read from disk in that time: about none when all data is in memory.
    pub pages_read: u64,
}

/// More data than memory, with the extension. Sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BeyondMemory {
    pub pool: u64,
    pub data: u64,
    pub cache: u64,
    pub tables: u64,
    pub rows: u64,
    pub threads: u64,
    pub tests: Vec<BeyondMemoryTest>,
}

/// One test of the second experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BeyondMemoryTest {
    /// From 0.
    pub round: usize,
    /// bpe_instances.
    pub instances: u64,
    pub script: String,
    /// Statements per second, without the lead.
    pub qps: f64,
    /// sysbench's own summary, including the lead.
    pub summary: Summary,
    /// Seconds between the two counter readings.
    pub seconds: f64,
    pub locks: Locks,
}

/// Counters of `bpe_report('instances')`, summed over the instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Locks {
    pub hits: u64,
    pub misses: u64,
    /// Page reads that searched for a page.
    pub accesses: u64,
    /// Accesses of the busiest instance.
    pub hottest: u64,
    pub lock_accesses: u64,
    /// Lock accesses that found the lock held.
    pub lock_waits: u64,
}

impl Figures {
    /// Everything known before the first test.
    pub fn begin(quick: bool, installation: &Installation, machine: Machine) -> Figures {
        Figures {
            version: env!("CARGO_PKG_VERSION").into(),
            began: now() as u64,
            seconds: 0.0,
            quick,
            server: server_title(installation),
            server_version: installation.version.clone(),
            machine,
            in_memory: None,
            in_memory_left_out: None,
            beyond_memory: None,
        }
    }

    /// Records the total time.
    pub fn end(&mut self) {
        self.seconds = (now() - self.began as f64).max(0.0);
    }
}

fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

impl InMemory {
    /// The tests of a setting, one per round.
    pub fn of(&self, workload: Workload, tables: u64, instances: u64) -> Vec<&InMemoryTest> {
        let matching = |test: &&InMemoryTest| {
            test.script == workload.script() && test.tables == tables && test.instances == instances
        };
        self.tests.iter().filter(matching).collect()
    }
}

impl BeyondMemory {
    /// The tests of a setting, one per round.
    pub fn of(&self, workload: Workload, instances: u64) -> Vec<&BeyondMemoryTest> {
        let matching = |test: &&BeyondMemoryTest| {
            test.script == workload.script() && test.instances == instances
        };
        self.tests.iter().filter(matching).collect()
    }
}

impl InMemoryTest {
    /// Lock acquisitions per second: of the page hash, or of all other locks.
    pub fn taken_per_second(&self, page_hash: bool) -> Option<f64> {
        per(self.sum(page_hash).0 as f64, self.seconds)
    }

    /// Average wait for one of them, nanoseconds.
    pub fn average_wait(&self, page_hash: bool) -> Option<f64> {
        let (taken, waited) = self.sum(page_hash);
        per(waited as f64 / 1000.0, taken as f64)
    }

    /// Percent of the accesses to LRU lists that went to the busiest instance's list.
    pub fn hottest(&self) -> Option<f64> {
        let mutex = self.mutexes.iter().find(|mutex| mutex.name == LRU_LIST)?;
        per(mutex.hottest as f64 * 100.0, mutex.taken as f64)
    }

    fn sum(&self, page_hash: bool) -> (u64, u64) {
        self.mutexes
            .iter()
            .filter(|mutex| (mutex.name == PAGE_HASH) == page_hash)
            .fold((0, 0), |(taken, waited), mutex| {
                (taken + mutex.taken, waited + mutex.waited_ps)
            })
    }
}

impl BeyondMemoryTest {
    /// Lock accesses per second.
    pub fn locks_per_second(&self) -> Option<f64> {
        per(self.locks.lock_accesses as f64, self.seconds)
    }
}

impl Locks {
    /// Percent of page reads that were served.
    pub fn hit_ratio(&self) -> Option<f64> {
        per(self.hits as f64 * 100.0, (self.hits + self.misses) as f64)
    }

    /// Percent of lock accesses that found the lock held.
    pub fn held(&self) -> Option<f64> {
        per(self.lock_waits as f64 * 100.0, self.lock_accesses as f64)
    }

    /// Percent of page reads that went to the busiest instance.
    pub fn hottest(&self) -> Option<f64> {
        per(self.hottest as f64 * 100.0, self.accesses as f64)
    }
}

fn per(of: f64, to: f64) -> Option<f64> {
    (to > 0.0).then(|| of / to)
}

/// The median; for an even number of values, the mean of the two middle ones.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Largest minus smallest, in percent of the median.
pub fn spread(values: &[f64]) -> Option<f64> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    per((most - least) * 100.0, median(values.iter().copied())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(spread(&[90.0, 110.0]), Some(20.0));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_come_from_the_counters() {
        let mutex = |name: &str, taken, waited_ps, hottest| Mutex {
            name: name.into(),
            objects: 8,
            taken,
            waited_ps,
            hottest,
        };
        let test = InMemoryTest {
            seconds: 2.0,
            mutexes: vec![
                mutex(LRU_LIST, 100, 5_000_000, 40),
                mutex("flush_list_mutex", 100, 15_000_000, 100),
                mutex(PAGE_HASH, 1000, 1_000_000, 10),
            ],
            ..InMemoryTest::default()
        };
        assert_eq!(test.taken_per_second(false), Some(100.0));
        assert_eq!(test.taken_per_second(true), Some(500.0));
        assert_eq!(test.average_wait(false), Some(100.0));
        assert_eq!(test.average_wait(true), Some(1.0));
        assert_eq!(test.hottest(), Some(40.0));
        assert_eq!(InMemoryTest::default().average_wait(true), None);
        let locks = Locks {
            hits: 3,
            misses: 1,
            accesses: 4,
            hottest: 1,
            lock_accesses: 200,
            lock_waits: 3,
        };
        assert_eq!(locks.hit_ratio(), Some(75.0));
        assert_eq!(locks.held(), Some(1.5));
        assert_eq!(locks.hottest(), Some(25.0));
    }
}
