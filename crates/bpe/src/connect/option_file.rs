//! The option files of the MySQL and MariaDB programs (`my.cnf`).
//!
//! The dialect differs from INI as libraries parse it: values with quotes and backslash escapes, `#` ends a line except
//! inside quotes, options without a value, `-` equals `_`, `!include` and `!includedir`, and group names with version
//! and suffix. Hence this small parser.
//!
//! Files are read in order, and a later setting replaces an earlier one in any of the wanted groups.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::files::{is_administrators, read_bounded};
use crate::support::quote::shell_path;

/// Maximum nesting of `!include`, as in the servers.
const MAX_DEPTH: usize = 10;
/// Limits on the size of a file in bytes and on the number of files, because other users may own a server's files.
const MAX_BYTES: u64 = 4 << 20;
const MAX_FILES: usize = 1000;
/// Limits on the included directories and on the settings and warnings of all files.
const MAX_DIRECTORIES: usize = 1000;
const MAX_SETTINGS: usize = 100_000;
const MAX_WARNINGS: usize = 1000;

/// One `name` or `name = value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub group: String,
    /// Lower case with `_`, without a leading `loose_`.
    pub name: String,
    pub value: Option<String>,
    pub file: PathBuf,
}

/// Everything read from a set of option files.
#[derive(Debug, Default)]
pub struct OptionFiles {
    pub settings: Vec<Setting>,
    /// Directories of `!includedir`, in order of appearance.
    pub include_dirs: Vec<PathBuf>,
    /// Files read.
    pub files: Vec<PathBuf>,
    /// Hints for the user: ignored files, unparsable lines.
    pub warnings: Vec<String>,
    /// Files read that users other than root and this one can change.
    pub foreign: Vec<PathBuf>,
    /// Whether to skip foreign files: root trusts such a file only if it is named explicitly.
    skips_foreign: bool,
    /// The explicitly named file.
    named: Option<PathBuf>,
    /// Prefix of every path, for a server with another root directory.
    root: PathBuf,
    /// A limit was reached, and nothing more is read.
    is_full: bool,
}

impl OptionFiles {
    /// For option files of this command.
    pub fn new() -> Self {
        Self {
            skips_foreign: rustix::process::geteuid().is_root(),
            ..Self::in_root(Path::new("/"))
        }
    }

    /// For option files of a server whose `/` is `root`. Paths in `files`, `include_dirs` and settings stay as that server sees them.
    pub fn in_root(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            ..Self::default()
        }
    }

    fn real(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(rest) => self.root.join(rest),
            Err(_) => path.to_path_buf(),
        }
    }

    /// Reads `path` if it exists. As in the servers, a missing file is no error.
    pub fn read_if_present(&mut self, path: &Path) {
        if self.real(path).is_file() {
            self.read_nested(path, 0);
        }
    }

    /// Reads `path`, which the user named: a missing file is an error.
    pub fn read_required(&mut self, path: &Path) -> std::io::Result<()> {
        read_bounded(&self.real(path), MAX_BYTES)?;
        self.named = Some(path.to_path_buf());
        self.read_nested(path, 0);
        Ok(())
    }

    /// Whether a limit is reached. The first that is adds the last warning.
    fn is_full(&mut self, path: &Path) -> bool {
        let is_over = self.files.len() >= MAX_FILES
            || self.include_dirs.len() >= MAX_DIRECTORIES
            || self.settings.len() >= MAX_SETTINGS
            || self.warnings.len() >= MAX_WARNINGS;
        if is_over && !self.is_full {
            self.is_full = true;
            let what = "too many option files, settings or warnings";
            self.warnings
                .push(format!("{}: {what}, the rest is ignored", path.display()));
        }
        self.is_full
    }

    fn read_nested(&mut self, path: &Path, depth: usize) {
        if self.is_full(path) {
            return;
        }
        if depth > MAX_DEPTH {
            self.warnings.push(format!(
                "{}: !include nested too deep, ignored",
                path.display()
            ));
            return;
        }
        let real = self.real(path);
        // The servers also skip a world-writable file, because any user could put a password or library there.
        match fs::metadata(&real) {
            Ok(meta) if meta.is_file() && meta.mode() & 0o002 != 0 => {
                self.warnings.push(format!(
                    "{} is world-writable and was ignored (chmod o-w {})",
                    path.display(),
                    shell_path(path)
                ));
                return;
            }
            _ => {}
        }
        if !std::path::absolute(path).is_ok_and(|path| is_administrators(&path)) {
            if self.skips_foreign && self.named.as_deref() != Some(path) {
                self.warnings.push(format!(
                    "{} was ignored, as another user can change it: name it with --defaults-extra-file if it is meant",
                    path.display()
                ));
                return;
            }
            self.foreign.push(path.to_path_buf());
        }
        let text = match read_bounded(&real, MAX_BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                self.warnings
                    .push(format!("cannot read {}: {error}", path.display()));
                return;
            }
        };
        self.files.push(path.to_path_buf());
        let mut group = None;
        for (index, line) in text.lines().enumerate() {
            if self.is_full(path) {
                return;
            }
            match parse_line(line) {
                Line::Blank => {}
                Line::Group(name) => group = Some(name),
                Line::Include(target) => {
                    let target = relative_to(path, &target);
                    if self.real(&target).is_file() {
                        self.read_nested(&target, depth + 1);
                    }
                }
                Line::IncludeDir(target) => {
                    let target = relative_to(path, &target);
                    self.read_folder(&target, depth + 1);
                }
                Line::Setting(name, value) => match &group {
                    Some(group) => self.settings.push(Setting {
                        group: group.clone(),
                        name,
                        value,
                        file: path.to_path_buf(),
                    }),
                    None => self.warnings.push(format!(
                        "{}, line {}: an option outside of any [group], ignored",
                        path.display(),
                        index + 1
                    )),
                },
                Line::Wrong(why) => self.warnings.push(format!(
                    "{}, line {}: {why}, ignored",
                    path.display(),
                    index + 1
                )),
            }
        }
    }

    fn read_folder(&mut self, folder: &Path, depth: usize) {
        self.include_dirs.push(folder.to_path_buf());
        let Ok(entries) = fs::read_dir(self.real(folder)) else {
            return;
        };
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| Path::new(name).extension().is_some_and(|e| e == "cnf"))
            .collect();
        names.sort();
        for name in names {
            let path = folder.join(name);
            if self.is_full(&path) {
                return;
            }
            if self.real(&path).is_file() {
                self.read_nested(&path, depth);
            }
        }
    }

    /// The last setting of `name` in any of `groups`.
    pub fn last(&self, groups: &[String], name: &str) -> Option<&Setting> {
        self.settings
            .iter()
            .rev()
            .find(|setting| setting.name == name && groups.contains(&setting.group))
    }

    /// The value of the last setting of `name` in any of `groups`.
    pub fn value(&self, groups: &[String], name: &str) -> Option<&str> {
        self.last(groups, name)?.value.as_deref()
    }
}

