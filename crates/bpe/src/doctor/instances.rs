//! Number of instances of InnoDB's pool and of the extension, which avoids contention on one lock.
//!
//! The pool is judged by its size and the host's cores. The extension counts contended locks, so these figures decide
//! while it is active. Without them, the cores decide.

use serde::Deserialize;

use super::finding::Finding;
use crate::connect::report;
use crate::connect::server::{Flavour, Server};
use crate::connect::state::{is_on, state};
use crate::installation::pool::Pool;
use crate::support::failure::Failure;
use crate::support::size::human;

/// Number of cores from which on several instances are the default: for the extension, and for MySQL 8.0 with a pool of
/// at least [`MIN_POOL`].
const MANY_CORES: u64 = 8;
const DEFAULT: u64 = 8;
/// Maximum of bpe_instances.
const MAX_INSTANCES: u64 = 64;
/// MySQL uses one instance for a smaller pool, regardless of the setting.
const MIN_POOL: u64 = 1 << 30;
/// Percentage of contended lock accesses that justifies more instances, although changing their number empties the cache.
const MUCH_HELD: f64 = 1.0;
/// Minimum number of lock accesses for a verdict.
const MIN_ACCESSES: u64 = 100_000;

/// Judges both variables. `local`: the server runs on this host, so its cores are known.
pub fn check(server: &mut Server, local: bool) -> Result<Vec<Finding>, Failure> {
    let cores = std::thread::available_parallelism()
        .ok()
        .map(|cores| cores.get() as u64)
        .filter(|_| local);
    let pool = Pool::of(server)?.size;
    let of_pool = server.number("innodb_buffer_pool_instances")?;
    let setting = server.number("bpe_instances")?;
    let active = is_on(&state(server)?.0);
    // Without the function or the privilege there are no figures; the finding reports that.
    let seen = server
        .report("instances")
        .ok()
        .flatten()
        .filter(|_| active)
        .and_then(|text| LockStatistics::of(&text));
    let denied = report::denied_account(server);
    Ok(vec![
        innodb(server.flavour, of_pool, pool, cores),
        match seen {
            Some(seen) => measured(seen),
            None => by_cores(setting, active, cores, denied.as_deref()),
        },
    ])
}

fn innodb(flavour: Flavour, instances: Option<u64>, pool: u64, cores: Option<u64>) -> Finding {
    const TOPIC: &str = "pool locks";
    let Some(instances) = instances.filter(|_| flavour == Flavour::MySql) else {
        return Finding::ok(
            TOPIC,
            "this server has a single buffer pool instance, as MariaDB has since 10.5; \
             innodb_buffer_pool_instances does nothing in it and can go from its option files",
        );
    };
    let text = format!(
        "innodb_buffer_pool_instances is {instances} for a pool of {}",
        human(pool)
    );
    if pool < MIN_POOL {
        return Finding::ok(
            TOPIC,
            format!("{text}; below {} it stays whole", human(MIN_POOL)),
        );
    }
    match cores {
        Some(cores) if cores >= MANY_CORES && instances == 1 => Finding::warn(
            TOPIC,
            format!("{text} and {cores} cores: all threads meet at the same mutexes"),
        )
        .advise(format!(
            "innodb_buffer_pool_instances = {DEFAULT} in an option file, from the next start; {DEFAULT} was the \
             default of MySQL 8.0 for pools of {} and more",
            human(MIN_POOL)
        )),
        Some(cores) if cores < MANY_CORES => Finding::ok(
            TOPIC,
            format!("{text} and {cores} cores; below {MANY_CORES} cores one is enough"),
        ),
        Some(cores) => Finding::ok(TOPIC, format!("{text} and {cores} cores")),
        None => Finding::ok(TOPIC, text),
    }
}

/// Sums of `bpe_report('instances')` since the extension was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LockStatistics {
    instances: u64,
    accesses: u64,
    /// `accesses` of the busiest instance.
    hottest: u64,
    lock_accesses: u64,
    lock_waits: u64,
}

