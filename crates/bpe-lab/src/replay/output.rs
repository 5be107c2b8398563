//! The figures as a table and as JSON.

use serde_json::{Map, Value, json};

use super::results::{Contender, Measurement, Results, Size};
use crate::report::{Table, number, percent};

/// The table, with a line about the measurement above it, and the extension's figures below.
pub fn table(results: &Results, shown: &[Contender], pool_pages: u64) -> String {
    let count = |n: u64| number(Some(n as f64), 0);
    let mut out = format!(
        "{} events measured ({} reads), after {} that warmed the cache; {} different pages, buffer pool {} pages\n",
        count(results.events),
        count(results.reads),
        count(results.before as u64),
        count(results.distinct_pages as u64),
        count(pool_pages),
    );
    let mut table = Table::new(&[
        "policy",
        "cache",
        "pages",
        "read hits",
        "OPT",
        "of OPT",
        "page writes per 1,000 events",
    ]);
    for size in &results.sizes {
        for measurement in measurements(size, shown) {
            let hits = measurement.outcome.read_hit_ratio();
            let opt = size.opt();
            table.rows.push(vec![
                measurement.contender.title().into_owned(),
                format!("{} x", size.ratio),
                count(size.pages),
                percent(Some(hits * 100.0), false, 1),
                percent(Some(opt * 100.0), false, 1),
                percent(Some(hits * 100.0 / opt), false, 0),
                number(Some(measurement.outcome.page_writes_per_1000()), 0),
            ]);
        }
    }
    out += &table.to_string();
    for size in &results.sizes {
        let product =
            measurements(size, shown).find_map(|measurement| measurement.product.as_ref());
        if let Some(product) = product {
            let per_1000 = |n: f64| number(Some(n * 1000.0 / results.events as f64), 0);
            out += &format!(
                "\n{} x: {} of the writes per 1,000 were admitted pages, {} pages per 1,000 were moved; {} pages cached at the end; {} offers dropped",
                size.ratio,
                per_1000(product.offered_page_writes),
                per_1000(product.reinserted as f64),
                count(product.pages_cached),
                count(product.dropped_staging_full),
            );
        }
    }
    out
}

/// An object for a single size; for several sizes an object with one entry each in `runs`. Ratios are fractions from 0 to 1.
pub fn json(results: &Results, shown: &[Contender], all: bool, pool_pages: u64) -> Value {
    let mut runs: Vec<Value> = results
        .sizes
        .iter()
        .map(|size| run(results, size, shown, all, pool_pages))
        .collect();
    match (runs.pop(), runs.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            runs.extend(last);
            json!({ "runs": runs })
        }
    }
}

fn run(results: &Results, size: &Size, shown: &[Contender], all: bool, pool_pages: u64) -> Value {
    let mut object = measurements(size, shown)
        .next()
        .map(figures)
        .unwrap_or_default();
    let more = json!({
        "pool_pages": pool_pages,
        "cache_ratio": size.ratio,
        "cache_pages": size.pages,
        "events": results.events,
        "reads": results.reads,
        "distinct_pages": results.distinct_pages,
        "opt_read_hit_ratio": size.opt(),
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    if measurements(size, shown).any(|measurement| measurement.product.is_some()) {
        object.insert("instances".into(), results.instances.into());
    }
    if all {
        let policies =
            measurements(size, shown).map(|measurement| Value::Object(figures(measurement)));
        object.insert("policies".into(), policies.collect());
    }
    object.into()
}

fn figures(measurement: &Measurement) -> Map<String, Value> {
    let mut object = Map::new();
    let outcome = &measurement.outcome;
    object.insert("policy".into(), measurement.contender.name().into());
    object.insert("read_hit_ratio".into(), outcome.read_hit_ratio().into());
    object.insert(
        "device_page_writes_per_1000".into(),
        outcome.page_writes_per_1000().into(),
    );
    if let Some(product) = &measurement.product {
        let per_1000 = |n: f64| Value::from(n * 1000.0 / outcome.events as f64);
        let engine = json!({
            "offered_page_writes_per_1000": per_1000(product.offered_page_writes),
            "reinserted_pages_per_1000": per_1000(product.reinserted as f64),
            "dropped_staging_full": product.dropped_staging_full,
            "pages_cached": product.pages_cached,
        });
        object.insert("engine".into(), engine);
    }
    object
}

/// The shown results of a size, in output order.
fn measurements<'a>(
    size: &'a Size,
    shown: &'a [Contender],
) -> impl Iterator<Item = &'a Measurement> {
    shown
        .iter()
        .filter_map(|&contender| size.measurement(contender))
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::Outcome;
    use replay::policies::PolicyName;

    fn measurement(contender: Contender, hits: u64) -> Measurement {
        let outcome = Outcome {
            events: 2000,
            reads: 1000,
            hits,
            page_writes: 300.0,
        };
        Measurement {
            contender,
            outcome,
            product: None,
        }
    }

    fn results(sizes: usize) -> Results {
        let size = |n: usize| Size {
            ratio: n as f64,
            pages: n as u64 * 1000,
            measurements: vec![
                measurement(Contender::Policy(PolicyName::Lru), 200),
                measurement(Contender::Policy(PolicyName::Opt), 800),
            ],
        };
        Results {
            events: 2000,
            reads: 1000,
            before: 500,
            distinct_pages: 1234,
            instances: 1,
            sizes: (1..=sizes).map(size).collect(),
        }
    }

    const LRU: &[Contender] = &[Contender::Policy(PolicyName::Lru)];

    #[test]
    fn one_size_is_a_plain_object() {
        let value = json(&results(1), LRU, false, 1000);
        for (key, expected) in [
            ("policy", json!("lru")),
            ("pool_pages", json!(1000)),
            ("cache_ratio", json!(1.0)),
            ("cache_pages", json!(1000)),
            ("events", json!(2000)),
            ("reads", json!(1000)),
            ("read_hit_ratio", json!(0.2)),
            ("device_page_writes_per_1000", json!(150.0)),
            ("opt_read_hit_ratio", json!(0.8)),
        ] {
            assert_eq!(value[key], expected, "{key}");
        }
        assert!(value.get("policies").is_none());
    }

    #[test]
    fn several_sizes_are_runs_in_order() {
        let value = json(&results(3), LRU, true, 1000);
        let ratios: Vec<_> = (0..3).map(|n| &value["runs"][n]["cache_ratio"]).collect();
        assert_eq!(ratios, [&json!(1.0), &json!(2.0), &json!(3.0)]);
        assert_eq!(value["runs"][2]["policies"][0]["policy"], "lru");
    }

    #[test]
    fn the_table_has_a_row_for_each_size() {
        let text = table(&results(2), LRU, 1000);
        assert_eq!(text.matches("LRU").count(), 2, "{text}");
        assert_eq!(text.matches("20.0 %").count(), 2, "{text}");
        assert!(
            text.contains("25 %") && text.contains("2,000 events"),
            "{text}"
        );
    }
}
