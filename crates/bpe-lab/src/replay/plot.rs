//! Hit ratio by size of the cache, as a picture.

use super::results::{Contender, Results};
use crate::report::{Axis, Chart, Picture, Range, Series, number};

/// The picture of one replay.
pub fn svg(results: &Results, pool_pages: u64) -> String {
    let mut sizes: Vec<_> = results.sizes.iter().collect();
    sizes.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let series = Contender::known().filter_map(|contender| {
        let measurements = sizes.iter();
        let measurements =
            measurements.filter_map(|size| Some((size.ratio, size.measurement(contender)?)));
        let points: Vec<_> = measurements
            .map(|(ratio, measurement)| (ratio, measurement.outcome.read_hit_ratio() * 100.0))
            .collect();
        (!points.is_empty()).then(|| Series {
            name: contender.title().into_owned(),
            class: contender.name(),
            points,
        })
    });
    let chart = Chart {
        title: "reads served by the cache".into(),
        unit: "%",
        series: series.collect(),
        axis: Axis::Ratios,
        range: Range::Percent,
        ..Chart::default()
    };
    Picture {
        title: "Read hit ratio by size of the cache",
        note: note(pool_pages),
        charts: vec![chart],
        columns: 1,
        each: (760.0, 380.0),
    }
    .svg()
}

/// The label of the horizontal axes.
pub fn note(pool_pages: u64) -> String {
    let pages = number(Some(pool_pages as f64), 0);
    format!("cache size / buffer pool ({pages} pages), logarithmic")
}

#[cfg(test)]
mod tests {
    use super::super::results::{Measurement, Size};
    use super::*;
    use replay::Outcome;

    #[test]
    fn picture_has_every_line_and_fetches_nothing() {
        let size = |ratio: f64| Size {
            ratio,
            pages: (ratio * 1000.0) as u64,
            measurements: Contender::all()
                .map(|contender| Measurement {
                    contender,
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
        for contender in Contender::all() {
            assert!(text.contains(&format!("<title>{}</title>", contender.title())));
        }
        // Each has a line and a symbol in the legend.
        assert_eq!(text.matches("<path").count(), 2 * 7);
        assert_eq!(text.matches("<circle").count(), 28);
        assert!(text.contains(">4 x</text>") && !text.contains(">1.01 x</text>"));
        assert_eq!(text.matches("http").count(), 1, "the name space only");
        assert!(
            text.contains("d=\"M60.0 176.0L"),
            "sizes are in order: {text}"
        );
    }
}
