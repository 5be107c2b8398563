//! Processor load of the machine: a failover proves something only if the processors are not the limit.

use std::fs;

/// Total time of all processors since boot, in kernel ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    all: u64,
    /// Idle, or waiting for a disk.
    idle: u64,
    /// Low-priority work that yields to the demonstration.
    nice: u64,
}

impl Processors {
    /// Reads the totals; zeros without `/proc`.
    pub fn now() -> Processors {
        Processors::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Processors {
        let line = text.lines().next().unwrap_or_default();
        // cpu  user nice system idle iowait irq softirq steal; guests are part of user and nice.
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|word| word.parse().ok())
            .collect();
        let tick = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Processors {
            all: ticks.iter().sum(),
            idle: tick(3) + tick(4),
            nice: tick(1),
        }
    }

    /// Percent of the time since then that was idle, or spent on low-priority work.
    pub fn free_since(&self, then: &Processors) -> Option<f64> {
        let all = self.all.checked_sub(then.all).filter(|all| *all > 0)?;
        let free = (self.idle + self.nice).saturating_sub(then.idle + then.nice);
        Some(free as f64 * 100.0 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_nice_time_is_free() {
        let then = Processors::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let now = Processors::parse("cpu  40 10 20 120 10 0 0 0 0 0\n");
        assert_eq!(now.free_since(&then), Some(60.0));
        assert_eq!(then.free_since(&then), None);
        assert_eq!(Processors::parse(""), Processors::default());
    }
}
