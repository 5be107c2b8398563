//! Totals for the status variables, and tables for `bpe_report()` as JSON.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::{HistogramSnapshot, Statistics};
use coherence::audit;
use coherence::audit::suspended::Row;
use coherence::files::DataFile;
use coherence::os::Os as _;
use coherence::proof::Rejection;
use coherence::switch::Active;
use serde_json::{Value, json};

use crate::control::{self, CONTROLLER, State};
use crate::platform::{CORE, SUSPENSIONS};
use crate::reports::diagnostics::DIAGNOSTICS;
use crate::restart::persist;
use crate::settings::{self, BYPASS, VALUES};
use crate::tables::{self, TABLES, table_name};

/// Totals at one moment.
pub struct Totals {
    /// Totals of the cache.
    pub cache: Statistics,
    /// Timed reads from the data files.
    pub data_latency: HistogramSnapshot,
    /// Cache disks that are out of use.
    pub devices_failed: u64,
    /// Page reads that went to the data files.
    pub data_reads: u64,
    /// Total memory, bytes.
    pub memory_bytes: u64,
    /// Instances of the active extension; 0 without one.
    pub instances: u64,
}

/// Collects the totals. All zero while no extension is active, except permanent memory.
pub fn totals() -> Totals {
    let guard = CORE.switch().active();
    let (cache, data, data_reads, instances, devices) = match &*guard {
        Some(active) => (
            active.extension.statistics(),
            active.data_reads.snapshot(),
            active.data_read_count.load(Ordering::Relaxed),
            active.extension.instance_statistics().len() as u64,
            active.extension.device_statistics(),
        ),
        None => Default::default(),
    };
    let memory = cache.memory_bytes + if guard.is_some() { base_memory() } else { 0 };
    Totals {
        data_latency: data,
        devices_failed: devices.iter().filter(|device| !device.active).count() as u64,
        data_reads,
        memory_bytes: memory
            + DIAGNOSTICS.recordings.memory_bytes()
            + DIAGNOSTICS.warming.memory_bytes(),
        instances,
        cache,
    }
}

/// Memory outside the extension, whose own figure includes the generations.
fn base_memory() -> u64 {
    CORE.files.memory_bytes() + CORE.requests.memory_bytes()
}

/// Hits in percent of hits and misses; 0 before the first access.
pub fn hit_ratio(hits: u64, misses: u64) -> f64 {
    if hits + misses == 0 {
        0.0
    } else {
        hits as f64 * 100.0 / (hits + misses) as f64
    }
}

/// Describes the failed devices of the active extension; empty if there are none.
pub fn failed_devices() -> String {
    let guard = CORE.switch().active();
    let Some(active) = &*guard else {
        return String::new();
    };
    active.device_failures().join("; ")
}

/// `Bpe_state_reason`: the reason of the state. An active or bypassed extension adds its failed devices and invalid `bpe_tables`.
pub fn state_reason(state: State, reason: &str) -> String {
    let reason = match (state, reason) {
        (State::Active, _) | (_, "") => None,
        (State::Bypass, _) => Some(reason.to_owned()),
        _ => return reason.to_owned(),
    };
    let rules = match TABLES.error() {
        error if error.is_empty() => error,
        error => format!("bpe_tables is not followed: {error}"),
    };
    let all = reason.into_iter().chain([failed_devices(), rules]);
    let parts: Vec<_> = all.filter(|one| !one.is_empty()).collect();
    parts.join("; ")
}

/// `bpe_report('suspended')`: the files that are not cached because a foreign process writes to them.
pub fn suspended_files() -> Value {
    let now = CORE.os().running();
    let rows = SUSPENSIONS.rows();
    rows.iter().map(|row| suspended(row, now)).collect()
}

/// A file that is not cached, because a foreign process seems to write to it. Times are in seconds. `compared_pages` and
/// `latest_s` are null until the pages have been compared. `latest_s` is the time after which the file is cached again, even
/// if the server keeps changing it.
fn suspended(row: &Row, now: Duration) -> Value {
    let table = table_name::of_path(&row.file);
    json!({
        "file": row.file,
        "schema": table.as_ref().map(|table| &table.schema),
        "table": table.as_ref().map(|table| &table.table),
        "partition": table.as_ref().and_then(|table| table.partition.as_ref()),
        "why": row.why,
        "suspended_s": now.saturating_sub(row.since).as_secs(),
        "compared_pages": row.cleared.map(|(compared, _)| compared),
        "rest_s": audit::QUIET_PERIOD.as_secs(),
        "latest_s": row.cleared.map(|(_, since)| (since + audit::MAX_SUSPENSION).saturating_sub(now).as_secs()),
    })
}

