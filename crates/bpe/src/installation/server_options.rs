//! Option files of a running server: where a snippet would be read, and which settings would override it.

use std::path::{Path, PathBuf};

use crate::connect::option_file::OptionFiles;
use crate::connect::process::Process;
use crate::connect::server::{Flavour, Version};

/// Sorts after common names, so that its settings are read last.
pub const SNIPPET: &str = "zz-bpe.cnf";

pub struct ServerOptions {
    pub files: OptionFiles,
    /// Distinguishes this server's groups from those of other servers with the same option files.
    pub suffix: Option<String>,
    groups: Vec<String>,
    flavour: Flavour,
}

impl ServerOptions {
    /// Reads the option files that the server reads at start, according to its command line and environment.
    pub fn read(process: &Process, flavour: Flavour, version: Version) -> Self {
        let mut files = OptionFiles::in_root(&process.root);
        let has = |flag: &str| process.command_line.iter().any(|argument| argument == flag);
        if has("--no-defaults") {
            // No file is read.
        } else if let Some(file) = process.option("defaults_file") {
            files.read_if_present(Path::new(file));
        } else {
            for path in ["/etc/my.cnf", "/etc/mysql/my.cnf"] {
                files.read_if_present(Path::new(path));
            }
            for name in ["MYSQL_HOME", "MARIADB_HOME"] {
                if let Some(home) = process.environment.get(name) {
                    files.read_if_present(&Path::new(home).join("my.cnf"));
                }
            }
            if let Some(file) = process.option("defaults_extra_file") {
                files.read_if_present(Path::new(file));
            }
            if let Some(home) = process.environment.get("HOME") {
                files.read_if_present(&Path::new(home).join(".my.cnf"));
            }
        }
        let mut groups = groups(flavour, version);
        let suffix = process
            .option("defaults_group_suffix")
            .or_else(|| {
                let of_environment = process.environment.get("MYSQL_GROUP_SUFFIX");
                of_environment.map(String::as_str)
            })
            .filter(|suffix| !suffix.is_empty())
            .map(str::to_owned);
        if let Some(suffix) = &suffix {
            let suffixed: Vec<_> = groups.iter().map(|g| format!("{g}{suffix}")).collect();
            groups.extend(suffixed);
        }
        Self {
            files,
            suffix,
            groups,
            flavour,
        }
    }

    /// The included directory for a snippet, as the server sees it: the one named after the server, else the last one read.
    pub fn snippet_folder(&self) -> Option<&Path> {
        let named = match self.flavour {
            Flavour::MariaDb => ["mariadb.conf.d", "my.cnf.d"],
            Flavour::MySql => ["mysql.conf.d", "my.cnf.d"],
        };
        let folders = &self.files.include_dirs;
        folders
            .iter()
            .find(|folder| named.iter().any(|name| folder.ends_with(name)))
            .or(folders.last())
            .map(PathBuf::as_path)
    }

    /// Whether the server reads `*.cnf` in this directory.
    pub fn reads(&self, folder: &Path) -> bool {
        self.files.include_dirs.iter().any(|known| known == folder)
    }

