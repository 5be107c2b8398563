//! The locks of InnoDB's pool as performance_schema counts them.
//!
//! It counts every time a lock is taken, and the time from asking for it to having it, for each lock object by itself:
//! as many objects of a name as the pool has instances (of the page hash's locks 16 for each). Which of them found
//! their lock held is not told; a long average wait says it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use private_server::Server;
use private_server::mysql::prelude::Queryable;

use serde::{Deserialize, Serialize};

/// The list of recently used pages; every instance has one. Its hottest object is the hottest instance.
pub const LRU_LIST: &str = "buf_pool_LRU_list_mutex";
/// The locks of the hash table through which every page is found.
pub const PAGE_HASH: &str = "hash_table_locks";

/// Locks of one name in InnoDB's pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mutex {
    pub name: String,
    /// So many there are.
    pub objects: u64,
    /// How often they were taken, all together.
    pub taken: u64,
    /// From asking for one to having it, picoseconds, all together.
    pub waited_ps: u64,
    /// How often the one was taken that was taken most.
    pub hottest: u64,
}

/// Server options: these instruments are off by default and can only be switched on at the start.
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

/// Times taken and picoseconds waited, of each lock object (name and address).
pub type Counters = BTreeMap<(String, u64), (u64, u64)>;

/// The counters now.
///
/// # Errors
/// When the server does not answer, or counts none of them.
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

/// What happened between two readings, by name.
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
