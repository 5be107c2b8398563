//! Delays answers to wrong tokens: an address gets some at once, then one a second.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use interface::canary;

/// Refusals that an address gets without delay.
const BURST: u32 = 10;
/// Interval of further refusals.
const INTERVAL: Duration = Duration::from_secs(1);
/// A refusal that would be delayed longer is not sent.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of tracked addresses. All others share one entry.
const MAX_ADDRESSES: usize = 1024;
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// For each address, the time when its whole burst is available again.
#[derive(Debug, Default)]
pub struct Refusals(HashMap<IpAddr, Instant>);

impl Refusals {
    /// Delay of the next refusal for this address; `None` if it is not sent.
    pub fn delay(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        if self.0.len() >= MAX_ADDRESSES {
            self.0.retain(|_, full| *full > now);
        }
        let is_known = self.0.contains_key(&address) || self.0.len() < MAX_ADDRESSES;
        let full = self
            .0
            .entry(if is_known { address } else { OTHERS })
            .or_insert(now);
        let next = (*full).max(now) + INTERVAL;
        let delay = next.saturating_duration_since(now + INTERVAL * BURST);
        (delay <= MAX_DELAY || canary!("burst-of-refusals")).then(|| {
            *full = next;
            delay
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    #[test]
    fn refusals_after_the_burst_wait() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(refusals.delay(address(1), now), Some(Duration::ZERO));
        }
        for seconds in 1..=5 {
            assert_eq!(
                refusals.delay(address(1), now),
                Some(Duration::from_secs(seconds))
            );
        }
        // Refusals that are not sent reserve nothing.
        for _ in 0..10_000 {
            assert_eq!(refusals.delay(address(1), now), None);
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(refusals.delay(address(1), later), Some(MAX_DELAY));
        assert_eq!(refusals.delay(address(2), now), Some(Duration::ZERO));
    }

    #[test]
    fn one_refusal_a_second_is_sent() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let sent = (0..20_000).filter(|millisecond| {
            let at = now + Duration::from_millis(*millisecond);
            refusals.delay(address(1), at).is_some()
        });
        // In 20 s: the burst, one a second, and the delayed ones.
        assert!((30..=36).contains(&sent.count()));
    }

    #[test]
    fn addresses_are_bounded() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for number in 1..100_000 {
            refusals.delay(address(number), now);
        }
        assert!(refusals.0.len() <= MAX_ADDRESSES + 1);
        assert_eq!(refusals.delay(address(100_000), now), None);
        // Entries of silent addresses expire and make room.
        let later = now + Duration::from_secs(60);
        assert_eq!(
            refusals.delay(address(100_000), later),
            Some(Duration::ZERO)
        );
        assert_eq!(refusals.0.len(), 1);
    }
}
