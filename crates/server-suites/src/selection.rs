//! Selection of tests.

use std::fs;
use std::path::Path;

use anyhow::Context;
use private_server::Flavour;

/// Suites of MariaDB, the most informative first; at the end those with several servers. `main-innodb` are the tests of
/// the main suite that require InnoDB.
const MARIADB: [&str; 17] = [
    "innodb_zip",
    "encryption",
    "innodb",
    "innodb_gis",
    "innodb_fts",
    "mariabackup",
    "parts",
    "gcol",
    "versioning",
    "atomic",
    "main-innodb",
    "multi_source",
    "wsrep",
    "galera",
    "galera_3nodes",
    "rpl",
    "binlog",
];

const MYSQL: [&str; 10] = [
    "innodb",
    "clone",
    "encryption",
    "innodb_undo",
    "innodb_zip",
    "innodb_gis",
    "innodb_fts",
    "group_replication",
    "rpl_gtid",
    "rpl",
];

/// Whether a suite's tests run one at a time, because each uses several servers that wait for each other.
pub fn runs_alone(suite: &str) -> bool {
    ["wsrep", "galera", "group_replication"]
        .iter()
        .any(|kind| suite.starts_with(kind))
}

/// The default suites of a server.
pub fn suites(flavour: Flavour) -> Vec<String> {
    let all: &[&str] = if flavour.is_mysql() { &MYSQL } else { &MARIADB };
    all.iter().map(ToString::to_string).collect()
}

/// Excluded tests, each with its reason: `suite.test : reason`, the format of `--skip-test-list`.
pub fn exclusions(flavour: Flavour) -> &'static str {
    if flavour.is_mysql() {
        include_str!("../exclusions/mysql")
    } else {
        include_str!("../exclusions/mariadb")
    }
}

/// The tests for continuous integration, and those of them that this series lacks. `tests` is the directory of
/// `mysql-test-run.pl`, as an outside path. `mysql-test-run.pl` ends at once if a named test does not exist.
pub fn quick(flavour: Flavour, tests: &Path) -> (Vec<String>, Vec<String>) {
    let list = if flavour.is_mysql() {
        include_str!("../quick/mysql")
    } else {
        include_str!("../quick/mariadb")
    };
    entries(list)
        .map(str::to_owned)
        .partition(|test| exists(test, tests))
}

/// Whether a test `suite.name` exists: in the directory of its suite, or in `t` there.
fn exists(test: &str, tests: &Path) -> bool {
    let Some((suite, name)) = test.split_once('.') else {
        return false;
    };
    let folder = tests.join("suite").join(suite);
    [folder.join("t"), folder]
        .iter()
        .any(|place| place.join(format!("{name}.test")).is_file())
}

/// Whether our list, and not the suite's own, excludes the test.
pub fn is_excluded(flavour: Flavour, test: &str) -> bool {
    entries(exclusions(flavour))
        .filter_map(|line| line.split_once(" : "))
        .any(|(name, _)| name.trim() == test)
}

/// Arguments of `mysql-test-run.pl` for a suite. `tests` is the directory of `mysql-test-run.pl`, as an outside path.
///
/// # Errors
/// If the main suite is unreadable.
pub fn arguments(suite: &str, tests: &Path) -> anyhow::Result<Vec<String>> {
    if suite != "main-innodb" {
        return Ok(vec![format!("--suite={suite}")]);
    }
    let folder = tests.join("main");
    let mut names = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let text = match path.extension() {
            Some(extension) if extension == "test" => fs::read(&path)?,
            _ => continue,
        };
        let text = String::from_utf8_lossy(&text);
        if let Some(name) = path.file_stem().filter(|_| asks_for_innodb(&text)) {
            names.push(format!("main.{}", name.to_string_lossy()));
        }
    }
    names.sort();
    Ok(names)
}

fn asks_for_innodb(text: &str) -> bool {
    text.lines()
        .map(str::trim_start)
        .any(|line| !line.starts_with('#') && line.contains("have_innodb.inc"))
        || text.contains("--source include/have_innodb.inc")
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exclusion_has_a_reason() {
        for flavour in [Flavour::MariaDb1011, Flavour::MySql97] {
            for line in entries(exclusions(flavour)) {
                let (test, reason) = line.split_once(" : ").expect(line);
                assert!(test.contains('.') && reason.len() > 20, "{line}");
            }
        }
    }

    #[test]
    fn quick_tests_are_named_with_their_suite() {
        let nowhere = Path::new("/nonexistent");
        for flavour in [Flavour::MariaDb1011, Flavour::MySql97] {
            let (there, missing) = quick(flavour, nowhere);
            assert!(there.is_empty() && !missing.is_empty());
            assert!(missing.iter().all(|test| test.contains('.')));
        }
    }

    #[test]
    fn tests_that_a_series_lacks_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let place = |test: &str| folder.path().join("suite").join(test);
        for test in ["innodb/t/restart.test", "mariabackup/partition_notwin.test"] {
            fs::create_dir_all(place(test).parent().unwrap()).unwrap();
            fs::write(place(test), "").unwrap();
        }
        let (there, missing) = quick(Flavour::MariaDb1011, folder.path());
        assert_eq!(there, ["innodb.restart", "mariabackup.partition_notwin"]);
        assert!(missing.contains(&"innodb.insert_into_empty".to_owned()));
    }

    #[test]
    fn tests_that_ask_for_innodb_are_known() {
        assert!(asks_for_innodb("--source include/have_innodb.inc\n"));
        assert!(asks_for_innodb("source include/have_innodb.inc;\n"));
        assert!(!asks_for_innodb(
            "# have_innodb.inc\ncreate table t (a int);\n"
        ));
    }
}
