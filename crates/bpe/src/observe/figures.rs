//! Figures: a server's activity between two readings.

use serde::Serialize;

use super::histogram::Quantiles;
use super::sample::Sample;

/// Rates are of the interval, names that end in `_total` since the cache was opened, everything else is of its end.
///
/// The latency of InnoDB's own pool is not among them: InnoDB does not measure it, and the hooks only see its misses. Its
/// share of the reads is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub interval_s: f64,
    /// `active`, `bypass`, `disabled`, `passive`, `failed` or `not installed`.
    pub state: String,
    pub state_reason: String,
    /// How the server's asynchronous I/O was seen to work.
    pub async_mode: String,
    pub uptime_s: u64,

    /// Statements of clients.
    pub qps: f64,
    /// Statements COMMIT and ROLLBACK.
    pub tps: f64,
    pub threads_running: u64,
    pub connections: u64,

    /// Page requests that InnoDB's pool answered from memory.
    pub pool_reads_per_s: f64,
    /// Reads that missed the pool and were answered by the cache.
    pub cache_reads_per_s: f64,
    /// Page reads that went to the data files. While the extension does not count them: what InnoDB read.
    pub data_reads_per_s: f64,
    /// Pages that InnoDB says it has read, from wherever.
    pub innodb_reads_per_s: f64,
    /// Of them, those of which the extension has seen neither a hit nor a read of the data file.
    pub unseen_reads_per_s: f64,
    /// Share of page requests that the pool answered; `None` if there were none.
    pub pool_hit_percent: Option<f64>,
    /// Of the reads that the cache was asked for in this interval; `None` if there were none.
    pub hit_ratio_percent: Option<f64>,
    pub hit_ratio_total_percent: f64,
    pub misses_per_s: f64,
    /// Misses of pages that had been read before, recently. A larger cache would have had many of them.
    pub misses_returned_per_s: f64,

    /// `None` if there were no reads.
    pub cache_read_us: Option<Quantiles>,
    /// `None` if there were no reads.
    pub data_read_us: Option<Quantiles>,
    /// The server refuses the report `latency`, which needs the PROCESS privilege.
    pub latency_refused: bool,

    pub saved_reads_total: u64,
    pub saved_bytes_per_s: f64,
    /// Bytes of the pages that the cache answered, each as long as in its data file.
    pub saved_bytes_total: u64,
    /// Microseconds that a read of the cache takes less than one of the data files, by both p50: of the interval, or where it
    /// had no reads of one kind, of the time since the cache was opened.
    pub gain_us: Option<f64>,
    /// Milliseconds that all clients together did not wait, each second: reads saved, times `gain_us`. Less than 0 when
    /// the cache is slower than the data disk; `None` while one of both is not known.
    pub saved_ms_per_s: Option<f64>,

    pub cache_written_bytes_per_s: f64,
    pub cache_written_bytes_24h: u64,
    /// What InnoDB wrote, its own bookkeeping included.
    pub data_written_bytes_per_s: f64,

    pub pages_cached: u64,
    pub bytes_cached: u64,
    pub capacity_bytes: u64,
    pub memory_bytes: u64,
    pub pool_bytes: u64,

    pub admitted_per_s: f64,
    pub rejected_per_s: f64,
    pub evicted_per_s: f64,
    pub invalidated_per_s: f64,
    /// Offers dropped because the writer was behind.
    pub dropped_staging_full_per_s: f64,
    /// Offers turned away because bpe_daily_write_limit was used up.
    pub write_limit_rejected_per_s: f64,
    pub lock_accesses_per_s: f64,
    /// Share of accesses to instance locks that found the lock held; `None` if there were none.
    pub lock_wait_percent: Option<f64>,

    pub device_errors: u64,
    /// Reads of cache disks that were not answered within a second.
    pub reads_given_up: u64,
    pub failed_proofs: u64,
    /// How often a data file looked otherwise without a change by the server, since it started.
    pub audit_suspicions: u64,
    /// Data files that are not cached for that reason now.
    pub suspended_files: u64,
    /// Pages that are damaged in the data files, and whole in the cache.
    pub damaged_pages: u64,
}

