//! Sums the engine's distributed counters.

use crate::common::memory::bounce_bytes;
use crate::common::statistics::Statistics;
use crate::instance::shared::Shared;

pub(crate) fn statistics(shared: &Shared) -> Statistics {
    let written = &shared.written;
    let mut s = Statistics {
        bytes_written_user: written.user_bytes.get(),
        bytes_written_in_a_day: shared.budget.written_in_a_day(),
        compress_attempts: shared.counts.attempts.get(),
        compressed: shared.counts.packed.get(),
        compress_nanos: shared.counts.nanos.get(),
        compress_left_alone: shared.counts.left_alone.get(),
        compress_no_time: shared.counts.no_time.get(),
        evicted: written.evicted.get(),
        reinserted: written.reinserted.get(),
        purged: written.purged.get(),
        failed_proofs: written.failed_proofs.get(),
        memory_bytes: shared.memory_bytes - shared.store.staging.untouched()
            + bounce_bytes()
            + shared.tag_bytes()
            + shared.file_bytes(),
        bytes_cached: shared.store.staging.used(),
        read_latency: shared.latency.snapshot(),
        ..Statistics::default()
    };
    for instance in &shared.instances {
        let c = &instance.0.counters;
        let i = instance.0.statistics();
        s.hits += i.hits;
        s.misses += i.misses;
        s.pages_cached += i.pages;
        s.pages_staged += i.staged;
        s.lock_accesses += i.lock_accesses;
        s.lock_waits += i.lock_waits;
        s.hit_bytes += c.hit_bytes.get();
        s.hits_staged += c.hits_staged.get();
        s.hits_located += c.hits_located.get();
        s.misses_absent += c.absent.get();
        s.misses_returned += c.returned.get();
        s.misses_device_failed += c.device_failed.get();
        s.misses_device_error += c.device_error.get();
        s.misses_reclaimed += c.reclaimed.get();
        s.misses_invalidated += c.invalidated_during.get();
        s.misses_failed_proof += c.failed_proof.get();
        s.misses_collision += c.collision.get();
        s.misses_unsuitable += c.unsuitable.get();
        s.misses_no_request += c.no_request.get();
        s.offered += c.candidates.get();
        s.admitted += c.admitted.get();
        s.rejected += c.rejected.get();
        s.bytes_rejected += c.rejected_bytes.get();
        s.rejected_by_limit += c.limited.get();
        s.already_cached += c.already_cached.get();
        s.stale_offers += c.stale.get();
        s.rejected_write_limit += c.write_limit.get();
        s.dropped_staging_full += c.staging_full.get();
        s.evicted_directory_full += c.directory_full.get();
        s.invalidated += c.invalidated.get();
    }
    s.failed_proofs += s.misses_failed_proof;
    let (mut live, mut pages) = (0, 0);
    for device in &shared.store.devices {
        live += device.table.all_live_units();
        pages += device.table.all_page_units();
        s.bytes_cached += device.table.cached().1;
        s.bytes_capacity += device.geometry.data_bytes();
        s.bytes_written_total += device.bytes_written.get();
        s.bytes_read += device.bytes_read.get();
        s.device_errors += device.health.errors();
        s.reads_given_up += device.health.overdue.given_up.get();
        s.reads_busy += device.health.overdue.submissions.busy.get();
    }
    s.compression_ratio = ratio(pages, live).unwrap_or(1.0);
    s.write_amplification = ratio(s.bytes_written_total, written.page_bytes.get()).unwrap_or(0.0);
    s
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}
