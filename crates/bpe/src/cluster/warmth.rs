//! Warmth of a server relative to the hot page list that it fetched last (`bpe warm`).

use std::collections::BTreeMap;

use serde::Serialize;

/// As reported by the plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Warmth {
    /// Percentage of the list that the extension has or the server has read; `None` without a list.
    pub percent: Option<f64>,
    /// Age of the list in seconds.
    pub age_s: Option<u64>,
}

impl Warmth {
    /// Reads it from status variables with lower-case names.
    pub fn of(status: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| {
            let text = status.get(&format!("bpe_{name}"));
            text.and_then(|text| text.parse::<f64>().ok())
        };
        let percent = number("warm_percent").filter(|percent| *percent >= 0.0);
        Self {
            percent,
            age_s: percent
                .and_then(|_| number("warm_age_seconds"))
                .map(|age| age.max(0.0) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_nothing_is_known() {
        let of = |pairs: &[(&str, &str)]| {
            Warmth::of(
                &pairs
                    .iter()
                    .map(|(name, value)| (format!("bpe_{name}"), (*value).to_owned()))
                    .collect(),
            )
        };
        assert_eq!(of(&[]), Warmth::default());
        assert_eq!(
            of(&[("warm_percent", "-1"), ("warm_age_seconds", "7")]),
            Warmth::default()
        );
        let warm = of(&[("warm_percent", "93"), ("warm_age_seconds", "7")]);
        assert_eq!((warm.percent, warm.age_s), (Some(93.0), Some(7)));
    }
}