    /// The value of `name` at a server start without our snippet, which expresses no choice of the user.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.of_others(name)?.1
    }

    /// Other plugins that early-plugin-load must keep: the plugins of other files, else additions of a user to our snippet.
    pub fn early_load(&self) -> Option<&str> {
        let name = "early_plugin_load";
        let (_, value) = self.of_others(name).or(self.settings(name).next_back())?;
        value
    }

    /// Plugins that only our snippet loads early. A new snippet drops them, because it takes the list of the other files.
    pub fn early_plugins_to_drop(&self) -> Vec<&str> {
        let name = "early_plugin_load";
        let Some((_, Some(wanted))) = self.of_others(name) else {
            return Vec::new();
        };
        let ours = self.settings(name).rfind(|(file, _)| is_ours(file));
        let ours = ours.and_then(|(_, value)| value).unwrap_or_default();
        let mut dropped = only_in(ours, wanted);
        dropped.retain(|plugin| !plugin.starts_with("bpe"));
        dropped
    }

    /// The last file besides our snippet that sets `name`.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        Some(self.of_others(name)?.0)
    }

    /// The file that switches the extension on at the next start, if some file loads it.
    pub fn switched_on_by(&self) -> Option<&Path> {
        let loads = ["plugin_load_add", "plugin_load", "early_plugin_load"];
        let mut loaded = loads.iter().flat_map(|name| self.values(name));
        let (file, value) = self.settings("bpe_enabled").next_back()?;
        (value.is_none_or(is_on) && loaded.any(|list| list.contains("bpe"))).then_some(file)
    }

    /// Plugins that other files load early, but not our snippet, which is read last. They were added after it was written.
    pub fn early_plugins_left_out(&self) -> Vec<&str> {
        let name = "early_plugin_load";
        let Some((file, Some(ours))) = self.settings(name).next_back() else {
            return Vec::new();
        };
        if !is_ours(file) {
            return Vec::new();
        }
        only_in(self.value(name).unwrap_or_default(), ours)
    }

    fn of_others(&self, name: &str) -> Option<(&Path, Option<&str>)> {
        self.settings(name).rfind(|(file, _)| !is_ours(file))
    }

    /// All values of `name` at a server start, because some options accumulate.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.settings(name).filter_map(|(_, value)| value)
    }

    /// The file that sets `name` after `snippet`, if any. Files are read in order, and the last setting wins.
    pub fn overridden_by(&self, name: &str, snippet: &Path) -> Option<&Path> {
        let folder = snippet.parent()?;
        let ours = snippet.file_name()?;
        let (file, _) = self.settings(name).next_back()?;
        if file == snippet {
            return None;
        }
        if file.parent() == Some(folder) {
            return (file.file_name() > Some(ours)).then_some(file);
        }
        // The setting may be after the last file of our directory, or in the including file below its !includedir. The
        // latter is indistinguishable from a setting above it, so it counts as above unless files came between.
        let position =
            |wanted: &dyn Fn(&Path) -> bool| self.files.files.iter().rposition(|path| wanted(path));
        let last_of_folder = position(&|path| path.parent() == Some(folder))?;
        let of_setting = position(&|path| path == file)?;
        (of_setting > last_of_folder).then_some(file)
    }

    fn settings<'a>(
        &'a self,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = (&'a Path, Option<&'a str>)> {
        let found: Vec<_> = self
            .files
            .settings
            .iter()
            .filter(|setting| setting.name == name && self.groups.contains(&setting.group))
            .map(|setting| (setting.file.as_path(), setting.value.as_deref()))
            .collect();
        found.into_iter()
    }
}

/// Whether a boolean option with this value is on, as both servers parse it.
pub fn is_on(value: &str) -> bool {
    ["on", "true", "1"]
        .iter()
        .any(|on| value.eq_ignore_ascii_case(on))
}

/// Plugins of one early-plugin-load list that another list lacks.
fn only_in<'a>(list: &'a str, other: &str) -> Vec<&'a str> {
    let other: Vec<_> = other.split(';').map(str::trim).collect();
    list.split(';')
        .map(str::trim)
        .filter(|plugin| !plugin.is_empty() && !other.contains(plugin))
        .collect()
}

fn is_ours(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == SNIPPET)
}

