//! Sentences about figures: a key for translations, the values, and the English text.
//!
//! A text refers to its values as `{name}`. The suffix of a name is its unit and determines the format, so that every
//! language formats the same figure in its usual way.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::support::size::human;
use crate::support::terminal::{grouped, microseconds};
use crate::support::text::cut;

/// Bytes kept of a text among the values, such as a reason or path.
const MAX_VALUE: usize = 4096;

/// How welcome it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    Note,
    Bad,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sentence {
    pub text_key: &'static str,
    pub level: Level,
    pub values: BTreeMap<&'static str, Value>,
    pub text: String,
}

impl Sentence {
    /// `text` with its `{names}` filled in. Braces within a value stay as they are. Texts among the values are cut.
    pub fn new(
        text_key: &'static str,
        level: Level,
        text: &str,
        values: &[(&'static str, Value)],
    ) -> Self {
        let mut values: BTreeMap<_, _> = values.iter().cloned().collect();
        for value in values.values_mut() {
            if let Value::String(text) = value {
                cut(text, MAX_VALUE);
            }
        }
        Self {
            text_key,
            level,
            text: filled(text, &values),
            values,
        }
    }

    /// The figures of the sentence, as `name value, ...`, without texts, which the sentence quotes in full; `None` if there
    /// are none.
    pub fn origin(&self) -> Option<String> {
        let pair = |(name, value): (&&str, &Value)| {
            let number = value.as_f64()?;
            Some(format!("{name} {}", trimmed(number)))
        };
        let pairs: Vec<_> = self.values.iter().filter_map(pair).collect();
        (!pairs.is_empty()).then(|| pairs.join(", "))
    }
}

/// Fills in the values in one pass.
fn filled(mut text: &str, values: &BTreeMap<&'static str, Value>) -> String {
    let mut filled = String::new();
    while let Some((before, rest)) = text.split_once('{') {
        filled.push_str(before);
        let named = rest.split_once('}');
        text = match named.and_then(|(name, rest)| Some((name, values.get(name)?, rest))) {
            Some((name, value, rest)) => {
                filled.push_str(&written(name, value));
                rest
            }
            None => {
                filled.push('{');
                rest
            }
        };
    }
    filled + text
}

/// A value with its unit.
fn written(name: &str, value: &Value) -> String {
    let Some(number) = value.as_f64() else {
        return value.as_str().unwrap_or_default().to_owned();
    };
    if name.ends_with("_percent") {
        let digits = usize::from(number.abs() < 99.95 && number != 0.0);
        format!("{number:.digits$} %")
    } else if name.ends_with("_us") {
        microseconds(number)
    } else if name.ends_with("_ms_per_s") {
        microseconds(number * 1000.0)
    } else if name.ends_with("_bytes") {
        human(number as u64)
    } else if name.ends_with("_minutes") {
        format!("{} min", grouped(number.ceil()))
    } else if number.abs() < 10.0 && number.fract() != 0.0 {
        format!("{number:.1}")
    } else {
        grouped(number)
    }
}

/// Three significant digits are enough to recognize a figure.
fn trimmed(number: f64) -> String {
    if number.fract() == 0.0 || number.abs() >= 1000.0 {
        format!("{number:.0}")
    } else if number.abs() >= 10.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_tell_the_unit() {
        for (name, value, text) in [
            ("hit_ratio_percent", json!(87.46), "87.5 %"),
            ("hit_ratio_percent", json!(100), "100 %"),
            ("hit_ratio_percent", json!(0), "0 %"),
            ("gain_us", json!(1250.0), "1.25 ms"),
            ("saved_ms_per_s", json!(2500.0), "2.50 s"),
            ("saved_ms_per_s", json!(0.25), "250 us"),
            ("pool_bytes", json!(1 << 27), "128 MiB"),
            ("cache_reads_per_s", json!(12345.6), "12,346"),
            ("cache_reads_per_s", json!(0.25), "0.2"),
            ("full_in_minutes", json!(0.2), "1 min"),
            ("path", json!("/mnt"), "/mnt"),
        ] {
            assert_eq!(written(name, &value), text, "{name} {value}");
        }
    }

    #[test]
    fn braces_of_a_value_are_no_template() {
        let bomb = "{b}".repeat(1000);
        let values = [
            ("a", json!(bomb)),
            ("b", json!("{c}".repeat(1000))),
            ("c", json!("x".repeat(10_000))),
        ];
        let text = Sentence::new("k", Level::Note, "{a}, {other} and {", &values).text;
        assert_eq!(text, format!("{bomb}, {{other}} and {{"));
        let text = Sentence::new("k", Level::Note, "{c}{c}", &values).text;
        assert_eq!(text.len(), 2 * MAX_VALUE);
    }

    #[test]
    fn a_sentence_says_where_it_comes_from() {
        let sentence = Sentence::new(
            "k",
            Level::Note,
            "{path}: {errors} errors",
            &[("errors", json!(1200)), ("path", json!("/mnt"))],
        );
        assert_eq!(sentence.text, "/mnt: 1,200 errors");
        assert_eq!(sentence.origin().as_deref(), Some("errors 1200"));
        let named = Sentence::new("k", Level::Note, "{path}", &[("path", json!("/mnt"))]);
        assert_eq!(named.origin(), None);
    }
}
