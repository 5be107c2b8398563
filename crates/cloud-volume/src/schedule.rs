//! Start and completion times of requests: one FIFO for reads and writes alike.
//!
//! A request's start is scheduled on arrival, in virtual time. It is the earliest moment that both caps allow, and
//! never precedes the start of an earlier request. If that is in the future, the request is released at the next tick.
//! It completes a latency (and jitter) after that. Starts are computed and not observed, so a late timer delays
//! completions but loses no throughput.
//!
//! The schedule is independent of clocks and threads; [`crate::pacer`] drives it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::bucket::{Bucket, Nanos};
use crate::profile::{JitterShape, Profile};

/// Requests that the caps hold back are released at multiples of this. At 3,000 IOPS three complete at a time, which
/// costs a third less processor time than one timer each. The rate is unchanged, since it follows the starts. The
/// average queueing time grows by half of this on a barely throttled volume, and not at all on a saturated one.
const TICK: Nanos = 1_000_000;

/// Cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// A transfer: counts against both caps.
    Transfer { bytes: u64 },
    /// Only the latency: a flush.
    Flush,
}

/// A due request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due<T> {
    pub(crate) item: T,
    /// Time spent waiting for the caps.
    pub(crate) waited: Nanos,
    /// The part of `waited` during which no earlier request waited: adds up to wall-clock time.
    pub(crate) throttled: Nanos,
}

struct Entry<T> {
    due: Nanos,
    sequence: u64,
    arrival: Nanos,
    start: Nanos,
    cost: Cost,
    item: T,
}

pub(crate) struct Schedule<T> {
    profile: Profile,
    iops: Option<Bucket>,
    bandwidth: Option<Bucket>,
    queue: BinaryHeap<Entry<T>>,
    sequence: u64,
    /// No request completes before this.
    held_until: Nanos,
    throttled_until: Nanos,
    /// Release time of the latest request; later ones are never released earlier.
    released: Nanos,
    random: fastrand::Rng,
}

impl<T> Schedule<T> {
    pub(crate) fn new(now: Nanos, profile: Profile) -> Self {
        let mut schedule = Schedule {
            profile: Profile::unlimited(),
            iops: None,
            bandwidth: None,
            queue: BinaryHeap::new(),
            sequence: 0,
            held_until: 0,
            throttled_until: 0,
            released: 0,
            // A fixed seed: equal requests at equal times get equal jitter.
            random: fastrand::Rng::with_seed(0x5eed),
        };
        schedule.set_profile(now, profile);
        schedule
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request that arrives now completes now.
    pub(crate) fn is_free(&self, now: Nanos) -> bool {
        self.profile.is_unlimited() && self.held_until <= now
    }

    /// Queues a request. Returns when it is due.
    pub(crate) fn push(&mut self, now: Nanos, cost: Cost, item: T) -> Nanos {
        let sequence = self.sequence;
        self.sequence += 1;
        self.enqueue(now, now, sequence, cost, item)
    }

    /// When the next request is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.queue.peek().map(|entry| entry.due)
    }

