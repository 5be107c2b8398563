//! Puts the console's web page, where it was built (`web/dist`), into the program: a list of its files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[expect(clippy::disallowed_methods, reason = "the build writes its own file")]
fn main() -> io::Result<()> {
    let web = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../web");
    let page = web.join("dist");
    let mut files = Vec::new();
    if page.is_dir() {
        println!("cargo::rerun-if-changed={}", page.display());
        list(&page, "", &mut files)?;
    } else {
        // The page's folder appears in this one.
        println!("cargo::rerun-if-changed={}", web.display());
    }
    files.sort();
    let mut text = String::from("static ASSETS: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        let _ = writeln!(
            text,
            "    ({name:?}, include_bytes!({:?})),",
            path.display().to_string()
        );
    }
    text.push_str("];\n");
    fs::write(Path::new(&variable("OUT_DIR")).join("page.rs"), text)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn list(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push((name, entry.path().canonicalize()?));
        }
    }
    Ok(())
}
