//! The frame of the page: head, title, method.

use bpe::size;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::sections;
use crate::demo::results::Results;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// A self-contained page.
pub fn frame(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "innodb-bpe: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// The whole page.
pub fn page(results: &Results) -> Markup {
    let body = html! {
        header {
            p.product { "innodb-bpe " (results.version) }
            h1 { "What the buffer pool extension does for " (results.server) }
            p.facts {
                "Data on an emulated cloud volume (" (results.volume)
                "), the extension's cache on the local disk of this machine. "
                (date(results.began)) ", took " (minutes(results.seconds)) "."
            }
            @if results.quick {
                p.warning {
                    "A quick run: short tests on little data, so expect several percent of noise."
                }
            }
        }
        main {
            @for run in &results.runs { (sections::run(run)) }
            (method(results))
        }
    };
    frame(&format!("measured on {}", results.server), &body)
}

fn method(results: &Results) -> Markup {
    let machine = &results.machine;
    html! {
        section.method {
            h2 { "How it was measured" }
            @if results.runs.iter().any(|run| run.phases.restarts.is_some()) {
                (restarts())
            } @else {
                (sides())
            }
            h3 { "Commands" }
            pre { @for command in &results.commands { (command) "\n" } }
            h3 { "Server options" }
            p { "Everything else is the server's default." }
            div.scroll { table.options {
                thead { tr { th { "Option" } th { "Why" } } }
                tbody {
                    @for (option, reason) in &results.settings {
                        tr { td { code { (option) } } td { (reason) } }
                    }
                }
            } }
            h3 { "Machine" }
            p {
                (machine.cores) " cores"
                @if !machine.processor.is_empty() { " (" (machine.processor) ")" }
                ", " (size::human(machine.memory)) " of memory, " (machine.system)
                ", Linux " (machine.kernel) ", " (machine.file_system) ", server version "
                (results.server_version) ". "
                "Server, sysbench and the emulated volume share the cores, which costs the faster sides most."
            }
            h3 { "The reference" }
            p {
                "RDS for MySQL with its buffer pool extension, as published: the same three commands with "
                "64 threads and 30 tables, 8 cores and 16 GB, data about 25 times the buffer pool."
            }
        }
    }
}

fn sides() -> Markup {
    html! {
        h3 { "The three sides" }
        ul {
            li { b { "off" } ": data files, redo log and binary log on the volume; the extension is not loaded." }
            li {
                b { "on" } ": the same, with the extension. InnoDB's buffer pool is lowered by the "
                "memory that the extension uses, so that both sides have the same memory. The cache "
                "starts empty and is filled by oltp_read_only; the tests begin when the hit ratio has "
                "stopped rising."
            }
            li { b { "ceiling" } ": everything on the local disk, without volume and extension: what a cache could reach at most, but for noise." }
        }
        p {
            "Every side begins with a copy of the same files, an empty buffer pool and the same options. "
            "Each test is preceded by some seconds of the same load that are not counted. Figures are "
            "sysbench's own. “Disk reads saved” compares the reads that reached the volume per query."
        }
        p {
            "After the tests the extension is bypassed, serves again, and is switched off and on, all under one "
            "run of oltp_read_write. Bypass (" code { "SET GLOBAL bpe_bypass = REFILL" } ") reads from the "
            "volume and keeps the cache, and pages that are written stay current in it. Off gives the cache up."
        }
    }
}

fn restarts() -> Markup {
    html! {
        h3 { "The three restarts" }
        ul {
            li { b { "clean restart" } ": the server is stopped and started." }
            li { b { "kill -9" } ": the server is killed and started. InnoDB recovers first." }
            li {
                b { "cold start" } ": the server is stopped, the cache file removed, and the server started with "
                code { "--loose-bpe-persist-path=" } ". This is what a restart costs when nothing is kept."
            }
        }
        p {
            "Data files, redo log and binary log are on the volume. The plugin is loaded before InnoDB starts, and "
            "switched on by the configuration (" code { "bpe_enabled" } ", " code { "bpe_path" } ", " code { "bpe_size" }
            "). InnoDB's "
            "buffer pool is smaller by the memory that the extension uses."
        }
        p {
            "Before each restart oltp_read_only fills the cache until the hit ratio has stopped rising. Then "
            "oltp_read_write runs; its seconds, but for the first ones, are “before”. The server ends under this load. "
            "The load ends with it, and begins again when the server accepts connections. Clients do not prepare their "
            "statements, as 64 of them with 30 tables would do nothing else in the first seconds."
        }
        p {
            "The server accepts connections when it answers a client; this is tried every 50 ms. InnoDB's recovery is in "
            "that time. The first seconds of the hit ratio count from the load's first query, those of the throughput from "
            "when connections are accepted. The throughput is back at the end of the first second that has 90 % of it, and "
            "has it on average with the two seconds after. The hit ratio is the part of InnoDB's reads that the extension "
            "served."
        }
    }
}

/// `2026-03-01 14:05 UTC`.
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01 make leap days the last of their year (H. Hinnant's civil_from_days).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        rest / 3600,
        rest % 3600 / 60
    )
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_772_373_900), "2026-03-01 14:05 UTC");
    }
}
