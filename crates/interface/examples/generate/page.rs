//! Generates the page's TypeScript: types of the console's messages, and limits for judging figures.

use interface::limits;
use interface::reports::{Column, DEVICES, FILES, INSTANCES, Value};

use interface::variables::{self, Change, Kind};
use serde_json::{Value as Json, json};

use super::{read, repository};

/// A Rust type sent as JSON: its file, its Rust name, its TypeScript name.
type Sent = (&'static str, &'static str, &'static str);

/// The types in output order. A Rust name refers to a type of the same file before one of another file.
const SENT: [Sent; 27] = [
    ("bpe/src/observe/histogram.rs", "Quantiles", "Quantiles"),
    ("bpe/src/observe/figures.rs", "Figures", "Figures"),
    ("bpe/src/observe/sentence.rs", "Level", "SentenceLevel"),
    ("bpe/src/observe/sentence.rs", "Sentence", "Sentence"),
    ("bpe/src/change/plan.rs", "Row", "Change"),
    ("bpe/src/change/digest.rs", "Topic", "PlanPart"),
    ("bpe/src/console/switching/plan.rs", "Preview", "Plan"),
    (
        "bpe/src/console/switching/plan.rs",
        "Changed",
        "PlanChanged",
    ),
    ("bpe/src/console/events.rs", "Level", "EventLevel"),
    ("bpe/src/console/events.rs", "Event", "ConsoleEvent"),
    ("bpe/src/console/task.rs", "TaskState", "TaskState"),
    ("bpe/src/console/task.rs", "StepState", "StepState"),
    ("bpe/src/console/task.rs", "TaskStep", "Step"),
    ("bpe/src/console/task.rs", "Task", "Task"),
    ("bpe/src/compare/report.rs", "Found", "Found"),
    ("bpe/src/compare/report.rs", "Ended", "ComparisonEnded"),
    ("bpe/src/compare/report.rs", "Row", "ComparisonRow"),
    ("bpe/src/compare/report.rs", "Comparison", "Comparison"),
    ("bpe/src/console/comparing.rs", "Comparing", "Comparing"),
    ("bpe-lab/src/experience/load.rs", "Side", "Side"),
    ("bpe-lab/src/experience/run.rs", "Test", "TestName"),
    ("bpe-lab/src/experience/run.rs", "Mode", "RunMode"),
    ("bpe-lab/src/experience/run.rs", "State", "RunState"),
    ("bpe-lab/src/experience/run.rs", "Phase", "RunPhase"),
    ("bpe-lab/src/experience/run.rs", "Point", "RunPoint"),
    ("bpe-lab/src/experience/run.rs", "Run", "Run"),
    ("bpe-lab/src/experience/run.rs", "Request", "RunRequest"),
];

/// Returns the page's file of types.
pub fn types() -> Result<String, String> {
    let mut types = String::from(
        "// Made by `cargo run -p interface --example generate` from what crates/bpe and crates/bpe-lab send. Change it there.\n\n\
         export type State = \"active\" | \"bypass\" | \"disabled\" | \"passive\" | \"failed\" | \"not installed\";\n",
    );
    for sent @ (file, name, _) in SENT {
        let source = read(&repository("crates").join(file))?;
        let lines: Vec<&str> = source.lines().collect();
        types.push_str(
            &if lines.contains(&format!("pub enum {name} {{").as_str()) {
                words_of(&lines, sent)?
            } else {
                interface_of(&lines, sent)?
            },
        );
    }
    types.push_str(&rows_of("Instance", INSTANCES));
    types.push_str(&rows_of("Device", DEVICES));
    types.push_str(&rows_of("FileRow", FILES));
    types.push_str("\n// Limits by which figures are judged.\n");
    for one in limits::ALL.iter().filter(|one| LIMITS.contains(&one.name)) {
        types.push_str(&format!(
            "/** {}. */\nexport const {} = {};\n",
            one.meaning, one.name, one.value
        ));
    }
    Ok(types)
}

/// Returns the page's settings: a list, and its type.
pub fn variables() -> String {
    let rows: Vec<String> = variables::settings()
        .map(|one| row_of(one).to_string())
        .collect();
    format!(
        "// Made by `cargo run -p interface --example generate` from crates/interface/src/variables.rs. Change it there.\n\n\
         export interface Variable {{\n  name: string;\n  kind: \"text\" | \"size\" | \"count\" | \"choice\";\n  choices: string[];\n  \
         /** Changing it while on makes the cache anew. */\n  rebuilds: boolean;\n  hint: {{ en: string; ja: string; \"zh-TW\": string }};\n}}\n\n\
         export const VARIABLES: Variable[] = [\n  {},\n];\n",
        rows.join(",\n  ")
    )
}

fn row_of(one: &variables::Variable) -> Json {
    let (kind, choices) = match one.kind {
        Kind::Switch | Kind::Text(_) => ("text", &[][..]),
        Kind::Choice(names) => ("choice", names),
        Kind::Number { .. } => ("count", &[][..]),
        Kind::Bytes => ("size", &[][..]),
    };
    let choices: Vec<_> = choices.iter().map(|name| name.to_string_lossy()).collect();
    let hint = one
        .hint
        .map(|hint| json!({ "en": hint.en, "ja": hint.ja, "zh-TW": hint.zh_tw }));
    json!({
        "name": one.name,
        "kind": kind,
        "choices": choices,
        "rebuilds": one.change == Change::Rebuilds,
        "hint": hint,
    })
}

/// The limits that the page uses.
const LIMITS: [&str; 5] = ["IDLE", "ALIKE", "LITTLE", "FULL", "HALF"];

/// Returns the rows of a report as a TypeScript type.
fn rows_of(name: &str, report: &[Column]) -> String {
    let members: String = report
        .iter()
        .map(|column| {
            let kind = match column.value {
                Value::Whole | Value::Small | Value::Real => "number",
                Value::Yes => "boolean",
                Value::Text(_) => "string",
                Value::Name(_) => "string | null",
            };
            let meaning = column.meaning.replace("1 if", "Whether");
            format!("  /** {meaning}. */\n  {}: {kind};\n", column.key)
        })
        .collect();
    format!("\nexport interface {name} {{\n{members}}}\n")
}

/// Finds the line that begins a type, and the comment above it.
fn begin<'a>(lines: &[&'a str], head: &str) -> Result<(usize, Vec<&'a str>), String> {
    let first = lines
        .iter()
        .position(|line| *line == head)
        .ok_or_else(|| format!("there is no `{head}`"))?;
    let above = lines[..first].iter().rev();
    let mut comment: Vec<&str> = above
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("///"))
        .collect();
    comment.reverse();
    Ok((first, comment))
}

