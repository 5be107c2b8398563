//! Changes variables of the extension. The server validates the values, and its errors are passed on.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use interface::untrusted::refuse_controls;
use interface::variables::{self, settings};
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::details::typed;
use super::values::bytes;
use crate::change::setting::TABLES;
use crate::change::{Kind, Plan, Reopen, Step};
use crate::connect::server::Server;
use crate::connect::state::{is_on, state};
use crate::support::failure::Failure;
use crate::support::notifier::Notifier;

/// The extension checks its settings every half second.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time limit for rebuilding the cache.
const BUILD_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub struct Applied {
    /// Current values on the server.
    applied: BTreeMap<String, Value>,
    warnings: Vec<String>,
}

/// Names and values, in the order of setting them.
///
/// # Errors
/// A name is no setting, or a value has the wrong type.
fn statements(wanted: &Map<String, Value>) -> Result<Vec<(&'static str, String)>, Failure> {
    if wanted.is_empty() {
        return Err(Failure::usage("no setting is named"));
    }
    if let Some(name) = wanted
        .keys()
        .find(|name| !settings().any(|one| one.name == name.as_str()))
    {
        let names: Vec<_> = settings().map(|one| one.name).collect();
        return Err(
            Failure::usage(format!("`{name}` is no setting of the extension"))
                .advise(format!("settings are {}", names.join(", "))),
        );
    }
    settings()
        .filter_map(|one| Some((one, wanted.get(one.name)?)))
        .map(|(one, value)| {
            let name = one.name;
            if one.kind == variables::Kind::Bytes {
                return Ok((name, bytes(value)?.to_string()));
            }
            let value = match value {
                Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string(),
                Value::String(text) => {
                    refuse_controls(name, text).map_err(Failure::usage)?;
                    text.clone()
                }
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

/// Sets all variables or none: if one is refused, the earlier ones are restored.
///
/// # Errors
/// The server's own error, or a lost connection. In the latter case the earlier ones are restored over the connection
/// that `reopen` opens.
pub fn apply(
    server: &mut Server,
    wanted: &Map<String, Value>,
    reopen: Reopen<'_>,
) -> Result<Applied, Failure> {
    let mut statements = statements(wanted)?;
    let mut before = server.variables("bpe\\_%")?;
    // SHOW truncates long values.
    if wanted.contains_key(TABLES) {
        if let Some(whole) = server.whole_variable(TABLES)? {
            before.insert(TABLES.to_owned(), whole);
        }
    }
    if before.is_empty() {
        return Err(
            Failure::refused("the extension is not installed on this server")
                .advise("switch it on first"),
        );
    }
    smaller_first(&mut statements, &before);
    let was_active = is_on(&state(server)?.0);
    let names: Vec<_> = statements.iter().map(|(name, _)| *name).collect();
    let mut plan = Plan::new(Kind::Set, String::new());
    for (name, value) in statements {
        let previous = before.get(name).cloned().unwrap_or_default();
        plan.add(Step::new("set", Vec::new(), move |run| {
            run.set(name, &value, &previous)?;
            let said = run.server.warnings();
            if !said.is_empty() {
                run.tell(format!("{name}: {said}"));
            }
            Ok(())
        }));
    }
    if was_active {
        plan.add(Step::new("see that it works", Vec::new(), move |run| {
            let now = run.server.variables("bpe\\_%")?;
            let is_changed = |name: &str| now.get(name) != before.get(name);
            if !variables::rebuilding().any(is_changed) {
                return Ok(());
            }
            match built(run.server)? {
                Built::Yes => {}
                Built::NotYet => {
                    run.tell("the cache is still being built; the state shows when it is active")
                }
                Built::No(why) => {
                    return Err(Failure::refused(format!(
                        "the extension cannot work with these settings: {why}"
                    )));
                }
            }
            Ok(())
        }));
    }
    let mut warnings = Warnings::default();
    plan.carry_out(server, &mut warnings, reopen)?;
    let now = server.variables("bpe\\_%").map_err(|failure| {
        let what = format!(
            "the server took the settings ({}), and then gave no answer: {}",
            names.join(", "),
            failure.what
        );
        Failure::step(what).advise("look at them when the server answers again")
    })?;
    let applied = names.into_iter().map(|name| {
        let text = now.get(name).map_or("", String::as_str);
        (name.to_owned(), typed(text))
    });
    Ok(Applied {
        applied: applied.collect(),
        warnings: warnings.0,
    })
}

/// The server's warnings about accepted settings.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Notifier for Warnings {
    fn line(&mut self, text: &str) {
        self.0.push(text.trim().to_owned());
    }
}

/// Shrink a cache before moving it, because the new disk may lack space for the old size.
fn smaller_first(statements: &mut [(&'static str, String)], before: &BTreeMap<String, String>) {
    let at = |wanted: &str| statements.iter().position(|(name, _)| *name == wanted);
    let (Some(path), Some(size)) = (at("bpe_path"), at("bpe_size")) else {
        return;
    };
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let now = number(before.get("bpe_size").map(String::as_str));
    let shrinks = number(Some(&statements[size].1)) < now;
    if shrinks == (path < size) {
        statements.swap(path, size);
    }
}

enum Built {
    Yes,
    NotYet,
    No(String),
}

/// Waits until the cache is rebuilt.
fn built(server: &mut Server) -> Result<Built, Failure> {
    let begin = Instant::now();
    let mut seen_off = false;
    while begin.elapsed() < BUILD_TIMEOUT {
        let (state, reason) = state(server)?;
        match state.as_str() {
            state if is_on(state) => {
                if seen_off || begin.elapsed() > NOTICE_TIMEOUT {
                    return Ok(Built::Yes);
                }
            }
            "disabled" => seen_off = true,
            _ => return Ok(Built::No(reason)),
        }
        sleep(Duration::from_millis(100));
    }
    Ok(Built::NotYet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> Result<Vec<(&'static str, String)>, Failure> {
        statements(value.as_object().unwrap())
    }

    #[test]
    fn values_are_in_the_order_of_settings() {
        let list = of(
            json!({"bpe_size": "1G", "bpe_path": "/mnt/o'brien", "bpe_instances": 4, "bpe_compression": "lz4"}),
        );
        assert_eq!(
            list.unwrap(),
            [
                ("bpe_path", "/mnt/o'brien".to_owned()),
                ("bpe_size", "1073741824".to_owned()),
                ("bpe_instances", "4".to_owned()),
                ("bpe_compression", "lz4".to_owned()),
            ]
        );
    }

    #[test]
    fn a_cache_shrinks_before_it_moves() {
        let first = |size: &str| {
            let mut list =
                of(json!({"bpe_size": size, "bpe_path": "/b", "bpe_instances": 2})).unwrap();
            smaller_first(
                &mut list,
                &BTreeMap::from([("bpe_size".to_owned(), "1000".to_owned())]),
            );
            assert_eq!(list[2].0, "bpe_instances");
            list[0].0
        };
        assert_eq!(first("999"), "bpe_size");
        assert_eq!((first("1000"), first("1001")), ("bpe_path", "bpe_path"));
    }

    #[test]
    fn only_settings_are_set() {
        for wrong in [
            json!({}),
            json!({"bpe_enabled": "ON"}),
            json!({"innodb_buffer_pool_size": 1}),
            json!({"bpe_size = 1, GLOBAL x": 1}),
            json!({"bpe_tables": "exclude a.`b\nc`"}),
            json!({"bpe_path": ["a"]}),
            json!({"bpe_instances": 1.5}),
            json!({"bpe_size": "much"}),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
