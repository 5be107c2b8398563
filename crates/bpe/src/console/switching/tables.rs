//! The switch of each table: its rules in `bpe_tables`.

use interface::tables::{Action, Rules};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::details::rules_of;
use crate::change::setting::TABLES;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Request of a page.
#[derive(Debug, Deserialize)]
pub struct Request {
    schema: String,
    table: String,
    /// `normal`, `exclude`, `prefer` or `limit`.
    action: String,
    /// With `limit`: percentage of the cache.
    percent: Option<u8>,
}

impl Request {
    fn action(&self) -> Result<Option<Action>, Failure> {
        Ok(match (self.action.as_str(), self.percent) {
            ("normal", None) => None,
            ("exclude", None) => Some(Action::Exclude),
            ("prefer", None) => Some(Action::Prefer),
            ("limit", Some(percent @ 1..=99)) => Some(Action::Limit(percent)),
            ("limit", _) => return Err(Failure::usage("a limit is 1 to 99 percent of the cache")),
            _ => {
                return Err(Failure::usage(format!(
                    "`{}` is nothing that rules say; they say normal, exclude, prefer or limit",
                    self.action
                )));
            }
        })
    }
}

/// The new value of the setting; the rules of other tables are unchanged.
///
/// # Errors
/// The server does not answer, or the rules exceed the variable's maximum length.
pub fn wanted(server: &mut Server, request: &Request) -> Result<Map<String, Value>, Failure> {
    let action = request.action()?;
    let rules: Rules = rules_of(server)?.map_err(|why| {
        Failure::refused(format!(
            "the rules that the server has are not followed: {why}"
        ))
        .advise("correct bpe_tables in the settings first")
    })?;
    let text = rules.with(&request.schema, &request.table, action);
    let text =
        text.map_err(|why| Failure::refused(format!("the rules were not changed: {why}")))?;
    Ok(Map::from_iter([(TABLES.to_owned(), Value::String(text))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(action: &str, percent: Option<u8>) -> Request {
        Request {
            schema: "shop".into(),
            table: "orders".into(),
            action: action.into(),
            percent,
        }
    }

    #[test]
    fn actions_are_those_of_rules() {
        let of = |action, percent| request(action, percent).action();
        assert_eq!(of("normal", None).unwrap(), None);
        assert_eq!(of("exclude", None).unwrap(), Some(Action::Exclude));
        assert_eq!(of("prefer", None).unwrap(), Some(Action::Prefer));
        assert_eq!(of("limit", Some(20)).unwrap(), Some(Action::Limit(20)));
        for (action, percent) in [
            ("limit", None),
            ("limit", Some(0)),
            ("limit", Some(100)),
            ("exclude", Some(3)),
            ("x", None),
        ] {
            assert!(of(action, percent).is_err(), "{action} {percent:?}");
        }
    }
}
