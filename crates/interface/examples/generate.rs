//! Writes what is made from the lists in `interface` into the files of this repository that hold it:
//!
//!     cargo run -p interface --example generate
//!
//! `tests/generated.rs` fails when one of them is not current.

use std::fs;
use std::path::{Path, PathBuf};

use interface::Status;

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
    let text = fs::read_to_string(&document)
        .map_err(|error| format!("{}: {error}", document.display()))?;
    let text = between(&text, BEGIN, END, &table())
        .ok_or_else(|| format!("{} has no place for the table", document.display()))?;
    Ok(vec![(document, text)])
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
