//! Locks of InnoDB's pool, from performance_schema.
//!
//! It counts every acquisition, and the time until it succeeded, for each lock object separately. A name has as many objects
//! as the pool has instances (16 for each of the page hash's locks). It does not count contended acquisitions; a long
//! average wait indicates them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use private_server::Server;
use private_server::mysql::prelude::Queryable;

use serde::{Deserialize, Serialize};

/// The LRU list; every instance has one. Its busiest object is the busiest instance.
pub const LRU_LIST: &str = "buf_pool_LRU_list_mutex";
/// Locks of the page hash table.
pub const PAGE_HASH: &str = "hash_table_locks";

/// Locks of one name in InnoDB's pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mutex {
    pub name: String,
    /// Number of lock objects.
    pub objects: u64,
    /// Acquisitions of all objects.
    pub taken: u64,
    /// Wait time of all objects, picoseconds.
    pub waited_ps: u64,
    /// Acquisitions of the busiest object.
    pub hottest: u64,
}

/// Server options: these instruments are off by default, and can only be switched on at the start.
pub const OPTIONS: [&str; 5] = [
    "--performance-schema=ON",
    "--performance-schema-consumer-global-instrumentation=ON",
    "--performance-schema-instrument=wait/synch/mutex/innodb/buf_pool%=ON",
    "--performance-schema-instrument=wait/synch/mutex/innodb/flush_list_mutex=ON",
    "--performance-schema-instrument=wait/synch/sxlock/innodb/hash_table_locks=ON",
];

const QUERY: &str = "SELECT event_name, object_instance_begin, count_star, sum_timer_wait \
     FROM performance_schema.events_waits_summary_by_instance \
     WHERE event_name LIKE 'wait/synch/mutex/innodb/buf\\_pool%' \
     OR event_name IN ('wait/synch/mutex/innodb/flush_list_mutex', 'wait/synch/sxlock/innodb/hash_table_locks')";

/// Acquisitions and wait time (picoseconds) of each lock object (name and address).
pub type Counters = BTreeMap<(String, u64), (u64, u64)>;

/// Reads the counters.
///
/// # Errors
/// The server does not answer, or counts none of them.
pub fn read(server: &Server) -> Result<Counters> {
    let rows: Vec<(String, u64, u64, u64)> = server
        .connect()?
        .query(QUERY)
        .context("reading performance_schema")?;
    anyhow::ensure!(
        !rows.is_empty(),
        "performance_schema knows no locks of the buffer pool: this server was built without them"
    );
    let short = |name: String| name.rsplit('/').next().unwrap_or(&name).to_owned();
    Ok(rows
        .into_iter()
        .map(|(name, object, taken, waited)| ((short(name), object), (taken, waited)))
        .collect())
}

/// Differences between two readings, by name.
pub fn between(before: &Counters, after: &Counters) -> Vec<Mutex> {
    let mut mutexes: BTreeMap<&str, Mutex> = BTreeMap::new();
    for (key, (taken, waited)) in after {
        let (taken_before, waited_before) = before.get(key).copied().unwrap_or_default();
        let taken = taken.saturating_sub(taken_before);
        let mutex = mutexes.entry(&key.0).or_insert_with(|| Mutex {
            name: key.0.clone(),
            ..Mutex::default()
        });
        mutex.objects += 1;
        mutex.taken += taken;
        mutex.waited_ps += waited.saturating_sub(waited_before);
        mutex.hottest = mutex.hottest.max(taken);
    }
    mutexes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_a_name_are_added_up() {
        let key = |object| (LRU_LIST.to_owned(), object);
        let before = Counters::from([(key(1), (10, 1000)), (key(2), (0, 0))]);
        let after = Counters::from([(key(1), (40, 4000)), (key(2), (10, 1000))]);
        let mutexes = between(&before, &after);
        let [mutex] = &mutexes[..] else {
            panic!("{mutexes:?}")
        };
        assert_eq!((mutex.objects, mutex.taken, mutex.hottest), (2, 40, 30));
        assert_eq!(mutex.waited_ps, 4000);
    }
}
