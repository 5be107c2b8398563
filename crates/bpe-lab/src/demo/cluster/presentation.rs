//! Fills the report of the failovers from the figures.

use bpe::observe::percent as share;
use bpe::size;
use maud::{Markup, html};

use super::figures::{FREE, Failover, Figures, Keeping, THROUGHPUT, WITHIN};
use super::load::REQUEST_TIMEOUT;
use super::plan::Standby;
use crate::report::{
    Chart, Columns, Method, Part, Report, Section, Series, Table, number, percent, seconds,
};

/// Maximum cost of warming, percent of the standby's volume and of the primary's statements.
const VOLUME_SHARE: f64 = 5.0;
const STATEMENT_SHARE: f64 = 1.0;

/// The whole report.
pub fn report(figures: &Figures) -> Report<'_> {
    let environment = &figures.environment;
    let options = figures.options.iter();
    let reason = "the cluster; as on the standby";
    Report {
        version: environment.version.clone(),
        title: format!("What a warm standby is worth: {}", figures.cluster.title()),
        tab: format!("failover on {}", environment.server),
        facts: format!("{}. {}.", heading(figures), environment.time()),
        warning: environment
            .quick
            .then(|| "A --quick run: little data and short times.".into()),
        sections: vec![Section {
            title: "The primary is killed".into(),
            facts: format!("The load: {}.", figures.load),
            parts: vec![Part {
                table: Some(table(figures)),
                notes: notes(figures),
                charts: charts(figures),
                ..Part::default()
            }],
        }],
        method: Some(Method {
            prose: prose(figures),
            commands: &[],
            options: options
                .map(|option| (option.clone(), reason.into()))
                .collect(),
            environment,
            sharing: "Servers, clients and volumes share the cores.",
            reference: None,
        }),
    }
}

fn prose(figures: &Figures) -> Markup {
    html! {
        p {
            "Three servers run on this machine. Each has its data directory on an emulated volume of its own (" (figures.iops)
            " I/Os a second shared by reads and writes, 0.5 ms per I/O, 125 MB/s) and its cache on the local disk. All begin with "
            "physical copies of one data directory, and with an empty pool and an empty cache."
        }
        p {
            "The load asks for " (format!("{:.0}", figures.wanted)) " statements a second. Requests are due at "
            "even distances, answered or not. One that is not begun within " (REQUEST_TIMEOUT.as_secs()) " s is lost; it counts as one that took "
            "that long. The load fills the primary's cache until its hit ratio has stopped rising. Then the primary is measured, and killed "
            "with signal 9. When the standby accepts a write, the clients are sent to it: this is the promotion."
        }
        ul {
            li { b { (Standby::Cold.title()) } ": the extension is on everywhere. The standby's has what replication brought into it: "
                "the tables that are written." }
            li { b { (Standby::Warm.title()) } ": the same, and " code { "bpe warm" } " carries the primary's list of cached pages to the "
                "standby, which reads them from its own files. Once it may take half of what the standby's volume can do. From then on "
                code { "bpe warm --follow" } " may take 4 % of it." }
            @if figures.of(Standby::Off).is_some() {
                li { b { (Standby::Off.title()) } ": the plugin is loaded and switched off on all servers." }
            }
        }
        p {
            "The throughput is back at the end of the first second that has " (format!("{THROUGHPUT:.0}")) " % of that before, and has it on average "
            "with the two seconds after. That before is the median of the seconds measured. Processors are free when they are idle, wait for "
            "a disk, or run what has a lower priority; a failover with less than " (format!("{FREE:.0}")) " % of them free is void."
        }
    }
}

/// Describes the run in a line.
fn heading(figures: &Figures) -> String {
    format!(
        "{}, {}; pool {}, data {}, cache {}, volumes of {} I/Os a second",
        figures.environment.server,
        figures.cluster.title(),
        size::human(figures.pool),
        size::human(figures.data),
        size::human(figures.cache),
        number(Some(figures.iops as f64), 0)
    )
}

impl Failover {
    fn back_words(&self, back: Option<f64>) -> String {
        match (back, self.curve.last()) {
            (None, Some(last)) => format!("not in {:.0} s", last.t),
            _ => seconds(back, 1),
        }
    }

    /// Describes the failover in a line.
    pub fn words(&self) -> String {
        let back = match self.back {
            Some(back) => format!("is back within {back:.0} s"),
            None => "is not back".into(),
        };
        format!(
            "promoted after {:.1} s, {THROUGHPUT:.0} % of the throughput {back}, {} statements lost to slowness",
            -self.killed,
            number(Some(self.lost_to_slowness as f64), 0)
        )
    }
}