    /// The next request if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Due<T>> {
        if self.next_due()? > now {
            return None;
        }
        let entry = self.queue.pop()?;
        let since = entry.arrival.max(self.throttled_until);
        self.throttled_until = self.throttled_until.max(entry.start);
        Some(Due {
            item: entry.item,
            waited: entry.start - entry.arrival,
            throttled: entry.start.saturating_sub(since),
        })
    }

    /// Changes the caps. Started requests keep their times; the others are rescheduled in order of arrival. Burst
    /// credits start full.
    pub(crate) fn set_profile(&mut self, now: Nanos, profile: Profile) {
        self.iops = profile
            .iops
            .map(|iops| Bucket::new(now, iops, profile.burst));
        self.bandwidth = profile.bandwidth.map(|rate| Bucket::new(now, rate, None));
        self.profile = profile;
        self.restart(now.max(self.held_until));
        self.lay_out_anew(now);
    }

    /// Prevents completions and starts before `until`.
    pub(crate) fn hold(&mut self, now: Nanos, until: Nanos) {
        self.held_until = self.held_until.max(until);
        self.restart(now.max(self.held_until));
        self.lay_out_anew(now);
    }

    /// Ends a hold.
    pub(crate) fn release(&mut self, now: Nanos) {
        let held = std::mem::take(&mut self.held_until);
        if held <= now {
            return;
        }
        self.restart(now);
        let mut entries = std::mem::take(&mut self.queue).into_vec();
        entries.sort_by_key(|entry| entry.sequence);
        for entry in entries {
            self.enqueue(now, entry.arrival, entry.sequence, entry.cost, entry.item);
        }
    }

    /// Removes and returns all requests, in order of arrival.
    pub(crate) fn drain(&mut self, now: Nanos) -> Vec<T> {
        self.restart(now.max(self.held_until));
        let mut entries = std::mem::take(&mut self.queue).into_vec();
        entries.sort_by_key(|entry| entry.sequence);
        entries.into_iter().map(|entry| entry.item).collect()
    }

    /// Discards the schedule after `at`.
    fn restart(&mut self, at: Nanos) {
        self.released = self.released.min(at);
        for bucket in [&mut self.iops, &mut self.bandwidth].into_iter().flatten() {
            bucket.restart(at);
        }
    }

    fn lay_out_anew(&mut self, now: Nanos) {
        let mut entries = std::mem::take(&mut self.queue).into_vec();
        entries.sort_by_key(|entry| entry.sequence);
        for mut entry in entries {
            if entry.start <= now {
                entry.due = entry.due.max(self.held_until);
                self.queue.push(entry);
            } else {
                self.enqueue(now, entry.arrival, entry.sequence, entry.cost, entry.item);
            }
        }
    }

    fn enqueue(&mut self, now: Nanos, arrival: Nanos, sequence: u64, cost: Cost, item: T) -> Nanos {
        let mut start = now.max(self.held_until);
        if let Cost::Transfer { bytes } = cost {
            let ios = self.profile.billed(bytes);
            if let Some(bucket) = &mut self.iops {
                start = bucket.ready_at(start, ios);
            }
            if let Some(bucket) = &mut self.bandwidth {
                start = bucket.ready_at(start, bytes);
                bucket.take(start, bytes);
            }
            if let Some(bucket) = &mut self.iops {
                bucket.take(start, ios);
            }
        }
        let release = if start > now {
            start.next_multiple_of(TICK)
        } else {
            start
        };
        self.released = self.released.max(release);
        let due = self.released + self.profile.latency.as_nanos() as Nanos + self.jitter();
        self.queue.push(Entry {
            due,
            sequence,
            arrival,
            start,
            cost,
            item,
        });
        due
    }

    fn jitter(&mut self) -> Nanos {
        let Some(jitter) = self.profile.jitter else {
            return 0;
        };
        let share = self.random.f64();
        let share = match jitter.shape {
            JitterShape::Uniform => share,
            JitterShape::Tail => share.powi(7),
        };
        (jitter.bound.as_nanos() as f64 * share) as Nanos
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// The heap returns its greatest element: the one that is due first, and among equals the one that arrived first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::profile::Jitter;

    const US: Nanos = 1_000;
    const MS: Nanos = 1_000_000;
    const S: Nanos = 1_000_000_000;
    const PAGE: Cost = Cost::Transfer { bytes: 16 * 1024 };

    /// Simulates clients with one request in flight each, for `window`. Returns completions per client.
    fn run(schedule: &mut Schedule<usize>, costs: &[Cost], window: Nanos) -> Vec<u64> {
        let mut done = vec![0; costs.len()];
        for (client, cost) in costs.iter().enumerate() {
            schedule.push(0, *cost, client);
        }
        while let Some(now) = schedule.next_due() {
            if now >= window {
                break;
            }
            let client = schedule.pop_due(now).unwrap().item;
            done[client] += 1;
            schedule.push(now, costs[client], client);
        }
        done
    }

    #[test]
    fn the_default_volume_carries_3000_a_second_shared_fairly() {
        let mut schedule = Schedule::new(0, Profile::default());
        let done = run(&mut schedule, &[PAGE; 16], 4 * S);
        let total: u64 = done.iter().sum();
        assert!((11_940..=12_060).contains(&total), "{total}");
        let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
        assert!(most - least <= 1, "{done:?}");
    }

    #[test]
    fn a_lone_client_sees_only_the_latency() {
        let mut schedule = Schedule::new(0, Profile::default());
        // A second later, so that the bucket is not empty.
        assert_eq!(schedule.push(S, PAGE, 0), S + 500 * US);
        let done = schedule.pop_due(S + 500 * US).unwrap();
        assert_eq!((done.waited, done.throttled), (0, 0));
        assert!(run(&mut schedule, &[PAGE], 2 * S)[0] <= 4000);
    }

    #[test]
    fn throttled_requests_go_at_ticks_and_overtake_nothing() {
        let profile = Profile {
            iops: Some(3000),
            ..Profile::unlimited()
        };
        let mut schedule = Schedule::new(0, profile);
        // Between the ticks, at times at which some requests find a token and some do not.
        let mut random = fastrand::Rng::with_seed(3);
        let mut now = 0;
        let mut last = 0;
        let mut immediate = 0;
        for n in 0..10_000 {
            now += random.u64(0..660 * US);
            let due = schedule.push(now, PAGE, n);
            assert!(due >= last && due >= now);
            if due == now {
                immediate += 1;
            } else {
                assert_eq!(due % MS, 0);
            }
            last = due;
        }
        assert!((1000..9000).contains(&immediate), "{immediate}");
        assert!(last - now < 100 * MS, "{}", last - now);
    }

    #[test]
    fn large_requests_meet_the_bandwidth_cap() {
        let mut schedule = Schedule::new(0, Profile::default());
        let done = run(
            &mut schedule,
            &[Cost::Transfer { bytes: 1 << 20 }; 4],
            8 * S,
        );
        let bytes = done.iter().sum::<u64>() << 20;
        assert!((980_000_000..=1_010_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn large_requests_count_as_several_ios() {
        let profile = Profile {
            bandwidth: None,
            ..Profile::default()
        };
        let mut schedule = Schedule::new(0, profile);
        let done = run(
            &mut schedule,
            &[Cost::Transfer { bytes: 1 << 20 }; 8],
            4 * S,
        );
        let total: u64 = done.iter().sum();
        assert!((2985..=3015).contains(&total), "{total}");
    }

    #[test]
    fn flushes_cost_latency_alone() {
        let mut schedule = Schedule::new(0, Profile::default());
        for n in 0..100 {
            assert_eq!(schedule.push(MS, Cost::Flush, n), MS + 500 * US);
        }
    }

    #[test]
    fn waiting_is_accounted_once() {
        let profile = Profile {
            iops: Some(1000),
            ..Profile::unlimited()
        };
        let mut schedule = Schedule::new(0, profile);
        for n in 0..1000 {
            schedule.push(0, PAGE, n);
        }
        let mut throttled = 0;
        let mut waited = 0;
        while let Some(due) = schedule.pop_due(2 * S) {
            throttled += due.throttled;
            waited += due.waited;
        }
        assert!(throttled.abs_diff(S) < 10 * MS, "{throttled}");
        assert!(waited > 400 * S, "{waited}");
    }

    #[test]
    fn a_new_profile_frees_what_has_not_started() {
        let mut schedule = Schedule::new(0, Profile::default());
        for n in 0..3000 {
            schedule.push(0, PAGE, n);
        }
        schedule.set_profile(MS, Profile::unlimited());
        let mut order = Vec::new();
        while let Some(due) = schedule.pop_due(2 * MS) {
            order.push(due.item);
        }
        assert_eq!(order.len(), 3000);
        // The few started requests keep their latency.
        order.retain(|n| *n >= 4);
        assert!(order.is_sorted(), "arrival order is kept");
    }

    #[test]
    fn a_new_profile_slows_what_has_not_started() {
        let mut schedule = Schedule::new(0, Profile::default());
        for n in 0..100 {
            schedule.push(0, PAGE, n);
        }
        let slow = Profile {
            iops: Some(10),
            ..Profile::default()
        };
        schedule.set_profile(MS, slow);
        let mut done = 0;
        while schedule.pop_due(S).is_some() {
            done += 1;
        }
        assert!((10..20).contains(&done), "{done}");
    }

    #[test]
    fn a_stall_holds_everything_and_gives_nothing_back() {
        let mut schedule = Schedule::new(0, Profile::default());
        // Scheduled over four seconds.
        for n in 0..12_000 {
            schedule.push(0, PAGE, n);
        }
        schedule.hold(MS, 3 * S);
        schedule.push(2 * MS, PAGE, 12_000);
        assert!(!schedule.is_free(2 * S));
        assert!(schedule.pop_due(3 * S - 1).is_none());
        // The waiting requests gain no tokens from the time of the stall.
        let mut done = 0;
        while schedule.pop_due(3 * S + 5 * MS).is_some() {
            done += 1;
        }
        assert!((15..=45).contains(&done), "{done}");
    }

    #[test]
    fn jitter_is_bounded_and_shaped() {
        for (shape, mean) in [(JitterShape::Uniform, 0.5), (JitterShape::Tail, 0.125)] {
            let profile = Profile {
                jitter: Some(Jitter {
                    bound: Duration::from_millis(4),
                    shape,
                }),
                ..Profile::unlimited()
            };
            let mut schedule = Schedule::new(0, profile);
            let mut sum = 0;
            for n in 0..10_000 {
                let due = schedule.push(S, PAGE, n);
                assert!((S..=S + 4 * MS).contains(&due));
                sum += due - S;
            }
            let share = sum as f64 / 10_000.0 / (4 * MS) as f64;
            assert!((share - mean).abs() < 0.02, "{shape:?}: {share}");
        }
    }

    #[test]
    fn drained_in_order_of_arrival() {
        let mut schedule = Schedule::new(0, Profile::default());
        for n in 0..100 {
            schedule.push(0, PAGE, n);
        }
        assert!(schedule.drain(0).into_iter().eq(0..100));
        assert_eq!(schedule.len(), 0);
    }
}