/// `bpe_report('summary')`.
pub fn summary() -> Value {
    let totals = totals();
    CONTROLLER.ensure_needed_thread();
    let bypass = BYPASS.status(&CORE);
    let (state, reason) = control::state();
    let cache = &totals.cache;
    let (kept_out, bytes_kept_out) = excluded_io();
    let quantiles = |of: &HistogramSnapshot| json!({ "p50": of.quantile(0.50), "p95": of.quantile(0.95), "p99": of.quantile(0.99) });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "state": state.name(),
        "state_reason": state_reason(state, &reason),
        "bypass": bypass.bypass.name(),
        "bypass_seconds": bypass.seconds,
        "bypass_seconds_left": bypass.left,
        "bypass_dropped": bypass.dropped,
        "compares": bypass.compares,
        "load_mode": if control::loaded_early() { "early" } else { "runtime" },
        "async_mode": control::async_mode(),
        "switched_on": CONTROLLER.switched_on(),
        "recording": CORE.switch().mode().records(),
        "verifications": DIAGNOSTICS.verifications.active(),
        "hook_mode": CORE.switch().mode().bits(),
        "path": settings::Settings::current().path,
        "size": settings::Settings::current().size,
        "tables": settings::text_of(&TABLES.text),
        "tables_error": TABLES.error(),
        "kept_out": kept_out,
        "bytes_kept_out": bytes_kept_out,
        "instances": totals.instances,
        "hits": cache.hits,
        "misses": cache.misses,
        "hit_ratio": hit_ratio(cache.hits, cache.misses),
        "data_reads": totals.data_reads,
        "compression_ratio": cache.compression_ratio,
        "write_amplification": cache.write_amplification,
        "bytes_written_24h": settings::write_budget().written_in_a_day(),
        "daily_write_limit": VALUES.daily_write_limit.load(Ordering::SeqCst),
        "write_limit_rejected": cache.rejected_write_limit,
        "memory_bytes": totals.memory_bytes,
        "cache_read_us": quantiles(&cache.read_latency),
        "data_read_us": quantiles(&totals.data_latency),
        "inherited": recovered(),
        "warm": DIAGNOSTICS.warming.figures(),
        "cache": serde_json::to_value(cache).unwrap_or(Value::Null),
    })
}

/// Result of the recovery. Page counts are approximate. `lost`: files that are not proven; `left`: files that are not opened
/// yet.
fn recovered() -> Value {
    let recovered = persist::recovered();
    let files = |(files, pages): (u64, u64)| json!({ "files": files, "pages": pages });
    let reason = |(name, why): &(String, Rejection)| json!({ "file": name, "why": why.text() });
    json!({
        "pages": recovered.pages,
        "dropped": recovered.dropped,
        "attach_ms": persist::start_delay(),
        "after_restart_of_machine": persist::is_from_snapshot(),
        "trusted": files(recovered.trusted),
        "lost": files(recovered.rejected),
        "left": files(recovered.pending),
        "lost_files": recovered.reasons.iter().map(reason).collect::<Value>(),
    })
}

/// Histograms of reads since the cache was opened: `[[upper bound in nanoseconds, reads], ...]`, non-empty buckets only. The
/// difference of two reports gives the quantiles of the time between them.
///
/// `serving` and `bypass` have the reads that began in that mode while there was a control group, with the server's waiting
/// time.
pub fn latencies() -> Value {
    let guard = CORE.switch().active();
    let histogram = |of: &HistogramSnapshot| json!({ "count": of.count, "sum_ns": of.sum_nanos, "buckets": of.buckets() });
    let (cache, data) = match &*guard {
        Some(active) => (
            active.extension.read_latency(),
            active.data_reads.snapshot(),
        ),
        None => Default::default(),
    };
    let waits = |bypassed| {
        let of = |control| {
            guard
                .as_ref()
                .map(|active| active.waits.of(bypassed, control))
        };
        let [control, others] = [true, false].map(|control| of(control).unwrap_or_default());
        json!({ "control": histogram(&control), "others": histogram(&others) })
    };
    json!({
        "cache_read": histogram(&cache),
        "data_read": histogram(&data),
        "serving": waits(false),
        "bypass": waits(true),
    })
}

/// `bpe_report('instances')`.
pub fn instances() -> Value {
    let guard = CORE.switch().active();
    let Some(active) = &*guard else {
        return json!([]);
    };
    let all = active.extension.instance_statistics();
    let accesses: u64 = all.iter().map(|instance| instance.accesses).sum();
    all.iter()
        .enumerate()
        .map(|(number, instance)| {
            let mut row = serde_json::to_value(instance).unwrap_or(Value::Null);
            if let Value::Object(row) = &mut row {
                row.insert("instance".into(), json!(number));
                row.insert(
                    "share".into(),
                    json!(hit_ratio(instance.accesses, accesses - instance.accesses)),
                );
            }
            row
        })
        .collect()
}

/// `bpe_report('devices')`.
pub fn devices() -> Value {
    let guard = CORE.switch().active();
    let Some(active) = &*guard else {
        return json!([]);
    };
    let mut devices = active.extension.device_statistics();
    for device in &mut devices {
        if control::is_beside_data(&device.path) {
            device.state.push_str(
                "; it lies on the file system of the data, and helps only on a faster disk",
            );
        }
    }
    serde_json::to_value(devices).unwrap_or(Value::Null)
}

