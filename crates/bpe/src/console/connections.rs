//! Limits connections per address and in total. When a limit is exceeded, the connection that was silent longest is
//! closed. Connections with the token have separate limits.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use interface::canary;
use tokio::sync::oneshot;

/// Limit of connections without the token per address.
pub const MAX_PER_ADDRESS: usize = 32;
/// Limit of connections without the token in total.
pub const MAX_STRANGERS: usize = 256;
/// Limit of connections with the token.
const MAX_HOLDERS: usize = 256;
/// Grace period for the next request of a connection above these limits. A caller on a busy host sends it late.
pub const GRACE: Duration = Duration::from_millis(100);
/// Limit of connections without the token during their grace period.
const MAX_NEWCOMERS: usize = 1024;
/// Minimum limit of each kind if file descriptors are scarce.
const MIN_CONNECTIONS: usize = 8;
/// Refusals per connection. The next one closes it.
const MAX_REFUSALS: u32 = 20;

/// Dropping it closes the connection.
pub type Open = oneshot::Sender<()>;

struct OpenConnection {
    address: IpAddr,
    /// Time of the last complete request, or of the connection's start.
    heard: Instant,
    is_holder: bool,
    refusals: u32,
    /// Closes the connection when dropped.
    _open: Open,
}

/// All connections of a listener.
pub struct Connections {
    open: HashMap<u64, OpenConnection>,
    /// Connections without the token by address, longest silent first.
    strangers: HashMap<IpAddr, BTreeSet<(Instant, u64)>>,
    holders: BTreeSet<(Instant, u64)>,
    /// Number of connections without the token.
    count: usize,
    next: u64,
    max_newcomers: usize,
    max_strangers: usize,
    max_holders: usize,
}

impl Connections {
    /// `descriptors`: number of connections that the process can keep open.
    pub fn new(descriptors: usize) -> Self {
        // Two thirds for connections without the token, of which many may be in their grace period, and one third for those with it.
        let third = descriptors / 3;
        Self {
            open: HashMap::new(),
            strangers: HashMap::new(),
            holders: BTreeSet::new(),
            count: 0,
            next: 0,
            max_newcomers: MAX_NEWCOMERS.min(2 * third).max(MIN_CONNECTIONS),
            max_strangers: MAX_STRANGERS.min(2 * third).max(MIN_CONNECTIONS),
            max_holders: MAX_HOLDERS.min(third).max(MIN_CONNECTIONS),
        }
    }

    /// Adds a new connection and returns its number.
    pub fn enter(&mut self, address: IpAddr, open: Open, now: Instant) -> u64 {
        let address = share(address);
        let number = self.next;
        self.next += 1;
        let connection = OpenConnection {
            address,
            heard: now,
            is_holder: false,
            refusals: 0,
            _open: open,
        };
        self.open.insert(number, connection);
        self.strangers
            .entry(address)
            .or_default()
            .insert((now, number));
        self.count += 1;
        while self.count > self.max_newcomers && self.close_silent(Duration::ZERO, now) {}
        self.settle(now);
        number
    }

    /// Closes connections above the limits after their grace period.
    pub fn settle(&mut self, now: Instant) {
        let crowded = self.strangers.iter().filter_map(|(address, connections)| {
            (connections.len() > MAX_PER_ADDRESS).then_some(*address)
        });
        for address in crowded.collect::<Vec<_>>() {
            while self.count_of(address) > MAX_PER_ADDRESS
                && !canary!("share-of-an-address")
                && self.close_of(address, GRACE, now)
            {}
        }
        while self.count > self.max_strangers && self.close_silent(GRACE, now) {}
    }

    /// Whether [`Connections::settle`] has connections to close, now or after their grace period.
    pub fn is_crowded(&self) -> bool {
        self.count > self.max_strangers
            || self.strangers.values().any(|of| of.len() > MAX_PER_ADDRESS)
    }

