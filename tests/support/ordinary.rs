//! Events of an ordinary month that must not disturb the extension: growth after idle time, statements that rebuild, truncate
//! and drop files, undo truncation, backups, and administrators who work in the data directory.
//!
//! [`Month`] runs these events one by one. With the test build of the library, a rest of seconds represents an idle night: its
//! audit runs every second and considers a file quiet after four seconds.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use private_server::mysql::prelude::Queryable;
use private_server::{Options, Server};

use crate::harness::Outcome;
use crate::place::Place;
use crate::verification::Compared;
use crate::{churn, copies, sql, trace, verification};

/// Long enough for files to count as quiet.
pub const REST: Duration = Duration::from_secs(8);

const WIDTH: u32 = 1500;
/// Rows by which the growing table grows at a time, and their maximum.
const MORE: u32 = 1500;
const MOST: u32 = 15_000;
/// Rows of the table without writes.
const AT_REST: u32 = 2000;

/// An event.
pub struct Event {
    pub name: &'static str,
    make: fn(&mut Month<'_>) -> Outcome,
}

impl Event {
    /// Whether clients may run at the same time. MariaDB without the plugin may hang when undo logs are truncated under load.
    pub fn may_run_beside_a_load(&self) -> bool {
        self.name != UNDO
    }
}

const UNDO: &str = "undo logs cut down";

/// All events, in the order of a month.
pub const EVENTS: &[Event] = &[
    event("growth after a rest", |month| month.growth()),
    event("rebuilds", |month| month.rebuilds()),
    event("an OPTIMIZE after many rows were deleted", |month| {
        month.optimize()
    }),
    event("names and files that come and go", |month| month.names()),
    event(
        "large transactions, and their purge after a rest",
        |month| month.purge(),
    ),
    event(UNDO, |month| month.undo()),
    event("chmod, and chown to the same owner", |month| month.modes()),
    event("times of access set by a backup tool", |month| {
        month.access_times()
    }),
    event("files copied, linked and unlinked", |month| month.copies()),
    event("a backup", |month| month.backup()),
    event("off and on", |month| month.off_and_on()),
    event("touch", |month| month.touch()),
];

const fn event(name: &'static str, make: fn(&mut Month<'_>) -> Outcome) -> Event {
    Event { name, make }
}

/// A server in the course of a month.
pub struct Month<'a> {
    place: &'a Place,
    server: &'a Server,
    rows: u32,
    /// Suspicions that the test has provoked.
    pub expected: u64,
}

/// A place whose server has separate undo tablespaces; MySQL always has them.
pub fn place_with_undo(place: &Place) -> anyhow::Result<Option<Place>> {
    if place.is_mysql() {
        return Ok(None);
    }
    Place::initialised(place.installation.flavour, &["--innodb-undo-tablespaces=2"]).map(Some)
}

/// Undo tablespaces that can be truncated at 10 MiB. MariaDB does so only in [`Month::undo`], without other load (reason:
/// `docs/evidence/reliability.md`).
pub fn with_undo(options: Options, place: &Place) -> Options {
    let options = options
        .option("--innodb-max-undo-log-size=10485760")
        .option("--innodb-undo-log-truncate=OFF")
        .option("--innodb-purge-rseg-truncate-frequency=1");
    if place.is_mysql() {
        options
    } else {
        options.option("--innodb-undo-tablespaces=2")
    }
}

