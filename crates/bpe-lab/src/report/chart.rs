//! Curves as SVG, over seconds or over sizes of the cache: the only plotter, for pages and for picture files.
//!
//! `chart.css` has the colours, by class, also for a dark background, and the dashes. On a page, a small script
//! (`report.js`) shows the values under the pointer, from the numbers in `data-series`.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::numbers::number;

pub const STYLE: &str = include_str!("chart.css");

/// Size of a chart on a page, SVG units.
const ON_PAGE: (f64, f64) = (380.0, 230.0);
/// Margins of the plot.
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 26.0;
/// Distance of the outer points from the plot's edges, with an axis of sizes.
const INSET: f64 = 14.0;
/// Minimum distance of labels of sizes.
const APART: f64 = 40.0;

/// One line.
#[derive(Serialize)]
pub struct Series {
    pub name: String,
    /// CSS class of the colour: `off`, `on`, `ceiling`, `hit`, or the name of a policy.
    pub class: &'static str,
    /// Places on the horizontal axis, and values.
    pub points: Vec<(f64, f64)>,
}

/// The horizontal axis.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Axis {
    #[default]
    Seconds,
    /// Ratios of sizes, logarithmic.
    Ratios,
}

/// The vertical axis.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Range {
    /// From 0 to a round number.
    #[default]
    Values,
    /// From 0 to 100.
    Percent,
    /// The tens around the values, for lines that are close together.
    Close,
}

/// A chart.
#[derive(Default)]
pub struct Chart {
    pub title: String,
    pub unit: &'static str,
    /// The first one is drawn on top.
    pub series: Vec<Series>,
    /// Vertical lines with a label.
    pub marks: Vec<(f64, String)>,
    /// End of the uncounted lead.
    pub lead: f64,
    pub axis: Axis,
    pub range: Range,
}

impl Chart {
    /// The throughput of a test with the extension.
    pub fn throughput(test: &str, points: impl Iterator<Item = (f64, f64)>) -> Chart {
        Chart {
            title: "Throughput".into(),
            unit: "QPS",
            series: vec![Series {
                name: test.into(),
                class: "on",
                points: points.collect(),
            }],
            ..Chart::default()
        }
    }

    /// The extension's hit ratio.
    pub fn hit_ratio(points: impl Iterator<Item = (f64, f64)>) -> Chart {
        Chart {
            title: "Hit ratio".into(),
            unit: "%",
            series: vec![Series {
                name: "page reads served by the extension".into(),
                class: "hit",
                points: points.collect(),
            }],
            range: Range::Percent,
            ..Chart::default()
        }
    }

    /// The chart on a page.
    pub fn figure(&self) -> Markup {
        let (width, height) = ON_PAGE;
        let data = serde_json::to_string(&self.series).unwrap_or_default();
        html! {
            figure.chart data-series=(data) data-end=(self.end()) data-unit=(self.unit)
                data-left=(LEFT / width) data-right=(RIGHT / width) {
                figcaption {
                    span.title { (self.title) }
                    span.unit { (self.unit) }
                }
                ul.legend {
                    @for series in &self.series {
                        li { span.key.(series.class) {} (series.name) }
                    }
                    @if self.lead > 0.0 { li { span.key.lead {} "not counted" } }
                }
                div.area {
                    svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(self.words()) {
                        (self.drawing(width, height))
                    }
                    div.cursor hidden {}
                    div.readout hidden {}
                }
            }
        }
    }

