//! The product itself: replays a trace through the extension, used as a server would use it.
//!
//! The engine is opened without threads, so that the same trace always gives the same figures. Its writers run whenever
//! enough is staged. The cache file is a real one, on a tmpfs with room for it if there is one. It is unlinked as soon
//! as it is open, so no end of the replay leaves a file behind.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, MIN_DEVICE_BYTES, OpenError,
    OwnerIdentity, PageId, ReadOutcome, Source, Statistics,
};
use thiserror::Error;

use crate::{Event, Outcome, PAGE_BYTES, PROGRESS_EVERY, Trace};

pub use cache::MAX_INSTANCES;
/// A policy that runs in the extension itself.
pub use cache::PolicyName as EnginePolicy;

/// Staged bytes at which the writers run.
const PUMP_AT: u64 = 512 << 10;
/// Bytes of a cache file that hold no pages.
const HEADER_BYTES: u64 = 64 << 10;
/// Minimum number of pages of a cache.
pub const LEAST_CACHE_PAGES: u64 = (MIN_DEVICE_BYTES - HEADER_BYTES).div_ceil(PAGE_BYTES as u64);

const SHARED_MEMORY: &str = "/dev/shm";
const TMPFS: i64 = 0x0102_1994;
/// A cache file in memory may take one part in this many of the available memory.
const MEMORY_SHARE: u64 = 2;
/// Free space that the engine requires on a file system: one part in this many, and a minimum in bytes.
const RESERVE_SHARE: u64 = 100;
const LEAST_RESERVE: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct ProductOptions {
    /// Size of the cache, at least [`LEAST_CACHE_PAGES`].
    pub cache_pages: u64,
    /// From 1 to [`MAX_INSTANCES`], at most one per page.
    pub instances: u32,
    pub policy: EnginePolicy,
    /// Directory for the cache file; without one, a tmpfs with room for it or the directory for temporary files.
    pub directory: Option<PathBuf>,
}

impl ProductOptions {
    /// A cache of this many pages with the product's defaults.
    pub fn new(cache_pages: u64) -> ProductOptions {
        ProductOptions {
            cache_pages,
            instances: 1,
            policy: EnginePolicy::default(),
            directory: None,
        }
    }
}

/// Results of the product over the measured part.
#[derive(Clone, Copy, Debug)]
pub struct ProductOutcome {
    /// Page writes include re-inserted pages and the segments' tables of contents.
    pub outcome: Outcome,
    /// Of the page writes: pages that were offered and admitted.
    pub offered_page_writes: f64,
    /// Pages moved during segment compaction.
    pub reinserted: u64,
    /// Offers dropped because staging was full.
    pub dropped_staging_full: u64,
    /// At the end.
    pub pages_cached: u64,
}

/// Why the product could not replay the trace.
#[derive(Debug, Error)]
pub enum ProductError {
    #[error(
        "a cache of {pages} pages is too small for the extension, which needs at least {LEAST_CACHE_PAGES} pages of 16 KiB"
    )]
    TooSmall { pages: u64 },
    #[error(
        "{instances} instances are more than the {pages} pages of the cache; an instance needs a page at least"
    )]
    TooManyInstances { instances: u32, pages: u64 },
    #[error("cannot make a directory for the cache file in '{path}': {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot open the extension for the replay: {0}")]
    Open(#[from] OpenError),
    #[error("the cache file in '{path}' failed during the replay: {state}")]
    Failed { path: PathBuf, state: String },
}