/// Page reads and writes that bypassed the cache because of table rules since the server started, and their bytes.
pub fn excluded_io() -> (u64, u64) {
    let rules = &CORE.files.rules;
    (
        rules.pages.load(Ordering::Relaxed),
        rules.bytes.load(Ordering::Relaxed),
    )
}

/// The tracked files with the number of cached pages of each, while an extension is active.
fn known_files(active: Option<&Active>) -> Vec<(&'static DataFile, u64)> {
    let Some(active) = active else {
        return Vec::new(); // while off, known files are no longer tracked
    };
    let files = CORE.files.all();
    let ids: Vec<_> = files.iter().map(|file| file.id()).collect();
    let pages = active.extension.file_pages(&ids);
    files.into_iter().zip(pages).collect()
}

/// `bpe_report('files')`.
pub fn file_table() -> Value {
    let guard = CORE.switch().active();
    known_files(guard.as_deref())
        .iter()
        .map(|(file, pages)| {
            let (hits, misses) = (
                file.hits.load(Ordering::Relaxed),
                file.misses.load(Ordering::Relaxed),
            );
            let name = file.name();
            let table = table_name::of_path(&name);
            json!({
                "file": name,
                "schema": table.as_ref().map(|table| &table.schema),
                "table": table.as_ref().map(|table| &table.table),
                "partition": table.as_ref().and_then(|table| table.partition.as_ref()),
                "page_size": file.page_size(),
                "hits": hits,
                "misses": misses,
                "hit_ratio": hit_ratio(hits, misses),
                "cached_pages": pages,
                "cached_bytes": pages * u64::from(file.page_size()),
                "rule": TABLES.rule_of(table.as_ref()),
                "kept_out": file.excluded_accesses.load(Ordering::Relaxed),
            })
        })
        .collect()
}

/// The table rules and their effect.
pub fn rules() -> Value {
    let guard = CORE.switch().active();
    let files: Vec<tables::FileFigures> = known_files(guard.as_deref())
        .into_iter()
        .map(|(file, cached_pages)| tables::FileFigures {
            table: table_name::of_path(&file.name()),
            hits: file.hits.load(Ordering::Relaxed),
            misses: file.misses.load(Ordering::Relaxed),
            excluded_accesses: file.excluded_accesses.load(Ordering::Relaxed),
            cached_pages,
        })
        .collect();
    let extension = guard.as_ref().map(|active| &active.extension);
    TABLES.report(&files, extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_file_names_its_table() {
        let at = Duration::from_secs;
        let mut row = Row {
            file: "./listed/t.ibd".into(),
            why: "it had 1 bytes and has 2 now".into(),
            since: at(100),
            cleared: None,
        };
        let told = suspended(&row, at(130));
        assert_eq!(
            (&told["schema"], &told["table"]),
            (&json!("listed"), &json!("t"))
        );
        assert_eq!(told["why"], row.why);
        assert_eq!(
            (&told["compared_pages"], &told["latest_s"]),
            (&Value::Null, &Value::Null)
        );
        row.cleared = Some((17, at(120)));
        let told = suspended(&row, at(130));
        assert_eq!(
            (&told["compared_pages"], &told["suspended_s"]),
            (&json!(17), &json!(30))
        );
        assert_eq!(told["rest_s"], audit::QUIET_PERIOD.as_secs());
        assert_eq!(told["latest_s"], audit::MAX_SUSPENSION.as_secs() - 10);
    }

    /// `docs/user/install.md` names the report member that replaces each removed status variable.
    #[test]
    fn summary_has_members_that_the_upgrade_names() {
        let text = include_str!("../../../../docs/user/install.md");
        let (_, table) = text.split_once("### Removed status variables").unwrap();
        let (table, _) = table.split_once("\n### ").unwrap();
        let place = |line: &str| Some(line.strip_prefix("| `Bpe_")?.split('`').nth(2)?.to_owned());
        let places: Vec<String> = table.lines().filter_map(place).collect();
        assert_eq!(places.len(), 24);
        let summary = summary();
        for place in places {
            let of_summary = !place.contains('(') && !place.starts_with("Bpe_");
            let path = format!("/{}", place.replace('.', "/"));
            assert!(!of_summary || summary.pointer(&path).is_some(), "{place}");
        }
    }

    #[test]
    fn latency_has_all_histograms() {
        let latency = latencies();
        for of in ["cache_read", "data_read"] {
            assert!(latency[of]["buckets"].is_array(), "{latency}");
        }
        for (mode, group) in [
            ("serving", "control"),
            ("serving", "others"),
            ("bypass", "control"),
            ("bypass", "others"),
        ] {
            assert!(latency[mode][group]["buckets"].is_array(), "{latency}");
        }
    }

    #[test]
    fn ratio() {
        assert_eq!(hit_ratio(0, 0), 0.0);
        assert_eq!(hit_ratio(3, 1), 75.0);
    }
}
