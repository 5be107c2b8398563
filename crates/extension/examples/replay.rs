//! Replays a recorded stream of page reads and writes through an extension without threads.
//!
//! Usage: replay DIRECTORY PAGES INSTANCES all|frequency < TRACE
//!
//! The cache file is made in DIRECTORY (best on a tmpfs) and holds PAGES pages of 16 KiB. A trace is 16-byte little-endian
//! records: u32 file, u32 page, u8 operation (0 read, 1 write), 3 bytes unused, u32 sequence number. The first 30 % warm
//! the cache; then hits per read and device page writes per 1,000 events are counted.

use std::io::{Read, Write};
use std::sync::Arc;

use extension::{
    AdmissionMode, Config, DeviceConfig, Extension, FileId, Generations, OwnerIdentity, PageId,
    ReadOutcome, Source,
};

const PAGE: usize = 16384;
const WARM_PERCENT: usize = 30;
/// Staged bytes at which the writers get a turn.
const PUMP_AT: u64 = 512 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, pages, instances, mode] = &arguments[..] else {
        return Err("usage: replay DIRECTORY PAGES INSTANCES all|frequency < TRACE".into());
    };
    let mut trace = Vec::new();
    std::io::stdin().read_to_end(&mut trace)?;
    let generations = Arc::new(Generations::new());
    let device = DeviceConfig {
        path: directory.into(),
        bytes: pages.parse::<u64>()? * PAGE as u64 + (64 << 10),
        owner: OwnerIdentity::default(),
        file_name: format!("replay-{}", std::process::id()),
    };
    let config = Config {
        devices: vec![device],
        instances: instances.parse()?,
        admission: if mode == "all" {
            AdmissionMode::All
        } else {
            AdmissionMode::Frequency
        },
        ..Config::default()
    };
    let cache = Extension::open_inline(config, Arc::clone(&generations))?;
    let mut buffer = vec![0; PAGE];
    let mut bytes = vec![7; PAGE];
    let records: Vec<&[u8]> = trace.chunks_exact(16).collect();
    let mut counts = [0u64; 2];
    let mut before = cache.statistics();
    for (n, record) in records.iter().enumerate() {
        if n == records.len() * WARM_PERCENT / 100 {
            before = cache.statistics();
            counts = [0; 2];
        }
        let file = u32::from_le_bytes(record[..4].try_into()?);
        let number = u32::from_le_bytes(record[4..8].try_into()?);
        let page = PageId::new(FileId(file), number);
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        let write = record[8] == 1;
        counts[usize::from(write)] += 1;
        if write {
            generations.begin_write(file, number, 1);
            let was_cached = cache.invalidate(page.file, number, 1);
            if let Some(ticket) = generations.end_write(file, number, 1) {
                cache.offer(page, &bytes, ticket, Source::Write { was_cached });
            }
        } else if let Some(ticket) = generations.begin_read(file, number) {
            if cache.read(page, &mut buffer) != ReadOutcome::Hit {
                cache.offer(page, &bytes, ticket, Source::Read);
            }
        }
        if cache.staged_bytes() >= PUMP_AT {
            cache.pump();
        }
    }
    let after = cache.statistics();
    if let Some(device) = cache
        .device_statistics()
        .iter()
        .find(|device| !device.active)
    {
        return Err(format!("{}: {}", device.path.display(), device.state).into());
    }
    let events = (counts[0] + counts[1]) as f64;
    let writes = |bytes: u64| bytes as f64 / PAGE as f64 * 1000.0 / events;
    writeln!(
        std::io::stdout(),
        "pages {pages}, instances {instances}, {mode}: {:.1} % hits, {:.0} page writes per 1000 events \
         (offered {:.0}, re-inserted {:.0}), threshold {:.2}, cached {}, staging full {}",
        (after.hits - before.hits) as f64 * 100.0 / counts[0] as f64,
        writes(after.bytes_written_total - before.bytes_written_total),
        writes(after.bytes_written_user - before.bytes_written_user),
        (after.reinserted - before.reinserted) as f64 * 1000.0 / events,
        after.admission_threshold,
        after.pages_cached,
        after.dropped_staging_full - before.dropped_staging_full,
    )?;
    Ok(())
}
