//! One run of `mysql-test-run.pl`, by an unprivileged user, in private namespaces.
//!
//! A suite's servers load their plugins from the installed plugin directory, use ports from fixed ranges, and survive a
//! kill of the suite. Namespaces solve all three problems without a change of the installation. A copy of the plugin
//! directory, with `bpe.so` in it, is mounted over the installed one. The network is a private loopback. When this
//! program dies, all processes in the namespaces die. A private root is entered by chroot.
//!
//! The directory of the run is `/mnt` inside, so that paths are short (sockets) and accessible to all users.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use private_server::TestSuite;

use crate::outcome::{Outcomes, Reader, Status};
use crate::traffic::Traffic;

/// Debian's `nobody` and `nogroup`, in every root.
const NOBODY: u32 = 65534;

/// Directory of the server program in a private root.
const PROGRAMS: &str = "/usr/sbin";

/// Files of the suites, below the directory of `mysql-test-run.pl`: messages that are no fault, and options of every
/// server.
const WARNINGS: &str = "include/mtr_warnings.sql";
const DEFAULTS: &str = "include/default_mysqld.cnf";

/// Size in bytes of one server's cache.
const CACHE: &str = "32M";

/// Messages of the extension that are no fault in these runs: the cache is beside the data, and a library built with a
/// deliberate fault reports it. Any other warning or error of the extension fails the test in which it appears.
const EXPECTED: [&str; 2] = [
    "lies on the same file system as the data directory; the cache helps only",
    "this library was built to be wrong, for tests only",
];

/// Whether a run uses the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    With,
    Without,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::With => "with",
            Mode::Without => "without",
        }
    }
}

/// Location and options of runs.
pub struct Sandbox {
    suite: TestSuite,
    /// Directory of the runs: data directories, cache files, the copy of the plugin directory.
    folder: PathBuf,
    parallel: u32,
    /// Whether the servers' data directories are in memory.
    in_memory: bool,
    extra: Vec<String>,
}

/// Results of one run.
pub struct Run {
    pub outcomes: Outcomes,
    /// The extension's error log lines that the suite attributes to no test.
    pub at_shutdown: Vec<String>,
    pub traffic: Traffic,
    pub took: Duration,
    /// Why the run was not completed.
    pub incomplete: Option<String>,
}

/// Quotes a path for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

