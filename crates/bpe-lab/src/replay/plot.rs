//! Hit ratio by cache size, as a self-contained picture: no external fonts, scripts or styles.
//!
//! The picture has a background, dark where the reader prefers that, so that it is legible on any page. Lines differ in
//! dashes as well as in colour.

use maud::{Markup, PreEscaped, html};

use super::results::{Results, Who};
use crate::demo::numbers::number;
use replay::policies::PolicyName;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 62.0;
/// Minimum distance of axis labels.
const APART: f64 = 44.0;
/// Width of a name in the legend.
const KEY: f64 = 102.0;

pub const STYLE: &str = "
svg{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
.paper{fill:#fff}.title{fill:#1f2328;font-weight:600;font-size:15px}.text{fill:#48515b}
.grid{stroke:#d8dee4}.axis{stroke:#6e7781}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.product{stroke:#d1440c;stroke-width:3.2}.opt{stroke:#57606a}.lru{stroke:#0969da}.clock{stroke:#8250df}
.s3-fifo{stroke:#1a7f37}.w-tinylfu{stroke:#bf3989}.mq{stroke:#9a6700}
.density{stroke:#d1440c;stroke-width:3.2}.second-chance{stroke:#4d2d00}
@media(prefers-color-scheme:dark){
.paper{fill:#0d1117}.title{fill:#e6edf3}.text{fill:#adb7c2}.grid{stroke:#2b323b}.axis{stroke:#8b949e}
.product{stroke:#ff8a4c}.opt{stroke:#b1bac4}.lru{stroke:#58a6ff}.clock{stroke:#bc8cff}
.s3-fifo{stroke:#56d364}.w-tinylfu{stroke:#ff80bf}.mq{stroke:#e3b341}
.density{stroke:#ff8a4c}.second-chance{stroke:#d4a27f}}
";

/// Dash pattern of a line: lengths of dashes and gaps.
fn dashes(who: Who) -> &'static str {
    match who {
        Who::Product | Who::Engine(_) => "none",
        Who::Policy(PolicyName::Opt) => "8 4",
        Who::Policy(PolicyName::Lru) => "3 3",
        Who::Policy(PolicyName::Clock) => "10 3 2 3",
        Who::Policy(PolicyName::S3Fifo) => "5 3",
        Who::Policy(PolicyName::WTinyLfu) => "12 4",
        Who::Policy(PolicyName::Mq) => "6 3 2 3 2 3",
    }
}

/// Draws the picture, with a logarithmic axis of sizes.
pub fn svg(results: &Results, pool_pages: u64) -> String {
    let mut sizes: Vec<_> = results.sizes.iter().collect();
    sizes.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let logs = || sizes.iter().map(|size| size.ratio.log2());
    let (low, high) = (
        logs().fold(f64::INFINITY, f64::min),
        logs().fold(f64::NEG_INFINITY, f64::max),
    );
    let span = if high > low { high - low } else { 1.0 };
    // Points keep a distance from the axis.
    let inset = 18.0;
    let room = WIDTH - LEFT - RIGHT - 2.0 * inset;
    let x = |ratio: f64| LEFT + inset + (ratio.log2() - low) / span * room;
    let y = |percent: f64| HEIGHT - BOTTOM - percent / 100.0 * (HEIGHT - TOP - BOTTOM);
    let lines: Vec<(Who, Vec<(f64, f64)>)> = Who::known()
        .filter(|&who| sizes.iter().any(|size| size.answer(who).is_some()))
        .map(|who| {
            let point = |size: &&&super::results::Size| {
                let hits = size.answer(who)?.outcome.read_hit_ratio();
                Some((x(size.ratio), y(hits * 100.0)))
            };
            (who, sizes.iter().filter_map(|size| point(&size)).collect())
        })
        .collect();
    let mut labelled = f64::NEG_INFINITY;
    let mut labels = Vec::new();
    for size in &sizes {
        if x(size.ratio) - labelled >= APART {
            labelled = x(size.ratio);
            labels.push((labelled, format!("{} x", size.ratio)));
        }
    }
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {HEIGHT}"))
            width=(WIDTH) height=(HEIGHT) role="img" aria-label=(words(results)) {
            style { (PreEscaped(STYLE)) }
            rect.paper width=(WIDTH) height=(HEIGHT) rx="8" {}
            text.title x=(LEFT) y="28" { "Read hit ratio by size of the cache" }
            (legend(&lines))
            @for percent in [0, 20, 40, 60, 80, 100] {
                @let at = y(f64::from(percent));
                line.(if percent == 0 { "axis" } else { "grid" }) x1=(LEFT) x2=(WIDTH - RIGHT)
                    y1=(coordinate(at)) y2=(coordinate(at)) {}
                text.text x=(LEFT - 8.0) y=(coordinate(at + 4.5)) text-anchor="end" {
                    (percent) " %"
                }
            }
            @for (at, label) in &labels {
                line.axis x1=(coordinate(*at)) x2=(coordinate(*at))
                    y1=(coordinate(y(0.0))) y2=(coordinate(y(0.0) + 5.0)) {}
                text.text x=(coordinate(*at)) y=(coordinate(y(0.0) + 21.0)) text-anchor="middle" {
                    (label)
                }
            }
            text.text x=(coordinate((LEFT + WIDTH - RIGHT) / 2.0)) y=(HEIGHT - 14.0)
                text-anchor="middle" {
                "cache size / buffer pool (" (number(Some(pool_pages as f64), 0))
                " pages), logarithmic"
            }
            text.text transform=(format!("translate(16 {}) rotate(-90)", coordinate((TOP + HEIGHT - BOTTOM) / 2.0)))
                text-anchor="middle" { "reads served by the cache" }
            // The extension last, so that it is on top.
            @for (who, points) in lines.iter().rev() {
                (line(*who, points))
            }
        }
    };
    format!("{}\n", picture.into_string())
}

pub fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

pub fn line(who: Who, points: &[(f64, f64)]) -> Markup {
    let joined: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    html! {
        polyline.line.(who.name()) points=(joined.join(" ")) stroke-dasharray=(dashes(who)) {
            title { (who.title()) }
        }
        @for (x, y) in points {
            circle.paper.(who.name()) cx=(coordinate(*x)) cy=(coordinate(*y)) r="3"
                stroke-width="2" {}
        }
    }
}

/// An entry of the legend.
pub fn key(who: Who, title: &str, left: f64, at: f64) -> Markup {
    html! {
        line.line.(who.name()) x1=(left) x2=(left + 28.0) y1=(at) y2=(at)
            stroke-dasharray=(dashes(who)) {}
        text.text x=(left + 34.0) y=(at + 4.5) { (title) }
    }
}

fn legend(lines: &[(Who, Vec<(f64, f64)>)]) -> Markup {
    html! {
        @for (n, (who, _)) in lines.iter().enumerate() {
            @let left = LEFT + (n % 5) as f64 * (KEY + 36.0);
            @let at = 48.0 + (n / 5) as f64 * 18.0;
            (key(*who, &who.title(), left, at))
        }
    }
}

/// Text alternative of the picture, for screen readers.
fn words(results: &Results) -> String {
    let mut text = String::from("Read hit ratio by size of the cache.");
    for size in &results.sizes {
        let answers = size.answers.iter().map(|answer| {
            let hits = answer.outcome.read_hit_ratio() * 100.0;
            format!("{} {hits:.1} %", answer.who.title())
        });
        let answers: Vec<String> = answers.collect();
        text += &format!(" {} x: {}.", size.ratio, answers.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::{Answer, Size};
    use super::*;
    use replay::Outcome;

    #[test]
    fn the_picture_has_every_line_and_fetches_nothing() {
        let size = |ratio: f64| Size {
            ratio,
            pages: (ratio * 1000.0) as u64,
            answers: Who::all()
                .map(|who| Answer {
                    who,
                    outcome: Outcome {
                        events: 100,
                        reads: 100,
                        hits: 50,
                        page_writes: 1.0,
                    },
                    product: None,
                })
                .collect(),
        };
        let results = Results {
            events: 100,
            reads: 100,
            before: 0,
            distinct_pages: 10,
            instances: 1,
            sizes: [4.0, 0.5, 1.0, 1.01].map(size).into(),
        };
        let text = svg(&results, 1000);
        for who in Who::all() {
            assert!(text.contains(&format!("<title>{}</title>", who.title())));
        }
        assert_eq!(text.matches("<polyline").count(), 7);
        assert_eq!(text.matches("<circle").count(), 28);
        assert!(text.contains(">4 x</text>") && !text.contains(">1.01 x</text>"));
        assert_eq!(text.matches("http").count(), 1, "the name space only");
        assert!(
            text.contains("points=\"82.0,241.0"),
            "sizes are in order: {text}"
        );
    }
}
