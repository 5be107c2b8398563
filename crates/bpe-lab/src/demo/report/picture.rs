//! Charts as one self-contained picture for documents: no external fonts, scripts or styles.

use maud::{Markup, PreEscaped, html};

use super::chart::{Chart, path, short, ticks};
use crate::demo::numbers::number;

const WIDTH: f64 = 760.0;
/// Height of each chart, and its margins.
const EACH: f64 = 270.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 34.0;
/// Width of a letter in the legend, and of the symbol before a name.
const LETTER: f64 = 7.5;
const KEY: f64 = 44.0;

const STYLE: &str = "
svg{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
.paper{fill:#fff}.title{fill:#1f2328;font-weight:600;font-size:15px}.text{fill:#48515b}
.grid{stroke:#d8dee4}.mark{stroke:#6e7781;stroke-dasharray:4 3}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.off{stroke:#b45309}.on{stroke:#1d5fd1}.ceiling{stroke:#15803d;stroke-dasharray:6 3}.hit{stroke:#7c3aed}
@media(prefers-color-scheme:dark){
.paper{fill:#0d1117}.title{fill:#e6edf3}.text{fill:#adb7c2}.grid{stroke:#2b323b}.mark{stroke:#8b949e}
.off{stroke:#f59e42}.on{stroke:#6ea8fe}.ceiling{stroke:#4ade80}.hit{stroke:#b79cfb}}
";

/// The charts, one below the other.
pub fn svg(charts: &[Chart]) -> String {
    let height = EACH * charts.len() as f64;
    let words: String = charts.iter().map(Chart::words).collect();
    let places = (0..charts.len()).map(|index| EACH * index as f64);
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
            aria-label=(words.trim()) {
            style { (PreEscaped(STYLE)) }
            rect.paper width=(WIDTH) height=(height) {}
            @for (chart, y) in charts.iter().zip(places) {
                g transform=(format!("translate(0 {y})")) { (drawing(chart)) }
            }
        }
    };
    picture.into_string()
}

fn drawing(chart: &Chart) -> Markup {
    let (end, top, step) = chart.ends();
    let bottom = EACH - BOTTOM;
    let x = |t: f64| LEFT + t / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| bottom - (value / top).min(1.0) * (bottom - TOP);
    let at = |place: f64| format!("{place:.1}");
    let rows = (top / step).round() as usize;
    let names = chart.series.iter().scan(LEFT, |next, series| {
        let here = *next;
        *next += KEY + LETTER * series.name.chars().count() as f64;
        Some((here, series))
    });
    html! {
        text.title x=(LEFT) y="24" { (chart.title) ", " (chart.unit) }
        @for (here, series) in names {
            path.line.(series.class) d=(format!("M{here} 44h22")) {}
            text.text x=(at(here + 28.0)) y="48" { (series.name) }
        }
        @for row in (0..=rows).map(|row| row as f64 * step) {
            line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(at(y(row))) y2=(at(y(row))) {}
            text.text x=(LEFT - 8.0) y=(at(y(row) + 4.0)) text-anchor="end" { (short(row)) }
        }
        @for tick in ticks(end) {
            text.text x=(at(x(tick))) y=(at(bottom + 20.0)) text-anchor="middle" {
                (number(Some(tick), 0)) " s"
            }
        }
        @for (t, word) in &chart.marks {
            line.mark x1=(at(x(*t))) x2=(at(x(*t))) y1=(TOP - 16.0) y2=(bottom) {}
            text.text x=(at(x(*t) + 5.0)) y=(TOP - 6.0) { (word) }
        }
        @for series in &chart.series {
            path.line.(series.class) d=(path(&series.points, x, y)) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::chart::Series;

    #[test]
    fn every_chart_has_its_place_and_all_of_its_lines() {
        let chart = |title: &str| Chart {
            title: title.into(),
            unit: "QPS",
            series: ["on", "off"].map(line).into(),
            marks: vec![(1.0, "accepts".into())],
            lead: 0.0,
            top: None,
        };
        let text = svg(&[chart("a < b"), chart("second")]);
        assert!(text.contains(r#"viewBox="0 0 760 540""#), "{text}");
        assert!(text.contains("translate(0 270)"), "{text}");
        for (part, count) in [
            (">a &lt; b, QPS<", 1),
            // Half of the time and of the height, then the upper right corner.
            ("M398.0 154.0L740.0 72.0", 4),
            (">accepts<", 2),
            // No external resource: the only URL is the namespace.
            ("http", 1),
        ] {
            assert_eq!(text.matches(part).count(), count, "{part}: {text}");
        }
    }

    fn line(class: &'static str) -> Series {
        Series {
            name: class.into(),
            class,
            points: vec![(1.0, 5.0), (2.0, 10.0)],
        }
    }
}