    /// Whether this connection exceeds a limit and should end after its answer.
    pub fn is_surplus(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|connection| {
            !connection.is_holder
                && (self.count > self.max_strangers
                    || self.count_of(connection.address) > MAX_PER_ADDRESS)
        })
    }

    /// Records a complete request.
    pub fn hear(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.open.get_mut(&number) else {
            return;
        };
        let before = (connection.heard, number);
        connection.heard = now;
        let queue = match connection.is_holder {
            true => &mut self.holders,
            false => self.strangers.entry(connection.address).or_default(),
        };
        queue.remove(&before);
        queue.insert((now, number));
    }

    /// Records that a connection has shown the token, and moves it to the limits for token holders.
    pub fn admit(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.open.get_mut(&number) else {
            return;
        };
        if !connection.is_holder && !canary!("places-of-holders") {
            connection.is_holder = true;
            let (address, heard) = (connection.address, connection.heard);
            self.forget_stranger(address, (heard, number));
            self.holders.insert((heard, number));
        }
        self.hear(number, now);
        while self.holders.len() > self.max_holders {
            let Some((_, oldest)) = self.holders.first().copied() else {
                break;
            };
            self.leave(oldest);
        }
    }

    /// Counts a refusal. Returns whether the connection gets another answer.
    pub fn refuse(&mut self, number: u64) -> bool {
        self.open.get_mut(&number).is_some_and(|connection| {
            connection.refusals += 1;
            connection.refusals <= MAX_REFUSALS
        })
    }

    /// Closes and removes a connection.
    pub fn leave(&mut self, number: u64) {
        if let Some(connection) = self.open.remove(&number) {
            let place = (connection.heard, number);
            if connection.is_holder {
                self.holders.remove(&place);
            } else {
                self.forget_stranger(connection.address, place);
            }
        }
    }

    /// Closes the connection without the token that was silent longest, if for at least this time. It belongs to the
    /// address with most connections. Returns whether one was closed.
    pub fn close_silent(&mut self, least: Duration, now: Instant) -> bool {
        let largest = self.strangers.iter().max_by_key(|(_, of)| of.len());
        let most = largest.map_or(0, |(_, of)| of.len());
        let oldest = self
            .strangers
            .iter()
            .filter(|(_, of)| of.len() == most)
            .filter_map(|(address, of)| Some((of.first()?, *address)))
            .min()
            .map(|(_, address)| address);
        oldest.is_some_and(|address| self.close_of(address, least, now))
    }

    fn close_of(&mut self, address: IpAddr, least: Duration, now: Instant) -> bool {
        let oldest = self.strangers.get(&address).and_then(BTreeSet::first);
        match oldest.copied() {
            Some((heard, number)) if now.saturating_duration_since(heard) >= least => {
                self.leave(number);
                true
            }
            _ => false,
        }
    }

    fn count_of(&self, address: IpAddr) -> usize {
        self.strangers.get(&address).map_or(0, BTreeSet::len)
    }

    fn forget_stranger(&mut self, address: IpAddr, place: (Instant, u64)) {
        if let Some(of) = self.strangers.get_mut(&address) {
            self.count -= usize::from(of.remove(&place));
            if of.is_empty() {
                self.strangers.remove(&address);
            }
        }
    }
}

