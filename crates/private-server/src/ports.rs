//! Ports of servers that end and start again.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;

/// Below it other services of a host usually listen.
const LOWEST: u16 = 10_000;

/// Fewest ports to choose from.
const FEWEST: u16 = 1000;

/// Returns `EACH` unused ports for each of `SERVERS` servers, all different. They lie outside the kernel's range for connections,
/// unless that leaves fewer than 1000: a connection would occupy the port while its server is down.
///
/// # Errors
///
/// The kernel's range is unreadable, or no port is free.
pub fn free_ports<const EACH: usize, const SERVERS: usize>()
-> std::io::Result<[[u16; EACH]; SERVERS]> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let candidates = outside(&text);
    // Processes that choose at the same time rarely begin at the same port.
    let begin = RandomState::new().hash_one(std::process::id()) as usize % candidates.len();
    let (before, after) = (
        candidates.start..candidates.start + begin as u16,
        candidates,
    );
    let order = after.skip(begin).chain(before);
    let mut free = order.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let mut ports = [[0; EACH]; SERVERS];
    for port in ports.as_flattened_mut() {
        *port = free
            .next()
            .ok_or_else(|| std::io::Error::other("no port is free"))?;
    }
    Ok(ports)
}

/// Ports outside the range of connections, which the text names by its ends, or all ports.
fn outside(range: &str) -> Range<u16> {
    let mut ends = range
        .split_whitespace()
        .map_while(|end| end.parse::<u16>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), _) if first >= LOWEST + FEWEST => LOWEST..first,
        (_, Some(last)) if last < u16::MAX - FEWEST => last + 1..u16::MAX,
        _ => LOWEST..u16::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_outside_the_range_of_connections() {
        assert_eq!(outside("32768\t60999\n"), 10_000..32_768);
        assert_eq!(outside("1024 60999"), 61_000..u16::MAX);
        assert_eq!(outside("1024 65535"), 10_000..u16::MAX);
        assert_eq!(outside("10001 65534"), 10_000..u16::MAX, "too few");
        assert_eq!(outside("nothing"), 10_000..u16::MAX);
    }

    #[test]
    fn ports_are_different_and_free() {
        let ports = free_ports::<3, 4>().unwrap();
        let mut all = ports.as_flattened().to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
        for port in all {
            TcpListener::bind(("127.0.0.1", port)).unwrap();
        }
    }
}
