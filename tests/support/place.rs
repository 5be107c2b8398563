//! A directory with a separate data directory for one test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::{Flavour, Installation, Load, Options, Server};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::{harness, library};

/// Bytes of a buffer pool that is much smaller than every data set of these tests.
pub const POOL: u64 = 8 << 20;
/// Environment variable for the library of [`Place::canary`]: timeout of a cache disk read in milliseconds; 0: none.
pub const READ_TIMEOUT: &str = "BPE_TEST_READ_TIMEOUT";
/// Large enough for all data of a test.
pub const ROOMY: u64 = 128 << 20;

/// A place for servers of one kind, one after the other or several at once.
pub struct Place {
    pub installation: Installation,
    folder: std::cell::RefCell<Option<TempDir>>,
    root: PathBuf,
    /// Directory for the persisted in-memory files.
    memory: TempDir,
    /// The library under test, if it is not at the default path.
    library: Option<PathBuf>,
}

impl Place {
    /// A new directory with an initialised data directory, copied from a template that is created once for each kind of server.
    pub fn new(flavour: Flavour) -> anyhow::Result<Place> {
        let place = Place::empty(flavour)?;
        let template = template(&place.installation, &[])?;
        copy_folder(&template, &place.data())?;
        Ok(place)
    }

    /// The same, initialised with options that must be set before the first start.
    pub fn initialised(flavour: Flavour, options: &[&str]) -> anyhow::Result<Place> {
        let place = Place::empty(flavour)?;
        copy_folder(&template(&place.installation, options)?, &place.data())?;
        Ok(place)
    }

