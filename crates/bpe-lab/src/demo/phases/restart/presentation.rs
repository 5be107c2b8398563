//! Fills the restarts' part of the report.

use bpe::size;

use super::figures::{FIRST, HITS, How, Restart, Restarts, THROUGHPUT, TOLD, WITHIN, qps};
use crate::demo::phases::second::{Second, hit_ratio};
use crate::report::{Chart, Columns, Part, Range, Series, number, percent, seconds, share};

const POOL: &str = "InnoDB's own pool is as the servers' defaults leave it: a clean stop writes down which pages were in it, \
                    and the next start reads them. After kill -9 that is the list of the last clean stop.";
const NOTHING_TOLD: &str = "This bpe.so does not say what it has kept. An extension that keeps nothing starts cold every \
                            time.";

/// Whether a goal is reached, in words; empty for a cold start.
fn goal(how: How, reached: bool) -> &'static str {
    match (how, reached) {
        (How::Cold, _) => "",
        (_, true) => ", which reaches the goal",
        (_, false) => ", which misses the goal",
    }
}

impl Restart {
    /// The sentence below the table.
    fn note(&self) -> String {
        let how = self.how;
        let begin = match how {
            How::Clean => "After a clean restart",
            How::Kill => "After kill -9",
            How::Cold => "After a start with an empty cache, for comparison,",
        };
        let hits = self.hits_kept();
        let back = self.back_after();
        format!(
            "{begin} the hit ratio of the first {FIRST} s was {} of that before{}. {THROUGHPUT:.0} % of the throughput \
             {}{}.",
            percent(hits, false, 0),
            goal(how, hits.is_some_and(|hits| hits >= HITS)),
            self.back(),
            goal(how, back.is_some_and(|back| back <= WITHIN)),
        )
    }

    fn first(&self) -> &[Second] {
        self.parts().0
    }

    fn later(&self) -> &[Second] {
        self.parts().1
    }

    /// Throughput in percent of that before.
    fn of_before(&self, of: &[Second]) -> String {
        percent(share(qps(of), self.qps_before()), false, 0)
    }
}

impl Restarts {
    fn of(&self, how: How) -> Option<&Restart> {
        self.restarts.iter().find(|one| one.how == how)
    }

    /// The conclusion, in a sentence.
    fn meaning(&self) -> Option<String> {
        let first = |how| Some(qps(self.of(how)?.parts().0));
        let (clean, kill, cold) = (first(How::Clean)?, first(How::Kill)?, first(How::Cold)?);
        let times = |warm: f64| match cold > 0.0 {
            true => format!(" ({:.1} times as many)", warm / cold),
            false => String::new(),
        };
        Some(format!(
            "What this means: in the first {FIRST} s with clients, the server answered {} queries a second with an empty cache, \
             {} after a clean restart{}, and {} after kill -9{}.",
            number(Some(cold), 0),
            number(Some(clean), 0),
            times(clean),
            number(Some(kill), 0),
            times(kill),
        ))
    }

    fn series(&self, points: impl Fn(&Restart) -> Vec<(f64, f64)>) -> Vec<Series> {
        let one = |restart: &Restart| Series {
            name: restart.how.title().into(),
            class: match restart.how {
                How::Clean => "on",
                How::Kill => "hit",
                How::Cold => "off",
            },
            points: points(restart),
        };
        self.restarts.iter().map(one).collect()
    }

    /// Values of the seconds before and after, without the outage.
    fn around(
        &self,
        title: &str,
        unit: &'static str,
        range: Range,
        value: fn(&Second) -> f64,
    ) -> Chart {
        let lengths = self.restarts.iter().map(|one| one.before.len());
        let accepts = lengths.max().unwrap_or(0) as f64;
        let points = |one: &Restart| {
            let end = one.before.last().map_or(0.0, |last| last.t);
            let before = one
                .before
                .iter()
                .map(|of| (accepts - end + of.t, value(of)));
            let after = one.after.iter().map(|of| (accepts + of.t, value(of)));
            before.chain(after).collect()
        };
        Chart {
            title: title.into(),
            unit,
            series: self.series(points),
            marks: vec![(accepts, "connections accepted".into())],
            range,
            ..Chart::default()
        }
    }

    /// The throughput in percent of the previous one.
    fn shares(&self) -> Chart {
        let points = |one: &Restart| {
            let before = one.qps_before();
            let shares = one.after.iter();
            shares
                .filter_map(|of| Some((of.t, share(of.qps, before)?)))
                .collect()
        };
        let mut series = self.series(points);
        let end = self
            .restarts
            .iter()
            .map(Restart::measured)
            .fold(0.0, f64::max);
        series.push(Series {
            name: format!("{THROUGHPUT:.0} %"),
            class: "ceiling",
            points: vec![(0.0, THROUGHPUT), (end, THROUGHPUT)],
        });
        Chart {
            title: "Throughput, of that before".into(),
            unit: "%",
            series,
            marks: vec![(WITHIN, format!("{WITHIN:.0} s"))],
            ..Chart::default()
        }
    }

