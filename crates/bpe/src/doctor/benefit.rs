//! Memory cost and expected benefit.

use interface::limits::{IDLE, MEMORY};

use super::finding::Finding;
use crate::connect::server::Server;
use crate::installation::pool::{Pool, expected_memory, largest_cache};
use crate::support::failure::Failure;
use crate::support::size::human;

/// The required memory, compared with the pool and the host's memory. The host is checked only if the server runs on it.
pub fn memory(server: &mut Server, size: u64, local: bool) -> Result<Vec<Finding>, Failure> {
    let pool = Pool::of(server)?;
    let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
    let memory = expected_memory(size, page_size);
    let percent = memory as f64 * 100.0 / pool.size as f64;
    let text = format!(
        "about {} for a cache of {}, {percent:.1} % of the buffer pool of {}",
        human(memory),
        human(size),
        human(pool.size)
    );
    let mut findings = Vec::new();
    if percent > MEMORY {
        findings.push(
            Finding::warn("memory", format!("{text}: more than 4 %"))
                .advise(within_limit(pool.size, page_size)),
        );
    } else {
        findings.push(Finding::ok("memory", text));
    }
    match pool.lowered_for(memory) {
        Some(lowered) => findings.push(Finding::ok(
            "pool",
            format!(
                "`bpe enable` lowers innodb_buffer_pool_size from {} to about {}",
                human(pool.size),
                human(lowered)
            ),
        )),
        None => {
            let available = replay::available_memory().filter(|_| local);
            let finding = match available {
                Some(available) if available < memory => Finding::warn,
                _ => Finding::ok,
            };
            findings.push(finding(
                "pool",
                format!(
                    "innodb_buffer_pool_size cannot be lowered by 4 % or less (its steps are {} here), \
                     so this memory comes on top{}",
                    human(pool.step),
                    available
                        .map(|bytes| format!("; the machine has {} available", human(bytes)))
                        .unwrap_or_default()
                ),
            ));
        }
    }
    Ok(findings)
}

/// Advice on keeping the memory within the limit for a pool of `pool` bytes.
fn within_limit(pool: u64, page_size: u64) -> String {
    match largest_cache(pool, page_size) {
        0 => format!(
            "no cache stays within 4 % of a pool of {}: make the pool larger",
            human(pool)
        ),
        most => format!(
            "a --size of at most {} stays within 4 %, or make the pool larger",
            human(most)
        ),
    }
}

/// Whether the data exceeds the pool, and the server reads pages at all.
pub fn gain(server: &mut Server, size: u64) -> Result<Vec<Finding>, Failure> {
    let pool = Pool::of(server)?.size;
    let mut findings = Vec::new();
    if let Some(data) = data_size(server) {
        findings.push(size_of_data(data, pool, size));
    }
    let status = server.status("Innodb\\_buffer\\_pool\\_read%")?;
    let uptime = server.status("Uptime")?;
    let number = |name: &str| -> f64 {
        status
            .get(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0)
    };
    let seconds: f64 = uptime
        .get("uptime")
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0);
    findings.push(reading(
        number("innodb_buffer_pool_reads") + number("innodb_buffer_pool_read_ahead"),
        number("innodb_buffer_pool_read_requests"),
        seconds,
    ));
    Ok(findings)
}

/// Size of InnoDB's tablespaces in bytes.
fn data_size(server: &mut Server) -> Option<u64> {
    let table = if server.is_mariadb() {
        "INNODB_SYS_TABLESPACES"
    } else {
        "INNODB_TABLESPACES"
    };
    server
        .value(&format!(
            "SELECT CAST(SUM(FILE_SIZE) AS UNSIGNED) FROM information_schema.{table}"
        ))
        .ok()??
        .parse()
        .ok()
}

fn size_of_data(data: u64, pool: u64, size: u64) -> Finding {
    let text = format!(
        "{} of data, a buffer pool of {}, a cache of {}",
        human(data),
        human(pool),
        human(size)
    );
    if data <= pool {
        return Finding::warn(
            "gain",
            format!("{text}: all data fits the pool, a cache cannot help"),
        )
        .advise("come back when the data has outgrown the pool");
    }
    if size < pool {
        return Finding::warn(
            "gain",
            format!("{text}: a cache smaller than the pool helps little"),
        )
        .advise(format!(
            "4 to 10 times the pool is usual, {}",
            human(8 * pool)
        ));
    }
    let reach = if size >= data { "all" } else { "the warm part" };
    Finding::ok("gain", format!("{text}: {reach} of the data can be cached"))
}

fn reading(reads: f64, requests: f64, seconds: f64) -> Finding {
    let rate = reads / seconds.max(1.0);
    let share = match reads * 100.0 / requests.max(1.0) {
        // Read-ahead reads pages without a request.
        percent if percent > 100.0 => "more pages than were asked for (read-ahead)".to_owned(),
        percent => format!("{percent:.2} % of the pages asked for"),
    };
    let text = format!(
        "InnoDB has read {rate:.1} pages a second from its files since the server's start, {share}"
    );
    // Just after its start, a server has read nothing yet, or everything.
    if seconds > 600.0 && rate < IDLE {
        return Finding::warn("gain", format!("{text}: there is little to save"))
            .advise("look again under the usual load");
    }
    Finding::ok("gain", text)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn data_in_the_pool_gains_nothing() {
        assert_eq!(size_of_data(GIB, 2 * GIB, 10 * GIB).level, Level::Warn);
        assert_eq!(size_of_data(20 * GIB, 2 * GIB, GIB).level, Level::Warn);
        let good = size_of_data(20 * GIB, 2 * GIB, 16 * GIB);
        assert_eq!(good.level, Level::Ok);
        assert!(good.text.contains("warm part"));
        assert!(
            size_of_data(20 * GIB, 2 * GIB, 30 * GIB)
                .text
                .contains("all of")
        );
    }

    #[test]
    fn small_pool_has_no_cache_within_the_limit() {
        assert_eq!(
            within_limit(96 << 20, 16 << 10),
            "no cache stays within 4 % of a pool of 96 MiB: make the pool larger"
        );
        assert!(within_limit(GIB, 16 << 10).starts_with("a --size of at most "));
    }

    #[test]
    fn read_ahead_is_no_share_of_requests() {
        let ahead = reading(19_715.0, 10_000.0, 60.0).text;
        assert!(
            ahead.ends_with(", more pages than were asked for (read-ahead)"),
            "{ahead}"
        );
        let usual = reading(1250.0, 10_000.0, 60.0).text;
        assert!(
            usual.ends_with(", 12.50 % of the pages asked for"),
            "{usual}"
        );
    }

    #[test]
    fn an_idle_server_is_told_only_when_it_has_run_a_while() {
        assert_eq!(reading(10.0, 1000.0, 7200.0).level, Level::Warn);
        assert_eq!(reading(10.0, 1000.0, 60.0).level, Level::Ok);
        assert_eq!(reading(1e6, 1e8, 7200.0).level, Level::Ok);
        assert_eq!(reading(0.0, 0.0, 0.0).level, Level::Ok);
    }
}
