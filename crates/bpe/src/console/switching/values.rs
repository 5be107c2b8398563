//! Converts values of a page to SQL.

use interface::untrusted::refuse_in_path;
use serde_json::Value;

use crate::support::failure::Failure;
use crate::support::size;

/// A path that the plugin accepts.
pub fn checked(path: &str) -> Result<&str, Failure> {
    refuse_in_path("the path", path).map_err(Failure::usage)?;
    Ok(path)
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