impl LockStatistics {
    /// `None` for an invalid report.
    fn of(json: &str) -> Option<LockStatistics> {
        #[derive(Deserialize)]
        struct Row {
            accesses: u64,
            lock_accesses: u64,
            lock_waits: u64,
        }
        let rows: Vec<Row> = serde_json::from_str(json).ok()?;
        if rows.is_empty() {
            return None;
        }
        let sum = |of: fn(&Row) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
        Some(LockStatistics {
            instances: rows.len() as u64,
            accesses: sum(|row| row.accesses),
            hottest: rows.iter().map(|row| row.accesses).max()?,
            lock_accesses: sum(|row| row.lock_accesses),
            lock_waits: sum(|row| row.lock_waits),
        })
    }
}

const TOPIC: &str = "cache locks";

fn measured(seen: LockStatistics) -> Finding {
    let count = match seen.instances {
        1 => "1 instance".to_owned(),
        n => format!("{n} instances"),
    };
    if seen.lock_accesses < MIN_ACCESSES {
        return Finding::ok(
            TOPIC,
            format!(
                "the extension has {count}; {} lock accesses are too few to judge them",
                seen.lock_accesses
            ),
        );
    }
    let share = |of: u64, to: u64| of as f64 * 100.0 / to.max(1) as f64;
    let held = share(seen.lock_waits, seen.lock_accesses);
    let hottest = share(seen.hottest, seen.accesses);
    let mut text = format!(
        "the extension has {count}; {held:.2} % of {} lock accesses found it held",
        seen.lock_accesses
    );
    if seen.instances > 1 {
        text += &format!(
            ", and the hottest instance had {hottest:.0} % of the page reads ({:.1} % would be even)",
            100.0 / seen.instances as f64
        );
    }
    if held <= MUCH_HELD {
        return Finding::ok(TOPIC, text);
    }
    let finding = Finding::warn(TOPIC, format!("{text}: threads wait for each other"));
    let more = (2 * seen.instances).clamp(DEFAULT, MAX_INSTANCES);
    if more <= seen.instances {
        return finding.advise(format!(
            "{MAX_INSTANCES} instances are the most there can be"
        ));
    }
    let mut advice = format!(
        "SET GLOBAL bpe_instances = {more}; it empties the cache, so not at the busiest hour"
    );
    if seen.instances > 1 && hottest > 50.0 {
        advice += "\nmore than half of the page reads go to one instance: if they are for a few neighbouring pages, \
                   more instances do not part them";
    }
    finding.advise(advice)
}

/// `denied`: the account, if it lacks the privilege for the figures.
fn by_cores(
    setting: Option<u64>,
    active: bool,
    cores: Option<u64>,
    denied: Option<&str>,
) -> Finding {
    let no_figures = match (setting, active) {
        (Some(_), true) if denied.is_some() => {
            "; the account lacks the PROCESS privilege, so how often locks are found held cannot be seen"
        }
        (Some(_), true) => {
            "; the function bpe_report is missing, so how often locks are found held cannot be seen"
        }
        (Some(_), false) => "; figures of its locks are there once it is switched on",
        (None, _) => "",
    };
    let text = match (setting, cores) {
        (None, Some(cores)) => format!(
            "bpe_instances will be {} by default, for {cores} cores",
            default(cores)
        ),
        (None, None) => {
            format!(
                "bpe_instances will be 1 by default below {MANY_CORES} cores, and {DEFAULT} from there on"
            )
        }
        (Some(0), Some(cores)) => {
            format!("bpe_instances is 0: {} for {cores} cores", default(cores))
        }
        (Some(count), Some(cores)) => format!("bpe_instances is {count} for {cores} cores"),
        (Some(count), None) => format!("bpe_instances is {count}"),
    };
    let text = format!("{text}{no_figures}");
    match (setting, cores) {
        (Some(count), Some(cores)) if count > 0 && cores >= MANY_CORES && count < DEFAULT => {
            Finding::warn(TOPIC, text).advise(format!(
                "SET GLOBAL bpe_instances = 0, the default, makes {DEFAULT} of {MANY_CORES} cores and more; it empties \
                 the cache"
            ))
        }
        (Some(_), _) if active => Finding::ok(TOPIC, text).advise(match denied {
            Some(account) => format!("to see them: {}", report::grant(account)),
            None => "to see them: CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'".into(),
        }),
        _ => Finding::ok(TOPIC, text),
    }
}

