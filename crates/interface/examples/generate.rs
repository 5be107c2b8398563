//! Writes what is made from the lists in `interface`, and from the figures that the console sends, into the files of this
//! repository that hold it:
//!
//!     cargo run -p interface --example generate
//!
//! `tests/generated.rs` fails when one of them is not current.

use std::fs;
use std::path::{Path, PathBuf};

use interface::Status;
use interface::reports::{Column, DEVICES, FILES, INSTANCES, Value};
use interface::status::Kind;

const BEGIN: &str = "<!-- Made by `cargo run -p interface --example generate` -->\n";
const END: &str = "<!-- End of what is made -->\n";

fn main() -> Result<(), String> {
    for (path, text) in files()? {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The files, as they must be.
pub fn files() -> Result<Vec<(PathBuf, String)>, String> {
    let document = repository("docs/monitoring.md");
    let text = between(&read(&document)?, BEGIN, END, &table())
        .ok_or_else(|| format!("{} has no place for the table", document.display()))?;
    let views = repository("sql/views.sql");
    let mut statements = read(&views)?;
    for (view, report) in [
        ("instances", INSTANCES),
        ("devices", DEVICES),
        ("files", FILES),
    ] {
        statements = with_columns(&statements, view, report)
            .ok_or_else(|| format!("{} has no view {view}", views.display()))?;
    }
    let queries = repository("monitoring/pmm/queries-mysqld-bpe.yml");
    let metrics = described(&read(&queries)?)?;
    Ok(vec![
        (document, text),
        (repository("web/src/api/figures.ts"), page_types()?),
        (views, statements),
        (queries, metrics),
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

/// The text with another part between the two lines.
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

/// The view with the columns of its report.
fn with_columns(statements: &str, view: &str, report: &[Column]) -> Option<String> {
    let at = statements.find(&format!("VIEW bpe.{view} AS"))?;
    let columns: Vec<String> = report
        .iter()
        .filter_map(|column| {
            // A word of SQL.
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

/// PMM's queries, each metric with usage and description of its column.
fn described(queries: &str) -> Result<String, String> {
    let mut report: &[Column] = &[];
    let mut column = None;
    let mut text = String::new();
    for line in queries.lines() {
        if line.starts_with("mysql_bpe_") {
            report = match line {
                // Sums over files, described there.
                "mysql_bpe_tables:" => &[],
                "mysql_bpe_devices:" => DEVICES,
                "mysql_bpe_instances:" => INSTANCES,
                _ => return Err(format!("PMM's file asks for {line}")),
            };
        }
        if let Some(name) = line.strip_prefix("    - ") {
            let name = name.trim_end_matches(':');
            // What the query itself names is described in the file.
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

/// What the page knows of the figures that the console sends it each second: their type, and the limits by which they are judged.
fn page_types() -> Result<String, String> {
    let mut types = String::from(
        "// Made by `cargo run -p interface --example generate` from crates/bpe/src/observe. Change it there.\n\n\
         export type State = \"active\" | \"disabled\" | \"passive\" | \"failed\" | \"not installed\";\n",
    );
    for (file, name) in [("histogram.rs", "Quantiles"), ("figures.rs", "Figures")] {
        let source = repository("crates/bpe/src/observe").join(file);
        types.push_str(&interface_of(&read(&source)?, name)?);
    }
    types.push_str(&rows_of("Instance", INSTANCES));
    types.push_str(&rows_of("Device", DEVICES));
    types.push_str("\n// The limits of `bpe status --explain`.\n");
    let rules = read(&repository("crates/bpe/src/observe/explain.rs"))?;
    for name in LIMITS {
        let line = format!("const {name}: f64 = ");
        let at = rules
            .find(&line)
            .ok_or_else(|| format!("explain.rs has no limit {name}"))?;
        let value = rules[at + line.len()..].split(';').next().unwrap_or("");
        let comment = rules[..at].trim_end().rsplit("/// ").next().unwrap_or("");
        let value = value.trim_end_matches(".0");
        types.push_str(&format!(
            "/** {comment} */\nexport const {name} = {value};\n"
        ));
    }
    Ok(types)
}

/// Limits that the page uses.
const LIMITS: [&str; 4] = ["IDLE", "ALIKE", "LITTLE", "FULL"];

/// The rows of a report, in TypeScript.
fn rows_of(name: &str, report: &[Column]) -> String {
    let members: String = report
        .iter()
        .map(|column| {
            let kind = match column.value {
                Value::Whole | Value::Small | Value::Real => "number",
                Value::Yes => "boolean",
                Value::Text(_) => "string",
            };
            let meaning = column.meaning.replace("1 if", "Whether");
            format!("  /** {meaning}. */\n  {}: {kind};\n", column.key)
        })
        .collect();
    format!("\nexport interface {name} {{\n{members}}}\n")
}

/// A structure of Rust that is sent as JSON, in TypeScript.
fn interface_of(source: &str, name: &str) -> Result<String, String> {
    let lines: Vec<&str> = source.lines().collect();
    let head = format!("pub struct {name} {{");
    let first = lines
        .iter()
        .position(|line| *line == head)
        .ok_or_else(|| format!("there is no {name}"))?;
    let above = lines[..first].iter().rev();
    let mut comment: Vec<&str> = above
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("///"))
        .collect();
    comment.reverse();
    let mut text = format!("\n{}export interface {name} {{\n", commented(&comment, ""));
    comment.clear();
    for line in lines[first + 1..].iter().take_while(|line| **line != "}") {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words);
        } else if let Some((field, kind)) = line
            .strip_prefix("pub ")
            .and_then(|line| line.trim_end_matches(',').split_once(": "))
        {
            let kind = match (field, kind) {
                ("state", "String") => "State".to_owned(),
                ("latency_of", _) => "\"interval\" | \"total\"".to_owned(),
                _ => type_of(kind).ok_or_else(|| format!("{name}.{field}: what is {kind}?"))?,
            };
            text.push_str(&commented(&comment, "  "));
            text.push_str(&format!("  {field}: {kind};\n"));
            comment.clear();
        } else if !line.is_empty() {
            return Err(format!("{name}: what is `{line}`?"));
        }
    }
    text.push_str("}\n");
    Ok(text)
}

fn type_of(kind: &str) -> Option<String> {
    Some(match kind {
        "f64" | "u64" => "number".to_owned(),
        "String" | "&'static str" => "string".to_owned(),
        "Quantiles" => kind.to_owned(),
        _ => {
            let inner = kind.strip_prefix("Option<")?.strip_suffix('>')?;
            format!("{} | null", type_of(inner)?)
        }
    })
}

/// A comment of TypeScript.
fn commented(lines: &[&str], indent: &str) -> String {
    let words: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    match words.as_slice() {
        [] => String::new(),
        [one] => format!("{indent}/** {} */\n", one.replace("`None`", "`null`")),
        more => {
            let body: String = more
                .iter()
                .map(|line| {
                    format!("{indent} * {line}")
                        .trim_end()
                        .replace("`None`", "`null`")
                        + "\n"
                })
                .collect();
            format!("{indent}/**\n{body}{indent} */\n")
        }
    }
}