impl Keeping {
    fn per_second(&self, of: u64) -> f64 {
        match self.seconds > 0.0 {
            true => of as f64 / self.seconds,
            false => 0.0,
        }
    }
}

/// A column for each failover.
fn table(figures: &Figures) -> Table {
    let items = figures.failovers.iter();
    let mut table = Columns::new("", items.map(|one| (one.standby.title(), one)));
    let count = |value: u64| number(Some(value as f64), 0);
    let keeping = |one: &Failover, cell: fn(&Keeping) -> String| {
        one.keeping.as_ref().map_or_else(|| "-".into(), cell)
    };
    let back = format!("{THROUGHPUT:.0} % of the throughput, since the");
    let below = |percent: f64| format!("below {percent:.0}\u{a0}%");
    table.row("statements/s before", |one| number(Some(one.qps_before), 0));
    table.row("hit ratio before", |one| percent(one.hits_before, false, 1));
    table.row("kill to promotion", |one| seconds(Some(-one.killed), 1));
    table.row(format!("{back} kill"), |one| {
        one.back_words(one.back_since_the_kill())
    });
    table.goal(
        format!("{back} promotion"),
        format!("{WITHIN:.0} s or less, if warm"),
        |one| one.back_words(one.back),
    );
    table.row("statements lost to the outage", |one| {
        count(one.lost_to_the_outage)
    });
    table.row("statements lost to slowness, first minute", |one| {
        count(one.lost_to_slowness)
    });
    table.row("p95 ms before", |one| number(one.p95_before, 1));
    table.row("p95 ms, first minute", |one| number(one.p95_after, 1));
    table.row("hit ratio, first 10 s", |one| {
        percent(one.hits_after, false, 1)
    });
    table.row("data disk reads, first minute", |one| count(one.disk_reads));
    table.row("warmed first in", |one| {
        keeping(one, |of| {
            let bytes = size::human(of.first_bytes);
            format!(
                "{:.0} s, {} reads, {bytes}",
                of.first_seconds, of.first_reads
            )
        })
    });
    table.row("keeping warm: reads of the standby's volume", |one| {
        keeping(one, |of| {
            let bytes = size::human(of.per_second(of.bytes) as u64);
            format!("{:.1} reads/s, {bytes}/s", of.per_second(of.reads))
        })
    });
    table.goal(
        "... of what that volume can do",
        below(VOLUME_SHARE),
        |one| {
            keeping(one, |of| {
                percent(share(of.reads, of.volume_could), false, 2)
            })
        },
    );
    table.row("... of what that volume did", |one| {
        keeping(one, |of| percent(share(of.reads, of.volume_ios), false, 2))
    });
    table.goal(
        "... statements, of the primary's",
        below(STATEMENT_SHARE),
        |one| {
            keeping(one, |of| {
                percent(share(of.statements, of.primary_statements), false, 3)
            })
        },
    );
    table.row("processors free before, first minute", |one| {
        let [before, after] = [one.free_before, one.free_after].map(|of| percent(of, false, 0));
        format!(
            "{before}, {after}{}",
            if one.is_void() { ": void" } else { "" }
        )
    });
    table.table()
}

/// Sentences below the table.
fn notes(figures: &Figures) -> Vec<String> {
    let mut notes = Vec::new();
    let void = figures.failovers.iter().filter(|one| one.is_void());
    for one in void {
        notes.push(format!(
            "The failover with {} is void: less than {FREE:.0} % of the processors' time was free, so it shows the machine. Run it \
             again when the machine is quiet.",
            one.standby.title()
        ));
    }
    if let Some(warm) = figures.of(Standby::Warm) {
        notes.push(format!(
            "The goal, {THROUGHPUT:.0} % of the throughput within {WITHIN:.0} s of the promotion with a warm standby, is {}.",
            reached(warm.back.is_some_and(|back| back <= WITHIN))
        ));
        if let Some(keeping) = &warm.keeping {
            let volume = share(keeping.reads, keeping.volume_could);
            let statements = share(keeping.statements, keeping.primary_statements);
            notes.push(format!(
                "The goal, keeping warm for less than {VOLUME_SHARE:.0} % of the I/Os of the standby's volume and less than \
                 {STATEMENT_SHARE:.0} % of the primary's statements, is {}. When the primary was killed, {:.0} % of its list was warm.",
                reached(
                    volume.is_some_and(|share| share < VOLUME_SHARE)
                        && statements.is_some_and(|share| share < STATEMENT_SHARE)
                ),
                keeping.percent
            ));
        }
    }
    if figures.of(Standby::Off).is_some() {
        notes.push(
            "Without the extension the throughput before is lower, and it is this lower one that is back.".into(),
        );
    }
    notes
}

