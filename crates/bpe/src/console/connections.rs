//! Decides which connections stay: a bounded number for each address and in total. The connection that has been silent
//! longest gives way to a new one. Token holders have places of their own.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use interface::left_out;
use tokio::sync::oneshot;

/// Connections of one address without the token.
pub const PER_ADDRESS: usize = 32;
/// Connections of all addresses without the token.
pub const STRANGERS: usize = 256;
/// Connections that have shown the token.
const HOLDERS: usize = 256;
/// A connection above these limits has this long for its next request. A caller on a busy host sends it late.
pub const GRACE: Duration = Duration::from_millis(100);
/// Connections without the token that are open during their grace, at most.
const NEWCOMERS: usize = 1024;
/// Places of each kind where there are hardly any file descriptors.
const MIN_PLACES: usize = 8;
/// Refusals that one connection gets. The next one closes it.
const REFUSALS: u32 = 20;

/// Closes the connection when it is dropped.
pub type Open = oneshot::Sender<()>;

struct Connection {
    address: IpAddr,
    /// Time of the last complete request, or of the start of the connection.
    heard: Instant,
    is_holder: bool,
    refusals: u32,
    /// Held for its drop.
    _open: Open,
}

/// All connections of a listener.
pub struct Connections {
    open: HashMap<u64, Connection>,
    /// Connections without the token by address, those silent longest first.
    strangers: HashMap<IpAddr, BTreeSet<(Instant, u64)>>,
    holders: BTreeSet<(Instant, u64)>,
    /// Connections without the token.
    count: usize,
    next: u64,
    most_newcomers: usize,
    most_strangers: usize,
    most_holders: usize,
}

impl Connections {
    /// `descriptors`: how many of these connections the process can keep open.
    pub fn new(descriptors: usize) -> Self {
        // Two parts for strangers, who are many during their grace, and one for token holders.
        let third = descriptors / 3;
        Self {
            open: HashMap::new(),
            strangers: HashMap::new(),
            holders: BTreeSet::new(),
            count: 0,
            next: 0,
            most_newcomers: NEWCOMERS.min(2 * third).max(MIN_PLACES),
            most_strangers: STRANGERS.min(2 * third).max(MIN_PLACES),
            most_holders: HOLDERS.min(third).max(MIN_PLACES),
        }
    }

    /// Takes a new connection in and returns its number.
    pub fn enter(&mut self, address: IpAddr, open: Open, now: Instant) -> u64 {
        let address = share(address);
        let number = self.next;
        self.next += 1;
        let connection = Connection {
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
        while self.count > self.most_newcomers && self.close_silent(Duration::ZERO, now) {}
        self.settle(now);
        number
    }

    /// Closes connections above the limits whose grace is over.
    pub fn settle(&mut self, now: Instant) {
        let crowded = self.strangers.iter().filter_map(|(address, connections)| {
            (connections.len() > PER_ADDRESS).then_some(*address)
        });
        for address in crowded.collect::<Vec<_>>() {
            while self.count_of(address) > PER_ADDRESS
                && !left_out!("share-of-an-address")
                && self.close_of(address, GRACE, now)
            {}
        }
        while self.count > self.most_strangers && self.close_silent(GRACE, now) {}
    }

    /// Whether [`Connections::settle`] has something to close, now or after the grace.
    pub fn is_crowded(&self) -> bool {
        self.count > self.most_strangers || self.strangers.values().any(|of| of.len() > PER_ADDRESS)
    }

    /// Whether this connection should end after its answer, because it is one too many.
    pub fn is_surplus(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|connection| {
            !connection.is_holder
                && (self.count > self.most_strangers
                    || self.count_of(connection.address) > PER_ADDRESS)
        })
    }

    /// Notes a complete request.
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

