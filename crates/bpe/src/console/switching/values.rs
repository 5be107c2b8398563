//! Values as a page sends them, and as SQL takes them.

use serde_json::Value;

use crate::failure::Failure;
use crate::server::quoted;
use crate::size;

/// Those that the cache is built from. The server takes them at once, and a thread of the extension builds it anew.
pub const BUILT_FROM: [&str; 5] = [
    "bpe_path",
    "bpe_size",
    "bpe_instances",
    "bpe_memory_limit",
    "bpe_compression",
];

/// Numbers bare, everything else quoted.
pub fn literal(value: &str) -> String {
    if value.parse::<u64>().is_ok() {
        value.to_owned()
    } else {
        quoted(value)
    }
}

/// A text that is safe between quotes under every sql_mode.
pub fn checked(text: &str) -> Result<&str, Failure> {
    if text.contains('\\') || text.chars().any(char::is_control) {
        return Err(Failure::usage(
            "a value must not have backslashes or control characters",
        ));
    }
    Ok(text)
}

/// A number of bytes, or text such as `100G`.
pub fn bytes(value: &Value) -> Result<u64, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "`{value}` is not a size: give bytes, or text such as \"100G\""
        ))
    };
    match value {
        Value::Number(number) => number.as_u64().ok_or_else(wrong),
        Value::String(text) => size::parse(text).map_err(Failure::usage),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_numbers_or_text() {
        assert_eq!(bytes(&json!(4096)).unwrap(), 4096);
        assert_eq!(bytes(&json!("1G")).unwrap(), 1 << 30);
        for wrong in [
            json!(-1),
            json!(1.5),
            json!("much"),
            json!(null),
            json!([1]),
        ] {
            assert!(bytes(&wrong).is_err(), "{wrong}");
        }
    }
}
