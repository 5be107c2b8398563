//! The final tables, and conclusions from them.

use std::fmt::Write;

use bpe::size;
use comfy_table::Table;

use super::super::numbers::{number, percent};
use super::super::plan::TABLES;
use super::super::table::{add_row, with_header};
use super::figures::{
    BeyondMemory, BeyondMemoryTest, Figures, InMemory, InMemoryTest, median, spread,
};
use super::rounds::{COUNTS, WORKLOADS};

/// With at least this many cores, InnoDB and the extension default to several instances.
const MANY_CORES: usize = 8;

/// Both tables, with their notes.
pub fn text(figures: &Figures) -> String {
    let mut out = String::new();
    if let Some(measured) = &figures.in_memory {
        let _ = write!(
            out,
            "\n{}, all data in memory: pool {}, data {}, 1 table of {} rows or {TABLES} of as many in all, {} threads\n{}\n",
            figures.server,
            size::human(measured.pool),
            size::human(measured.data),
            number(Some(measured.rows as f64), 0),
            measured.threads,
            in_memory(measured),
        );
        for line in in_memory_notes(measured) {
            let _ = writeln!(out, "{line}");
        }
    }
    if let Some(reason) = &figures.in_memory_left_out {
        let _ = writeln!(out, "\nAll data in memory: left out. {reason}.");
    }
    if let Some(measured) = &figures.beyond_memory {
        let _ = write!(
            out,
            "\n{} with the extension: pool {}, data {} ({:.1} x pool), cache {}, {} tables, {} threads\n{}\n",
            figures.server,
            size::human(measured.pool),
            size::human(measured.data),
            measured.data as f64 / measured.pool as f64,
            size::human(measured.cache),
            measured.tables,
            measured.threads,
            beyond_memory(measured),
        );
        for line in beyond_memory_notes(measured) {
            let _ = writeln!(out, "{line}");
        }
    }
    let _ = writeln!(out, "\n{}", conclusion(figures));
    if figures.quick {
        out.push_str("A --quick run: short tests, so expect several percent of noise.\n");
    }
    out
}

fn in_memory(measured: &InMemory) -> Table {
    let mut table = with_header(&[
        "sysbench test",
        "tables",
        "instances",
        "QPS",
        "against 1",
        "pool mutexes taken/s",
        "average wait",
        "hottest LRU list",
        "page hash locks taken/s",
        "average wait",
    ]);
    for workload in WORKLOADS {
        for tables in [1, TABLES] {
            let qps = |instances| {
                let tests = measured.of(workload, tables, instances);
                median(tests.iter().map(|test| test.qps))
            };
            for instances in COUNTS {
                let tests = measured.of(workload, tables, instances);
                let middle = |value: &dyn Fn(&InMemoryTest) -> Option<f64>| {
                    median(tests.iter().filter_map(|test| value(test)))
                };
                add_row(
                    &mut table,
                    0,
                    [
                        workload.script().to_owned(),
                        tables.to_string(),
                        instances.to_string(),
                        number(qps(instances), 0),
                        against(qps(instances), qps(1), instances),
                        number(middle(&|test| test.taken_per_second(false)), 0),
                        nanoseconds(middle(&|test| test.average_wait(false))),
                        percent(middle(&InMemoryTest::hottest), false, 0),
                        number(middle(&|test| test.taken_per_second(true)), 0),
                        nanoseconds(middle(&|test| test.average_wait(true))),
                    ],
                );
            }
        }
    }
    table
}

fn in_memory_notes(measured: &InMemory) -> Vec<String> {
    let mut notes = vec![
        "Pool mutexes: those of the LRU, free and flush lists and the rest of buf_pool_*, each by itself in the JSON. \
         The wait is the time from asking for a lock to having it, as performance_schema takes it; counting slows the \
         server, with 1 instance and with 8 alike. Commits do not wait for the disk here."
            .to_owned(),
    ];
    let read = measured.tests.iter().map(|test| test.pages_read).max();
    notes.push(match read.unwrap_or(0) {
        0 => "No page was read from disk during the tests.".into(),
        pages => format!("At most {pages} pages were read from disk during a test."),
    });
    let spreads = settings(measured)
        .filter_map(|tests| spread(&tests.iter().map(|test| test.qps).collect::<Vec<_>>()));
    notes.extend(noise(spreads));
    notes
}

fn settings(measured: &InMemory) -> impl Iterator<Item = Vec<&InMemoryTest>> {
    WORKLOADS.into_iter().flat_map(move |workload| {
        [1, TABLES].into_iter().flat_map(move |tables| {
            COUNTS.map(|instances| measured.of(workload, tables, instances))
        })
    })
}

