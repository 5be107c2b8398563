//! Formats of numbers with their units.

/// `12,345.6` with `digits` decimals; a dash for `None`.
pub fn number(value: Option<f64>, digits: usize) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return "-".into();
    };
    let text = format!("{value:.digits$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (text, String::new()),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// `+80 %`; a dash for `None`.
pub fn percent(value: Option<f64>, sign: bool, digits: usize) -> String {
    match value {
        Some(value) if value.is_finite() => {
            let plus = if sign && value >= 0.0 { "+" } else { "" };
            format!("{plus}{}\u{a0}%", number(Some(value), digits))
        }
        _ => "-".into(),
    }
}

/// `1.5 s`; a dash for `None`.
pub fn seconds(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$} s"))
}

/// Percentage; `None` if `whole` is 0.
pub fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part * 100.0 / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(Some(1234567.0), 0), "1,234,567");
        assert_eq!(number(Some(999.96), 1), "1,000.0");
        assert_eq!(number(Some(-1234.0), 0), "-1,234");
        assert_eq!(number(None, 0), "-");
        assert_eq!(number(Some(f64::NAN), 0), "-");
        assert_eq!(percent(Some(80.4), true, 0), "+80\u{a0}%");
        assert_eq!(percent(Some(-3.0), true, 0), "-3\u{a0}%");
    }
}