impl Figures {
    /// Errors of cache disks and failed proofs.
    pub fn errors(&self) -> u64 {
        self.device_errors.saturating_add(self.failed_proofs)
    }

    /// Figures of the time from `before` to `now`.
    pub fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = (now.taken - before.taken).as_secs_f64().max(1e-3);
        let more = |name: &str| now.growth(before, name);
        let rate = |name: &str| more(name) as f64 / seconds;
        let active = now.state() == "active";
        let (hits, misses) = (more("bpe_hits"), more("bpe_misses"));
        let requests = more("innodb_buffer_pool_read_requests");
        // A request that waits for a page read is counted once more than it is served.
        let from_memory = requests.saturating_sub(more("innodb_buffer_pool_reads"));
        let [cache_read_us, data_read_us] = latency_between(before, now);
        let cache_reads_per_s = hits as f64 / seconds;
        let [cache_total, data_total] = now.quantiles();
        let cache = cache_read_us.or(cache_total);
        let data = data_read_us.or(data_total);
        let gain = cache.zip(data).map(|(cache, data)| data.p50 - cache.p50);
        Self {
            at_ms: now.at_ms,
            interval_s: seconds,
            state: now.state().to_owned(),
            state_reason: now.text("bpe_state_reason").to_owned(),
            async_mode: now.text("bpe_async_mode").to_owned(),
            uptime_s: now.count("uptime"),
            qps: rate("questions"),
            tps: rate("com_commit") + rate("com_rollback"),
            threads_running: now.count("threads_running"),
            connections: now.count("threads_connected"),
            pool_reads_per_s: from_memory as f64 / seconds,
            cache_reads_per_s,
            data_reads_per_s: if active {
                rate("bpe_data_reads")
            } else {
                rate("innodb_pages_read")
            },
            innodb_reads_per_s: rate("innodb_pages_read"),
            unseen_reads_per_s: more("innodb_pages_read")
                .saturating_sub(hits.saturating_add(more("bpe_data_reads")))
                as f64
                / seconds,
            pool_hit_percent: percent(from_memory, requests),
            hit_ratio_percent: percent(hits, hits.saturating_add(misses)),
            hit_ratio_total_percent: now.number("bpe_hit_ratio"),
            misses_per_s: misses as f64 / seconds,
            misses_returned_per_s: rate("bpe_misses_returned"),
            cache_read_us,
            data_read_us,
            latency_refused: now.installed() && now.latency.is_none(),
            saved_reads_total: now.count("bpe_hits"),
            saved_bytes_per_s: rate("bpe_bytes_saved"),
            saved_bytes_total: now.count("bpe_bytes_saved"),
            gain_us: gain,
            saved_ms_per_s: if hits == 0 {
                Some(0.0)
            } else {
                gain.map(|gain| cache_reads_per_s * gain / 1000.0)
            },
            cache_written_bytes_per_s: rate("bpe_bytes_written"),
            cache_written_bytes_24h: now.count("bpe_bytes_written_24h"),
            data_written_bytes_per_s: rate("innodb_data_written"),
            pages_cached: now.count("bpe_pages_cached"),
            bytes_cached: now.count("bpe_bytes_cached"),
            capacity_bytes: now.count("bpe_capacity_bytes"),
            memory_bytes: now.count("bpe_memory_bytes"),
            pool_bytes: now.pool_bytes,
            admitted_per_s: rate("bpe_admitted"),
            rejected_per_s: rate("bpe_rejected"),
            evicted_per_s: rate("bpe_evicted"),
            invalidated_per_s: rate("bpe_invalidated"),
            dropped_staging_full_per_s: rate("bpe_dropped_staging_full"),
            write_limit_rejected_per_s: rate("bpe_write_limit_rejected"),
            lock_accesses_per_s: rate("bpe_instance_lock_accesses"),
            lock_wait_percent: percent(
                more("bpe_instance_lock_waits"),
                more("bpe_instance_lock_accesses"),
            ),
            device_errors: now.count("bpe_device_errors"),
            reads_given_up: now.count("bpe_reads_given_up"),
            failed_proofs: now.count("bpe_failed_proofs"),
            audit_suspicions: now.count("bpe_audit_suspicions"),
            suspended_files: now.count("bpe_suspended_files"),
            damaged_pages: now.count("bpe_damaged_pages"),
        }
    }
}

