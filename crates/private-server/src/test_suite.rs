//! The suite of tests that Debian ships with each server: `mysql-test-run.pl`, its tests, and the server they run.
//!
//! It is the machine's own when that is installed and of the wanted version, otherwise that of a private Debian root which
//! holds the server and the suite. Unlike a single server, the suite cannot be run by the root's loader alone: it starts
//! dozens of programs by their installed names. Whoever runs it enters the root with chroot.

use std::path::{Path, PathBuf};

use crate::{Flavour, Result, root};

/// An installed suite. All paths but `root` are as seen from inside `root`.
#[derive(Clone, Debug)]
pub struct TestSuite {
    pub flavour: Flavour,
    /// The server's version as it prints it.
    pub version: String,
    /// `/`, or a private root.
    pub root: PathBuf,
    /// Folder of `mysql-test-run.pl`.
    pub folder: PathBuf,
    /// The server's plugin directory.
    pub plugins: PathBuf,
    /// Folder of the client programs, where `mysql-test-run.pl` would not find them by itself.
    pub clients: Option<PathBuf>,
}

/// Where Debian's packages put the suite.
const FOLDERS: [&str; 3] = [
    "usr/share/mysql/mysql-test",
    "usr/share/mariadb/mariadb-test",
    "usr/lib/mysql-test",
];

/// For MariaDB's suite, which skips tests without `patch` and `mariadb-backup`. Perl's modules want what `perl-openssl-defaults`
/// provides under another name, and debootstrap does not look for it.
const MARIADB: [&str; 5] = [
    "mariadb-test",
    "mariadb-backup",
    "netbase",
    "patch",
    "perl-openssl-defaults",
];

const PLUGINS: [&str; 2] = ["usr/lib/mysql/plugin", "usr/lib/mariadb/plugin"];

impl Flavour {
    /// The root that holds server and suite. MySQL's suite asks for `openssl` and the names of protocols and hosts.
    fn recipe_of_test_suite(self) -> Option<root::Recipe> {
        Some(match self {
            Flavour::MariaDb114Upstream => return None,
            Flavour::MariaDb105 => root::Recipe {
                suite: "bullseye",
                folder: "bullseye-testsuite",
                packages: &MARIADB,
            },
            Flavour::MariaDb1011 => root::Recipe {
                suite: "bookworm",
                folder: "bookworm-testsuite",
                packages: &MARIADB,
            },
            Flavour::MariaDb118 => root::Recipe {
                suite: "trixie",
                folder: "trixie-testsuite",
                packages: &MARIADB,
            },
            Flavour::MySql97 => root::Recipe {
                suite: "sid",
                folder: "sid-testsuite",
                packages: &["mysql-testsuite", "openssl", "netbase"],
            },
        })
    }

    /// Finds the server's suite of tests, or makes a private Debian root with it (one or two minutes and up to 2 GB; needs
    /// root and `debootstrap`), cached for the next time. `progress` gets a line now and then.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) with the reason.
    pub fn provide_test_suite(self, progress: &mut dyn FnMut(&str)) -> Result<TestSuite> {
        for program in self.installed_programs() {
            if let Ok(found) = self.suite_in(Path::new("/"), &program) {
                return Ok(found);
            }
        }
        let recipe = self
            .recipe_of_test_suite()
            .ok_or_else(|| self.unavailable("its maker's build has no test suite".into()))?;
        let root = root::make(&recipe, progress).map_err(|reason| self.unavailable(reason))?;
        self.suite_in(&root, &root.join(self.program_in_root()))
            .map_err(|reason| self.unavailable(reason))
    }

    fn suite_in(self, root: &Path, program: &Path) -> std::result::Result<TestSuite, String> {
        let version = self.examine(root, program)?.version;
        let first = |places: &[&str], file: &str| {
            places
                .iter()
                .find(|place| root.join(place).join(file).exists())
                .map(|place| Path::new("/").join(place))
                .ok_or_else(|| format!("{} has no {}", root.display(), places.join(" nor ")))
        };
        let folder = first(&FOLDERS, "mysql-test-run.pl")?;
        let own_clients = folder.join("bin");
        let beside = root.join(own_clients.strip_prefix("/").unwrap_or(&own_clients));
        Ok(TestSuite {
            flavour: self,
            version,
            root: root.to_owned(),
            plugins: first(&PLUGINS, "")?,
            clients: beside.is_dir().then_some(own_clients),
            folder,
        })
    }
}