    /// Notes that a connection has shown the token: it leaves the places of the others.
    pub fn admit(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.open.get_mut(&number) else {
            return;
        };
        if !connection.is_holder && !left_out!("places-of-holders") {
            connection.is_holder = true;
            let (address, heard) = (connection.address, connection.heard);
            self.forget_stranger(address, (heard, number));
            self.holders.insert((heard, number));
        }
        self.hear(number, now);
        while self.holders.len() > self.most_holders {
            let Some((_, oldest)) = self.holders.first().copied() else {
                break;
            };
            self.leave(oldest);
        }
    }

    /// Notes a refusal. Returns whether the connection may have another answer.
    pub fn refuse(&mut self, number: u64) -> bool {
        self.open.get_mut(&number).is_some_and(|connection| {
            connection.refusals += 1;
            connection.refusals <= REFUSALS
        })
    }

    /// Closes a connection and forgets it.
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

    /// Closes the connection without the token that has been silent longest, if it was silent for this long. It is one of
    /// the address that has most connections. Returns whether there was one.
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

/// The address that a share belongs to. A network of IPv6 gives each host 2^64 addresses, so they count as one.
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
        let first: Vec<u64> = (0..PER_ADDRESS).map(|_| trial.enter([1; 4])).collect();
        trial.wait(GRACE * 2);
        // A request makes the first one the newest.
        trial.connections.hear(first[0], trial.now);
        let newest = trial.enter([1; 4]);
        trial.wait(Duration::ZERO);
        assert!(trial.is_open(newest) && trial.is_open(first[0]));
        assert!(!trial.is_open(first[1]) && trial.is_open(first[2]));
        assert_eq!(trial.count_open(), PER_ADDRESS);
    }

    #[test]
    fn one_address_has_a_bounded_share() {
        let mut trial = Trial::new();
        let other = trial.enter([2; 4]);
        let numbers: Vec<u64> = (0..MANY).map(|_| trial.enter([1; 4])).collect();
        assert!(trial.count_open() <= NEWCOMERS, "{}", trial.count_open());
        assert!(trial.is_open(numbers[MANY - 1]) && trial.is_open(other));
        assert!(trial.connections.is_crowded() && trial.connections.is_surplus(numbers[MANY - 1]));
        trial.wait(GRACE);
        assert_eq!(trial.count_open(), PER_ADDRESS + 1);
        assert!(trial.is_open(numbers[MANY - 1]) && trial.is_open(other));
        assert!(!trial.connections.is_crowded() && !trial.connections.is_surplus(other));
    }

    #[test]
    fn many_addresses_do_not_displace_a_single_connection() {
        let mut trial = Trial::new();
        let alone = trial.enter([9; 4]);
        for address in 0..200 {
            for _ in 0..PER_ADDRESS {
                trial.enter([10, 0, 0, address]);
            }
        }
        trial.wait(GRACE);
        assert_eq!(trial.count_open(), STRANGERS);
        assert!(trial.is_open(alone));
    }

    #[test]
    fn newcomers_have_their_grace() {
        let mut trial = Trial::new();
        let numbers: Vec<u64> = (0..NEWCOMERS).map(|_| trial.enter([1; 4])).collect();
        trial.wait(GRACE / 2);
        assert!(trial.is_open(numbers[0]));
        trial.wait(GRACE / 2);
        assert!(!trial.is_open(numbers[0]));
    }

    #[test]
    fn strangers_do_not_take_places_of_token_holders() {
        let mut trial = Trial::new();
        let holders: Vec<u64> = (0..HOLDERS)
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
        assert_eq!(trial.count_open(), HOLDERS + PER_ADDRESS);
        // Among themselves the one that has been silent longest gives way.
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
        assert_eq!(trial.count_open(), MIN_PLACES);
        assert!(trial.is_open(numbers[99]));
    }

    #[test]
    fn refusals_of_a_connection_end_it() {
        let mut trial = Trial::new();
        let number = trial.enter([1; 4]);
        assert!((0..REFUSALS).all(|_| trial.connections.refuse(number)));
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
