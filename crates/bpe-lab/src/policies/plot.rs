//! One panel per stream: hit ratio by cache size, with a line per policy. In the style of a replay's plot.

use maud::{Markup, PreEscaped, html};

use super::compared::{Compared, RATIOS, everyone};
use super::table::title;
use crate::demo::numbers::number;
use crate::replay::plot::{STYLE, coordinate, key, line};

const COLUMNS: usize = 4;
const PANEL: (f64, f64) = (230.0, 210.0);
const LEFT: f64 = 52.0;
const TOP: f64 = 106.0;
const BOTTOM: f64 = 24.0;
/// Space of a panel for its title, for its axis labels, and beside it.
const HEAD: f64 = 26.0;
const FOOT: f64 = 26.0;
const APART: f64 = 34.0;
/// Width of a name in the legend, and names per row.
const KEY: f64 = 186.0;
const KEYS: usize = 5;

/// The picture.
pub fn svg(compared: &[Compared], pool_pages: u32) -> String {
    let columns = compared.len().clamp(1, COLUMNS);
    let rows = compared.len().div_ceil(COLUMNS).max(1);
    let width = LEFT + COLUMNS as f64 * PANEL.0;
    let height = TOP + rows as f64 * PANEL.1 + BOTTOM;
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
            width=(width) height=(height) role="img" aria-label=(words(compared)) {
            style { (PreEscaped(STYLE)) }
            rect.paper width=(width) height=(height) rx="8" {}
            text.title x=(LEFT) y="28" { "Reads served by the cache, by stream, policy and size of the cache" }
            (legend())
            @for (n, stream) in compared.iter().enumerate() {
                (panel(stream, LEFT + (n % columns) as f64 * PANEL.0, TOP + (n / columns) as f64 * PANEL.1))
            }
            text.text x=(coordinate(width / 2.0)) y=(height - 8.0) text-anchor="middle" {
                "cache size / buffer pool (" (number(Some(pool_pages.into()), 0)) " pages), logarithmic"
            }
        }
    };
    format!("{}\n", picture.into_string())
}

fn legend() -> Markup {
    html! {
        @for (n, who) in everyone().into_iter().enumerate() {
            @let left = LEFT + (n % KEYS) as f64 * KEY;
            @let at = 50.0 + (n / KEYS) as f64 * 20.0;
            (key(who, &title(who), left, at))
        }
    }
}

/// The axis spans only the range of the figures, since the lines are close together.
fn panel(stream: &Compared, left: f64, top: f64) -> Markup {
    let hits = |outcomes: &[replay::Outcome; RATIOS.len()]| {
        std::array::from_fn::<f64, { RATIOS.len() }, _>(|n| outcomes[n].read_hit_ratio() * 100.0)
    };
    let all = || stream.rows.iter().flat_map(|(_, outcomes)| hits(outcomes));
    let low = (all().fold(100.0, f64::min) / 10.0).floor() * 10.0;
    let high = ((all().fold(0.0, f64::max) / 10.0).ceil() * 10.0).max(low + 10.0);
    let (width, height) = (PANEL.0 - APART, PANEL.1 - HEAD - FOOT);
    let inset = 12.0;
    let x = |n: usize| {
        let last = (RATIOS.len() - 1) as f64;
        left + inset + n as f64 / last * (width - 2.0 * inset)
    };
    let y = |percent: f64| top + HEAD + (high - percent) / (high - low) * height;
    let step = if high - low > 60.0 { 20.0 } else { 10.0 };
    let steps = ((high - low) / step) as u32;
    html! {
        text.title x=(coordinate(left)) y=(coordinate(top + 14.0)) { (stream.name.text()) }
        @for percent in (0..=steps).map(|n| low + f64::from(n) * step) {
            line.(if percent == low { "axis" } else { "grid" }) x1=(coordinate(left)) x2=(coordinate(left + width))
                y1=(coordinate(y(percent))) y2=(coordinate(y(percent))) {}
            text.text x=(coordinate(left - 5.0)) y=(coordinate(y(percent) + 4.5)) text-anchor="end" {
                (percent)
            }
        }
        @for (n, ratio) in RATIOS.iter().enumerate() {
            text.text x=(coordinate(x(n))) y=(coordinate(y(low) + 17.0)) text-anchor="middle" { (ratio) " x" }
        }
        // The extension last, so that it is on top.
        @for (who, outcomes) in stream.rows.iter().rev() {
            @let points: Vec<(f64, f64)> = hits(outcomes).iter().enumerate()
                .map(|(n, &percent)| (x(n), y(percent))).collect();
            (line(*who, &points))
        }
    }
}

/// Text alternative of the picture, for screen readers.
fn words(compared: &[Compared]) -> String {
    let names: Vec<&str> = compared.iter().map(|stream| stream.name.text()).collect();
    format!(
        "Read hit ratio of each policy by size of the cache, for the streams {}. The table has the figures.",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Name;
    use replay::Outcome;

    #[test]
    fn each_stream_has_a_panel_with_every_line() {
        let outcome = |hits| Outcome {
            events: 100,
            reads: 100,
            hits,
            page_writes: 1.0,
        };
        let stream = |name| Compared {
            name,
            rows: everyone()
                .into_iter()
                .map(|who| (who, [20, 40, 60].map(outcome)))
                .collect(),
        };
        let text = svg(&[Name::Tpcc, Name::Report].map(stream), 4096);
        let lines = 2 * everyone().len();
        assert_eq!(text.matches("<polyline").count(), lines);
        assert_eq!(text.matches("<circle").count(), 3 * lines);
        assert!(text.contains(">report</text>") && text.contains(">density</text>"));
        assert_eq!(text.matches("http").count(), 1, "the name space only");
    }
}