fn beyond_memory(measured: &BeyondMemory) -> Table {
    let mut table = with_header(&[
        "sysbench test",
        "bpe_instances",
        "QPS",
        "against 1",
        "hit ratio",
        "lock accesses/s",
        "found held",
        "hottest instance",
    ]);
    for workload in WORKLOADS {
        let qps = |instances| {
            let tests = measured.of(workload, instances);
            median(tests.iter().map(|test| test.qps))
        };
        for instances in COUNTS {
            let tests = measured.of(workload, instances);
            let middle = |value: &dyn Fn(&BeyondMemoryTest) -> Option<f64>| {
                median(tests.iter().filter_map(|test| value(test)))
            };
            add_row(
                &mut table,
                0,
                [
                    workload.script().to_owned(),
                    instances.to_string(),
                    number(qps(instances), 0),
                    against(qps(instances), qps(1), instances),
                    percent(middle(&|test| test.locks.hit_ratio()), false, 1),
                    number(middle(&BeyondMemoryTest::locks_per_second), 0),
                    percent(middle(&|test| test.locks.held()), false, 3),
                    percent(middle(&|test| test.locks.hottest()), false, 0),
                ],
            );
        }
    }
    table
}

fn beyond_memory_notes(measured: &BeyondMemory) -> Vec<String> {
    let mut notes = vec![
        "Lock accesses: how often a thread took an instance's lock; found held: it had to wait for another thread. \
         Hottest instance: its share of the page reads; evenly spread over 8 it would be 12.5 %."
            .to_owned(),
    ];
    let spreads = WORKLOADS.into_iter().flat_map(|workload| {
        COUNTS.map(|instances| {
            let tests = measured.of(workload, instances);
            spread(&tests.iter().map(|test| test.qps).collect::<Vec<_>>())
        })
    });
    notes.extend(noise(spreads.flatten()));
    notes
}

/// Spread of the rounds of one setting. Smaller differences between settings are noise.
fn noise(spreads: impl Iterator<Item = f64>) -> Option<String> {
    let most = spreads.max_by(f64::total_cmp)?;
    Some(format!(
        "Medians of two rounds in alternating order; the rounds of one setting differ by up to {} in QPS, and a gain below \
         that says nothing.",
        percent(Some(most), false, 0)
    ))
}

fn conclusion(figures: &Figures) -> String {
    let cores = figures.machine.cores;
    let machine = format!(
        "This machine has {cores} core{}",
        if cores == 1 { "" } else { "s" }
    );
    if cores < MANY_CORES {
        format!(
            "{machine}: no more threads than that run at once, so they seldom meet at a lock, and instances can bring \
             little here. Read the figures above as measured, not as what {MANY_CORES} cores and more would show."
        )
    } else {
        format!("{machine}, enough for threads to meet at a lock.")
    }
}

/// Gain over one instance; a dash in the row of one instance.
fn against(qps: Option<f64>, one: Option<f64>, instances: u64) -> String {
    let gain = match (qps, one) {
        (Some(qps), Some(one)) if instances > 1 && one > 0.0 => Some((qps / one - 1.0) * 100.0),
        _ => None,
    };
    percent(gain, true, 1)
}

fn nanoseconds(value: Option<f64>) -> String {
    match value {
        Some(value) => format!("{}\u{a0}ns", number(Some(value), 0)),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::results::Machine;
    use super::super::super::sysbench::Summary;
    use super::super::figures::Locks;
    use super::*;

    fn beyond(instances: u64, round: usize, qps: f64) -> BeyondMemoryTest {
        BeyondMemoryTest {
            round,
            instances,
            script: WORKLOADS[0].script().into(),
            qps,
            summary: Summary::default(),
            seconds: 10.0,
            locks: Locks {
                hits: 900,
                misses: 100,
                accesses: 1000,
                hottest: if instances == 1 { 1000 } else { 200 },
                lock_accesses: 123_450,
                lock_waits: 12,
            },
        }
    }

    fn figures(cores: usize) -> Figures {
        Figures {
            version: String::new(),
            began: 0,
            seconds: 0.0,
            quick: true,
            server: "MariaDB 10.11.19".into(),
            server_version: String::new(),
            machine: Machine {
                cores,
                ..Machine::default()
            },
            in_memory: None,
            in_memory_left_out: Some(super::super::CEASED.into()),
            beyond_memory: Some(BeyondMemory {
                pool: 40 << 20,
                data: 980 << 20,
                cache: 320 << 20,
                tables: 30,
                rows: 137_500,
                threads: 64,
                tests: vec![
                    beyond(1, 0, 1000.0),
                    beyond(8, 0, 1150.0),
                    beyond(8, 1, 1050.0),
                    beyond(1, 1, 1000.0),
                ],
            }),
        }
    }

    #[test]
    fn medians_are_compared_and_what_lacks_is_told() {
        let text = text(&figures(2));
        assert!(text.contains("+10.0\u{a0}%"), "{text}");
        assert!(text.contains("12,345"), "{text}");
        assert!(text.contains("0.010\u{a0}%"), "{text}");
        assert!(text.contains("differ by up to 9\u{a0}%"), "{text}");
        assert!(text.contains("left out. MariaDB"), "{text}");
        assert!(text.contains("This machine has 2 cores"), "{text}");
        assert!(text.contains("little here"), "{text}");
    }

    #[test]
    fn only_few_cores_are_an_excuse() {
        assert!(!conclusion(&figures(16)).contains("little here"));
        let json = serde_json::to_string(&figures(16)).unwrap();
        let again: Figures = serde_json::from_str(&json).unwrap();
        assert_eq!(text(&again), text(&figures(16)));
    }
}