/// The option groups that a server reads.
fn groups(flavour: Flavour, version: Version) -> Vec<String> {
    let series = format!("{}.{}", version.major, version.minor);
    let mut groups = vec![
        "mysqld".to_owned(),
        "server".to_owned(),
        format!("mysqld-{series}"),
    ];
    if flavour == Flavour::MariaDb {
        for name in ["mariadb", "mariadbd"] {
            groups.push(name.to_owned());
            groups.push(format!("{name}-{series}"));
        }
        groups.push("client-server".to_owned());
        groups.push("galera".to_owned());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    const VERSION: Version = Version {
        major: 10,
        minor: 11,
        patch: 1,
    };

    fn process(root: &Path, arguments: &[&str]) -> Process {
        Process {
            pid: 1,
            start: 0,
            uid: 0,
            groups: vec![],
            command_line: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: BTreeMap::new(),
            root: root.to_path_buf(),
        }
    }

    /// The file layout of Debian's MariaDB packages.
    fn debian() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "etc/mysql/my.cnf",
            "[client-server]\nsocket=/run/x\n!includedir /etc/mysql/conf.d/\n\
             !includedir /etc/mysql/mariadb.conf.d/\n",
        );
        write("etc/mysql/conf.d/mysql.cnf", "[mysql]\n");
        write(
            "etc/mysql/mariadb.conf.d/50-server.cnf",
            "[mariadbd]\ninnodb-buffer-pool-size = 1G\n[mysqld-10.10]\nport=1\n",
        );
        root
    }

    #[test]
    fn the_folder_of_the_flavour_is_chosen() {
        let root = debian();
        let process = process(root.path(), &["mariadbd"]);
        let options = ServerOptions::read(&process, Flavour::MariaDb, VERSION);
        let folder = options.snippet_folder().unwrap();
        assert_eq!(folder, Path::new("/etc/mysql/mariadb.conf.d"));
        assert!(options.reads(Path::new("/etc/mysql/conf.d")));
        assert_eq!(options.value("innodb_buffer_pool_size"), Some("1G"));
        assert_eq!(options.value("port"), None);
        let snippet = folder.join(SNIPPET);
        assert_eq!(
            options.overridden_by("innodb_buffer_pool_size", &snippet),
            None
        );
    }

    #[test]
    fn own_snippet_is_no_foreign_setting() {
        let root = debian();
        let folder = root.path().join("etc/mysql/mariadb.conf.d");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let read = || {
            let process = process(root.path(), &["mysqld"]);
            ServerOptions::read(&process, Flavour::MySql, VERSION)
        };
        write(
            SNIPPET,
            "[mysqld]\nearly-plugin-load = \"keyring_file.so;bpe=bpe.so\"\nloose-bpe_enabled = ON\n",
        );
        let options = read();
        assert_eq!(options.value("early_plugin_load"), None);
        // A user may have added it there, because that line wins.
        assert_eq!(options.early_load(), Some("keyring_file.so;bpe=bpe.so"));
        assert!(options.early_plugins_to_drop().is_empty());
        assert!(options.early_plugins_left_out().is_empty());
        write(
            "keyring.cnf",
            "[mysqld]\nearly-plugin-load=keyring_file.so\n",
        );
        assert!(read().early_plugins_left_out().is_empty());
        write(
            "keyring.cnf",
            "[mysqld]\nearly-plugin-load=keyring_vault.so\n",
        );
        let options = read();
        assert_eq!(options.early_load(), Some("keyring_vault.so"));
        assert_eq!(options.early_plugins_left_out(), ["keyring_vault.so"]);
        assert_eq!(options.early_plugins_to_drop(), ["keyring_file.so"]);
        // A file read after ours wins, so our snippet omits nothing.
        write("zzz.cnf", "[mysqld]\nearly-plugin-load=newest.so\n");
        assert!(read().early_plugins_left_out().is_empty());
    }

    #[test]
    fn a_file_that_switches_it_on_is_found() {
        let root = debian();
        let file = "etc/mysql/mariadb.conf.d/60-innodb-bpe.cnf";
        let read = |text: &str| {
            fs::write(root.path().join(file), text).unwrap();
            let process = process(root.path(), &["mariadbd"]);
            let options = ServerOptions::read(&process, Flavour::MariaDb, VERSION);
            options.switched_on_by().map(Path::to_owned)
        };
        let there = Some(Path::new("/").join(file));
        let loaded = "[mariadb]\nplugin_load_add = bpe\nloose-bpe-enabled";
        assert_eq!(read(&format!("{loaded}=ON\n")), there);
        assert_eq!(read(&format!("{loaded}=True\n")), there);
        assert_eq!(read(&format!("{loaded}\n")), there);
        assert_eq!(read(&format!("{loaded} = OFF\n")), None);
        assert_eq!(read("[mariadb]\nloose-bpe-enabled=ON\n"), None);
        assert_eq!(read("[mariadb]\nplugin_load_add = bpe\n"), None);
    }

    #[test]
    fn servers_of_one_file_are_told_apart() {
        let root = debian();
        let read = |arguments: &[&str]| {
            let process = process(root.path(), arguments);
            ServerOptions::read(&process, Flavour::MariaDb, VERSION).suffix
        };
        assert_eq!(read(&["mariadbd"]), None);
        assert_eq!(read(&["mariadbd", "--defaults-group-suffix="]), None);
        let two = read(&["mariadbd", "--defaults-group-suffix=.two"]);
        assert_eq!(two.as_deref(), Some(".two"));
    }

    #[test]
    fn later_settings_are_found() {
        let root = debian();
        let later = "etc/mysql/mariadb.conf.d/zzz.cnf";
        fs::write(
            root.path().join(later),
            "[server]\ninnodb_buffer_pool_size=2G\n",
        )
        .unwrap();
        let process = process(root.path(), &["mariadbd"]);
        let options = ServerOptions::read(&process, Flavour::MariaDb, VERSION);
        let snippet = Path::new("/etc/mysql/mariadb.conf.d").join(SNIPPET);
        assert_eq!(
            options.overridden_by("innodb_buffer_pool_size", &snippet),
            Some(&*Path::new("/").join(later))
        );
    }

    #[test]
    fn the_command_line_decides_what_is_read() {
        let root = debian();
        fs::write(root.path().join("own.cnf"), "[mysqld]\nport=7\n").unwrap();
        let read = |arguments: &[&str]| {
            let process = process(root.path(), arguments);
            ServerOptions::read(&process, Flavour::MariaDb, VERSION)
        };
        let own = read(&["mariadbd", "--defaults-file=/own.cnf"]);
        assert_eq!(own.value("port"), Some("7"));
        assert!(own.snippet_folder().is_none());
        assert!(read(&["mariadbd", "--no-defaults"]).files.files.is_empty());
    }
}