/// Replays a trace up to the end of the measured part through the extension. `progress` is called at intervals with the
/// number of completed events.
///
/// # Errors
/// If the options define no valid cache, or the file system of the cache file fails.
///
/// # Panics
/// If the measured part is beyond the trace.
pub fn run_product(
    trace: &Trace,
    measured: Range<usize>,
    options: &ProductOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<ProductOutcome, ProductError> {
    let mut product = Product::open(trace, options)?;
    let mut before = product.cache.statistics();
    let mut counts = Outcome::default();
    for (n, &event) in trace.events()[..measured.end].iter().enumerate() {
        if n == measured.start {
            before = product.cache.statistics();
            counts = Outcome::default();
        }
        if n % PROGRESS_EVERY == 0 {
            progress(n);
        }
        counts.events += 1;
        counts.reads += u64::from(!event.is_write());
        product.apply(event);
    }
    product.check()?;
    Ok(summary(counts, &before, &product.cache.statistics()))
}

fn summary(counts: Outcome, before: &Statistics, after: &Statistics) -> ProductOutcome {
    let pages = |bytes: u64| bytes as f64 / PAGE_BYTES as f64;
    ProductOutcome {
        outcome: Outcome {
            hits: after.hits - before.hits,
            page_writes: pages(after.bytes_written_total - before.bytes_written_total),
            ..counts
        },
        offered_page_writes: pages(after.bytes_written_user - before.bytes_written_user),
        reinserted: after.reinserted - before.reinserted,
        dropped_staging_full: after.dropped_staging_full - before.dropped_staging_full,
        pages_cached: after.pages_cached,
    }
}

/// A page in memory, aligned for direct I/O.
#[repr(align(4096))]
struct Buffer([u8; PAGE_BYTES]);

struct Product<'a> {
    trace: &'a Trace,
    generations: Arc<Generations>,
    cache: Extension,
    directory: PathBuf,
    /// Buffer for the server's reads.
    frame: Box<Buffer>,
    /// Content of every page, except for its number.
    content: Box<Buffer>,
}

