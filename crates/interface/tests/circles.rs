//! No import cycles between the files of a crate: each file can be understood from the files below it.
//!
//! An import is a path in a `use` or in code that leads to another file of the crate: by `crate::`, `super::`, or the name
//! of a module below. A re-exported name (`pub use`) counts as an import from its original file. Tests within a file, and
//! test files, may import any file. `mod` is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Remaining cycles, each by a crate and its files. The list may only get shorter: a resolved cycle must be removed from it.
///
/// In the model any operation may interrupt any other, which is its purpose.
const LEFT: [(&str, &[&str]); 1] = [(
    "coherence-model",
    &[
        "asynchronous",
        "calls",
        "coverage",
        "kernel",
        "operations",
        "operations::looks",
        "operations::names",
        "operations::pages",
        "operations::ranges",
        "operations::replaced",
        "operations::ring",
        "operations::warm",
        "switching",
        "world",
    ],
)];

/// A module by its path from the crate's root, which is empty.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn crates() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(folder).expect("the folder of crates");
    let mut crates: Vec<_> = entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .collect();
    crates.sort();
    assert!(crates.len() > 10, "{crates:?}");
    crates
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, folder) in crates() {
        let files = files(&folder.join("src"));
        assert!(!files.is_empty(), "no files of {name}");
        for (way, members) in circles(&imports(&files)) {
            let left = (name.as_str(), members.iter().map(String::as_str).collect());
            let known = |(of, files): &(&str, &[&str])| (*of, files.to_vec()) == left;
            match LEFT.iter().position(known) {
                Some(at) => drop(seen.insert(at)),
                None => found.push(format!("{name}: {way}; {members:?}")),
            }
        }
    }
    assert!(
        found.is_empty(),
        "circles of imports:\n{}",
        found.join("\n")
    );
    assert_eq!(
        seen.len(),
        LEFT.len(),
        "a circle is gone; take it from the list"
    );
}

/// Crates whose rooms still import each other. A crate must be removed from the list once its rooms are in order.
///
/// A room is an entry at the top level of a crate's `src`: a directory with its files, or a single file.
const ROOMS_LEFT: &[&str] = &[
    "cloud-volume",
    "coherence-model",
    "interface",
    "private-server",
];

/// Limit of rooms in a crate.
const ROOMS: usize = 10;

/// A crate with more rooms has a table of them in its head, from top to bottom.
const ROOMS_UNLISTED: usize = 7;

#[test]
fn rooms_of_a_crate_import_one_way() {
    let mut found = Vec::new();
    for (name, folder) in crates() {
        let rooms = rooms(&imports(&files(&folder.join("src"))));
        let listed = listed_rooms(&folder.join("src"));
        // A private module of tests is no room of the crate.
        let names = rooms.keys().filter_map(|room| room.first());
        let unlisted: Vec<_> = names
            .filter(|name| !listed.contains(name) && *name != "tests")
            .collect();
        let circles: Vec<_> = circles(&rooms).into_iter().map(|(way, _)| way).collect();
        let mut problems: Vec<_> = circles.iter().map(|way| format!("{name}: {way}")).collect();
        if rooms.len() > ROOMS {
            problems.push(format!(
                "{name}: {} rooms, limit {ROOMS}: {:?}",
                rooms.len(),
                rooms.keys().map(self::name).collect::<Vec<_>>()
            ));
        }
        let depth = |room: &Module| listed.iter().position(|name| name == &room[0]);
        if !listed.is_empty() || rooms.len() > ROOMS_UNLISTED {
            problems.extend(unlisted.iter().map(|room| {
                format!("{name}: the head of the crate does not list the room {room}")
            }));
            let arrows = rooms
                .iter()
                .flat_map(|(from, into)| into.iter().map(move |to| (from, to)));
            let up = arrows.filter(|(from, to)| depth(to) < depth(from));
            problems.extend(up.map(|(from, to)| {
                format!(
                    "{name}: {} imports {}, which the crate's head lists above it",
                    self::name(from),
                    self::name(to)
                )
            }));
        }
        match (problems.is_empty(), ROOMS_LEFT.contains(&name.as_str())) {
            (false, false) => found.extend(problems),
            (true, true) => found.push(format!("{name} is in order; take it from ROOMS_LEFT")),
            _ => (),
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the rooms in the table of the crate's head, from top to bottom.
fn listed_rooms(source: &Path) -> Vec<String> {
    let roots = ["lib.rs", "main.rs"].map(|name| source.join(name));
    let text = roots
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok());
    let text = text.expect("the root of a crate");
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let room = |line: &str| {
        let (room, _) = line.strip_prefix("//! | [`")?.split_once("`]")?;
        Some(room.to_owned())
    };
    head.filter_map(room).collect()
}

/// Merges the files of each room into one module, and drops the root.
fn rooms(imports: &Imports) -> Imports {
    let room = |module: &Module| module.first().map(|first| vec![first.clone()]);
    let mut rooms = Imports::new();
    for (module, into) in imports {
        let Some(from) = room(module) else {
            continue;
        };
        let others = into.iter().filter_map(room).filter(|to| *to != from);
        rooms.entry(from.clone()).or_default().extend(others);
    }
    rooms
}

/// Cargo allows cycles through dev-dependencies. There are none of these either.
#[test]
fn no_crate_needs_itself_by_way_of_others() {
    let crates: BTreeMap<String, String> = crates()
        .into_iter()
        .map(|(name, folder)| {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml"));
            (name, manifest.expect("a manifest"))
        })
        .collect();
    let mut needs = Imports::new();
    for (name, manifest) in &crates {
        let named = manifest.lines().filter_map(|line| {
            let word = line.split(['.', ' ', '=']).next()?.to_owned();
            crates.contains_key(&word).then_some(vec![word])
        });
        needs.insert(vec![name.clone()], named.collect());
    }
    assert!(needs[&vec!["plugin".to_owned()]].contains(&vec!["coherence".to_owned()]));
    assert_eq!(circles(&needs), []);
}

/// Statics of a file, without statics of tests and without tables: of the servers' ABIs (`ServerTable`), and of original
/// calls (`Original`). Immutable constants (`&'static`) do not count.
fn statics(text: &str) -> Vec<String> {
    // Test statics that hooks or the controller fill.
    let mut code = code(text).replace("#[cfg(test)]\npub static", "");
    if let Some(begin) = code.find("#[cfg(test)]\nthread_local!") {
        let end = code[begin..]
            .find("\n}")
            .map_or(code.len(), |end| begin + end);
        code.replace_range(begin..end, "");
    }
    let lines = code.lines().map(str::trim).filter_map(|line| {
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            rest.trim_start_matches(|c| c != ' ').trim_start()
        });
        let (name, kind) = line.strip_prefix("static ")?.split_once(':')?;
        let of_a_table = ["ServerTable", "Original", "c_int", "extern"];
        let is_table = of_a_table
            .iter()
            .any(|table| kind.trim().starts_with(table));
        (!is_table).then(|| name.to_owned())
    });
    lines.collect()
}

