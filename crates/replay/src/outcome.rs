//! Counters of a replay.

/// Number of events between two progress reports.
pub const PROGRESS_EVERY: usize = 1 << 14;

/// Counts over the measured part of a trace.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Page reads and writes.
    pub events: u64,
    /// Page reads.
    pub reads: u64,
    /// Reads served by the cache.
    pub hits: u64,
    /// Pages written to the cache device. Fractional if the product also writes tables of contents and padding.
    pub page_writes: f64,
}

impl Outcome {
    /// Hits per read, from 0 to 1; 0 if nothing was read.
    pub fn read_hit_ratio(&self) -> f64 {
        ratio(self.hits as f64, self.reads)
    }

    /// Pages written to the cache device per 1,000 events.
    pub fn page_writes_per_1000(&self) -> f64 {
        ratio(self.page_writes * 1000.0, self.events)
    }
}

fn ratio(part: f64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        let outcome = Outcome {
            events: 2000,
            reads: 1000,
            hits: 250,
            page_writes: 500.0,
        };
        assert_eq!(outcome.read_hit_ratio(), 0.25);
        assert_eq!(outcome.page_writes_per_1000(), 250.0);
        assert_eq!(Outcome::default().read_hit_ratio(), 0.0);
        assert_eq!(Outcome::default().page_writes_per_1000(), 0.0);
    }
}