/// A ratio in percent; `None` if `of` is 0.
pub fn percent(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (part as f64 * 100.0 / of as f64).min(100.0))
}

/// Quantiles of cache and data file reads between two samples that both have histograms.
fn latency_between(before: &Sample, now: &Sample) -> [Option<Quantiles>; 2] {
    let (Some([old_cache, old_data]), Some([cache, data])) = (&before.latency, &now.latency) else {
        return [None; 2];
    };
    [cache.since(old_cache), data.since(old_data)].map(|of| of.quantiles())
}

/// Running threads below which nothing counts as piled up.
const MIN_THREADS: f64 = 8.0;
/// Factor over the usual number of running threads.
const MAX_THREAD_RATIO: f64 = 2.0;

/// Whether running threads have piled up, compared with their usual number.
pub fn are_piled_up(threads: f64, usual: f64) -> bool {
    threads >= MIN_THREADS && threads > MAX_THREAD_RATIO * usual
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, Instant};

    use interface::status::Status;
    use serde_json::json;

    use super::*;
    use crate::observe::histogram::Histogram;

    /// A sample taken `after_ms` milliseconds after `start`.
    pub fn sample(start: Instant, after_ms: u64, status: &[(&str, u64)]) -> Sample {
        let mut all: std::collections::BTreeMap<_, _> = status
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_string()))
            .collect();
        all.insert("bpe_state".into(), "active".into());
        Sample {
            taken: start + Duration::from_millis(after_ms),
            at_ms: 1_700_000_000_000 + after_ms,
            status: all,
            pool_bytes: 128 << 20,
            latency: None,
            reads: None,
        }
    }

    fn latency(cache: u64, data: u64) -> Option<[Histogram; 2]> {
        // About 100 us and 1 ms.
        let of = |upper: u64, count: u64| Histogram::of(&json!({ "buckets": [[upper, count]] }));
        Some([of(98_304, cache)?, of(1_048_576, data)?])
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let start = Instant::now();
        let before = sample(
            start,
            0,
            &[("questions", 1000), ("bpe_hits", 100), ("bpe_misses", 100)],
        );
        let now = sample(
            start,
            2000,
            &[
                ("questions", 3000),
                ("com_commit", 80),
                ("com_rollback", 20),
                ("bpe_hits", 400),
                ("bpe_misses", 200),
                ("bpe_data_reads", 100),
                ("innodb_pages_read", 9999),
                ("innodb_buffer_pool_read_requests", 1000),
                ("innodb_buffer_pool_reads", 400),
                ("bpe_instance_lock_accesses", 400),
                ("bpe_instance_lock_waits", 1),
            ],
        );
        let figures = Figures::between(&before, &now);
        assert_eq!(figures.interval_s, 2.0);
        assert_eq!((figures.qps, figures.tps), (1000.0, 50.0));
        assert_eq!(figures.cache_reads_per_s, 150.0);
        assert_eq!(figures.innodb_reads_per_s, 9999.0 / 2.0);
        assert_eq!(figures.unseen_reads_per_s, (9999.0 - 400.0) / 2.0);
        assert_eq!(figures.data_reads_per_s, 50.0);
        assert_eq!(figures.hit_ratio_percent, Some(75.0));
        assert_eq!(figures.pool_hit_percent, Some(60.0));
        assert_eq!(figures.pool_reads_per_s, 300.0);
        assert_eq!(figures.lock_wait_percent, Some(0.25));
        assert_eq!(
            (figures.saved_ms_per_s, figures.cache_read_us),
            (None, None),
            "nothing is made up"
        );
    }

    #[test]
    fn saved_bytes_are_of_pages_as_long_as_they_are() {
        let start = Instant::now();
        // Half of the pages belong to a table with 8 KiB pages.
        let before = sample(start, 0, &[("bpe_hits", 100), ("bpe_bytes_saved", 0)]);
        let now = sample(
            start,
            1000,
            &[("bpe_hits", 300), ("bpe_bytes_saved", 200 * 12288)],
        );
        let figures = Figures::between(&before, &now);
        assert_eq!(figures.saved_bytes_per_s, 200.0 * 12288.0);
        assert_eq!(figures.saved_bytes_total, 200 * 12288);
    }

    #[test]
    fn hostile_counters_do_not_overflow() {
        let start = Instant::now();
        let names = Status::ALL.iter().map(|one| format!("bpe_{}", one.name()));
        let names: Vec<_> = names.chain(["innodb_pages_read".to_owned()]).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), u64::MAX)).collect();
        let figures = Figures::between(&sample(start, 0, &[]), &sample(start, 1000, &all));
        assert_eq!(figures.errors(), u64::MAX);
        assert_eq!(figures.hit_ratio_percent, Some(100.0));
    }

    #[test]
    fn an_idle_server_has_no_ratios() {
        let start = Instant::now();
        let same = sample(start, 0, &[("bpe_hits", 5)]);
        let mut now = same.clone();
        now.taken += Duration::from_secs(1);
        let figures = Figures::between(&same, &now);
        assert_eq!(figures.hit_ratio_percent, None);
        assert_eq!(figures.pool_hit_percent, None);
        assert_eq!(figures.saved_ms_per_s, Some(0.0));
        let json = serde_json::to_value(&figures).unwrap();
        assert!(json["hit_ratio_percent"].is_null() && json["cache_read_us"].is_null());
    }

    #[test]
    fn counters_that_begin_anew_do_not_run_backwards() {
        let start = Instant::now();
        let before = sample(start, 0, &[("bpe_hits", 1000), ("questions", 500)]);
        let now = sample(start, 1000, &[("bpe_hits", 30), ("questions", 600)]);
        let figures = Figures::between(&before, &now);
        assert_eq!((figures.cache_reads_per_s, figures.qps), (30.0, 100.0));
    }

    #[test]
    fn latencies_are_of_the_interval_where_there_are_histograms() {
        let start = Instant::now();
        let mut before = sample(start, 0, &[]);
        let mut now = sample(start, 1000, &[("bpe_hits", 1000)]);
        let figures = Figures::between(&before, &now);
        assert_eq!(
            (figures.latency_refused, figures.saved_ms_per_s),
            (true, None)
        );

        now.latency = latency(1500, 600);
        let figures = Figures::between(&before, &now);
        assert_eq!(
            (figures.latency_refused, figures.cache_read_us),
            (false, None)
        );
        assert!(figures.saved_ms_per_s.is_some(), "by all reads");

        before.latency = latency(500, 500);
        let figures = Figures::between(&before, &now);
        let (cache, data) = (
            figures.cache_read_us.unwrap(),
            figures.data_read_us.unwrap(),
        );
        assert!(cache.p50 > 81.0 && cache.p99 < 98.4, "{cache:?}");
        assert!(data.p50 > 917.0 && data.p99 < 1048.6, "{data:?}");
        assert_eq!(figures.saved_ms_per_s, Some(data.p50 - cache.p50));
        // The cache served all reads; the data disk's latency comes from earlier ones.
        now.latency = latency(1500, 500);
        let figures = Figures::between(&before, &now);
        assert_eq!(figures.data_read_us, None);
        assert!(figures.saved_ms_per_s.is_some());
    }

    #[test]
    fn without_the_extension_innodb_counts() {
        let start = Instant::now();
        let mut before = sample(start, 0, &[]);
        let mut now = sample(start, 1000, &[("innodb_pages_read", 70)]);
        before.status.remove("bpe_state");
        now.status.remove("bpe_state");
        let figures = Figures::between(&before, &now);
        assert_eq!(figures.state, "not installed");
        assert_eq!(figures.data_reads_per_s, 70.0);
    }
}