/// The servers resolve `!include` paths relative to the current directory. Option files use absolute paths, and the
/// including file's directory is the better guess for others.
fn relative_to(file: &Path, target: &str) -> PathBuf {
    let target = Path::new(target);
    if target.is_absolute() {
        return target.to_path_buf();
    }
    file.parent().unwrap_or(Path::new(".")).join(target)
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Blank,
    Group(String),
    Include(String),
    IncludeDir(String),
    Setting(String, Option<String>),
    Wrong(&'static str),
}

fn parse_line(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') || line.starts_with(';') {
        return Line::Blank;
    }
    if let Some(rest) = line.strip_prefix('!') {
        // "includedir" before "include", its prefix.
        let directive = |name: &str| {
            rest.strip_prefix(name)
                .filter(|tail| tail.starts_with([' ', '\t']))
                .map(|tail| tail.trim().to_owned())
        };
        if let Some(target) = directive("includedir") {
            return Line::IncludeDir(target);
        }
        if let Some(target) = directive("include") {
            return Line::Include(target);
        }
        return Line::Wrong("an unknown ! directive");
    }
    if let Some(rest) = line.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, _)) => Line::Group(name.trim().to_owned()),
            None => Line::Wrong("a [group] without its closing bracket"),
        };
    }
    let line = line[..end_of_content(line)].trim_end();
    match line.split_once('=') {
        Some((name, value)) => Line::Setting(option_name(name), Some(option_value(value))),
        None => Line::Setting(option_name(line), None),
    }
}

/// Start of a trailing `# comment`; `#` inside quotes is content.
fn end_of_content(line: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            _ if escaped => {
                escaped = false;
                continue;
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') => return at,
            _ => {}
        }
    }
    line.len()
}

/// Normalized name for comparisons: `Loose-Bpe-Size` becomes `bpe_size`.
pub fn option_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    match name.strip_prefix("loose_") {
        Some(rest) => rest.to_owned(),
        None => name,
    }
}

