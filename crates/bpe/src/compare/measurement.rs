//! Measurements of a slice: one number for each compared figure.

use crate::observe::{Figures, Sample, Waits};

/// A compared figure.
pub struct Figure {
    /// Its name in the JSON report.
    pub name: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub more_is_better: bool,
    of: fn(&Seen) -> Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Per second.
    PerSecond,
    Microseconds,
    /// A number of items, which the title names.
    Number,
}

impl Unit {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerSecond => "1/s",
            Self::Microseconds => "us",
            Self::Number => "",
        }
    }
}

/// Readings of a slice.
struct Seen {
    figures: Figures,
    waits: Waits,
    threads_running: f64,
}

/// The verdict is about the first one.
pub const FIGURES: [Figure; 8] = [
    Figure {
        name: "statements_per_s",
        title: "Statements per second",
        unit: Unit::PerSecond,
        more_is_better: true,
        of: |seen| Some(seen.figures.qps),
    },
    Figure {
        name: "read_mean_us",
        title: "Page read, mean",
        unit: Unit::Microseconds,
        more_is_better: false,
        of: |seen| seen.waits.read_mean_us,
    },
    Figure {
        name: "read_p50_us",
        title: "Page read, p50",
        unit: Unit::Microseconds,
        more_is_better: false,
        of: |seen| seen.waits.read_us.map(|quantiles| quantiles.p50),
    },
    Figure {
        name: "read_p95_us",
        title: "Page read, p95",
        unit: Unit::Microseconds,
        more_is_better: false,
        of: |seen| seen.waits.read_us.map(|quantiles| quantiles.p95),
    },
    Figure {
        name: "control_read_p50_us",
        title: "Data disk, p50 of the same pages",
        unit: Unit::Microseconds,
        more_is_better: false,
        of: |seen| seen.waits.control_read_us.map(|quantiles| quantiles.p50),
    },
    Figure {
        name: "data_reads_per_s",
        title: "Page reads of the data disk",
        unit: Unit::PerSecond,
        more_is_better: false,
        of: |seen| Some(seen.figures.data_reads_per_s),
    },
    Figure {
        name: "threads_running",
        title: "Threads running",
        unit: Unit::Number,
        more_is_better: false,
        of: |seen| Some(seen.threads_running),
    },
    Figure {
        name: "row_lock_waits_per_s",
        title: "Waits for row locks",
        unit: Unit::PerSecond,
        more_is_better: false,
        of: |seen| Some(seen.waits.row_lock_waits_per_s),
    },
];

/// The numbers of a slice, in the order of [`FIGURES`]; `None` if nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice(pub [Option<f64>; FIGURES.len()]);

impl Slice {
    /// Computes them from the readings of a slice, one per second; `None` for fewer than two readings.
    pub fn of(readings: &[Sample]) -> Option<Self> {
        let [first, rest @ ..] = readings else {
            return None;
        };
        let last = rest.last()?;
        let threads: f64 = rest
            .iter()
            .map(|reading| reading.number("threads_running"))
            .sum();
        let seen = Seen {
            figures: Figures::between(first, last),
            waits: Waits::between(first, last),
            threads_running: threads / rest.len() as f64,
        };
        Some(Self(std::array::from_fn(|index| {
            (FIGURES[index].of)(&seen)
        })))
    }

    pub fn statements_per_s(&self) -> f64 {
        self.get("statements_per_s")
    }

    pub fn threads_running(&self) -> f64 {
        self.get("threads_running")
    }

    /// 0 if nothing was measured.
    fn get(&self, name: &str) -> f64 {
        let index = FIGURES.iter().position(|figure| figure.name == name);
        index.and_then(|index| self.0[index]).unwrap_or(0.0)
    }
}