    /// The part of the report.
    pub fn part(&self) -> Part {
        let items = self.restarts.iter().map(|one| (one.how.title(), one));
        let mut table = Columns::new("oltp_read_write", items);
        let ratio = |of: &[Second]| percent(Some(hit_ratio(of)), false, 1);
        let count = |of: &[Second]| number(Some(qps(of)), 0);
        table.row("server ends in", |one| seconds(Some(one.stop), 2));
        table.row("start command to connections accepted", |one| {
            seconds(Some(one.start), 2)
        });
        table.row("from then to the first query", |one| {
            seconds(Some(one.first_query), 2)
        });
        table.row("cached before", |one| size::human(one.cached));
        table.row("hit ratio before", |one| ratio(&one.before));
        table.row(format!("hit ratio, first {FIRST} s"), |one| {
            ratio(one.first())
        });
        table.goal(
            format!("hit ratio, first {FIRST} s, of that before"),
            format!("{HITS:.0}\u{a0}% or more"),
            |one| percent(one.hits_kept(), false, 1),
        );
        table.row("QPS before", |one| count(&one.before));
        table.row(format!("QPS, first {FIRST} s"), |one| count(one.first()));
        table.row(format!("QPS, first {FIRST} s, of that before"), |one| {
            one.of_before(one.first())
        });
        table.goal(
            format!("{THROUGHPUT:.0} % of the QPS before, from connections accepted"),
            format!("{WITHIN:.0} s or less"),
            |one| match one.back_after() {
                None => format!("not in {:.0} s", one.measured()),
                after => seconds(after, 1),
            },
        );
        table.row("QPS later", |one| count(one.later()));
        table.row("QPS later, of that before", |one| {
            one.of_before(one.later())
        });
        for name in TOLD {
            if self.restarts.iter().any(|one| one.told(name).is_some()) {
                table.row(format!("Bpe_{name}"), |one| {
                    number(one.told(name).map(|value| value as f64), 0)
                });
            }
        }
        Part {
            title: "Restarts under load",
            table: Some(table.table()),
            notes: self.notes(),
            charts: self.charts(),
            ..Part::default()
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.restarts.iter().map(Restart::note).collect();
        notes.extend(self.meaning());
        if self.restarts.iter().all(|one| one.told.is_empty()) {
            notes.push(NOTHING_TOLD.into());
        }
        notes.push(POOL.into());
        notes
    }

    /// Curves around and after the restarts.
    pub fn charts(&self) -> Vec<Chart> {
        let hits = |one: &Second| hit_ratio(&[*one]);
        vec![
            self.around("Throughput before and after", "QPS", Range::Values, |one| {
                one.qps
            }),
            self.shares(),
            self.around("Hit ratio before and after", "%", Range::Percent, hits),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(told: &[(&str, u64)]) -> Restarts {
        let second = |t, qps, hits| Second {
            t,
            qps,
            hits,
            reads: 1000,
            ..Second::default()
        };
        let restart = |how, qps: f64, hits| Restart {
            how,
            before: (1..4)
                .map(|n| second(8.0 + f64::from(n), 4000.0, 900))
                .collect(),
            cached: 1 << 30,
            stop: 3.0,
            start: 1.5,
            first_query: 0.25,
            after: (1..21)
                .map(|n| second(0.25 + f64::from(n), qps, hits))
                .collect(),
            told: told.iter().map(|(name, n)| ((*name).into(), *n)).collect(),
        };
        Restarts {
            restarts: vec![
                restart(How::Clean, 3960.0, 880),
                restart(How::Kill, 3000.0, 800),
                restart(How::Cold, 1500.0, 90),
            ],
        }
    }

    #[test]
    fn restarts_are_columns_beside_goals() {
        let part = measured(&[("pages_trusted", 12)]).part();
        let rows = part.table.unwrap().rows;
        assert!(rows.iter().all(|row| row.len() == 5));
        assert_eq!(rows.len(), 14, "only what the server tells");
        let row = |begin: &str| {
            let found = rows.iter().find(|row| row[0].starts_with(begin));
            found.unwrap()[1..].join("|").replace('\u{a0}', " ")
        };
        assert_eq!(row("start command"), "1.50 s|1.50 s|1.50 s|");
        assert_eq!(row("hit ratio, first 5 s"), "88.0 %|80.0 %|9.0 %|");
        assert_eq!(
            row("hit ratio, first 5 s, of"),
            "97.8 %|88.9 %|10.0 %|95 % or more"
        );
        assert_eq!(row("QPS, first 5 s, of"), "99 %|75 %|38 %|");
        assert_eq!(row("90 %"), "1.2 s|not in 20 s|not in 20 s|5 s or less");
        assert_eq!(row("Bpe_pages_trusted"), "12|12|12|");
    }

    #[test]
    fn the_notes_say_what_it_means() {
        let notes = |told: &[(&str, u64)]| measured(told).notes().join(" ").replace('\u{a0}', " ");
        let silent = notes(&[]);
        for part in [
            "After a clean restart the hit ratio of the first 5 s was 98 % of that before, which reaches the goal. 90 % of the \
             throughput was back after 1.2 s, which reaches the goal.",
            "After kill -9 the hit ratio of the first 5 s was 89 % of that before, which misses the goal. 90 % of the \
             throughput was not back within 20 s, which misses the goal.",
            "was 10 % of that before. 90 % of the throughput was not back within 20 s.",
            "1,500 queries a second with an empty cache, 3,960 after a clean restart (2.6 times as many), and 3,000 after",
            "does not say what it has kept",
        ] {
            assert!(silent.contains(part), "{part}: {silent}");
        }
        let telling = notes(&[("pages_inherited", 5)]);
        assert!(!telling.contains("does not say"), "{telling}");
    }

    #[test]
    fn the_curves_meet_where_connections_are_accepted() {
        let charts = measured(&[]).charts();
        let throughput = &charts[0];
        assert_eq!(throughput.marks[0].0, 3.0);
        let points = &throughput.series[0].points;
        let before: Vec<_> = points.iter().take(3).map(|point| point.0).collect();
        assert_eq!(before, [1.0, 2.0, 3.0]);
        assert_eq!(points[3], (4.25, 3960.0));
        assert_eq!(points.len(), 23);
        let shares = &charts[1];
        assert_eq!(shares.series[1].points[0], (1.25, 75.0));
        assert_eq!(shares.series.len(), 4, "the goal is a line of its own");
    }
}