fn option_value(value: &str) -> String {
    let value = value.trim();
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('s') => out.push(' '),
            Some(c @ ('"' | '\'' | '\\')) => out.push(c),
            // An unknown escape stays unchanged.
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn values_lose_quotes_comments_and_escapes() {
        let cases = [
            ("password = plain", "plain"),
            ("password=\"with # hash\" # comment", "with # hash"),
            ("password='it''s'", "it''s"),
            (r#"password="quo\"te # in""#, "quo\"te # in"),
            (r"password=a\sb\tc\\d", "a b\tc\\d"),
            (r"password=keep\q", r"keep\q"),
            ("password=bare#comment", "bare"),
            ("password=", ""),
            ("password = a=b", "a=b"),
        ];
        for (line, wanted) in cases {
            assert_eq!(
                parse_line(line),
                Line::Setting("password".into(), Some(wanted.into())),
                "{line}"
            );
        }
    }

    #[test]
    fn names_compare_with_dash_underscore_and_loose_alike() {
        assert_eq!(
            option_name(" Loose-Innodb-Buffer_pool-size "),
            "innodb_buffer_pool_size"
        );
        assert_eq!(
            parse_line("skip-ssl"),
            Line::Setting("skip_ssl".into(), None)
        );
    }

    #[test]
    fn wrong_lines_are_reported() {
        assert!(matches!(parse_line("[client"), Line::Wrong(_)));
        assert!(matches!(parse_line("!includedirs /x"), Line::Wrong(_)));
    }

    #[test]
    fn last_setting_wins_over_files_and_groups() {
        let folder = tempfile::tempdir().unwrap();
        let main = write(
            folder.path(),
            "my.cnf",
            &format!(
                "user=nobody\n[client]\nuser=a\nport=1\n!includedir {}/d\n[mysqldump]\nuser=z\n",
                folder.path().display()
            ),
        );
        write(folder.path(), "d/20.cnf", "[mysql]\nuser=c\n");
        write(folder.path(), "d/10.cnf", "[client]\nuser=b\nport=2\n");
        write(folder.path(), "d/ignored.txt", "[client]\nuser=x\n");
        let mut files = OptionFiles::new();
        files.read_required(&main).unwrap();
        let wanted = groups(&["client", "mysql"]);
        assert_eq!(files.value(&wanted, "user"), Some("c"));
        assert_eq!(files.value(&wanted, "port"), Some("2"));
        assert_eq!(files.include_dirs, [folder.path().join("d")]);
        assert_eq!(files.files.len(), 3);
        // The option before the first group.
        assert_eq!(files.warnings.len(), 1);
    }

    #[test]
    fn world_writable_files_are_ignored_and_reported() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let main = write(folder.path(), "my.cnf", "[client]\nuser=a\n");
        fs::set_permissions(&main, fs::Permissions::from_mode(0o646)).unwrap();
        let mut files = OptionFiles::new();
        files.read_required(&main).unwrap();
        assert!(files.settings.is_empty());
        assert!(files.warnings[0].contains("world-writable"));
    }

    #[test]
    fn hostile_files_end_with_one_warning() {
        let folder = tempfile::tempdir().unwrap();
        let include = format!("!include {}/b.cnf\n", folder.path().display());
        let directory = format!("!includedir {}/empty\n", folder.path().display());
        write(folder.path(), "empty/none", "");
        write(folder.path(), "b.cnf", "");
        for (text, wanted) in [
            (include.repeat(2000), [MAX_FILES, 0, 0, 1]),
            (directory.repeat(2000), [1, MAX_DIRECTORIES, 0, 1]),
            (
                format!("[a]\n{}", "b\n".repeat(MAX_SETTINGS + 9)),
                [1, 0, MAX_SETTINGS, 1],
            ),
            ("b\n".repeat(5000), [1, 0, 0, MAX_WARNINGS + 1]),
        ] {
            let mut files = OptionFiles::new();
            let path = write(folder.path(), "my.cnf", &text);
            files.read_required(&path).unwrap();
            let found = [
                files.files.len(),
                files.include_dirs.len(),
                files.settings.len(),
                files.warnings.len(),
            ];
            assert_eq!(found, wanted);
            assert!(
                files
                    .warnings
                    .last()
                    .unwrap()
                    .contains("the rest is ignored")
            );
        }
    }

    #[test]
    fn an_include_of_itself_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        fs::write(
            &path,
            format!("!include {}\n[client]\nuser=a\n", path.display()),
        )
        .unwrap();
        let mut files = OptionFiles::new();
        files.read_if_present(&path);
        assert_eq!(files.value(&groups(&["client"]), "user"), Some("a"));
        assert!(files.warnings[0].contains("too deep"));
    }

    #[test]
    fn another_root_is_read_with_its_own_paths() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/my.cnf", "!includedir /etc/d\n");
        write(root.path(), "etc/d/a.cnf", "[mysqld]\nport=9\n");
        let mut files = OptionFiles::in_root(root.path());
        files.read_if_present(Path::new("/etc/my.cnf"));
        let setting = files.last(&groups(&["mysqld"]), "port").unwrap();
        assert_eq!(setting.file, Path::new("/etc/d/a.cnf"));
    }

    #[test]
    fn a_missing_named_file_is_an_error() {
        let mut files = OptionFiles::new();
        assert!(files.read_required(Path::new("/nowhere/my.cnf")).is_err());
    }
}
