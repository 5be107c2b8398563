//! The comparison as Markdown.

use std::fmt::Write;

use replay::policies::PolicyName;
use replay::{EnginePolicy, Outcome};

use super::compared::{Compared, RATIOS, contenders};
use crate::replay::results::Contender;

/// A row for each stream and size, a column for each policy. Below: the servers' policy compared with MQ.
pub fn markdown(compared: &[Compared]) -> String {
    let contenders = contenders();
    let titles: Vec<String> = contenders
        .iter()
        .map(|&contender| title(contender))
        .collect();
    let mut text = header(&titles);
    for stream in compared {
        for (n, ratio) in RATIOS.iter().enumerate() {
            let cells = contenders
                .iter()
                .map(|&contender| stream.of(contender).map(|outcomes| cell(&outcomes[n])));
            row(&mut text, stream, *ratio, cells);
        }
    }
    text.push('\n');
    let ours = Contender::Engine(EnginePolicy::default());
    text += &header(&[title(ours)]);
    for stream in compared {
        for (n, ratio) in RATIOS.iter().enumerate() {
            let mq = stream.of(Contender::Policy(PolicyName::Mq));
            let own = stream.of(ours).zip(mq);
            let cells = own.map(|(own, mq)| beside(&own[n], &mq[n]));
            row(&mut text, stream, *ratio, std::iter::once(cells));
        }
    }
    text
}

/// Title for table and plot.
pub fn title(contender: Contender) -> String {
    match contender {
        Contender::Engine(policy) => policy.to_string(),
        Contender::Product | Contender::Policy(_) => contender.title().into_owned(),
    }
}

fn header(titles: &[String]) -> String {
    format!(
        "| stream | cache | {} |\n|---|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    )
}

fn row(
    text: &mut String,
    stream: &Compared,
    ratio: u32,
    cells: impl Iterator<Item = Option<String>>,
) {
    let cells: Vec<String> = cells.map(|cell| cell.unwrap_or("-".into())).collect();
    let name = stream.name.text();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {name} | {ratio}x | {} |", cells.join(" | "));
}

/// Hits in %, and page writes per 1,000 events.
fn cell(outcome: &Outcome) -> String {
    format!(
        "{:.1} ({:.0})",
        outcome.read_hit_ratio() * 100.0,
        outcome.page_writes_per_1000()
    )
}

/// Difference of the hit ratios in points, and writes as a share of the other policy's writes.
fn beside(outcome: &Outcome, other: &Outcome) -> String {
    let points = (outcome.read_hit_ratio() - other.read_hit_ratio()) * 100.0;
    let writes = outcome.page_writes / other.page_writes * 100.0;
    if writes.is_finite() {
        format!("{points:+.1}, {writes:.0} %")
    } else {
        format!("{points:+.1}, -")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Name;

    #[test]
    fn each_policy_has_a_column_and_each_size_a_row() {
        let outcome = |hits| Outcome {
            events: 2000,
            reads: 1000,
            hits,
            page_writes: hits as f64,
        };
        let of = |contender| match contender {
            Contender::Engine(_) => 300,
            Contender::Product | Contender::Policy(_) => 400,
        };
        let rows = contenders()
            .into_iter()
            .map(|contender| (contender, [outcome(of(contender)); RATIOS.len()]));
        let compared = [Compared {
            name: Name::Drift,
            rows: rows.collect(),
        }];
        let text = markdown(&compared);
        assert_eq!(text.matches("| drift | ").count(), 6, "{text}");
        assert_eq!(text.matches("30.0 (150)").count(), 6, "{text}");
        assert_eq!(text.matches("40.0 (200)").count(), 18, "{text}");
        assert_eq!(text.matches("-10.0, 75 %").count(), 3, "{text}");
        assert!(text.contains("| MQ | "), "{text}");
    }
}
