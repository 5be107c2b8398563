//! No circle of imports between the files of a crate: what a file says of itself can be understood from those below it.
//!
//! An import is a path in a `use` or in the code that leads to another file of the crate: by `crate::`, `super::`, or the
//! name of a module below. Tests within a file, and files of tests, may import what they like. `mod` is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates that have no circle.
const CRATES: [&str; 2] = ["coherence", "plugin"];

/// A module by its path from the crate's root, which is the empty one.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn no_file_imports_itself_by_way_of_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for name in CRATES {
        let files = files(&crates.join(name).join("src"));
        assert!(files.len() > 1, "no files of {name}");
        for circle in circles(&imports(&files)) {
            found.push(format!("{name}: {circle}"));
        }
    }
    assert!(
        found.is_empty(),
        "circles of imports:\n{}",
        found.join("\n")
    );
}

/// What is a value can be made as often as a test likes. The builds that are wrong on purpose, or can be held up, are none.
#[test]
fn the_rules_of_coherence_are_a_value() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (module, text) in files(&crates.join("coherence/src")) {
        if ["canary", "hold_up"].contains(&name(&module).as_str()) {
            continue;
        }
        let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
        let mut lines = text[..tests].lines().map(str::trim);
        let found =
            lines.find(|line| line.starts_with("static ") || line.starts_with("pub static "));
        assert_eq!(found, None, "{}", name(&module));
    }
}

#[test]
fn circles_are_found() {
    let of = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|(name, text)| (module(Path::new(name)), (*text).to_owned()))
            .collect();
        circles(&imports(&files))
    };
    assert!(of(&[("a.rs", "use crate::b::{C, d};"), ("b.rs", "use std::a;")]).is_empty());
    let direct = of(&[
        ("a.rs", "use crate::{c, b::{C, d}};"),
        ("b.rs", "fn f() { crate::a::g() }"),
        ("c.rs", ""),
    ]);
    assert_eq!(direct, ["a -> b -> a"]);
    let child = of(&[
        ("a.rs", "mod b;\npub use b::C;"),
        ("a/b.rs", "use super::{D, d};"),
    ]);
    assert_eq!(child, ["a -> a::b -> a"]);
    let far = of(&[
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::\n    c::X;"),
        ("c.rs", "use crate::a;"),
    ]);
    assert_eq!(far, ["a -> b -> c -> a"]);
    let tests = "// use crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n";
    assert!(of(&[("a.rs", tests), ("b.rs", "use crate::a;")]).is_empty());
    let siblings = [
        ("a.rs", ""),
        ("a/b.rs", "use super::c::X;"),
        ("a/c.rs", "use super::b;"),
    ];
    assert_eq!(of(&siblings), ["a::b -> a::c -> a::b"]);
}

/// The files below a folder, with their texts, without those of tests.
fn files(root: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        for entry in entries {
            let path: PathBuf = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !name.ends_with("tests")
            {
                let text = std::fs::read_to_string(&path).expect("a file of the crate");
                found.insert(
                    module(path.strip_prefix(root).expect("below the root")),
                    text,
                );
            }
        }
    }
    found
}

/// The module that a file is, by its path below `src`.
fn module(path: &Path) -> Module {
    let mut names: Module = path
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.last().is_some_and(|last| last == "mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    names
}

fn imports(files: &BTreeMap<Module, String>) -> Imports {
    let mut imports = Imports::new();
    for (module, text) in files {
        let mut into = BTreeSet::new();
        for path in paths(text) {
            into.extend(target(files, module, &path));
        }
        into.remove(module);
        imports.insert(module.clone(), into);
    }
    imports
}

/// Paths in a file, each as its words: those of `use`, opened up, and those that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    let code: String = text[..tests]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        if at == 0 || code[..at].ends_with(['\n', ' ']) {
            let statement = code[at + 4..].split(';').next().unwrap_or_default();
            open_up(&Vec::new(), statement, &mut found);
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let length = code[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let path = &code[at..at + length.unwrap_or(code.len() - at)];
            let words: Vec<String> = path
                .split("::")
                .filter(|word| !word.is_empty())
                .map(String::from)
                .collect();
            // `crate::{a, b}` was opened up above.
            if words.len() > 1 && !code[..at].ends_with("::") {
                found.push(words);
            }
        }
    }
    found
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn open_up(before: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let (head, inner) = match tree.split_once('{') {
        Some((head, rest)) => (
            head,
            Some(rest.rsplit_once('}').map_or(rest, |(inner, _)| inner)),
        ),
        None => (tree, None),
    };
    let mut path = before.to_vec();
    let head = head.split(" as ").next().unwrap_or_default();
    path.extend(
        head.split("::")
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(String::from),
    );
    let Some(inner) = inner else {
        found.push(path);
        return;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = &inner[begin..at];
                if !part.trim().is_empty() {
                    open_up(&path, part, found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The file that a path leads to: the longest part of it that is one.
fn target(files: &BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<Module> {
    let mut at = from.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &path[1..];
        }
        "super" | "self" => {
            while let Some(word @ ("super" | "self")) = rest.first().map(String::as_str) {
                if word == "super" {
                    at.pop();
                }
                rest = &rest[1..];
            }
        }
        child => {
            at.push(child.to_owned());
            rest = &path[1..];
        }
    }
    if !at.is_empty() && !files.contains_key(&at) {
        return None;
    }
    for word in rest {
        at.push(word.clone());
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
    }
    files.contains_key(&at).then_some(at)
}

/// One circle for each set of files that all lead to each other.
fn circles(imports: &Imports) -> Vec<String> {
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    for module in imports.keys() {
        if told.contains(module) {
            continue;
        }
        let Some(way) = way_back(imports, module) else {
            continue;
        };
        told.extend(
            reachable(imports, module)
                .into_iter()
                .filter(|other| reachable(imports, other).contains(module)),
        );
        let names: Vec<_> = way.iter().map(name).collect();
        found.push(names.join(" -> "));
    }
    found
}

fn name(module: &Module) -> String {
    if module.is_empty() {
        "the root".into()
    } else {
        module.join("::")
    }
}

fn reachable(imports: &Imports, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from.clone()];
    while let Some(module) = next.pop() {
        for other in imports.get(&module).into_iter().flatten() {
            if seen.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    seen
}

/// The shortest way from a file over others to itself.
fn way_back(imports: &Imports, module: &Module) -> Option<Vec<Module>> {
    let mut ways = std::collections::VecDeque::from([vec![module.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for other in imports.get(way.last()?).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(other.clone());
            if other == module {
                return Some(longer);
            }
            if seen.insert(other.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}
