//! Policies for comparison with the product: simulations that handle page numbers, not bytes.
//!
//! Each was written from the paper or definition that its module names. They use the counting rules of the crate. A
//! write updates a resident page but is no use of it, because a flush by InnoDB does not predict a read.

mod clock;
mod lists;
mod lru;
mod mq;
mod opt;
mod policy;
mod s3_fifo;
mod sketch;
#[cfg(test)]
mod tests;
mod w_tinylfu;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::{Event, Outcome, PROGRESS_EVERY, Trace};

pub use clock::Clock;
pub use lru::Lru;
pub use mq::Mq;
pub use opt::Opt;
pub use policy::{Policy, Read};
pub use s3_fifo::S3Fifo;
pub use w_tinylfu::WTinyLfu;

/// Available policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyName {
    Lru,
    Clock,
    S3Fifo,
    WTinyLfu,
    Mq,
    /// The limit of a policy that knows all future reads, and bypasses pages that are not worth caching.
    Opt,
}

impl PolicyName {
    pub const ALL: [PolicyName; 6] = [
        PolicyName::Lru,
        PolicyName::Clock,
        PolicyName::S3Fifo,
        PolicyName::WTinyLfu,
        PolicyName::Mq,
        PolicyName::Opt,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Lru => "lru",
            PolicyName::Clock => "clock",
            PolicyName::S3Fifo => "s3-fifo",
            PolicyName::WTinyLfu => "w-tinylfu",
            PolicyName::Mq => "mq",
            PolicyName::Opt => "opt",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| format!("there is no policy `{text}`"))
    }
}

/// Creates a policy for `events`, which must be exactly the events it will see, in this order.
///
/// # Panics
/// If the capacity is 0.
pub fn build(
    name: PolicyName,
    events: &[Event],
    distinct_pages: usize,
    capacity: usize,
) -> Box<dyn Policy> {
    assert!(capacity > 0, "a cache of no pages");
    match name {
        PolicyName::Lru => Box::new(Lru::new(distinct_pages, capacity)),
        PolicyName::Clock => Box::new(Clock::new(distinct_pages, capacity)),
        PolicyName::S3Fifo => Box::new(S3Fifo::new(distinct_pages, capacity)),
        PolicyName::WTinyLfu => Box::new(WTinyLfu::new(distinct_pages, capacity)),
        PolicyName::Mq => Box::new(Mq::new(distinct_pages, capacity)),
        PolicyName::Opt => Box::new(Opt::new(events, distinct_pages, capacity)),
    }
}

/// Replays a trace up to the end of the measured part through a policy with `capacity` pages. `progress` is called at
/// intervals with the number of completed events.
///
/// # Panics
/// If the capacity is 0 or the measured part is beyond the trace.
pub fn run(
    name: PolicyName,
    trace: &Trace,
    measured: Range<usize>,
    capacity: usize,
    progress: &mut dyn FnMut(usize),
) -> Outcome {
    let events = &trace.events()[..measured.end];
    let mut policy = build(name, events, trace.distinct_pages(), capacity);
    let mut outcome = Outcome::default();
    for (n, event) in events.iter().enumerate() {
        if n == measured.start {
            outcome = Outcome::default();
        }
        if n % PROGRESS_EVERY == 0 {
            progress(n);
        }
        outcome.events += 1;
        let written = if event.is_write() {
            policy.write(event.page())
        } else {
            outcome.reads += 1;
            let read = policy.read(event.page());
            outcome.hits += u64::from(read == Read::Hit);
            read == Read::Inserted
        };
        outcome.page_writes += f64::from(u8::from(written));
    }
    outcome
}
