//! Results of a comparison: as JSON, also for the console, and as text.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use super::limit::Hurt;
use super::measurement::{FIGURES, Figure, Slice, Unit};
use super::statistics::{Interval, median, middle};
use crate::support::terminal::{grouped, microseconds, wrapped};

/// Minimum number of pairs for a verdict.
pub const ENOUGH: usize = 20;
/// Maximum line length of the text.
const WIDTH: usize = 100;

/// What the figures of serving are beside those of bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Found {
    #[serde(rename = "better")]
    Better,
    #[serde(rename = "worse")]
    Worse,
    #[serde(rename = "no difference")]
    NoDifference,
    #[serde(rename = "too few pairs")]
    TooFewPairs,
}

/// How a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ended {
    #[serde(rename = "complete")]
    Complete,
    #[serde(rename = "interrupted")]
    Interrupted,
    #[serde(rename = "bypass hurt")]
    BypassHurt,
    #[serde(rename = "failed")]
    Failed,
}

/// A figure with the extension serving and bypassed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    /// 1/s, us, or empty for a number of things.
    pub unit: &'static str,
    pub more_is_better: bool,
    /// Median of the slices.
    pub serving: Option<f64>,
    /// Median of the slices.
    pub bypass: Option<f64>,
    /// Serving less bypass of each pair, in their order.
    pub differences: Vec<f64>,
    /// The middle of them.
    pub difference: Option<f64>,
    /// The true difference is above this with 97.5 % certainty.
    pub low: Option<f64>,
    /// And below this.
    pub high: Option<f64>,
    /// The difference in percent of bypass.
    pub percent: Option<f64>,
    pub found: Found,
}

/// What a comparison has found so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub server: String,
    pub ended: Ended,
    /// Why it ended early.
    pub why: Option<String>,
    /// Result for the statements per second.
    pub verdict: Found,
    pub pairs: u64,
    pub pairs_wanted: u64,
    pub pairs_for_a_verdict: u64,
    pub slice_s: u64,
    pub seconds: f64,
    /// Whether pages that were written in bypass were kept in the cache.
    pub refill: bool,
    /// Seconds of bypass until it ended because that hurt.
    pub hurt_after_s: Option<f64>,
    /// Statements of the last two of them, in percent of those while serving.
    pub hurt_percent: Option<f64>,
    pub figures: Vec<Row>,
    /// What this cannot see, and what else to know.
    pub notes: Vec<String>,
}

impl Row {
    fn of(figure: &Figure, pairs: &[(Option<f64>, Option<f64>)]) -> Self {
        let both: Vec<(f64, f64)> = pairs
            .iter()
            .filter_map(|&(serving, bypass)| Some((serving?, bypass?)))
            .collect();
        let side = |of: fn(&(f64, f64)) -> f64| median(&both.iter().map(of).collect::<Vec<_>>());
        let (serving, bypass) = (side(|pair| pair.0), side(|pair| pair.1));
        let differences: Vec<f64> = both
            .iter()
            .map(|(serving, bypass)| serving - bypass)
            .collect();
        let difference = middle(&differences);
        let interval = Interval::of(&differences);
        let found = match interval {
            Some(interval) if differences.len() >= ENOUGH => {
                if interval.holds_zero() {
                    Found::NoDifference
                } else if (interval.middle > 0.0) == figure.more_is_better {
                    Found::Better
                } else {
                    Found::Worse
                }
            }
            _ => Found::TooFewPairs,
        };
        Self {
            name: figure.name,
            title: figure.title,
            unit: figure.unit.as_str(),
            more_is_better: figure.more_is_better,
            serving,
            bypass,
            difference,
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            percent: difference
                .zip(bypass.filter(|bypass| *bypass > 0.0))
                .map(|(difference, bypass)| difference * 100.0 / bypass),
            differences,
            found,
        }
    }
}

/// One row per figure. The pairs are serving and bypass, in their order.
pub fn rows(pairs: &[(Slice, Slice)]) -> Vec<Row> {
    FIGURES
        .iter()
        .enumerate()
        .map(|(index, figure)| {
            let values: Vec<_> = pairs
                .iter()
                .map(|(serving, bypass)| (serving.0[index], bypass.0[index]))
                .collect();
            Row::of(figure, &values)
        })
        .collect()
}