/// The plugin is loaded into one process, which has one of each of these. The list may only get shorter: a removed static
/// must leave it, and a new one must become a field of an existing value.
const STATICS: [&str; 20] = [
    "abi::privilege::REFUSAL_LOGGED",
    "abi::status::SHOWN",
    "control::host::CONTROLLER",
    "intercept::untracked::ASYNC_IO",
    "platform::clock::TEST_CLOCK",
    "platform::error_log::ERROR_LOG",
    "platform::innodb::SEEN",
    "platform::naive::STORES",
    "platform::process::CORE",
    "platform::process::SUSPENSIONS",
    "platform::process::TABLE",
    "reports::diagnostics::DIAGNOSTICS",
    "restart::state::RESTART",
    "settings::INTERNED",
    "settings::LOADED",
    "settings::READ_TIMEOUT",
    "settings::VALUES",
    "settings::WRITE_BUDGET",
    "settings::bypass::BYPASS",
    "tables::TABLES",
];

#[test]
fn the_statics_of_the_plugin_only_get_fewer() {
    let (_, folder) = crates()
        .into_iter()
        .find(|(name, _)| name == "plugin")
        .expect("the plugin");
    let mut found: Vec<String> = files(&folder.join("src"))
        .iter()
        .flat_map(|(module, text)| {
            let statics = statics(text).into_iter();
            statics.map(move |one| format!("{}::{one}", name(module)))
        })
        .collect();
    found.sort();
    assert_eq!(found, STATICS);
}

/// Tests can create any number of values. Excluded: the switches of tests.
#[test]
fn the_rules_of_coherence_are_a_value() {
    let (_, folder) = crates()
        .into_iter()
        .find(|(name, _)| name == "coherence")
        .expect("coherence");
    for (module, text) in files(&folder.join("src")) {
        if module.first().is_none_or(|room| room != "testing") {
            assert_eq!(statics(&text), [""; 0], "{}", name(&module));
        }
    }
}

