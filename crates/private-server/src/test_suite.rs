//! Debian's packaged test suite of each server: `mysql-test-run.pl`, its tests, and the server they run.
//!
//! The host's own suite is used if it is installed in the wanted version, otherwise that of a private Debian root with
//! server and suite. Unlike a single server, the suite cannot run by the root's loader alone, because it starts dozens
//! of programs by their installed names. The caller must enter the root with chroot.

use std::path::{Path, PathBuf};

use crate::{Flavour, Result, root};

/// An installed suite. All paths except `root` are as seen from inside `root`.
#[derive(Clone, Debug)]
pub struct TestSuite {
    pub flavour: Flavour,
    /// The server's version as the server prints it.
    pub version: String,
    /// `/`, or a private root.
    pub root: PathBuf,
    /// Directory of `mysql-test-run.pl`.
    pub folder: PathBuf,
    /// The server's plugin directory.
    pub plugins: PathBuf,
    /// Directory of the client programs, if `mysql-test-run.pl` would not find them.
    pub clients: Option<PathBuf>,
}

/// Directories of the suite in Debian's packages.
const FOLDERS: [&str; 3] = [
    "usr/share/mysql/mysql-test",
    "usr/share/mariadb/mariadb-test",
    "usr/lib/mysql-test",
];

/// Packages for MariaDB's suite, which skips tests without `patch` and `mariadb-backup`. Perl's modules require
/// something that `perl-openssl-defaults` provides under another name, and debootstrap does not resolve that.
const MARIADB: [&str; 5] = [
    "mariadb-test",
    "mariadb-backup",
    "netbase",
    "patch",
    "perl-openssl-defaults",
];

const PLUGINS: [&str; 2] = ["usr/lib/mysql/plugin", "usr/lib/mariadb/plugin"];

impl Flavour {
    /// The root with server and suite. MySQL's suite needs `openssl` and the names of protocols and hosts.
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

    /// Finds the server's test suite, or creates a private Debian root with it, and caches that. Creation takes one or
    /// two minutes and up to 2 GB, and needs root and `debootstrap`. `progress` receives lines at intervals.
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
