//! Charts in one self-contained SVG file, without external fonts, scripts or styles. It has a background, so that it is
//! legible on any page.

use maud::{Markup, PreEscaped, html};

use super::chart::{Chart, STYLE};

/// Margins of the picture: for its title and legend, below the charts, and above each chart for its title.
const HEAD: f64 = 38.0;
const FOOT: f64 = 28.0;
const TITLE: f64 = 24.0;
/// Distance from the left edge.
const LEFT: f64 = 16.0;
/// Height of a row of the legend, widths of a symbol and of a letter.
const ROW: f64 = 20.0;
const KEY: f64 = 52.0;
const LETTER: f64 = 7.2;

/// The contents of a file.
pub struct Picture {
    pub title: &'static str,
    /// Line below the charts.
    pub note: String,
    pub charts: Vec<Chart>,
    pub columns: usize,
    /// Size of a chart with its title.
    pub each: (f64, f64),
}

impl Picture {
    /// The file, with one legend for all charts.
    pub fn svg(&self) -> String {
        let (each_width, each_height) = self.each;
        let width = each_width * self.columns as f64;
        let (legend, rows) = self.legend(width);
        let top = HEAD + rows as f64 * ROW;
        let lines = self.charts.len().div_ceil(self.columns).max(1);
        let height = top + lines as f64 * each_height + FOOT;
        let words: String = self.charts.iter().map(Chart::words).collect();
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) role="img" aria-label=(words.trim()) {
                style { (PreEscaped(STYLE)) }
                rect.paper width=(width) height=(height) rx="8" {}
                text.title x=(LEFT) y="26" { (self.title) }
                (legend)
                @for (n, chart) in self.charts.iter().enumerate() {
                    @let left = (n % self.columns) as f64 * each_width;
                    @let top = top + (n / self.columns) as f64 * each_height;
                    g transform=(format!("translate({left} {top})")) {
                        text.title x=(LEFT) y="16" {
                            (chart.title) @if !chart.unit.is_empty() { ", " (chart.unit) }
                        }
                        g transform=(format!("translate(0 {TITLE})")) {
                            (chart.drawing(each_width, each_height - TITLE))
                        }
                    }
                }
                text x=(width / 2.0) y=(height - 9.0) text-anchor="middle" { (self.note) }
            }
        };
        format!("{}\n", picture.into_string())
    }

    /// Each name once, in rows of this width. Returns also the number of rows.
    fn legend(&self, width: f64) -> (Markup, usize) {
        let mut names: Vec<(&str, &str, f64, usize)> = Vec::new();
        let (mut left, mut row) = (LEFT, 0);
        for series in self.charts.iter().flat_map(|chart| &chart.series) {
            if names.iter().any(|(name, ..)| *name == series.name) {
                continue;
            }
            let length = KEY + LETTER * series.name.chars().count() as f64;
            if left > LEFT && left + length > width {
                (left, row) = (LEFT, row + 1);
            }
            names.push((&series.name, series.class, left, row));
            left += length;
        }
        let markup = html! {
            @for (name, class, left, row) in names {
                @let y = HEAD + 8.0 + row as f64 * ROW;
                path.line.(class) d=(format!("M{left:.1} {y}h26")) {}
                text x=(format!("{:.1}", left + 32.0)) y=(y + 4.0) { (name) }
            }
        };
        (markup, row + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart::Series;
    use super::*;

    #[test]
    fn every_chart_has_its_place_and_lines() {
        let line = |class: &'static str| Series {
            name: class.into(),
            class,
            points: vec![(1.0, 5.0), (2.0, 10.0)],
        };
        let chart = |title: &str| Chart {
            title: title.into(),
            unit: "QPS",
            series: ["on", "off"].map(line).into(),
            marks: vec![(1.0, "accepts".into())],
            ..Chart::default()
        };
        let picture = Picture {
            title: "both",
            note: "below".into(),
            charts: vec![chart("a < b"), chart("second")],
            columns: 1,
            each: (760.0, 270.0),
        };
        let text = picture.svg();
        assert!(text.contains(r#"viewBox="0 0 760 626""#), "{text}");
        for (part, count) in [
            ("translate(0 58)", 1),
            ("translate(0 328)", 1),
            (">a &lt; b, QPS<", 1),
            ("M396.0 121.0L746.0 22.0", 4),
            (">accepts<", 2),
            // In the legend, and as tooltips of both charts.
            (">on</", 3),
            // No external resource: the only URL is the namespace.
            ("http", 1),
        ] {
            assert_eq!(text.matches(part).count(), count, "{part}: {text}");
        }
    }
}
