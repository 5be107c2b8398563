//! Writes generated text into the files of this repository. The sources are the lists in `interface`, and the types that the
//! console sends:
//!
//!     cargo run -p interface --example generate
//!
//! `tests/generated.rs` fails if one of these files is outdated.

use std::fs;
use std::path::{Path, PathBuf};

use interface::Status;
use interface::codes;
use interface::reports::{Column, DEVICES, FILES, INSTANCES, RULES};
use interface::status::Kind;
use interface::variables::{self, Change};

pub mod dashboard;
mod page;

const BEGIN: &str = "<!-- Made by `cargo run -p interface --example generate` -->\n";
const BEGIN_STATUS: &str =
    "<!-- Status variables, made by `cargo run -p interface --example generate` -->\n";
const END: &str = "<!-- End of what is made -->\n";

fn main() -> Result<(), String> {
    for (path, text) in files()? {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Returns the files and their required contents.
pub fn files() -> Result<Vec<(PathBuf, String)>, String> {
    let reference = repository("docs/user/reference.md");
    let tables = between(&read(&reference)?, BEGIN, END, &variables_table())
        .and_then(|text| between(&text, BEGIN_STATUS, END, &table()))
        .ok_or_else(|| format!("{} has no place for the tables", reference.display()))?;
    let messages = repository("docs/user/troubleshooting.md");
    let coded = between(&read(&messages)?, BEGIN, END, &codes_table())
        .ok_or_else(|| format!("{} has no place for the table", messages.display()))?;
    let views = repository("sql/views.sql");
    let mut statements = read(&views)?;
    for (view, report) in [
        ("instances", INSTANCES),
        ("devices", DEVICES),
        ("files", FILES),
        ("rules", RULES),
    ] {
        statements = with_columns(&statements, view, report)
            .ok_or_else(|| format!("{} has no view {view}", views.display()))?;
    }
    let queries = repository("monitoring/pmm/queries-mysqld-bpe.yml");
    let metrics = described(&read(&queries)?)?;
    let grafana = repository("monitoring/grafana/innodb-bpe.json");
    let panels = dashboard::with_the_rest(&read(&grafana)?)
        .ok_or_else(|| format!("{} has no end", grafana.display()))?;
    Ok(vec![
        (reference, tables),
        (messages, coded),
        (repository("web/src/api/variables.ts"), page::variables()),
        (repository("web/src/api/figures.ts"), page::types()?),
        (views, statements),
        (queries, metrics),
        (grafana, panels),
    ])
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Returns the text with the part between two lines replaced.
fn between(text: &str, begin: &str, end: &str, part: &str) -> Option<String> {
    let start = text.find(begin)? + begin.len();
    let stop = start + text[start..].find(end)?;
    Some(format!("{}{part}{}", &text[..start], &text[stop..]))
}

/// The status variables, in Markdown.
fn table() -> String {
    let mut table =
        String::from("| status variable | kind | unit | meaning |\n|---|---|---|---|\n");
    for one in Status::ALL {
        table.push_str(&format!(
            "| `Bpe_{}` | {} | {} | {} |\n",
            one.name(),
            one.kind().as_str(),
            one.unit().as_str(),
            one.meaning()
        ));
    }
    table
}

/// The message codes, in Markdown.
fn codes_table() -> String {
    let rows = codes::ALL.iter();
    let rows = rows.map(|(code, part)| format!("| BPE-{code:04} | {} |\n", part.trim()));
    format!(
        "| code | a part of the message |\n|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// The system variables, in Markdown.
fn variables_table() -> String {
    let mut table = String::from(
        "| variable | default | values | a change | meaning |\n|---|---|---|---|---|\n",
    );
    for one in variables::ALL {
        let change = match one.change {
            Change::AtOnce => "counts at once",
            Change::Rebuilds => "empties the cache",
            Change::AtStart => "at start-up only",
            Change::OfSession => "of each session",
        };
        table.push_str(&format!(
            "| `{}` | {} | {} | {change} | {} |\n",
            one.name,
            one.default(),
            one.range(),
            one.comment.to_string_lossy().replace('|', "\\|"),
        ));
    }
    table
}

/// Returns the view with the columns of its report.
fn with_columns(statements: &str, view: &str, report: &[Column]) -> Option<String> {
    let at = statements.find(&format!("VIEW bpe.{view} AS"))?;
    let columns: Vec<String> = report
        .iter()
        .filter_map(|column| {
            // A reserved word of SQL.
            let name = match column.view? {
                "reads" => "`reads`",
                name => name,
            };
            Some(format!(
                "    {name} {} PATH '$.{}'",
                column.value.sql(),
                column.key
            ))
        })
        .collect();
    let part = format!("{}\n", columns.join(",\n"));
    let new = between(&statements[at..], "COLUMNS (\n", ")) AS report;", &part)?;
    Some(format!("{}{new}", &statements[..at]))
}

/// Returns PMM's queries, with usage and description of each metric's column.
fn described(queries: &str) -> Result<String, String> {
    let mut report: &[Column] = &[];
    let mut column = None;
    let mut text = String::new();
    for line in queries.lines() {
        if line.starts_with("mysql_bpe_") {
            report = match line {
                // Sums over files, described in PMM's file.
                "mysql_bpe_tables:" => &[],
                "mysql_bpe_devices:" => DEVICES,
                "mysql_bpe_instances:" => INSTANCES,
                _ => return Err(format!("PMM's file asks for {line}")),
            };
        }
        if let Some(name) = line.strip_prefix("    - ") {
            let name = name.trim_end_matches(':');
            // Metrics named by the query itself are described in the file.
            column = report.iter().find(|column| column.view == Some(name));
        }
        match (line.trim().split_once(": "), column) {
            (Some(("usage", _)), Some(column)) => {
                let usage = match column.kind {
                    Kind::Counter => "COUNTER",
                    Kind::Gauge => "GAUGE",
                    Kind::Text => "LABEL",
                };
                text.push_str(&format!("        usage: \"{usage}\"\n"));
            }
            (Some(("description", _)), Some(column)) => {
                text.push_str(&format!("        description: \"{}\"\n", column.meaning));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Ok(text)
}