/// Converts an enumeration without values: the list of words, and their union type.
fn words_of(lines: &[&str], (_, name, ours): Sent) -> Result<String, String> {
    let (first, comment) = begin(lines, &format!("pub enum {name} {{"))?;
    let mut words = Vec::new();
    let mut renamed = None;
    for line in lines[first + 1..].iter().take_while(|line| **line != "}") {
        let line = line.trim();
        if let Some(word) = line.strip_prefix("#[serde(rename = \"") {
            renamed = word.split('"').next().map(str::to_owned);
        } else if let Some(variant) = line.strip_suffix(',') {
            words.push(renamed.take().unwrap_or_else(|| variant.to_lowercase()));
        } else if !line.starts_with("///") {
            return Err(format!("{name}: what is `{line}`?"));
        }
    }
    let list = words.join("\", \"");
    let constant: String = ours
        .char_indices()
        .map(|(at, c)| {
            let between = if at > 0 && c.is_uppercase() { "_" } else { "" };
            format!("{between}{}", c.to_ascii_uppercase())
        })
        .collect();
    Ok(format!(
        "\n{}export const {constant}S = [\"{list}\"] as const;\nexport type {ours} = (typeof {constant}S)[number];\n",
        commented(&comment, "")
    ))
}

/// Converts a Rust struct that is sent as JSON to TypeScript.
fn interface_of(lines: &[&str], (file, name, ours): Sent) -> Result<String, String> {
    let (first, mut comment) = begin(lines, &format!("pub struct {name} {{"))?;
    let mut text = format!("\n{}export interface {ours} {{\n", commented(&comment, ""));
    comment.clear();
    let mut left_out = false;
    for line in lines[first + 1..].iter().take_while(|line| **line != "}") {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words);
        } else if line.starts_with("#[serde(skip_serializing_if") || line == "#[serde(default)]" {
            left_out = true;
        } else if let Some((field, kind)) = line
            .strip_prefix("pub ")
            .and_then(|line| line.trim_end_matches(',').split_once(": "))
        {
            let kind = match (ours, field) {
                ("Figures", "state") => "State".to_owned(),
                _ => {
                    type_of(file, kind).ok_or_else(|| format!("{name}.{field}: what is {kind}?"))?
                }
            };
            // Empty fields are omitted, not sent as null.
            let (mark, kind) = if left_out {
                ("?", kind.trim_end_matches(" | null"))
            } else {
                ("", kind.as_str())
            };
            text.push_str(&commented(&comment, "  "));
            text.push_str(&format!("  {field}{mark}: {kind};\n"));
            comment.clear();
            left_out = false;
        } else if !line.is_empty() {
            return Err(format!("{name}: what is `{line}`?"));
        }
    }
    text.push_str("}\n");
    Ok(text)
}

/// Converts a field type that occurs in this file.
fn type_of(file: &str, kind: &str) -> Option<String> {
    let inner = |before: &str| kind.strip_prefix(before)?.strip_suffix('>');
    Some(match kind {
        "f64" | "u64" => "number".to_owned(),
        "bool" => "boolean".to_owned(),
        "String" | "&'static str" => "string".to_owned(),
        "BTreeMap<&'static str, Value>" => "Record<string, number | string>".to_owned(),
        _ => {
            if let Some(inner) = inner("Option<") {
                format!("{} | null", type_of(file, inner)?)
            } else if let Some(inner) = inner("Vec<") {
                format!("{}[]", type_of(file, inner)?)
            } else {
                let named = || SENT.iter().filter(|(_, name, _)| *name == kind);
                let own = named().find(|(of, _, _)| *of == file);
                own.or_else(|| named().next())?.2.to_owned()
            }
        }
    })
}

/// Formats a TypeScript comment.
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