    /// Recreates the data directory with options that must be set before the first start. Call it only while no server uses it.
    pub fn initialise_again(&self, options: &[&str]) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.data())?;
        copy_folder(&template(&self.installation, options)?, &self.data())
    }

    /// A place that the account `user` owns and can reach, in the directory for temporary files. Needs root.
    pub fn readable_by(user: &str, flavour: Flavour) -> anyhow::Result<Place> {
        let mut place = Place::empty(flavour)?;
        let folder = tempfile::Builder::new().prefix("bpe-").tempdir()?;
        place.root = folder.path().canonicalize()?;
        place.folder = Some(folder).into();
        std::fs::create_dir(place.cache())?;
        copy_folder(&template(&place.installation, &[])?, &place.data())?;
        // The account must also reach the library.
        copy_folder(library::library()?, &place.root.join("libbpe_plugin.so"))?;
        let status = Command::new("chown")
            .arg("-R")
            .arg(user)
            .args([&*place.root, place.memory.path()])
            .status()?;
        ensure!(status.success(), "chown ended with {status}");
        place.library = Some(place.root.join("libbpe_plugin.so"));
        Ok(place)
    }

    /// A directory without a data directory.
    pub fn empty(flavour: Flavour) -> anyhow::Result<Place> {
        let installation = flavour.provide(&mut |_| ())?;
        let base = work_folder()?;
        let folder = tempfile::Builder::new().prefix("place-").tempdir_in(base)?;
        let root = folder.path().canonicalize()?;
        std::fs::create_dir(root.join("cache"))?;
        Ok(Place {
            installation,
            folder: Some(folder).into(),
            root,
            memory: tempfile::Builder::new()
                .prefix("bpe-test-")
                .tempdir_in("/dev/shm")?,
            library: None,
        })
    }

    /// The place's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// A directory for cache files, on the same disk as the data.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Where servers persist in-memory files.
    pub fn memory(&self) -> &Path {
        self.memory.path()
    }

    /// Whether it is MySQL rather than MariaDB.
    pub fn is_mysql(&self) -> bool {
        self.installation.flavour.is_mysql()
    }

    /// Options of a server on the data directory without the plugin: a small pool, and no unneeded logs.
    pub fn options(&self) -> Options {
        self.options_of("data", "run")
    }

    /// The same with a pool for all data, for a server that checks the data files.
    pub fn roomy(&self) -> Options {
        self.options().buffer_pool(ROOMY)
    }

    /// The same for another data directory and run directory of this place.
    pub fn options_of(&self, data: &str, run: &str) -> Options {
        let options = Options::new(self.root.join(data), self.root.join(run))
            .buffer_pool(POOL)
            .start_timeout(Duration::from_secs(180))
            // The kernel keeps the writes of a killed process, so commits survive these tests.
            .option("--innodb-flush-log-at-trx-commit=2")
            .option(format!(
                "--loose-bpe-persist-path={}",
                self.memory.path().display()
            ))
            .option("--innodb-fast-shutdown=1")
            .option("--innodb-buffer-pool-dump-at-shutdown=OFF")
            .option("--innodb-buffer-pool-load-at-startup=OFF");
        let options = match std::env::var("BPE_SANITIZER") {
            Ok(library) => sanitized(options, &library),
            Err(_) => options,
        };
        if self.is_mysql() {
            options
                .option("--skip-log-bin")
                .option("--innodb-redo-log-capacity=64M")
        } else {
            options.option("--innodb-log-file-size=64M")
        }
    }

    /// Options with the plugin loaded early, and enabled with `bytes` of cache in [`Place::cache`].
    pub fn early(&self, bytes: u64) -> anyhow::Result<Options> {
        Ok(self.early_with(self.library()?, bytes))
    }

    /// Options with the plugin loaded early and configured, but not enabled.
    pub fn early_disabled(&self, bytes: u64) -> anyhow::Result<Options> {
        Ok(set_up(
            self.options(),
            self.library()?,
            &self.cache(),
            bytes,
        ))
    }

    /// As [`Place::early`], with another library.
    pub fn early_with(&self, library: &Path, bytes: u64) -> Options {
        extended(self.options(), library, &self.cache(), bytes)
    }

    /// As [`Place::early`], with the canary library, which omits these rules (`none`: none).
    pub fn canary(&self, bytes: u64, rules: &str) -> anyhow::Result<Options> {
        leaving_out(self.options(), &self.cache(), bytes, rules)
    }

    /// Options with the library in the plugin directory.
    pub fn installable(&self) -> anyhow::Result<Options> {
        Ok(self.options().plugin(self.library()?, "bpe", Load::BySql))
    }

    /// The library that servers of this place load.
    pub fn library(&self) -> anyhow::Result<&Path> {
        match &self.library {
            Some(library) => Ok(library),
            None => library::library(),
        }
    }

    /// Uses another library than the one under test.
    pub fn use_library(&mut self, library: PathBuf) {
        self.library = Some(library);
    }

    /// Starts a server.
    pub fn start(&self, options: Options) -> anyhow::Result<Server> {
        Ok(self.installation.start(options)?)
    }

    /// The statement that installs the plugin.
    pub fn install_statement(&self) -> &'static str {
        if self.is_mysql() {
            "INSTALL PLUGIN bpe SONAME 'bpe.so'"
        } else {
            "INSTALL SONAME 'bpe'"
        }
    }

    /// The statement that uninstalls it.
    pub fn uninstall_statement(&self) -> &'static str {
        if self.is_mysql() {
            "UNINSTALL PLUGIN bpe"
        } else {
            "UNINSTALL SONAME 'bpe'"
        }
    }

    /// Installs the plugin on a running server and sets path and size; does not enable it.
    pub fn install(&self, server: &Server, bytes: u64) -> anyhow::Result<()> {
        server.sql(self.install_statement())?;
        server.sql(&format!(
            "SET GLOBAL bpe_path = '{}'",
            self.cache().display()
        ))?;
        server.sql(&format!("SET GLOBAL bpe_size = {bytes}"))?;
        Ok(())
    }

    /// Current cache files.
    pub fn cache_files(&self) -> Vec<PathBuf> {
        cache_files_in(&self.cache())
    }

    /// Images for the host's restart beside the cache files in this directory.
    pub fn images_in(&self, folder: &Path) -> Vec<PathBuf> {
        let mut files = files_in(folder);
        files.retain(|path| path.extension() == Some("image".as_ref()));
        files
    }

    /// Persisted in-memory files.
    pub fn kept(&self) -> Vec<PathBuf> {
        files_in(self.memory())
    }

    /// Fails unless a stopped server has persisted its cache.
    pub fn expect_left(&self) -> anyhow::Result<()> {
        let (files, kept) = (self.cache_files(), self.kept());
        let kinds: Vec<_> = kept.iter().filter_map(|path| path.extension()).collect();
        ensure!(
            !files.is_empty() && kinds == ["arena", "files"],
            "left are {files:?} and {kept:?}"
        );
        Ok(())
    }

    /// Fails unless no file of a server remains.
    pub fn expect_nothing_left(&self) -> anyhow::Result<()> {
        let (files, kept) = (files_in(&self.cache()), self.kept());
        ensure!(
            files.is_empty() && kept.is_empty(),
            "left are {files:?} and {kept:?}"
        );
        Ok(())
    }

    /// The end of each server's error log, for the message of a failed test.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        let entries = std::fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let log = entry.path().join("error.log");
            let tail = private_server::tail(&log, 25);
            if !tail.is_empty() {
                let tail = tail.replace('\n', "\n  ");
                text.push_str(&format!("end of {}:\n  {tail}\n", log.display()));
            }
        }
        text
    }

    /// With `BPE_TEST_KEEP` set, the directory of a failed test stays.
    pub fn keep_for_inspection(&self) {
        if std::env::var_os("BPE_TEST_KEEP").is_none() {
            return;
        }
        if let Some(folder) = self.folder.take() {
            eprintln!("    kept: {}", folder.keep().display());
        }
    }
}

