//! A server's details on its page besides the figures: settings, instances, devices, files and tables. Read on request
//! and cached for two seconds, so that many pages cost the server as much as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interface::tables::{Action, Named, Rules};
use interface::variables;
use serde_json::{Map, Value, json};

use crate::change::setting::TABLES;
use crate::connect::report;
use crate::connect::server::Server;
use crate::observe::explain::{Circumstances, explain};
use crate::observe::{Figures, percent};
use crate::support::failure::Failure;

const FRESH: Duration = Duration::from_secs(2);
/// Maximum number of files and tables shown, most reads first.
const MAX_ROWS: usize = 500;

/// The server's table rules, or the reason why it cannot apply them.
///
/// # Errors
/// The server does not answer.
pub fn rules_of(server: &mut Server) -> Result<Result<Rules, String>, Failure> {
    let text = server.whole_variable(TABLES)?.unwrap_or_default();
    let folds = server.number("lower_case_table_names")?.unwrap_or(0) != 0;
    Ok(Rules::parse(&text, folds))
}

/// The last result and its connection.
#[derive(Default)]
pub struct Details {
    connection: Option<Server>,
    /// As sent.
    answer: Option<(Instant, Arc<str>)>,
}

impl Details {
    /// The last result, if younger than two seconds.
    pub fn fresh(&self) -> Option<Arc<str>> {
        let (at, answer) = self.answer.as_ref()?;
        (at.elapsed() < FRESH).then(|| Arc::clone(answer))
    }

    /// Reads the details from the server. `latest`: its latest figures.
    ///
    /// # Errors
    /// The server does not answer. The next call opens a new connection.
    pub fn ask(
        &mut self,
        open: impl FnOnce() -> Result<Server, Failure>,
        latest: impl FnOnce() -> Option<Figures>,
    ) -> Result<Arc<str>, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open()?,
        };
        let answer = ask(&mut connection);
        let mut answer = answer.map_err(|failure| connection.without_answer(failure))?;
        if let Some(figures) = latest() {
            let about = Circumstances::read(&mut connection, &figures);
            let about = about.map_err(|failure| connection.without_answer(failure))?;
            answer["explain"] = json!(explain(&figures, &about));
        }
        self.connection = Some(connection);
        let answer: Arc<str> = answer.to_string().into();
        self.answer = Some((Instant::now(), Arc::clone(&answer)));
        Ok(answer)
    }

    /// Drops the connection to a server that does not answer.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Drops the last result. Call after a change, which outdates it.
    pub fn forget(&mut self) {
        self.answer = None;
    }
}

fn ask(server: &mut Server) -> Result<Value, Failure> {
    let values = server.variables("bpe\\_%")?;
    let mut settings: Map<String, Value> = variables::settings()
        .filter_map(|one| Some((one.name.to_owned(), typed(values.get(one.name)?))))
        .collect();
    if let Some(whole) = server.whole_variable(TABLES)? {
        settings.insert(TABLES.to_owned(), whole.into());
    }
    // Rules that the server cannot apply count as none.
    let rules = rules_of(server)?.unwrap_or_default();
    let mut rows = |name: &str| -> Result<Vec<Value>, Failure> {
        if settings.is_empty() {
            return Ok(Vec::new());
        }
        // Without the function there are no rows; the page shows the reason in the state.
        let text = report::ask_if_any(server, name)?.unwrap_or_default();
        Ok(match report::parse(&text) {
            Ok(Value::Array(rows)) => rows,
            _ => Vec::new(),
        })
    };
    let (instances, devices) = (rows("instances")?, rows("devices")?);
    let mut files = rows("files")?;
    let tables = tables(&files, &rules);
    files.sort_by_key(|file| std::cmp::Reverse(reads(file)));
    files.truncate(MAX_ROWS);
    Ok(json!({
        "settings": settings,
        "instances": instances,
        "devices": devices,
        "files": files,
        "tables": tables,
        // Empty until the first figures arrive.
        "explain": [],
    }))
}

/// A setting as JSON: a number, if it is one.
pub fn typed(text: &str) -> Value {
    text.parse::<u64>()
        .map_or_else(|_| text.into(), Value::from)
}

fn count(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or(0)
}

fn reads(row: &Value) -> u64 {
    count(row, "hits").saturating_add(count(row, "misses"))
}

/// Files grouped by table, partitions added up; most reads first.
fn tables(files: &[Value], rules: &Rules) -> Vec<Value> {
    let mut tables: BTreeMap<(String, String), [u64; 4]> = BTreeMap::new();
    for file in files {
        let (Some(schema), Some(table)) = (file["schema"].as_str(), file["table"].as_str()) else {
            continue;
        };
        let sums = tables
            .entry((schema.to_owned(), table.to_owned()))
            .or_default();
        for (sum, name) in sums
            .iter_mut()
            .zip(["hits", "misses", "cached_pages", "cached_bytes"])
        {
            *sum = sum.saturating_add(count(file, name));
        }
    }
    let mut rows: Vec<_> = tables
        .into_iter()
        .map(|((schema, table), [hits, misses, pages, bytes])| {
            let ratio = percent(hits, hits.saturating_add(misses));
            let named = Named::Table {
                schema: &schema,
                table: &table,
                partition: None,
            };
            let (treatment, percent) = match rules.action(&named) {
                None | Some(Action::Include | Action::Normal) => ("normal", None),
                Some(Action::Limit(percent)) => ("limit", Some(percent)),
                Some(action) => (action.as_str(), None),
            };
            json!({
                "schema": schema,
                "table": table,
                "treatment": treatment,
                "limit_percent": percent,
                "hits": hits,
                "misses": misses,
                "hit_ratio": ratio,
                "cached_pages": pages,
                "cached_bytes": bytes,
            })
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(reads(row)));
    rows.truncate(MAX_ROWS);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_add_up_their_partitions() {
        let file = |table: Option<&str>, hits: u64, misses: u64| {
            json!({
                "schema": table.map(|_| "shop"), "table": table,
                "hits": hits, "misses": misses, "cached_pages": 2, "cached_bytes": 32768
            })
        };
        let mut rows = tables(
            &[
                file(Some("most"), u64::MAX, 1),
                file(Some("most"), 1, u64::MAX),
                file(Some("order"), 1, 3),
                file(Some("order"), 2, 2),
                file(Some("customer"), 90, 10),
                file(None, 5, 5),
            ],
            &Rules::parse("limit 7% shop.order", false).unwrap(),
        );
        assert_eq!(rows.len(), 3);
        // Figures of a server may have any value.
        let most = rows.remove(0);
        assert_eq!(
            (&most["hits"], &most["hit_ratio"]),
            (&json!(u64::MAX), &json!(100.0))
        );
        assert_eq!(
            (&rows[0]["table"], &rows[0]["hit_ratio"]),
            (&json!("customer"), &json!(90.0))
        );
        assert_eq!(
            (&rows[1]["table"], &rows[1]["hits"]),
            (&json!("order"), &json!(3))
        );
        assert_eq!(rows[1]["cached_bytes"], 65536);
        assert_eq!(
            (
                &rows[0]["treatment"],
                &rows[1]["treatment"],
                &rows[1]["limit_percent"]
            ),
            (&json!("normal"), &json!("limit"), &json!(7))
        );
    }

    #[test]
    fn settings_have_types() {
        assert_eq!(typed("17"), 17);
        assert_eq!(typed("lz4"), "lz4");
        assert_eq!(typed(""), "");
    }
}