impl<'a> Product<'a> {
    fn open(trace: &'a Trace, options: &ProductOptions) -> Result<Product<'a>, ProductError> {
        let (pages, instances) = (options.cache_pages, options.instances);
        if u64::from(instances) > pages {
            return Err(ProductError::TooManyInstances { instances, pages });
        }
        if pages < LEAST_CACHE_PAGES {
            return Err(ProductError::TooSmall { pages });
        }
        let bytes = pages
            .saturating_mul(PAGE_BYTES as u64)
            .saturating_add(HEADER_BYTES);
        let directory = match &options.directory {
            Some(directory) => directory.clone(),
            None => place(bytes),
        };
        // A private directory, inaccessible to other users.
        let folder = tempfile::Builder::new()
            .prefix("bpe-replay-")
            .tempdir_in(&directory)
            .map_err(|source| ProductError::Directory {
                path: directory.clone(),
                source,
            })?;
        let device = DeviceConfig {
            path: std::path::absolute(folder.path())
                .unwrap_or_else(|_| folder.path().to_path_buf()),
            bytes,
            owner: OwnerIdentity::default(),
            file_name: String::from("replay.bpe"),
        };
        let config = Config {
            devices: vec![device],
            instances,
            policy: options.policy,
            ..Config::default()
        };
        let generations = Arc::new(Generations::new());
        let cache = Extension::open_inline(config, Arc::clone(&generations))?;
        // The file exists until it is closed.
        drop(folder);
        Ok(Product {
            trace,
            generations,
            cache,
            directory,
            frame: Box::new(Buffer([0; PAGE_BYTES])),
            content: Box::new(Buffer([7; PAGE_BYTES])),
        })
    }

    /// Makes the calls of a server's hooks around a read or a write.
    fn apply(&mut self, event: Event) {
        let (cache, generations) = (&self.cache, &self.generations);
        let page = self.trace.page(event.page());
        let (file, number) = (page.file, page.number);
        let page = PageId::new(FileId(file), number);
        let content = &mut self.content.0;
        content[4..8].copy_from_slice(&number.to_be_bytes());
        if event.is_write() {
            generations.begin_write(file, number, 1);
            let was_cached = cache.invalidate(page.file, number, 1);
            if let Some(ticket) = generations.end_write(file, number, 1) {
                let source = Source::Write { was_cached };
                cache.insert(page, Group::NORMAL, content, ticket, source);
            }
        } else if let Some(ticket) = generations.begin_read(file, number) {
            if cache.read(page, Group::NORMAL, &mut self.frame.0) != ReadOutcome::Hit {
                cache.insert(page, Group::NORMAL, content, ticket, Source::Read);
            }
        }
        if cache.staged_bytes() >= PUMP_AT {
            cache.pump();
        }
    }

    fn check(&self) -> Result<(), ProductError> {
        let devices = self.cache.device_statistics();
        match devices.into_iter().find(|device| !device.active) {
            None => Ok(()),
            Some(device) => Err(ProductError::Failed {
                path: self.directory.clone(),
                state: device.state,
            }),
        }
    }
}

/// Directory for a cache file of this size.
fn place(bytes: u64) -> PathBuf {
    let shared = Path::new(SHARED_MEMORY);
    if is_roomy_tmpfs(shared, bytes).unwrap_or(false) {
        shared.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

/// `None` if that is unknown.
fn is_roomy_tmpfs(directory: &Path, bytes: u64) -> Option<bool> {
    if rustix::fs::statfs(directory).ok()?.f_type as i64 != TMPFS {
        return Some(false);
    }
    let fs = rustix::fs::statvfs(directory).ok()?;
    let free = fs.f_bavail.saturating_mul(fs.f_frsize);
    let reserve = (fs.f_blocks.saturating_mul(fs.f_frsize) / RESERVE_SHARE).max(LEAST_RESERVE);
    let memory = available_memory()?;
    Some(free >= bytes.saturating_add(reserve) && bytes <= memory / MEMORY_SHARE)
}

/// Bytes of memory that programs can still allocate without swapping; `None` if the kernel does not report it.
pub fn available_memory() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Operation;

    fn stream(events: usize, pages: u32) -> Trace {
        let mut random = fastrand::Rng::with_seed(5);
        Trace::from_events((0..events).map(|_| {
            let page = random.u32(..pages).min(random.u32(..pages));
            let operation = if random.u8(..4) == 0 {
                Operation::Write
            } else {
                Operation::Read
            };
            (random.u32(1..3), page, operation)
        }))
    }

    fn replay(
        trace: &Trace,
        measured: Range<usize>,
        options: &ProductOptions,
    ) -> Result<ProductOutcome, ProductError> {
        run_product(trace, measured, options, &mut |_| {})
    }

    #[test]
    fn a_replay_is_repeatable_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let trace = stream(30_000, 2000);
        let options = ProductOptions {
            directory: Some(folder.path().into()),
            ..ProductOptions::new(800)
        };
        let one = replay(&trace, 9000..30_000, &options).unwrap();
        let two = replay(&trace, 9000..30_000, &options).unwrap();
        assert_eq!(one.outcome, two.outcome);
        assert_eq!(one.outcome.events, 21_000);
        let ratio = one.outcome.read_hit_ratio();
        assert!((0.1..0.9).contains(&ratio), "{ratio}");
        assert!(one.outcome.page_writes >= one.offered_page_writes);
        assert!(one.pages_cached <= 800);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn everything_that_fits_is_a_hit() {
        let trace = stream(30_000, 300);
        let options = ProductOptions {
            instances: 4,
            ..ProductOptions::new(4096)
        };
        let outcome = replay(&trace, 0..30_000, &options).unwrap().outcome;
        let misses = outcome.reads - outcome.hits;
        // Written pages are cached as well while there is room.
        assert!(misses <= trace.distinct_pages() as u64, "{misses}");
    }

    #[test]
    fn impossible_caches() {
        let trace = stream(10, 10);
        let small = replay(&trace, 0..10, &ProductOptions::new(LEAST_CACHE_PAGES - 1));
        assert!(matches!(small, Err(ProductError::TooSmall { .. })));
        replay(&trace, 0..10, &ProductOptions::new(LEAST_CACHE_PAGES)).unwrap();
        let cut = ProductOptions {
            instances: 64,
            ..ProductOptions::new(63)
        };
        let cut = replay(&trace, 0..10, &cut);
        assert!(matches!(cut, Err(ProductError::TooManyInstances { .. })));
        let none = ProductOptions {
            instances: 0,
            ..ProductOptions::new(1000)
        };
        let none = replay(&trace, 0..10, &none);
        assert!(matches!(none, Err(ProductError::Open(_))));
        let nowhere = ProductOptions {
            directory: Some("/nowhere".into()),
            ..ProductOptions::new(1000)
        };
        let nowhere = replay(&trace, 0..10, &nowhere);
        assert!(matches!(nowhere, Err(ProductError::Directory { .. })));
        let huge = replay(&trace, 0..10, &ProductOptions::new(u64::MAX));
        assert!(matches!(huge, Err(ProductError::Open(_))));
    }

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        let table = "MemTotal:       24 kB\nMemAvailable:    16 kB\n";
        assert_eq!(available_in(table), Some(16 << 10));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
    }
}