    /// The plot with its axes, without title and legend, in a space of this size.
    pub fn drawing(&self, width: f64, height: f64) -> Markup {
        let (low, high, step) = self.values();
        let bottom = height - BOTTOM;
        let right = width - RIGHT;
        let x = self.places(right);
        let y = |value: f64| bottom - (value.min(high) - low) / (high - low) * (bottom - TOP);
        let rows = ((high - low) / step).round() as usize;
        let of_sizes = self.axis == Axis::Ratios;
        html! {
            @if self.lead > 0.0 {
                rect.lead x=(LEFT) y=(TOP) width=(at(x(self.lead) - LEFT)) height=(bottom - TOP) {}
            }
            @for value in (0..=rows).map(|row| low + row as f64 * step) {
                line.grid x1=(LEFT) x2=(right) y1=(at(y(value))) y2=(at(y(value))) {}
                text x=(LEFT - 6.0) y=(at(y(value) + 4.0)) text-anchor="end" { (short(value)) }
            }
            @for (place, label) in self.labels(&x) {
                text x=(at(place)) y=(at(bottom + 18.0)) text-anchor="middle" { (label) }
            }
            @for (t, word) in &self.marks {
                line.mark x1=(at(x(*t))) x2=(at(x(*t))) y1=(TOP - 8.0) y2=(bottom) {}
                text x=(at(x(*t) + 4.0)) y=(TOP - 10.0) { (word) }
            }
            @for series in self.series.iter().rev() {
                path.line.(series.class) d=(PreEscaped(path(&series.points, &x, y))) {
                    title { (series.name) }
                }
                @if of_sizes {
                    @for (ratio, value) in &series.points {
                        circle.paper.(series.class) cx=(at(x(*ratio))) cy=(at(y(*value))) r="3"
                            stroke-width="2" {}
                    }
                }
            }
        }
    }

    /// Maps places to coordinates.
    fn places(&self, right: f64) -> impl Fn(f64) -> f64 + use<> {
        let logs = self.points().map(|point| point.0.log2());
        let low = logs.clone().fold(f64::INFINITY, f64::min);
        let high = logs.fold(f64::NEG_INFINITY, f64::max);
        let span = if high > low { high - low } else { 1.0 };
        let (axis, end) = (self.axis, self.end());
        move |place| match axis {
            Axis::Seconds => LEFT + place / end * (right - LEFT),
            Axis::Ratios => {
                LEFT + INSET + (place.log2() - low) / span * (right - LEFT - 2.0 * INSET)
            }
        }
    }

    /// Labels of the horizontal axis with their coordinates.
    fn labels(&self, x: &impl Fn(f64) -> f64) -> Vec<(f64, String)> {
        if self.axis == Axis::Seconds {
            let ticks = ticks(self.end()).into_iter();
            let label = |tick: f64| (x(tick), format!("{} s", number(Some(tick), 0)));
            return ticks.map(label).collect();
        }
        let mut ratios: Vec<f64> = self.points().map(|point| point.0).collect();
        ratios.sort_by(f64::total_cmp);
        let mut labels: Vec<(f64, String)> = Vec::new();
        for ratio in ratios {
            if labels.last().is_none_or(|last| x(ratio) - last.0 >= APART) {
                labels.push((x(ratio), format!("{ratio} x")));
            }
        }
        labels
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> + Clone {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// The last second.
    fn end(&self) -> f64 {
        self.points().map(|point| point.0).fold(1.0, f64::max)
    }

    /// Both ends of the vertical axis, and the distance of its lines.
    fn values(&self) -> (f64, f64, f64) {
        let highest = self.points().map(|point| point.1).fold(0.0, f64::max);
        match self.range {
            Range::Values => {
                let (high, step) = scale(highest);
                (0.0, high, step)
            }
            Range::Percent => (0.0, 100.0, 25.0),
            Range::Close => {
                let lowest = self.points().map(|point| point.1).fold(100.0, f64::min);
                let low = (lowest / 10.0).floor() * 10.0;
                let high = ((highest / 10.0).ceil() * 10.0).max(low + 10.0);
                (low, high, if high - low > 60.0 { 20.0 } else { 10.0 })
            }
        }
    }

    /// Text alternative of the chart, for screen readers.
    pub fn words(&self) -> String {
        let over = match self.axis {
            Axis::Seconds => "over time",
            Axis::Ratios => "by size",
        };
        let mut text = format!("{}, {} {over}. ", self.title, self.unit);
        // Writing to a string cannot fail.
        for series in &self.series {
            let counted = series.points.iter().filter(|point| point.0 > self.lead);
            match self.axis {
                Axis::Ratios => {
                    let values = counted.map(|(ratio, value)| format!("{value:.1} at {ratio} x"));
                    let values: Vec<String> = values.collect();
                    let _ = write!(text, "{}: {}. ", series.name, values.join(", "));
                }
                Axis::Seconds => {
                    let values: Vec<f64> = counted.map(|point| point.1).collect();
                    if !values.is_empty() {
                        let mean = values.iter().sum::<f64>() / values.len() as f64;
                        let _ = write!(text, "{}: mean {}. ", series.name, number(Some(mean), 0));
                    }
                }
            }
        }
        text
    }
}

/// A coordinate.
fn at(place: f64) -> String {
    format!("{place:.1}")
}

/// A line through these points.
fn path(points: &[(f64, f64)], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (index, (t, value)) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(*t), y(*value));
    }
    path
}