#[test]
fn circles_are_found() {
    let of = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|(name, text)| (module(Path::new(name)), (*text).to_owned()))
            .collect();
        let circles = circles(&imports(&files)).into_iter();
        circles.map(|(way, _)| way).collect::<Vec<_>>()
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
    let by_name = [
        ("a.rs", "mod b;\nfn f() { b::g() }"),
        ("a/b.rs", "use super::D;"),
    ];
    assert_eq!(of(&by_name), ["a -> a::b -> a"]);
    let within = "use crate::b;\nmod inner {\n    use super::c;\n}\n";
    assert!(of(&[("a.rs", within), ("b.rs", ""), ("lib.rs", "use a;")]).is_empty());
    let passed = [
        ("lib.rs", "pub use a::A;\npub use b::{B as C, D};"),
        ("a.rs", "use crate::D;"),
        ("b.rs", ""),
    ];
    assert!(of(&passed).is_empty());
    let not_passed = [
        ("lib.rs", "pub use a::A;\npub struct D;"),
        ("a.rs", "use crate::D;"),
    ];
    assert_eq!(of(&not_passed), ["the root -> a -> the root"]);
}

/// Returns the files below a directory with their texts, without test files.
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
            // Code that runs only under the checker is a test.
            if name == "interleavings" {
                continue;
            }
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

/// Returns the module of a file, by its path below `src`.
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
    let passed = passed_on(files);
    for (module, text) in files {
        let mut into = BTreeSet::new();
        for path in paths(text) {
            if path.iter().any(|word| word == "tests") {
                continue;
            }
            let Some((mut from, mut rest)) = target(files, module, &path) else {
                continue;
            };
            while let Some(to) = rest
                .first()
                .and_then(|name| passed.get(&(from.clone(), name.clone())))
            {
                (from, rest) = to.clone();
            }
            into.insert(from);
        }
        let below = |other: &&Module| other.len() == module.len() + 1 && other.starts_with(module);
        let code = code(text);
        let named = |other: &&Module| names(&code, &other[module.len()]);
        into.extend(files.keys().filter(below).filter(named).cloned());
        into.remove(module);
        imports.insert(module.clone(), into);
    }
    imports
}

/// Returns a file's text without tests and comments.
fn code(text: &str) -> String {
    let tests = ["mod ", "pub mod ", "pub(crate) mod "]
        .iter()
        .filter_map(|module| text.find(&format!("\n#[cfg(test)]\n{module}tests {{")))
        .min()
        .unwrap_or(text.len());
    let mut inside = false;
    let lines = text[..tests].lines().map(|line| {
        let code = line.split("//").next().unwrap_or_default();
        inside = match code {
            "}" => false,
            _ => {
                inside || (code.contains("mod ") && code.ends_with(" {") && !code.starts_with(' '))
            }
        };
        // For a module written within the file, the parent is the file itself.
        let within = if inside { "self::" } else { "super::" };
        code.replace("super::", within)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a path in the code begins with this module.
fn names(code: &str, module: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.match_indices(&format!("{module}::"))
        .any(|(at, _)| !code[..at].ends_with(is_word))
}

/// Returns the paths in a file, each as its words: expanded `use` paths, and paths that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
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
            // `crate::{a, b}` was expanded above.
            if !path.ends_with("::") && !code[..at].ends_with("::") {
                found.push(words);
            }
        }
    }
    found
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d`, `a::c::e`.
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

/// Returns re-exported names, each with its original file and name.
fn passed_on(files: &BTreeMap<Module, String>) -> BTreeMap<(Module, String), (Module, Module)> {
    let mut passed = BTreeMap::new();
    for (module, text) in files {
        let code = code(text);
        for (at, start) in code
            .match_indices("pub use ")
            .chain(code.match_indices("pub(crate) use "))
        {
            let statement = code[at + start.len()..]
                .split(';')
                .next()
                .unwrap_or_default();
            let mut paths = Vec::new();
            open_up(&Vec::new(), statement, &mut paths);
            for path in paths {
                let to = target(files, module, &path);
                if let (Some(name), Some(to)) = (path.last(), to.filter(|to| to.0 != *module)) {
                    passed.insert((module.clone(), name.clone()), to);
                }
            }
        }
    }
    passed
}

/// Returns the file that a path leads to (its longest prefix that is a file), and the rest of the path.
fn target(
    files: &BTreeMap<Module, String>,
    from: &Module,
    path: &[String],
) -> Option<(Module, Module)> {
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
    let mut left = rest.to_vec();
    while let Some(word) = left.first() {
        at.push(word.clone());
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
        left.remove(0);
    }
    files.contains_key(&at).then_some((at, left))
}

/// Returns one cycle for each set of files that all lead to each other, and that set.
fn circles(imports: &Imports) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    for module in imports.keys() {
        if told.contains(module) {
            continue;
        }
        let Some(way) = way_back(imports, module) else {
            continue;
        };
        let members: BTreeSet<_> = reachable(imports, module)
            .into_iter()
            .filter(|other| reachable(imports, other).contains(module))
            .collect();
        let names: Vec<_> = way.iter().map(name).collect();
        found.push((names.join(" -> "), members.iter().map(name).collect()));
        told.extend(members);
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

/// Returns the shortest cycle through a file.
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
