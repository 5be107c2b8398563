//! Counts what foyer drops because its queues are full; nothing else of its metrics is kept.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mixtrics::metrics::{
    BoxedCounter, BoxedCounterVec, BoxedGaugeVec, BoxedHistogramVec, CounterOps, CounterVecOps,
    RegistryOps,
};
use mixtrics::registry::noop::NoopMetricsRegistry;

/// Ends of the labels under which foyer counts entries it could not queue.
const OVERFLOW: &str = "_overflow";

/// Entries dropped.
#[derive(Clone, Debug, Default)]
pub struct Overflow(Arc<AtomicU64>);

impl Overflow {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CounterOps for Overflow {
    fn increase(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

impl CounterVecOps for Overflow {
    fn counter(&self, labels: &[Cow<'static, str>]) -> BoxedCounter {
        if labels.iter().any(|label| label.ends_with(OVERFLOW)) {
            Box::new(self.clone())
        } else {
            Box::new(NoopMetricsRegistry)
        }
    }
}

impl RegistryOps for Overflow {
    fn register_counter_vec(
        &self,
        _name: Cow<'static, str>,
        _description: Cow<'static, str>,
        _labels: &'static [&'static str],
    ) -> BoxedCounterVec {
        Box::new(self.clone())
    }

    fn register_gauge_vec(
        &self,
        name: Cow<'static, str>,
        description: Cow<'static, str>,
        labels: &'static [&'static str],
    ) -> BoxedGaugeVec {
        NoopMetricsRegistry.register_gauge_vec(name, description, labels)
    }

    fn register_histogram_vec(
        &self,
        name: Cow<'static, str>,
        description: Cow<'static, str>,
        labels: &'static [&'static str],
    ) -> BoxedHistogramVec {
        NoopMetricsRegistry.register_histogram_vec(name, description, labels)
    }

    fn register_histogram_vec_with_buckets(
        &self,
        name: Cow<'static, str>,
        description: Cow<'static, str>,
        labels: &'static [&'static str],
        buckets: Vec<f64>,
    ) -> BoxedHistogramVec {
        NoopMetricsRegistry.register_histogram_vec_with_buckets(name, description, labels, buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_alone_are_counted() {
        let overflow = Overflow::default();
        let counters = overflow.register_counter_vec("x".into(), "".into(), &["name", "op"]);
        counters
            .counter(&["foyer".into(), "channel_overflow".into()])
            .increase(2);
        counters
            .counter(&["foyer".into(), "write".into()])
            .increase(5);
        assert_eq!(overflow.count(), 2);
    }
}