/// Returns a round upper end of the axis at or above `highest`, and the distance of its lines.
fn scale(highest: f64) -> (f64, f64) {
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let rough = highest / 4.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * magnitude);
    ((highest / step).ceil().max(1.0) * step, step)
}

/// Round seconds along the axis, five or six of them.
pub fn ticks(end: f64) -> Vec<f64> {
    let step = [
        1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ]
    .into_iter()
    .find(|step| end / step <= 6.0)
    .unwrap_or(end / 5.0);
    let count = (end / step).floor() as usize;
    (0..=count)
        .map(|index| index as f64 * step)
        // The last label would exceed the picture.
        .filter(|tick| *tick <= end * 0.97)
        .collect()
}

/// `20k` for 20,000.
pub fn short(value: f64) -> String {
    if value >= 10_000.0 {
        let thousands = value / 1000.0;
        let digits = usize::from(thousands.fract() > 0.01);
        format!("{thousands:.digits$}k")
    } else {
        let digits = usize::from(value.fract() > 0.01);
        number(Some(value), digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_round_and_high_enough() {
        for highest in [0.0, 0.3, 1.0, 7.0, 99.0, 101.0, 3120.0, 20_499.0, 1e6] {
            let (top, step) = scale(highest);
            assert!(top >= highest, "{highest}: {top}");
            assert!(
                top / step <= 6.0 && top / step >= 1.0,
                "{highest}: {top} {step}"
            );
        }
        assert_eq!(scale(20_499.0), (30_000.0, 10_000.0));
        assert_eq!(scale(100.0), (100.0, 25.0));
    }

    #[test]
    fn figure_has_every_line_and_escapes() {
        let chart = Chart {
            title: "a < b".into(),
            unit: "QPS",
            series: vec![Series {
                name: "on".into(),
                class: "on",
                points: vec![(1.0, 5.0), (2.0, 10.0)],
            }],
            marks: vec![(1.5, "off".into())],
            lead: 1.0,
            ..Chart::default()
        };
        let text = chart.figure().into_string();
        assert!(text.contains("a &lt; b") && text.contains(">off</text>"));
        // Half of the time and of the height, then the upper right corner.
        assert!(text.contains("M206.0 113.0L366.0 22.0"), "{text}");
        assert!(!text.contains("http"), "nothing may be fetched");
    }

    #[test]
    fn sizes_are_logarithmic_and_labels_apart() {
        let chart = Chart {
            series: vec![Series {
                name: "LRU".into(),
                class: "lru",
                points: [4.0, 0.5, 1.0, 1.01].map(|ratio| (ratio, 50.0)).into(),
            }],
            axis: Axis::Ratios,
            range: Range::Percent,
            ..Chart::default()
        };
        let text = chart.drawing(760.0, 400.0).into_string();
        assert_eq!(text.matches("<circle").count(), 4);
        assert!(text.contains(">4 x</text>") && !text.contains(">1.01 x</text>"));
        assert!(text.contains("M732.0 198.0L60.0 198.0L284.0"), "{text}");
        assert!(chart.words().contains("LRU: 50.0 at 4 x, 50.0 at 0.5 x"));
        let close = Chart {
            range: Range::Close,
            ..chart
        };
        assert_eq!(close.values(), (50.0, 60.0, 10.0));
    }
}