/// The address that a connection is counted under. An IPv6 network gives each host 2^64 addresses, so all of them count as one.
pub fn share(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const MANY: usize = 10_000;

    struct Trial {
        connections: Connections,
        now: Instant,
        ends: HashMap<u64, oneshot::Receiver<()>>,
    }

    impl Trial {
        fn new() -> Self {
            Self {
                connections: Connections::new(MANY),
                now: Instant::now(),
                ends: HashMap::new(),
            }
        }

        fn enter(&mut self, address: [u8; 4]) -> u64 {
            let (open, end) = oneshot::channel();
            self.now += Duration::from_micros(1);
            let address = IpAddr::V4(Ipv4Addr::from(address));
            let number = self.connections.enter(address, open, self.now);
            self.ends.insert(number, end);
            number
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
            self.connections.settle(self.now);
        }

        fn is_open(&mut self, number: u64) -> bool {
            let end = self.ends.get_mut(&number).unwrap();
            end.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        }

        fn count_open(&mut self) -> usize {
            let numbers: Vec<u64> = self.ends.keys().copied().collect();
            let open = numbers.into_iter().filter(|number| self.is_open(*number));
            open.count()
        }
    }

    #[test]
    fn longest_silent_gives_way() {
        let mut trial = Trial::new();
        let first: Vec<u64> = (0..MAX_PER_ADDRESS).map(|_| trial.enter([1; 4])).collect();
        trial.wait(GRACE * 2);
        // A request makes the first connection the most recent.
        trial.connections.hear(first[0], trial.now);
        let newest = trial.enter([1; 4]);
        trial.wait(Duration::ZERO);
        assert!(trial.is_open(newest) && trial.is_open(first[0]));
        assert!(!trial.is_open(first[1]) && trial.is_open(first[2]));
        assert_eq!(trial.count_open(), MAX_PER_ADDRESS);
    }

    #[test]
    fn one_address_has_a_bounded_share() {
        let mut trial = Trial::new();
        let other = trial.enter([2; 4]);
        let numbers: Vec<u64> = (0..MANY).map(|_| trial.enter([1; 4])).collect();
        assert!(
            trial.count_open() <= MAX_NEWCOMERS,
            "{}",
            trial.count_open()
        );
        assert!(trial.is_open(numbers[MANY - 1]) && trial.is_open(other));
        assert!(trial.connections.is_crowded() && trial.connections.is_surplus(numbers[MANY - 1]));
        trial.wait(GRACE);
        assert_eq!(trial.count_open(), MAX_PER_ADDRESS + 1);
        assert!(trial.is_open(numbers[MANY - 1]) && trial.is_open(other));
        assert!(!trial.connections.is_crowded() && !trial.connections.is_surplus(other));
    }

    #[test]
    fn many_addresses_do_not_displace_a_single_connection() {
        let mut trial = Trial::new();
        let alone = trial.enter([9; 4]);
        for address in 0..200 {
            for _ in 0..MAX_PER_ADDRESS {
                trial.enter([10, 0, 0, address]);
            }
        }
        trial.wait(GRACE);
        assert_eq!(trial.count_open(), MAX_STRANGERS);
        assert!(trial.is_open(alone));
    }

    #[test]
    fn newcomers_have_their_grace() {
        let mut trial = Trial::new();
        let numbers: Vec<u64> = (0..MAX_NEWCOMERS).map(|_| trial.enter([1; 4])).collect();
        trial.wait(GRACE / 2);
        assert!(trial.is_open(numbers[0]));
        trial.wait(GRACE / 2);
        assert!(!trial.is_open(numbers[0]));
    }

    #[test]
    fn strangers_do_not_take_places_of_token_holders() {
        let mut trial = Trial::new();
        let holders: Vec<u64> = (0..MAX_HOLDERS)
            .map(|_| {
                let number = trial.enter([1; 4]);
                trial.connections.admit(number, trial.now);
                number
            })
            .collect();
        for _ in 0..MANY {
            trial.enter([1; 4]);
        }
        trial.wait(GRACE);
        assert!(holders.iter().all(|number| trial.is_open(*number)));
        assert!(!trial.connections.is_surplus(holders[0]));
        assert_eq!(trial.count_open(), MAX_HOLDERS + MAX_PER_ADDRESS);
        // Among connections with the token, the longest silent one is closed.
        let one_more = trial.enter([1; 4]);
        trial.connections.admit(one_more, trial.now);
        assert!(!trial.is_open(holders[0]) && trial.is_open(one_more));
    }

    #[test]
    fn closed_connections_leave_no_trace() {
        let mut trial = Trial::new();
        for is_holder in [false, true] {
            let number = trial.enter([1; 4]);
            if is_holder {
                trial.connections.admit(number, trial.now);
            }
            trial.connections.leave(number);
            trial.connections.hear(number, trial.now);
            trial.connections.admit(number, trial.now);
            assert!(!trial.connections.refuse(number));
        }
        let connections = &trial.connections;
        assert!(connections.open.is_empty() && connections.strangers.is_empty());
        assert!(connections.holders.is_empty() && connections.count == 0);
    }

    #[test]
    fn few_descriptors_bound_the_places() {
        let mut trial = Trial::new();
        trial.connections = Connections::new(150);
        for _ in 0..100 {
            for address in 0..4 {
                trial.enter([address; 4]);
            }
        }
        assert_eq!(trial.count_open(), 100);
        trial.connections = Connections::new(0);
        let numbers: Vec<u64> = (0..100).map(|_| trial.enter([1; 4])).collect();
        assert_eq!(trial.count_open(), MIN_CONNECTIONS);
        assert!(trial.is_open(numbers[99]));
    }

    #[test]
    fn refusals_of_a_connection_end_it() {
        let mut trial = Trial::new();
        let number = trial.enter([1; 4]);
        assert!((0..MAX_REFUSALS).all(|_| trial.connections.refuse(number)));
        assert!(!trial.connections.refuse(number));
    }

    #[test]
    fn networks_of_ipv6_are_one_address() {
        let of = |text: &str| share(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::1"), "::1".parse::<IpAddr>().unwrap());
    }
}
