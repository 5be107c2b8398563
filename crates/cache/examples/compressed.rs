//! Measures benefit and cost of compression on the pages of real data files: ratio, time to fill, time of a hit.
//!
//! Usage: compressed DIRECTORY MIB FILE...
//!
//! The files are InnoDB tablespaces with pages of 16 KiB, not in use by a server. The cache file is created in
//! DIRECTORY (preferably on a tmpfs, so that a hit takes only CPU time).

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use cache::{
    Compression, Config, DeviceConfig, Extension, FileId, Generations, Group, OwnerIdentity,
    PageId, PolicyName, ReadOutcome, Source,
};

const PAGE: usize = 16384;
const PUMP_AT: u64 = 512 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, mib, files @ ..] = &arguments[..] else {
        return Err("usage: compressed DIRECTORY MIB FILE...".into());
    };
    let mut out = std::io::stdout();
    for compression in [Compression::Off, Compression::Lz4] {
        let generations = Arc::new(Generations::new());
        let device = DeviceConfig {
            path: directory.into(),
            bytes: mib.parse::<u64>()? << 20,
            owner: OwnerIdentity::default(),
            file_name: format!("compressed-{}", std::process::id()),
        };
        let config = Config {
            devices: vec![device],
            policy: PolicyName::SecondChance,
            compression,
            ..Config::default()
        };
        let cache = Extension::open_inline(config, Arc::clone(&generations))?;
        let begun = Instant::now();
        let mut lengths = Vec::new();
        for (file, path) in (0..).zip(files) {
            let bytes = std::fs::read(path)?;
            for (number, page) in (0..).zip(bytes.chunks_exact(PAGE)) {
                let ticket = generations.begin_read(file, number).ok_or("busy")?;
                let id = PageId::new(FileId(file), number);
                cache.insert(id, Group::NORMAL, page, ticket, Source::Read);
                if cache.staged_bytes() > PUMP_AT {
                    cache.pump();
                }
            }
            lengths.push((file, (bytes.len() / PAGE) as u32));
        }
        cache.pump();
        let filled = begun.elapsed();
        let begun = Instant::now();
        let (mut buffer, mut hits, mut reads) = (vec![0; PAGE], 0u64, 0u64);
        for (file, pages) in lengths {
            for number in 0..pages {
                let id = PageId::new(FileId(file), number);
                reads += 1;
                hits += u64::from(cache.read(id, Group::NORMAL, &mut buffer) == ReadOutcome::Hit);
            }
        }
        let s = cache.statistics();
        writeln!(
            out,
            "{compression:?}: ratio {:.2}, {hits} of {reads} pages cached, filled in {:.2} s ({} attempts, {:.1} us each), \
             {:.2} us a hit, {:.2} bytes written for each of a page, {:.0} bytes of memory a page, staging and all",
            s.compression_ratio,
            filled.as_secs_f64(),
            s.compress_attempts,
            s.compress_nanos as f64 / 1e3 / (s.compress_attempts.max(1)) as f64,
            begun.elapsed().as_secs_f64() * 1e6 / hits.max(1) as f64,
            s.write_amplification,
            s.memory_bytes as f64 / s.pages_cached.max(1) as f64,
        )?;
    }
    Ok(())
}