impl Sandbox {
    /// Prepares `folder`, and removes its previous contents.
    ///
    /// # Errors
    /// Missing requirements, or files whose creation failed.
    pub fn new(
        suite: TestSuite,
        folder: &Path,
        library: &Path,
        exclusions: &str,
        parallel: u32,
        in_memory: bool,
        extra: Vec<String>,
    ) -> anyhow::Result<Sandbox> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "this needs root, for namespaces; the servers run as nobody"
        );
        private_server::ownership::make(&std::path::absolute(folder)?)
            .map_err(anyhow::Error::msg)?;
        fs::remove_dir_all(folder)
            .and_then(|()| fs::create_dir(folder))
            .with_context(|| format!("cannot empty {}", folder.display()))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        for own in ["var", "cache"] {
            fs::create_dir(folder.join(own))?;
            chown(folder.join(own), Some(NOBODY), Some(NOBODY))?;
        }
        fs::write(folder.join("exclusions"), exclusions)?;
        let sandbox = Sandbox {
            suite,
            folder: folder.canonicalize()?,
            parallel,
            in_memory,
            extra,
        };
        sandbox.copy_plugins(library)?;
        if sandbox.suite.flavour.is_mysql() {
            sandbox.let_keyrings_be_configured()?;
        }
        sandbox.allow_expected_messages()?;
        sandbox.make_pools_tiny()?;
        Ok(sandbox)
    }

    pub fn suite(&self) -> &TestSuite {
        &self.suite
    }

    /// Converts a path of the installation to a path outside the root.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        self.suite
            .root
            .join(inside.strip_prefix("/").unwrap_or(inside))
    }

    fn copy(&self, inside: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let copy = self.folder.join(name);
        let status = Command::new("cp")
            .arg("-a")
            .arg(self.outside(inside))
            .arg(&copy)
            .status()
            .context("cannot run cp")?;
        ensure!(status.success(), "cp ended with {status}");
        Ok(copy)
    }

    fn copy_plugins(&self, library: &Path) -> anyhow::Result<()> {
        let ours = self.copy(&self.suite.plugins, "plugins")?.join("bpe.so");
        fs::copy(library, &ours).with_context(|| format!("cannot copy {}", library.display()))?;
        fs::set_permissions(ours, fs::Permissions::from_mode(0o644))?;
        Ok(())
    }

    /// MySQL's encryption tests write beside the server program and the keyring's library, and expect there a marker
    /// that each server has its own configuration. In a build tree `mysql-test-run.pl` ensures that.
    fn let_keyrings_be_configured(&self) -> anyhow::Result<()> {
        let programs = self.copy(Path::new(PROGRAMS), "programs")?;
        let plugins = self.folder.join("plugins");
        for (file, setting) in [
            (programs.join("mysqld.my"), "read_local_manifest"),
            (
                plugins.join("component_keyring_file.cnf"),
                "read_local_config",
            ),
        ] {
            fs::write(&file, format!("{{ \"{setting}\": true }}"))?;
            chown(&file, Some(NOBODY), Some(NOBODY))?;
        }
        for folder in [programs, plugins] {
            chown(folder, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(())
    }

    /// The suites search the error logs for warnings, except those in this list of theirs.
    fn allow_expected_messages(&self) -> anyhow::Result<()> {
        const LIST: &str = "INSERT INTO global_suppressions VALUES\n";
        let file = self.outside(&self.suite.folder.join(WARNINGS));
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        ensure!(text.contains(LIST), "{} has no list", file.display());
        let rows: String = EXPECTED.iter().fold(String::new(), |mut rows, message| {
            let _ = writeln!(rows, " (\"{message}\"),");
            rows
        });
        let text = text.replacen(LIST, &format!("{LIST}{rows}"), 1);
        fs::write(self.folder.join("mtr_warnings.sql"), text)?;
        Ok(())
    }

    /// Sets the buffer pool to the servers' minimum, so that pages are read again. The setting is in the file of
    /// defaults, because `--mysqld` would override tests that need a larger pool.
    fn make_pools_tiny(&self) -> anyhow::Result<()> {
        let least = if self.suite.flavour.is_mysql() {
            "5M"
        } else {
            "6M"
        };
        let file = self.outside(&self.suite.folder.join(DEFAULTS));
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut found = false;
        let mut tiny = String::with_capacity(text.len());
        for line in text.lines() {
            match line.split_once('=') {
                Some((name, _)) if name.replace('-', "_").ends_with("innodb_buffer_pool_size") => {
                    found = true;
                    let _ = writeln!(tiny, "{name}={least}");
                }
                _ => {
                    let _ = writeln!(tiny, "{line}");
                }
            }
        }
        ensure!(found, "{} sets no buffer pool", file.display());
        fs::write(self.folder.join("default_mysqld.cnf"), tiny)?;
        Ok(())
    }

    /// Script that runs as root inside the namespaces; the arguments of `mysql-test-run.pl` follow it.
    fn script(&self) -> String {
        let root = quoted(&self.suite.root);
        let mut script = String::from("set -e\n");
        let mut bind = |from: &Path, to: &Path| {
            let _ = writeln!(script, "mount --bind {} {}", quoted(from), quoted(to));
        };
        bind(
            &self.folder.join("plugins"),
            &self.outside(&self.suite.plugins),
        );
        if self.folder.join("programs").is_dir() {
            bind(
                &self.folder.join("programs"),
                &self.outside(Path::new(PROGRAMS)),
            );
        }
        bind(
            &self.folder.join("mtr_warnings.sql"),
            &self.outside(&self.suite.folder.join(WARNINGS)),
        );
        bind(
            &self.folder.join("default_mysqld.cnf"),
            &self.outside(&self.suite.folder.join(DEFAULTS)),
        );
        bind(&self.folder, &self.outside(Path::new("/mnt")));
        if self.in_memory {
            let var = quoted(&self.outside(Path::new("/mnt/var")));
            let _ = writeln!(
                script,
                "mount -t tmpfs -o mode=755,uid={NOBODY},gid={NOBODY} tmpfs {var}"
            );
        }
        let mut enter = String::new();
        if self.suite.root != Path::new("/") {
            let _ = writeln!(script, "mount -t proc proc {root}/proc");
            let _ = writeln!(script, "mount --rbind /dev {root}/dev");
            enter = format!("chroot {root} ");
        }
        // Brings the namespace's loopback up: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING.
        script.push_str(
            r#"perl -e 'use Socket; my $lo = pack("a16 s x22", "lo", 0x41); socket(S, AF_INET, SOCK_DGRAM, 0) or die "socket: $!"; ioctl(S, 0x8914, $lo) or die "lo: $!"'
"#,
        );
        // Not exec: process 1 of a namespace must reap, and mysql-test-run.pl treats every child as its own.
        let _ = writeln!(
            script,
            "{enter}sh -c 'cd {} && setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \
             perl mysql-test-run.pl \"$@\"' sh \"$@\" || status=$?",
            self.suite.folder.display()
        );
        // Copy the error logs before the memory file system is gone. Skip those in deeper directories, which are copies
        // of failed tests.
        let _ = writeln!(
            script,
            "cd {} && cp --parents log/*.err [0-9]*/log/*.err {} 2>/dev/null || :\nexit ${{status:-0}}",
            quoted(&self.outside(Path::new("/mnt/var/suite"))),
            quoted(&self.folder.join("logs")),
        );
        script
    }

    fn options(&self, mode: Mode) -> Vec<String> {
        let mut options: Vec<String> = [
            "--vardir=/mnt/var/suite",
            "--force",
            "--max-test-fail=0",
            "--retry=1",
            "--max-save-core=0",
            "--max-save-datadir=0",
            "--skip-test-list=/mnt/exclusions",
        ]
        .map(String::from)
        .into();
        options.push(format!("--parallel={}", self.parallel));
        if let Some(clients) = &self.suite.clients {
            options.push(format!("--client-bindir={}", clients.display()));
        }
        if mode == Mode::With {
            options.push(
                if self.suite.flavour.is_mysql() {
                    "--mysqld=--early-plugin-load=bpe=bpe.so"
                } else {
                    "--mysqld=--plugin-load-add=bpe"
                }
                .into(),
            );
            // loose: a test that sets the list of plugins has a server without the extension.
            for setting in ["enabled=ON", "path=/mnt/cache", &format!("size={CACHE}")] {
                options.push(format!("--mysqld=--loose-bpe-{setting}"));
            }
        }
        options.extend(self.extra.iter().cloned());
        options
    }

    /// Runs the tests that `what` (arguments of `mysql-test-run.pl`) names. Its output also goes to `log`, and
    /// `progress` receives each test at its end.
    ///
    /// # Errors
    /// If the start fails.
    pub fn run(
        &self,
        mode: Mode,
        what: &[String],
        log: &Path,
        progress: &mut dyn FnMut(&str, Status),
    ) -> anyhow::Result<Run> {
        let began = Instant::now();
        self.clear()?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "sh", "-c"])
            .arg(self.script())
            .arg("sh")
            .args(self.options(mode))
            .args(what)
            .env("HOME", "/mnt")
            .env("LC_ALL", "C")
            .env_remove("TMPDIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut file =
            File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stderr(file.try_clone()?);
        let mut child = private_server::process::spawn(command, libc::SIGKILL)
            .context("cannot run unshare (package util-linux)")?;
        let output = child.stdout.take().context("stdout is piped")?;
        let mut reader = Reader::default();
        let mut last = String::new();
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(file, "{line}")?;
            if let Some((name, status)) = reader.line(&line) {
                progress(&name, status);
            }
            if !line.trim().is_empty() {
                last = line;
            }
        }
        let status = child.wait()?;
        let incomplete = (!reader.completed).then(|| format!("{status}; its last line: {last}"));
        reader.at_shutdown.retain(|line| {
            line.contains("bpe") && !EXPECTED.iter().any(|expected| line.contains(expected))
        });
        Ok(Run {
            outcomes: reader.outcomes,
            at_shutdown: reader.at_shutdown,
            traffic: Traffic::of_error_logs(&self.folder.join("logs")),
            took: began.elapsed(),
            incomplete,
        })
    }

    /// Removes the remains of the previous run. `mysql-test-run.pl` removes its data directories at its start.
    fn clear(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.folder.join("cache"))? {
            fs::remove_file(entry?.path())?;
        }
        let logs = self.folder.join("logs");
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir(&logs)?;
        Ok(())
    }

    /// Options of a run, for a user who repeats it.
    pub fn describe(&self, mode: Mode) -> String {
        self.options(mode).join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_name_is_one_word() {
        let name = "a b'; touch x; $(y)\n\"'";
        let script = format!("printf %s {}", quoted(Path::new(name)));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), name);
    }
}