impl Comparison {
    /// Records that the comparison ended because bypass hurt.
    pub fn hurt(&mut self, after_s: f64, hurt: Hurt) {
        self.ended = Ended::BypassHurt;
        self.hurt_after_s = Some(after_s);
        self.hurt_percent = Some(hurt.percent);
        self.why = Some(format!(
            "bypass hurt: stopped after {after_s:.0} s of it, with {:.0} % of the statements per second that serving had, and \
             {:.0} threads running instead of {:.0}",
            hurt.percent, hurt.threads_running, hurt.threads_running_serving
        ));
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |label: &str, text: &str| {
            for (number, part) in wrapped(text, WIDTH - 12).iter().enumerate() {
                let label = if number == 0 { label } else { "" };
                let _ = writeln!(out, "{label:<12}{part}");
            }
        };
        line("Server", &self.server);
        let counted = match self.pairs {
            1 => "1 pair".to_owned(),
            pairs => format!("{pairs} pairs"),
        };
        line(
            "Compared",
            &format!(
                "{counted} of {} s of serving and {} s of bypass, in random order, in {:.1} minutes",
                self.slice_s,
                self.slice_s,
                self.seconds / 60.0
            ),
        );
        if let Some(why) = &self.why {
            line("Ended early", why);
        }
        line("Result", &self.result());
        if self.pairs > 0 {
            let table = self.table().to_string();
            let lines = table
                .lines()
                .map(|line| line.trim_end().replacen(' ', "", 1));
            let _ = writeln!(out, "\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        }
        let mut label = "Note";
        for note in &self.notes {
            for (number, part) in wrapped(note, WIDTH - 12).iter().enumerate() {
                let label = if number == 0 { label } else { "" };
                let _ = writeln!(out, "{label:<12}{part}");
            }
            label = "";
        }
        out
    }

    /// The result in one sentence.
    pub fn result(&self) -> String {
        let Some(row) = self.figures.first().filter(|_| self.pairs > 0) else {
            return match self.hurt_percent {
                Some(_) => {
                    "the extension helps: without it the server cannot take this load".to_owned()
                }
                None => "none: no pair is complete".to_owned(),
            };
        };
        let percent = row.percent.unwrap_or(0.0);
        let amount = format!(
            "{:.1} % {} statements per second",
            percent.abs(),
            if percent < 0.0 { "fewer" } else { "more" }
        );
        match self.verdict {
            Found::Better => format!("the extension helps: {amount} than in bypass"),
            Found::Worse => format!("the extension does harm: {amount} than in bypass"),
            Found::NoDifference => {
                "no difference in statements per second that is larger than chance".to_owned()
            }
            Found::TooFewPairs => {
                let minutes = self.pairs_for_a_verdict * 2 * self.slice_s;
                format!(
                    "{amount} than in bypass so far, but this takes {} pairs for a verdict: --minutes {} with this --slice",
                    self.pairs_for_a_verdict,
                    minutes.div_ceil(60)
                )
            }
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table
            .load_preset(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["", "serving", "bypass", "difference", "95 % interval", ""]);
        for (figure, row) in FIGURES.iter().zip(&self.figures) {
            let number = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| shown(figure.unit, value))
            };
            let difference = match (row.difference, row.percent) {
                (Some(difference), Some(percent)) => {
                    format!("{} ({percent:+.1} %)", signed(figure.unit, difference))
                }
                (Some(difference), None) => signed(figure.unit, difference),
                _ => "-".to_owned(),
            };
            let interval = match (row.low, row.high) {
                (Some(low), Some(high)) => {
                    format!(
                        "{} to {}",
                        signed(figure.unit, low),
                        signed(figure.unit, high)
                    )
                }
                _ => "-".to_owned(),
            };
            table.add_row([
                row.title.to_owned(),
                number(row.serving),
                number(row.bypass),
                difference,
                interval,
                if row.difference.is_some() {
                    word(row.found).to_owned()
                } else {
                    "nothing measured".to_owned()
                },
            ]);
        }
        for column in table.column_iter_mut().skip(1).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// The name in JSON.
fn word(found: Found) -> &'static str {
    match found {
        Found::Better => "better",
        Found::Worse => "worse",
        Found::NoDifference => "no difference",
        Found::TooFewPairs => "too few pairs",
    }
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Microseconds => microseconds(value),
        _ if value.abs() < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

fn signed(unit: Unit, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    match shown(unit, value.abs()).as_str() {
        "-" | "0.0" => "0".to_owned(),
        text => format!("{sign}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(statements: f64, read: f64) -> Slice {
        let mut slice = Slice([Some(0.0); FIGURES.len()]);
        slice.0[0] = Some(statements);
        slice.0[1] = Some(read);
        slice.0[2] = None;
        slice
    }

    fn comparison(pairs: &[(Slice, Slice)]) -> Comparison {
        let figures = rows(pairs);
        Comparison {
            server: "MariaDB 10.11.19, socket /x".into(),
            ended: Ended::Complete,
            why: None,
            verdict: figures[0].found,
            pairs: pairs.len() as u64,
            pairs_wanted: 30,
            pairs_for_a_verdict: ENOUGH as u64,
            slice_s: 10,
            seconds: 605.0,
            refill: true,
            hurt_after_s: None,
            hurt_percent: None,
            figures,
            notes: vec!["one".into(), "two".into()],
        }
    }

    fn pairs(count: usize, serving: f64, bypass: f64) -> Vec<(Slice, Slice)> {
        (0..count)
            .map(|number| {
                let wobble = (number % 5) as f64;
                (
                    slice(serving + wobble, 120.0),
                    slice(bypass - wobble, 2400.0),
                )
            })
            .collect()
    }

    #[test]
    fn what_is_better_depends_on_the_figure() {
        let rows = rows(&pairs(20, 3900.0, 2000.0));
        let found = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(found("statements_per_s").found, Found::Better);
        assert_eq!(found("read_mean_us").found, Found::Better);
        assert_eq!(found("read_mean_us").difference, Some(-2280.0));
        assert_eq!(found("threads_running").found, Found::NoDifference);
        let none = found("read_p50_us");
        assert_eq!((none.found, none.serving), (Found::TooFewPairs, None));
        let statements = found("statements_per_s");
        assert_eq!(statements.bypass, Some(1998.0));
        assert!((statements.percent.unwrap() - 95.3).abs() < 0.1);
        let worse = &super::rows(&pairs(20, 1000.0, 2000.0))[0];
        assert_eq!(worse.found, Found::Worse);
        assert_eq!(worse.differences.len(), 20);
    }

    #[test]
    fn the_text_says_what_was_found() {
        let text = comparison(&pairs(20, 3900.0, 2000.0)).text();
        for part in [
            "20 pairs of 10 s",
            "10.1 minutes",
            "the extension helps: 95.3 % more statements per second",
            "3,902",
            "2.40 ms",
            "-2.28 ms (-95.0 %)",
            "nothing measured",
            "Note        one",
            "            two",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        let text = comparison(&pairs(7, 3900.0, 2000.0)).result();
        assert!(
            text.contains("20 pairs for a verdict: --minutes 7"),
            "{text}"
        );
        let text = comparison(&pairs(25, 2000.0, 2000.0 + 4.0)).text();
        assert!(text.contains("no difference"), "{text}");
        assert!(comparison(&[]).text().contains("no pair is complete"));
    }

    #[test]
    fn hurting_is_an_answer() {
        let mut comparison = comparison(&[]);
        comparison.hurt(
            3.0,
            Hurt {
                percent: 12.3,
                threads_running: 40.0,
                threads_running_serving: 4.2,
            },
        );
        let text = comparison.text();
        for part in [
            "stopped after 3 s",
            "12 %",
            "40 threads",
            "the extension helps",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["ended"], "bypass hurt");
        assert_eq!(json["hurt_after_s"], 3.0);
        assert_eq!(json["verdict"], "too few pairs");
    }
}
