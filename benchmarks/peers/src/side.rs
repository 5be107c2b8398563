//! A cache that takes part, and the replay that is the same for all of them.
//!
//! The replay runs in a process of its own: CPU time and resident memory of the process, less what they were before the
//! cache was opened, are the cache's.

use std::ops::Range;

use anyhow::{Result, ensure};
use replay::{PAGE_BYTES, Trace};
use serde::{Deserialize, Serialize};

use crate::process;

/// A page in memory, aligned as reads past the page cache want it.
#[repr(align(4096))]
pub struct Buffer(pub [u8; PAGE_BYTES]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    pub file: u32,
    pub number: u32,
}

/// A cache, called as a server would call it: from one thread, each call to its end.
pub trait Side {
    /// Reads the page into the frame if it is cached, and says whether it was. If not, `content` is offered to the cache:
    /// what the server has read elsewhere.
    ///
    /// # Errors
    /// If the cache fails.
    fn read(&mut self, page: Page, frame: &mut [u8], content: &[u8]) -> Result<bool>;

    /// The server has written the page.
    ///
    /// # Errors
    /// If the cache fails.
    fn write(&mut self, page: Page, content: &[u8]) -> Result<()>;

    /// Returns when nothing waits to be written to the device.
    fn settle(&mut self);

    /// Bytes written to the device so far, by the cache's own account.
    fn device_bytes(&self) -> u64;

    /// Pages that were to be cached, and were not because a queue was full.
    fn dropped(&self) -> u64;

    /// Bytes of memory the cache says it was given.
    fn memory_bytes(&self) -> u64;

    /// Pages cached now, on the device or in memory.
    fn pages_cached(&self, trace: &Trace) -> u64;

    /// Anything that makes the figures worthless.
    ///
    /// # Errors
    /// Says what.
    fn check(&self) -> Result<()>;
}

/// Of one cache in one round, over the measured part of the trace where not said otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub events: u64,
    pub read_hit_ratio: f64,
    /// Operations are events: page reads and page writes.
    pub operations_per_cpu_second: f64,
    /// Growth of the resident memory from before the cache was opened to the end.
    pub resident_bytes: u64,
    /// At the end.
    pub pages_cached: u64,
    pub resident_bytes_per_page: f64,
    /// By the cache's own account.
    pub device_bytes_per_1000: f64,
    /// By the kernel's account; 0 if the file lies in memory.
    pub kernel_bytes_per_1000: f64,
    /// In the whole trace.
    pub dropped: u64,
    /// What the cache was given, or says it takes.
    pub memory_bytes: u64,
}

/// What is counted up to some point.
#[derive(Default)]
struct Counts {
    reads: u64,
    hits: u64,
    cpu: f64,
    device: u64,
    kernel: u64,
}

/// Replays the trace up to the end of the measured part through the cache that `open` makes.
///
/// # Errors
/// If the cache cannot be opened, fails, or returns another page than was asked for.
pub fn replay<S: Side>(
    trace: &Trace,
    measured: Range<usize>,
    open: impl FnOnce() -> Result<S>,
) -> Result<Figures> {
    let mut frame = Box::new(Buffer([0; PAGE_BYTES]));
    let mut content = Box::new(Buffer([7; PAGE_BYTES]));
    process::trim();
    let resident_before = process::resident_bytes()?;
    let mut side = open()?;
    let mut now = Counts::default();
    let mut before = Counts::default();
    for (n, &event) in trace.events()[..measured.end].iter().enumerate() {
        if n == measured.start {
            before = Counts {
                cpu: process::cpu_seconds(),
                device: side.device_bytes(),
                kernel: process::written_bytes()?,
                ..now
            };
        }
        let page = trace.page(event.page());
        let name = page.number.to_be_bytes();
        content.0[4..8].copy_from_slice(&name);
        let page = Page {
            file: page.file,
            number: page.number,
        };
        if event.is_write() {
            side.write(page, &content.0)?;
        } else {
            now.reads += 1;
            if side.read(page, &mut frame.0, &content.0)? {
                now.hits += 1;
                ensure!(frame.0[4..8] == name, "a hit returned another page");
            }
        }
    }
    side.settle();
    now.cpu = process::cpu_seconds();
    now.device = side.device_bytes();
    now.kernel = process::written_bytes()?;
    let resident = process::resident_bytes()?.saturating_sub(resident_before);
    side.check()?;
    let pages_cached = side.pages_cached(trace);
    let events = measured.len() as u64;
    let per_1000 = |bytes: u64| bytes as f64 * 1000.0 / events as f64;
    Ok(Figures {
        events,
        read_hit_ratio: (now.hits - before.hits) as f64 / (now.reads - before.reads).max(1) as f64,
        operations_per_cpu_second: events as f64 / (now.cpu - before.cpu).max(1e-6),
        resident_bytes: resident,
        pages_cached,
        resident_bytes_per_page: resident as f64 / pages_cached.max(1) as f64,
        device_bytes_per_1000: per_1000(now.device - before.device),
        kernel_bytes_per_1000: per_1000(now.kernel - before.kernel),
        dropped: side.dropped(),
        memory_bytes: side.memory_bytes(),
    })
}

/// Small streams for the tests of the caches.
#[cfg(test)]
pub mod tests {
    use super::*;
    use replay::Operation;

    /// Reads 300 pages over and over, and writes some of them.
    pub fn stream() -> Trace {
        Trace::from_events((0..6000u32).map(|n| {
            let operation = if n % 10 == 9 {
                Operation::Write
            } else {
                Operation::Read
            };
            (1 + n % 2, n * 7 % 300, operation)
        }))
    }

    /// Of a cache that all pages of the stream fit into, after the first third.
    pub fn check_all_hits(figures: &Figures) {
        assert_eq!(figures.events, 4000);
        assert!(figures.read_hit_ratio > 0.99, "{figures:?}");
        assert_eq!(figures.dropped, 0);
        // The other 30 are only written.
        assert!(figures.pages_cached >= 270, "{figures:?}");
    }
}
