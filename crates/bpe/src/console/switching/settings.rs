//! Changing variables of the extension. Whether a value is right is the server's to say; its words are passed on.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::details::SETTINGS;
use super::set::literal;
use super::{bytes, checked};
use crate::connection::plain;
use crate::failure::Failure;
use crate::server::Server;

/// Variables in bytes, for which `100G` may be written.
const SIZES: [&str; 3] = ["bpe_size", "bpe_memory_limit", "bpe_daily_write_limit"];

#[derive(Debug, Serialize)]
pub struct Applied {
    /// As the server has them now.
    applied: BTreeMap<String, Value>,
    warnings: Vec<String>,
}

/// Names and literals, in the order in which they are set.
///
/// # Errors
/// A name that is no setting, or a value that cannot be one.
fn statements(wanted: &Map<String, Value>) -> Result<Vec<(&'static str, String)>, Failure> {
    if wanted.is_empty() {
        return Err(Failure::usage("no setting is named"));
    }
    if let Some(name) = wanted
        .keys()
        .find(|name| !SETTINGS.contains(&name.as_str()))
    {
        return Err(
            Failure::usage(format!("`{name}` is no setting of the extension"))
                .advise(format!("settings are {}", SETTINGS.join(", "))),
        );
    }
    SETTINGS
        .into_iter()
        .filter_map(|name| Some((name, wanted.get(name)?)))
        .map(|(name, value)| {
            if SIZES.contains(&name) {
                return Ok((name, bytes(value)?.to_string()));
            }
            let value = match value {
                Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string(),
                Value::String(text) => literal(checked(text)?),
                _ => {
                    return Err(Failure::usage(format!(
                        "{name}: `{value}` is neither a whole number nor a text"
                    )));
                }
            };
            Ok((name, value))
        })
        .collect()
}

/// Sets them all, or none: when one is refused, those before it are put back.
///
/// # Errors
/// In the server's own words.
pub fn apply(server: &mut Server, wanted: &Map<String, Value>) -> Result<Applied, Failure> {
    let statements = statements(wanted)?;
    let before = server.variables("bpe\\_%")?;
    if before.is_empty() {
        return Err(
            Failure::refused("the extension is not installed on this server")
                .advise("switch it on first"),
        );
    }
    let mut warnings = Vec::new();
    let mut done: Vec<&str> = Vec::new();
    for (name, value) in &statements {
        if let Err(error) = server.execute(&format!("SET GLOBAL {name} = {value}")) {
            let mut failure = Failure::refused(format!("{name} was refused: {}", plain(&error)));
            for name in done.iter().rev() {
                let previous = before
                    .get(*name)
                    .map(|value| literal(value))
                    .unwrap_or_default();
                if let Err(error) = server.execute(&format!("SET GLOBAL {name} = {previous}")) {
                    failure.what.push_str(&format!(
                        "\n  {name} could NOT be put back: {}",
                        plain(&error)
                    ));
                }
            }
            if !done.is_empty() {
                failure
                    .what
                    .push_str(&format!("\n  put back: {}", done.join(", ")));
            }
            return Err(failure);
        }
        let said = server.warnings();
        if !said.is_empty() {
            warnings.push(format!("{name}: {said}"));
        }
        done.push(name);
    }
    let now = server.variables("bpe\\_%")?;
    let applied = statements
        .iter()
        .map(|(name, _)| {
            let text = now.get(*name).map_or("", String::as_str);
            let value = text
                .parse::<u64>()
                .map_or_else(|_| text.into(), Value::from);
            ((*name).to_owned(), value)
        })
        .collect();
    Ok(Applied { applied, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> Result<Vec<(&'static str, String)>, Failure> {
        statements(value.as_object().unwrap())
    }

    #[test]
    fn values_become_literals() {
        let list = of(
            json!({"bpe_size": "1G", "bpe_path": "/mnt/o'brien", "bpe_instances": 4, "bpe_admission": "all"}),
        );
        assert_eq!(
            list.unwrap(),
            [
                ("bpe_path", "'/mnt/o''brien'".to_owned()),
                ("bpe_size", "1073741824".to_owned()),
                ("bpe_instances", "4".to_owned()),
                ("bpe_admission", "'all'".to_owned()),
            ]
        );
    }

    #[test]
    fn only_settings_are_set() {
        for wrong in [
            json!({}),
            json!({"bpe_enabled": "ON"}),
            json!({"innodb_buffer_pool_size": 1}),
            json!({"bpe_size = 1, GLOBAL x": 1}),
            json!({"bpe_path": "a\\"}),
            json!({"bpe_path": ["a"]}),
            json!({"bpe_instances": 1.5}),
            json!({"bpe_size": "much"}),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