/// Options with this library loaded early, and enabled with `bytes` of cache in a directory.
pub fn extended(options: Options, library: &Path, cache: &Path, bytes: u64) -> Options {
    set_up(options, library, cache, bytes).option("--bpe-enabled=ON")
}

/// With the run-time library of AddressSanitizer, for a plugin built for it (`scripts/nightly address`). A finding ends the
/// server. Leak detection is off, because it would report the server's own leaks; the server handles its signals.
fn sanitized(options: Options, library: &str) -> Options {
    options.environment("LD_PRELOAD", library).environment(
        "ASAN_OPTIONS",
        "detect_leaks=0:handle_segv=0:handle_abort=0",
    )
}

fn set_up(options: Options, library: &Path, cache: &Path, bytes: u64) -> Options {
    options
        .plugin(library, "bpe", Load::Early)
        .option(format!("--bpe-path={}", cache.display()))
        .option(format!("--bpe-size={bytes}"))
}

/// The files that are no image.
pub fn cache_files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_in(folder);
    files.retain(|path| path.extension() != Some("image".as_ref()));
    files
}

/// Regular files and links directly in a directory.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !path.is_dir())
        .collect();
    files.sort();
    files
}

/// Directory for places: `BPE_TEST_FOLDER`, or one beside the build.
pub fn work_folder() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("BPE_TEST_FOLDER")
        .map_or_else(|| library::target_folder().join("places"), PathBuf::from);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn initial_options(flavour: Flavour) -> &'static [&'static str] {
    if flavour.is_mysql() {
        &["--innodb-redo-log-capacity=64M", "--skip-log-bin"]
    } else {
        &["--innodb-log-file-size=64M"]
    }
}

/// As [`extended`], with the canary library, which omits these rules (`none`: none). Notes for the evidence that the test must
/// detect it.
pub fn leaving_out(
    options: Options,
    cache: &Path,
    bytes: u64,
    rules: &str,
) -> anyhow::Result<Options> {
    // The rules after the first one only keep the library from noticing the fault before the test does.
    if let Some(rule) = rules.split(',').next().filter(|rule| *rule != "none") {
        harness::note_canary(rule);
    }
    let mut options = extended(options, &library::canary()?, cache, bytes);
    if rules != "none" {
        // A server with wrong pages may never answer.
        options = options.statement_timeout(Duration::from_secs(120));
    }
    Ok(options.environment("BPE_CANARY", rules))
}

/// Increment when the contents of a new data directory change.
const TEMPLATE_FORMAT: &str = "2";

/// An initialised data directory of this server version with these options, created once and then copied.
fn template(installation: &Installation, options: &[&str]) -> anyhow::Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let name = [
        installation.flavour.name(),
        &installation.version,
        TEMPLATE_FORMAT,
    ]
    .into_iter()
    .chain(options.iter().map(|option| option.trim_matches('-')))
    .collect::<Vec<_>>()
    .join("-")
    .replace(|c| !plain(c), "-");
    made_once(&name, |partial| {
        let mut all = initial_options(installation.flavour).to_vec();
        all.extend(options);
        installation.initialise_with(partial, &all)?;
        Ok(())
    })
}

/// Returns `templates/<name>`. The first process fills it by `make` under a file lock; the others wait for that lock.
pub fn made_once(
    name: &str,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let folder = work_folder()?.join("templates");
    std::fs::create_dir_all(&folder)?;
    let lock = std::fs::File::create(folder.join(format!("{name}.lock")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let (made, partial) = (folder.join(name), folder.join(format!("{name}.partial")));
    if !made.exists() {
        let _ = std::fs::remove_dir_all(&partial);
        make(&partial)?;
        std::fs::rename(&partial, &made)?;
    }
    Ok(made)
}

/// Copies a directory and preserves holes and owners.
pub fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto", "--sparse=auto", "--"])
        .arg(from)
        .arg(to)
        .status()
        .context("cp")?;
    ensure!(status.success(), "cp ended with {status}");
    Ok(())
}