fn reached(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "missed" }
}

fn class(standby: Standby) -> &'static str {
    match standby {
        Standby::Cold => "off",
        Standby::Warm => "on",
        Standby::Off => "hit",
    }
}

/// The curves, aligned at the promotion.
fn charts(figures: &Figures) -> Vec<Chart> {
    let begins = figures.failovers.iter().filter_map(|one| one.curve.first());
    let promoted = begins.map(|one| 1.0 - one.t).fold(0.0, f64::max);
    let chart = |title: &str, unit, value: fn(&super::figures::Second) -> Option<f64>| Chart {
        title: title.into(),
        unit,
        series: figures
            .failovers
            .iter()
            .map(|one| Series {
                name: one.standby.title().into(),
                class: class(one.standby),
                points: one
                    .curve
                    .iter()
                    .filter_map(|second| Some((promoted + second.t, value(second)?)))
                    .collect(),
            })
            .collect(),
        marks: vec![(promoted, "promotion".into())],
        ..Chart::default()
    };
    vec![
        chart("Throughput", "statements/s", |one| Some(one.qps)),
        chart("Latency of requests", "p95 ms", |one| one.p95_ms),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figures::Second;
    use super::super::name::ClusterName;
    use super::*;
    use crate::report::{Environment, text};

    fn failover(standby: Standby, back: Option<f64>) -> Failover {
        Failover {
            standby,
            killed: -2.5,
            qps_before: 1000.0,
            p95_before: Some(2.0),
            p95_after: Some(1000.0),
            back,
            lost_to_the_outage: 2500,
            lost_to_slowness: 7000,
            disk_reads: 60_000,
            hits_before: Some(90.0),
            hits_after: Some(10.0),
            free_before: Some(30.0),
            free_after: Some(40.0),
            keeping: (standby == Standby::Warm).then(|| Keeping {
                seconds: 10.0,
                reads: 20,
                bytes: 400_000,
                volume_ios: 1000,
                volume_could: 15_000,
                statements: 5,
                primary_statements: 10_000,
                percent: 97.0,
                ..Keeping::default()
            }),
            curve: (-5..20)
                .map(|t| Second {
                    t: f64::from(t) + 1.0,
                    qps: 1000.0,
                    p95_ms: Some(2.0),
                })
                .collect(),
        }
    }

    fn figures() -> Figures {
        Figures {
            environment: Environment::default(),
            cluster: ClusterName::Galera,
            options: Vec::new(),
            pool: 64 << 20,
            data: 1 << 30,
            cache: 512 << 20,
            iops: 1500,
            load: "a load".into(),
            wanted: 1000.0,
            failovers: vec![
                failover(Standby::Cold, None),
                failover(Standby::Warm, Some(2.0)),
            ],
        }
    }

    #[test]
    fn each_failover_has_a_column() {
        let figures = figures();
        let Table { header, rows } = table(&figures);
        assert_eq!(header, ["", "cold standby", "warm standby", "goal"]);
        assert!(rows.iter().all(|row| row.len() == 4));
        let row = |name: &str| rows.iter().find(|row| row[0].contains(name)).unwrap();
        assert_eq!(row("since the promotion")[1..3], ["not in 20 s", "2.0 s"]);
        assert_eq!(row("since the kill")[2], "4.5 s");
        assert_eq!(row("that volume did")[1..3], ["-", "2.00\u{a0}%"]);
        assert_eq!(row("of the primary's")[2], "0.050\u{a0}%");
        assert!(text(&report(&figures)).contains("Galera cluster"));
    }

    #[test]
    fn goals_are_judged() {
        let mut figures = figures();
        let notes_of = |figures: &Figures| notes(figures).join("\n");
        let text = notes_of(&figures);
        assert_eq!(text.matches("is reached").count(), 2, "{text}");
        figures.failovers[1] = Failover {
            back: Some(11.0),
            free_after: Some(1.0),
            ..failover(Standby::Warm, None)
        };
        let text = notes_of(&figures);
        assert!(
            text.contains("warm standby is void") && text.contains("is missed"),
            "{text}"
        );
    }

    #[test]
    fn curves_meet_at_the_promotion() {
        let charts = charts(&figures());
        assert_eq!(charts[0].marks[0].0, 5.0);
        assert_eq!(charts[0].series.len(), 2);
        assert_eq!(charts[0].series[0].points[0].0, 1.0);
    }
}
