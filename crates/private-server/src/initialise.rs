//! Creates an empty data directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::error::{Doing, tail};
use crate::{Error, Installation, Result, ownership, process};

/// Initialising takes one to four seconds on a fast disk; a slow volume may need minutes.
const LIMIT: Duration = Duration::from_secs(600);

impl Installation {
    /// Creates the data directory `datadir` (it must be missing or empty) with the system tables and the account
    /// `root@localhost` without a password. No other user can enter the directory.
    ///
    /// # Errors
    /// [`Error::Initialise`] with the tail of the server's log.
    pub fn initialise(&self, datadir: &Path) -> Result<()> {
        self.initialise_with(datadir, &[])
    }

    /// [`Installation::initialise`] with options that must be set before the first start, such as
    /// `--innodb-page-size=4096`.
    ///
    /// # Errors
    /// As [`Installation::initialise`].
    pub fn initialise_with(&self, datadir: &Path, options: &[&str]) -> Result<()> {
        let fail = |reason: String, log: String| Error::Initialise {
            datadir: datadir.to_owned(),
            reason,
            log,
        };
        ownership::make_private(datadir).doing(|| format!("cannot make {}", datadir.display()))?;
        let mut entries =
            fs::read_dir(datadir).doing(|| format!("cannot read {}", datadir.display()))?;
        if entries.next().is_some() {
            return Err(fail("it is not empty".into(), String::new()));
        }
        let scratch = tempfile::tempdir().doing(|| "cannot make a temporary folder".into())?;
        let log_path = scratch.path().join("log");
        let log = File::create(&log_path).doing(|| "cannot make a log file".into())?;

        let mut command = self.base_command(datadir, None, None);
        command.args(options);
        command.stdout(Stdio::null()).stderr(log);
        command.arg(format!("--tmpdir={}", scratch.path().display()));
        if self.flavour.is_mysql() {
            command.arg("--initialize-insecure");
            // The default is a directory that only the full package creates.
            command.arg(format!("--secure-file-priv={}", scratch.path().display()));
            command.stdin(Stdio::null());
        } else {
            command.args([
                "--bootstrap",
                "--log-warnings=0",
                "--enforce-storage-engine=",
                "--max-allowed-packet=8M",
                "--net-buffer-length=16K",
            ]);
            command.stdin(Stdio::piped());
        }
        let mut child = process::spawn(command, libc::SIGKILL)
            .doing(|| "cannot start the server to initialise its data directory".into())?;
        if let Some(mut input) = child.stdin.take() {
            let script = self.bootstrap_script()?;
            // A server that ends early closes the pipe; its exit status is more informative than EPIPE.
            let _ = input.write_all(script.as_bytes());
        }
        if !process::wait_at_most(&mut child, LIMIT) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(fail(
                format!("no end after {} s", LIMIT.as_secs()),
                tail(&log_path, 30),
            ));
        }
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(fail(
                format!("the server ended with {status}"),
                tail(&log_path, 30),
            )),
            Err(error) => Err(fail(error.to_string(), tail(&log_path, 30))),
        }
    }

    /// MariaDB's system tables: the installation's scripts, in the order that its installer uses.
    fn bootstrap_script(&self) -> Result<String> {
        let mut script = String::from(
            "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n",
        );
        for name in [
            "system_tables",
            "performance_tables",
            "system_tables_data",
            "gis",
            "sys_schema",
        ] {
            let path = ["mariadb", "mysql"]
                .iter()
                .map(|prefix| match name {
                    "gis" => self.share.join("maria_add_gis_sp_bootstrap.sql"),
                    _ => self.share.join(format!("{prefix}_{name}.sql")),
                })
                .find(|path| path.is_file());
            // 11.8 merged the initial data into the tables' script.
            let Some(path) = path else { continue };
            let text =
                fs::read_to_string(&path).doing(|| format!("cannot read {}", path.display()))?;
            script.push_str(&text);
            script.push('\n');
        }
        // Without a password root is for the socket alone, never for a port.
        script.push_str(
            "DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost';\n",
        );
        Ok(script)
    }
}
