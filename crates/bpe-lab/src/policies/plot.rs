//! A chart per stream: hit ratio by cache size, with a line per policy.

use super::compared::{Compared, RATIOS};
use super::table::title;
use crate::replay::plot::note;
use crate::report::{Axis, Chart, Picture, Range, Series};

/// The picture. The extension's line is on top.
pub fn svg(compared: &[Compared], pool_pages: u32) -> String {
    Picture {
        title: "Reads served by the cache in %, by stream, policy and size of the cache",
        note: note(pool_pages.into()),
        charts: compared.iter().map(chart).collect(),
        columns: 4,
        each: (240.0, 224.0),
    }
    .svg()
}

fn chart(stream: &Compared) -> Chart {
    let series = stream.rows.iter().map(|(contender, outcomes)| Series {
        name: title(*contender),
        class: contender.name(),
        points: RATIOS
            .iter()
            .zip(outcomes)
            .map(|(ratio, outcome)| (f64::from(*ratio), outcome.read_hit_ratio() * 100.0))
            .collect(),
    });
    Chart {
        title: stream.name.text().into(),
        series: series.collect(),
        axis: Axis::Ratios,
        range: Range::Close,
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::compared::contenders;
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
            rows: contenders()
                .into_iter()
                .map(|contender| (contender, [20, 40, 60].map(outcome)))
                .collect(),
        };
        let text = svg(&[Name::Tpcc, Name::Report].map(stream), 4096);
        let lines = 2 * contenders().len();
        // With the symbols of the legend.
        assert_eq!(text.matches("<path").count(), lines + contenders().len());
        assert_eq!(text.matches("<circle").count(), 3 * lines);
        assert!(text.contains(">report</text>") && text.contains(">density</text>"));
        assert_eq!(text.matches("http").count(), 1, "the name space only");
    }
}
