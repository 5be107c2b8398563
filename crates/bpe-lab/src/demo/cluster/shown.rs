//! Output of the failovers: table, sentences below it, and curves.

use std::fmt::Write;

use bpe::size;

use super::figures::{FREE, Failover, Figures, Keeping, THROUGHPUT, WITHIN};
use super::plan::Standby;
use crate::demo::numbers::{number, percent};
use crate::demo::report::chart::{Chart, Series};
use crate::demo::table::{add_row, with_header};

/// Maximum cost of warming, percent of the standby's volume and of the primary's statements.
const VOLUME_SHARE: f64 = 5.0;
const STATEMENT_SHARE: f64 = 1.0;

/// The table and its notes.
pub fn text(figures: &Figures) -> String {
    let mut out = format!("\n{}\n{}\n", heading(figures), figures.load);
    let (header, rows) = rows(figures);
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = with_header(&names);
    rows.into_iter().for_each(|row| add_row(&mut table, 0, row));
    let _ = write!(out, "{table}");
    for line in notes(figures) {
        let _ = write!(out, "\n{line}");
    }
    out.push('\n');
    out
}

/// Describes the run in a line.
pub fn heading(figures: &Figures) -> String {
    format!(
        "{}, {}; pool {}, data {}, cache {}, volumes of {} I/Os a second",
        figures.server,
        figures.cluster.title(),
        size::human(figures.pool),
        size::human(figures.data),
        size::human(figures.cache),
        number(Some(figures.iops as f64), 0)
    )
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1} s"))
}

fn share(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 * 100.0 / all as f64)
}

impl Failover {
    fn back_words(&self, back: Option<f64>) -> String {
        match (back, self.curve.last()) {
            (None, Some(last)) => format!("not in {:.0} s", last.t),
            _ => seconds(back),
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

    fn cells(&self) -> Vec<String> {
        let count = |value: u64| number(Some(value as f64), 0);
        let keeping =
            |cell: fn(&Keeping) -> String| self.keeping.as_ref().map_or_else(|| "-".into(), cell);
        vec![
            number(Some(self.qps_before), 0),
            percent(self.hits_before, false, 1),
            seconds(Some(-self.killed)),
            self.back_words(self.back_since_the_kill()),
            self.back_words(self.back),
            count(self.lost_to_the_outage),
            count(self.lost_to_slowness),
            number(self.p95_before, 1),
            number(self.p95_after, 1),
            percent(self.hits_after, false, 1),
            count(self.disk_reads),
            keeping(|of| {
                format!(
                    "{:.0} s, {} reads, {}",
                    of.first_seconds,
                    of.first_reads,
                    size::human(of.first_bytes)
                )
            }),
            keeping(|of| {
                format!(
                    "{:.1} reads/s, {}/s",
                    of.per_second(of.reads),
                    size::human(of.per_second(of.bytes) as u64)
                )
            }),
            keeping(|of| percent(share(of.reads, of.volume_could), false, 2)),
            keeping(|of| percent(share(of.reads, of.volume_ios), false, 2)),
            keeping(|of| percent(share(of.statements, of.primary_statements), false, 3)),
            format!(
                "{}, {}{}",
                percent(self.free_before, false, 0),
                percent(self.free_after, false, 0),
                if self.is_void() { ": void" } else { "" }
            ),
        ]
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

fn names() -> [String; 17] {
    [
        "statements/s before".into(),
        "hit ratio before".into(),
        "kill to promotion".into(),
        format!("{THROUGHPUT:.0} % of the throughput, since the kill"),
        format!("{THROUGHPUT:.0} % of the throughput, since the promotion"),
        "statements lost to the outage".into(),
        "statements lost to slowness, first minute".into(),
        "p95 ms before".into(),
        "p95 ms, first minute".into(),
        "hit ratio, first 10 s".into(),
        "data disk reads, first minute".into(),
        "warmed first in".into(),
        "keeping warm: reads of the standby's volume".into(),
        "... of what that volume can do".into(),
        "... of what that volume did".into(),
        "... statements, of the primary's".into(),
        "processors free before, first minute".into(),
    ]
}

/// A column for each failover.
pub fn rows(figures: &Figures) -> (Vec<String>, Vec<Vec<String>>) {
    let titles = figures.failovers.iter().map(|one| one.standby.title());
    let header = std::iter::once("").chain(titles).map(str::to_owned);
    let columns: Vec<Vec<String>> = figures.failovers.iter().map(Failover::cells).collect();
    let row = |(index, name): (usize, String)| {
        let cells = columns.iter().map(|column| column[index].clone());
        std::iter::once(name).chain(cells).collect()
    };
    (
        header.collect(),
        names().into_iter().enumerate().map(row).collect(),
    )
}

/// Sentences below the table.
pub fn notes(figures: &Figures) -> Vec<String> {
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
pub fn charts(figures: &Figures) -> Vec<Chart> {
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
        lead: 0.0,
        top: None,
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
    use crate::demo::results::Machine;

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
            version: "1".into(),
            began: 0,
            seconds: 60.0,
            quick: false,
            cluster: ClusterName::Galera,
            server: "MariaDB 1".into(),
            server_version: "1".into(),
            machine: Machine::default(),
            settings: Vec::new(),
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
        let (header, rows) = rows(&figures);
        assert_eq!(header, ["", "cold standby", "warm standby"]);
        assert!(rows.iter().all(|row| row.len() == 3));
        let row = |name: &str| rows.iter().find(|row| row[0].contains(name)).unwrap();
        assert_eq!(row("since the promotion")[1..], ["not in 20 s", "2.0 s"]);
        assert_eq!(row("since the kill")[2], "4.5 s");
        assert_eq!(row("that volume did")[1..], ["-", "2.00\u{a0}%"]);
        assert_eq!(row("of the primary's")[2], "0.050\u{a0}%");
        assert!(text(&figures).contains("Galera cluster"));
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