impl<'a> Month<'a> {
    /// Creates the tables of a month.
    pub fn begin(place: &'a Place, server: &'a Server) -> anyhow::Result<Month<'a>> {
        server.sql(trace::CREATE_FUNCTION)?;
        churn::prepare(server)?;
        let mut connection = server.connect()?;
        sql::fill(&mut connection, "month.grows", MORE, WIDTH, "")?;
        sql::fill(
            &mut connection,
            "month.packed",
            MORE,
            WIDTH,
            "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8",
        )?;
        sql::fill(&mut connection, "month.rests", AT_REST, WIDTH, "")?;
        sql::read_all(&mut connection, "month.rests", AT_REST)?;
        Ok(Month {
            place,
            server,
            rows: MORE,
            expected: 0,
        })
    }

    /// Runs the event.
    pub fn make(&mut self, event: &Event) -> Outcome {
        (event.make)(self).with_context(|| event.name)
    }

    /// Checks that the extension is active, has raised only the provoked suspicions, and that no cached page differs from its
    /// file. Returns the number of compared pages.
    pub fn check(&self) -> anyhow::Result<u64> {
        let (state, reason) = (
            sql::status(self.server, "state")?,
            sql::status(self.server, "state_reason")?,
        );
        ensure!(state == "active", "{state} ({reason})");
        let suspicions = sql::figure(self.server, "audit_suspicions")?;
        ensure!(
            suspicions == self.expected,
            "{suspicions} suspicions, but {} were made",
            self.expected
        );
        let mut compared = Compared::default();
        verification::compare_cached(self.server, &mut compared)?;
        ensure!(compared.wrong == 0, "{compared:?}");
        Ok(compared.compared)
    }

    /// Checks the contents of the month's tables.
    pub fn verify(&self) -> Outcome {
        let mut connection = self.server.connect()?;
        for (table, rows) in [
            ("month.grows", self.rows),
            ("month.packed", self.rows),
            ("month.rests", AT_REST),
        ] {
            let found = sql::verify_pads(&mut connection, table, WIDTH)?;
            ensure!(found == rows, "{table}: {found} rows instead of {rows}");
        }
        churn::settle(self.server)
    }

    fn run(&self, statements: &[&str]) -> Outcome {
        sql::run(self.server, statements)
    }

    fn data(&self) -> PathBuf {
        self.place.data()
    }

    /// The data files of the tables.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for folder in ["month", "churn"] {
            for entry in fs::read_dir(self.data().join(folder))? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "ibd") {
                    files.push(path);
                }
            }
        }
        ensure!(!files.is_empty(), "no data files");
        Ok(files)
    }

    fn growth(&mut self) -> Outcome {
        if self.rows >= MOST {
            self.run(&["TRUNCATE TABLE month.grows", "TRUNCATE TABLE month.packed"])?;
            self.rows = 0;
        }
        std::thread::sleep(REST);
        let mut connection = self.server.connect()?;
        let (first, last) = (self.rows + 1, self.rows + MORE);
        sql::insert(&mut connection, "month.grows", first, last, WIDTH)?;
        sql::insert(&mut connection, "month.packed", first, last, WIDTH)?;
        self.rows = last;
        Ok(())
    }

    fn rebuilds(&mut self) -> Outcome {
        self.run(&[
            "ALTER TABLE month.grows FORCE",
            "ALTER TABLE month.grows ADD COLUMN more INT, ALGORITHM=INPLACE",
            "ALTER TABLE month.grows ADD INDEX (more)",
            "ALTER TABLE month.grows DROP INDEX more, DROP COLUMN more",
            "ALTER TABLE month.packed FORCE, ALGORITHM=COPY",
        ])
    }

    fn optimize(&mut self) -> Outcome {
        let keep = self.rows / 2;
        self.run(&[
            &format!("DELETE FROM month.grows WHERE id > {keep}"),
            &format!("DELETE FROM month.packed WHERE id > {keep}"),
        ])?;
        self.rows = keep;
        std::thread::sleep(REST);
        self.run(&["OPTIMIZE TABLE month.grows, month.packed"])
    }

    fn names(&mut self) -> Outcome {
        let mut connection = self.server.connect()?;
        sql::fill(&mut connection, "month.short", 300, WIDTH, "")?;
        self.run(&[
            "RENAME TABLE month.short TO month.shorter",
            "TRUNCATE TABLE month.shorter",
            "INSERT INTO month.shorter SELECT * FROM month.rests WHERE id <= 300",
            "FLUSH TABLES",
            "CREATE TABLE month.short LIKE month.shorter",
            "DROP TABLE month.shorter, month.short",
        ])
    }

    /// Changes every row of a table in one transaction, `times` times.
    fn change_all(&self, times: u32) -> Outcome {
        for _ in 0..times {
            self.run(&["UPDATE churn.many SET v = v + 1, pad = REVERSE(pad)"])?;
        }
        Ok(())
    }

    fn purge(&mut self) -> Outcome {
        // Versions that an older reader may still see are purged after it has ended.
        let mut reader = self.server.connect()?;
        reader.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        self.change_all(2)?;
        std::thread::sleep(REST);
        reader.query_drop("COMMIT")?;
        Ok(())
    }

    fn undo(&mut self) -> Outcome {
        self.change_all(8)?;
        let before = self.undo_files()?;
        self.run(&["SET GLOBAL innodb_undo_log_truncate = ON"])?;
        // Purge truncates them later; this test does not depend on it.
        let until = Instant::now() + Duration::from_secs(10);
        while self.undo_files()? == before && Instant::now() < until {
            self.run(&["UPDATE churn.comes SET v = v + 1 - 1 WHERE id = 1"])?;
            std::thread::sleep(Duration::from_millis(500));
        }
        self.run(&["SET GLOBAL innodb_undo_log_truncate = OFF"])
    }

    /// Inodes and sizes of the undo files.
    fn undo_files(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.data())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("undo") {
                let metadata = entry.metadata()?;
                files.push((metadata.ino(), metadata.size()));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn modes(&mut self) -> Outcome {
        std::thread::sleep(REST);
        for file in self.files()? {
            let metadata = fs::metadata(&file)?;
            fs::set_permissions(&file, Permissions::from_mode(metadata.mode() ^ 0o004))?;
            fs::set_permissions(&file, metadata.permissions())?;
            std::os::unix::fs::chown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        Ok(())
    }

    fn access_times(&mut self) -> Outcome {
        std::thread::sleep(REST);
        for file in self.files()? {
            copies::run(Command::new("touch").arg("-a").arg(&file))?;
        }
        Ok(())
    }

    fn copies(&mut self) -> Outcome {
        std::thread::sleep(REST);
        let aside = self.place.root().join("aside");
        for file in self.files()? {
            fs::copy(&file, &aside)?;
            let link = file.with_extension("link");
            fs::hard_link(&file, &link)?;
            fs::remove_file(&link)?;
        }
        Ok(fs::remove_file(aside)?)
    }

    fn backup(&mut self) -> Outcome {
        let copy = self.place.root().join("month-copy");
        if self.place.is_mysql() {
            let installed = self.server.value(
                "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone'",
            )?;
            if installed.as_deref() == Some("0") {
                self.run(&["INSTALL PLUGIN clone SONAME 'mysql_clone.so'"])?;
            }
            self.run(&[&format!(
                "CLONE LOCAL DATA DIRECTORY = '{}'",
                copy.display()
            )])?;
        } else if let Some(mut command) = self.place.installation.tool("mariadb-backup") {
            let arguments = [
                "--no-defaults".into(),
                "--backup".into(),
                "--user=root".into(),
                format!("--socket={}", self.server.socket().display()),
                format!("--datadir={}", self.data().display()),
                format!("--target-dir={}", copy.display()),
            ];
            copies::run(command.args(arguments))?;
        } else {
            return Ok(()); // a machine without it has the other copies
        }
        Ok(fs::remove_dir_all(copy)?)
    }

    /// A foreign process sets the modification time of an idle table: a suspicion, and nothing more.
    fn touch(&mut self) -> Outcome {
        let path = self.data().join("month/rests.ibd");
        let before = sql::figure(self.server, "audit_suspicions")?;
        let until = Instant::now() + Duration::from_secs(300);
        loop {
            // The audit skips a file that was not read or written since enabling, because nothing of it is cached.
            self.run(&[
                "UPDATE month.rests SET v = 1 WHERE id = 1",
                "UPDATE month.rests SET v = 0 WHERE id = 1",
                "FLUSH TABLES month.rests FOR EXPORT",
                "UNLOCK TABLES",
            ])?;
            // On a busy machine the file may not yet count as quiet.
            std::thread::sleep(REST);
            touch(&path)?;
            // Wait for the audit before the next try, or one try might count twice.
            let noticed = sql::wait_until("suspected", Duration::from_secs(20), || {
                Ok(sql::figure(self.server, "audit_suspicions")? > before)
            });
            if noticed.is_ok() {
                self.expected += 1;
                return Ok(());
            }
            if Instant::now() > until {
                bail!("nothing was suspected");
            }
        }
    }

    /// Growth while the extension is off causes no suspicion.
    fn off_and_on(&mut self) -> Outcome {
        self.run(&["SET GLOBAL bpe_enabled = OFF"])?;
        self.change_all(1)?;
        self.run(&["SET GLOBAL bpe_enabled = ON"])?;
        sql::expect_state(self.server, "active")
    }
}

fn touch(path: &Path) -> Outcome {
    Ok(File::options()
        .write(true)
        .open(path)?
        .set_modified(SystemTime::now())?)
}