fn default(cores: u64) -> u64 {
    if cores >= MANY_CORES { DEFAULT } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn one_pool_instance_on_many_cores_is_advised_against() {
        let finding = innodb(Flavour::MySql, Some(1), 4 * GIB, Some(16));
        assert_eq!(finding.level, Level::Warn);
        assert!(finding.text.contains("4 GiB") && finding.text.contains("16 cores"));
        assert!(finding.advice.unwrap().contains("= 8"));
    }

    #[test]
    fn otherwise_the_pool_is_left_alone() {
        for (flavour, instances, pool, cores) in [
            (Flavour::MySql, Some(8), 4 * GIB, Some(16)),
            (Flavour::MySql, Some(1), 4 * GIB, Some(7)),
            (Flavour::MySql, Some(1), GIB - 1, Some(16)),
            (Flavour::MySql, Some(1), 4 * GIB, None),
            (Flavour::MariaDb, None, 4 * GIB, Some(16)),
            (Flavour::MariaDb, Some(1), 4 * GIB, Some(16)),
        ] {
            let finding = innodb(flavour, instances, pool, cores);
            assert_eq!(finding.level, Level::Ok, "{}", finding.text);
            assert_eq!(
                finding.text.contains("MariaDB"),
                flavour == Flavour::MariaDb
            );
        }
    }

    fn seen(instances: u64, hottest: u64, waits: u64) -> LockStatistics {
        LockStatistics {
            instances,
            accesses: 1000,
            hottest,
            lock_accesses: 1_000_000,
            lock_waits: waits,
        }
    }

    #[test]
    fn locks_found_held_ask_for_more_instances() {
        assert_eq!(measured(seen(1, 1000, 10_000)).level, Level::Ok);
        let one = measured(seen(1, 1000, 20_000));
        assert_eq!(one.level, Level::Warn);
        assert!(one.text.contains("2.00 %") && !one.text.contains("hottest"));
        assert!(one.advice.unwrap().contains("bpe_instances = 8"));
        let eight = measured(seen(8, 300, 20_000));
        assert!(eight.text.contains("30 %") && eight.text.contains("12.5 %"));
        let advice = eight.advice.unwrap();
        assert!(advice.contains("= 16") && !advice.contains("half"));
        assert!(
            measured(seen(8, 600, 20_000))
                .advice
                .unwrap()
                .contains("half")
        );
        let most = measured(seen(64, 300, 20_000)).advice.unwrap();
        assert!(most.contains("64 instances are the most"));
    }

    #[test]
    fn few_accesses_say_nothing() {
        let few = LockStatistics {
            lock_accesses: 99,
            ..seen(1, 1000, 99)
        };
        let finding = measured(few);
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.text.contains("99 lock accesses are too few"));
    }

    #[test]
    fn without_figures_the_cores_decide() {
        assert!(
            by_cores(None, false, Some(2), None)
                .text
                .contains("will be 1")
        );
        assert!(
            by_cores(None, false, Some(8), None)
                .text
                .contains("will be 8")
        );
        assert!(
            by_cores(None, false, None, None)
                .text
                .contains("from there on")
        );
        assert_eq!(by_cores(Some(0), false, Some(16), None).level, Level::Ok);
        let forced = by_cores(Some(1), false, Some(16), None);
        assert_eq!(forced.level, Level::Warn);
        assert!(forced.advice.unwrap().contains("bpe_instances = 0"));
        assert_eq!(by_cores(Some(1), false, Some(4), None).level, Level::Ok);
        let denied = by_cores(Some(0), true, Some(4), Some("'a'@'%'"));
        let advice = denied.advice.unwrap_or_default();
        assert!(denied.text.contains("PROCESS") && advice.contains("GRANT PROCESS"));
        let blind = by_cores(Some(0), true, Some(4), None);
        assert!(blind.text.contains("bpe_report is missing"));
        assert!(blind.advice.unwrap().contains("CREATE FUNCTION"));
    }

    #[test]
    fn the_report_is_added_up() {
        let json = r#"[{"accesses":10,"lock_accesses":20,"lock_waits":1,"share":25.0},
                       {"accesses":30,"lock_accesses":60,"lock_waits":2}]"#;
        let sums = LockStatistics {
            instances: 2,
            accesses: 40,
            hottest: 30,
            lock_accesses: 80,
            lock_waits: 3,
        };
        assert_eq!(LockStatistics::of(json), Some(sums));
        assert_eq!(LockStatistics::of("[]"), None);
        assert_eq!(LockStatistics::of("no"), None);
    }
}
