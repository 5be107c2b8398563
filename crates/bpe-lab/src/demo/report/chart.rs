//! Line charts over time as inline SVG.
//!
//! The SVG contains only lines and is stretched to the available width. Axis labels are HTML at percentages beside it, so
//! text has the same size on a phone and on a wide screen. A small script (`report.js`) shows the values under the pointer,
//! from the numbers in `data-series`.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::demo::numbers::number;

/// Height of the drawing in SVG units; the width is 1000.
const HEIGHT: f64 = 300.0;
const WIDTH: f64 = 1000.0;

/// One line.
#[derive(Serialize)]
pub struct Series {
    pub name: String,
    /// CSS class of the colour: `off`, `on`, `ceiling`, `hit`.
    pub class: &'static str,
    /// Seconds and values.
    pub points: Vec<(f64, f64)>,
}

/// A chart over seconds.
pub struct Chart {
    pub title: String,
    pub unit: &'static str,
    pub series: Vec<Series>,
    /// Vertical lines with a label.
    pub marks: Vec<(f64, String)>,
    /// End of the uncounted lead.
    pub lead: f64,
    /// Upper end of the axis, if it is fixed (100 for percent).
    pub top: Option<f64>,
}

impl Chart {
    /// The chart as markup.
    pub fn markup(&self) -> Markup {
        let (end, top, step) = self.ends();
        let x = |t: f64| t / end * WIDTH;
        let y = |value: f64| HEIGHT - (value / top).min(1.0) * HEIGHT;
        let rows = (top / step).round() as usize;
        let data = serde_json::to_string(&self.series).unwrap_or_default();
        html! {
            figure.chart data-series=(data) data-end=(end) data-unit=(self.unit) {
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
                div.plot {
                    div.ys aria-hidden="true" {
                        @for row in 0..=rows {
                            span style=(format!("bottom:{:.3}%", row as f64 * 100.0 / rows as f64)) {
                                (short(row as f64 * step))
                            }
                        }
                    }
                    div.area {
                        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none"
                            role="img" aria-label=(self.words()) {
                            @if self.lead > 0.0 {
                                rect.lead x="0" y="0" width=(format!("{:.1}", x(self.lead)))
                                    height=(HEIGHT) {}
                            }
                            @for row in 0..=rows {
                                line.grid x1="0" x2=(WIDTH)
                                    y1=(format!("{:.1}", y(row as f64 * step)))
                                    y2=(format!("{:.1}", y(row as f64 * step))) {}
                            }
                            @for (t, _) in &self.marks {
                                line.mark x1=(format!("{:.1}", x(*t))) x2=(format!("{:.1}", x(*t)))
                                    y1="0" y2=(HEIGHT) {}
                            }
                            @for series in &self.series {
                                path.line.(series.class)
                                    d=(PreEscaped(path(&series.points, x, y))) {}
                            }
                        }
                        @for (t, word) in &self.marks {
                            span.word style=(format!("left:{:.3}%", x(*t) / WIDTH * 100.0)) {
                                (word)
                            }
                        }
                        div.cursor hidden {}
                        div.readout hidden {}
                    }
                    div.xs aria-hidden="true" {
                        @for tick in ticks(end) {
                            span style=(format!("left:{:.3}%", tick / end * 100.0)) {
                                (number(Some(tick), 0)) " s"
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the ends of both axes (seconds and values), and the distance of the horizontal lines.
    pub fn ends(&self) -> (f64, f64, f64) {
        let values = || self.series.iter().flat_map(|series| &series.points);
        let end = values().map(|point| point.0).fold(1.0, f64::max);
        let highest = values().map(|point| point.1).fold(0.0, f64::max);
        let (top, step) = match self.top {
            Some(top) => (top, top / 4.0),
            None => scale(highest),
        };
        (end, top, step)
    }

    /// Text alternative of the chart, for screen readers.
    pub fn words(&self) -> String {
        let mut text = format!("{}, {} over time. ", self.title, self.unit);
        for series in &self.series {
            let counted: Vec<f64> = series
                .points
                .iter()
                .filter(|point| point.0 > self.lead)
                .map(|point| point.1)
                .collect();
            if !counted.is_empty() {
                let mean = counted.iter().sum::<f64>() / counted.len() as f64;
                let _ = write!(text, "{}: mean {}. ", series.name, number(Some(mean), 0));
            }
        }
        text
    }
}

/// A line through these points.
pub fn path(points: &[(f64, f64)], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
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
    fn markup_has_every_line_and_escapes() {
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
            top: None,
        };
        let text = chart.markup().into_string();
        assert!(text.contains("a &lt; b"));
        assert!(text.contains("M500.0 150.0L1000.0 0.0"), "{text}");
        assert!(!text.contains("http"), "nothing may be fetched");
    }
}
