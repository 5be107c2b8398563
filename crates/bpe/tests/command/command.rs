//! The command against real servers: `enable` changes the server and survives a restart; `disable` and every failed `enable`
//! restore the previous state; wrong input gets clear errors.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::harness::Outcome;
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::place::files_in;
use integration_tests::{Flavour, Load, Options, Place, Server, Suite, altered, library, sql};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// 4 % of it is several MiB. The resize step of both servers here is a MiB.
const POOL: u64 = 128 * MIB;
const CACHE: u64 = 256 * MIB;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("command")
        .all("enabling_survives_a_restart", enabling_survives_a_restart)
        .in_turn("what_is_cached_is_kept", what_is_cached_is_kept)
        .each(
            "a_failed_enable_changes_nothing",
            a_failed_enable_changes_nothing,
        )
        .plain("old_names_say_the_new_ones", old_names_say_the_new_ones)
        .in_turn("wrong_input_changes_nothing", wrong_input_changes_nothing)
        .in_turn(
            "a_missing_library_stops_no_server",
            a_missing_library_stops_no_server,
        )
        .in_turn("settings_change_or_stay", settings_change_or_stay)
        .in_turn("rules_for_tables_stay", rules_for_tables_stay)
        .in_turn("a_part_of_the_room", a_part_of_the_room)
        .in_turn("what_failed_is_tried_again", what_failed_is_tried_again)
        .each("without_option_folder", without_option_folder)
        .each("disable_tells_of_other_files", disable_tells_of_other_files)
        .each("doctor_tells", doctor_tells)
        .in_turn(
            "doctor_tells_of_the_page_cache",
            doctor_tells_of_the_page_cache,
        )
        .with(
            Flavour::MariaDb118,
            "doctor_tells_of_the_page_cache",
            doctor_tells_of_the_page_cache,
        )
        .with(
            Flavour::MariaDb1011,
            "a_server_that_cannot_be_followed",
            a_server_that_cannot_be_followed,
        )
        .with(
            Flavour::MariaDb114Upstream,
            "libaio_linked_in_is_followed",
            libaio_linked_in_is_followed,
        )
        .with(
            Flavour::MariaDb1011,
            "a_server_that_hangs",
            a_server_that_hangs,
        )
        .in_turn("verify_compares", verify_compares)
        .each(
            "defaults_of_sessions_change_nothing",
            defaults_of_sessions_change_nothing,
        )
        .with(
            Flavour::MySql97,
            "super_read_only_stays",
            super_read_only_stays,
        )
        .with(
            Flavour::MySql97,
            "other_early_plugins_stay",
            other_early_plugins_stay,
        )
        .with(
            Flavour::MariaDb1011,
            "nobody_reading_stops_no_change",
            nobody_reading_stops_no_change,
        )
        .with(Flavour::MariaDb1011, "permissions", permissions)
        .with(
            Flavour::MariaDb1011,
            "connection_options",
            connection_options,
        )
}

/// One run of the command.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub text: String,
}

impl Run {
    pub fn expect(self, code: i32, parts: &[&str]) -> anyhow::Result<Self> {
        ensure!(
            self.code == code,
            "exit code {} instead of {code}:\n{}",
            self.code,
            self.text
        );
        parts.iter().try_for_each(|part| self.contains(part))?;
        Ok(self)
    }

    pub fn contains(&self, part: &str) -> Outcome {
        ensure!(
            self.text.contains(part),
            "`{part}` is missing in:\n{}",
            self.text
        );
        Ok(())
    }

    fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.text).with_context(|| self.text.clone())
    }
}

/// Former subcommands, with their options.
fn old_names_say_the_new_ones() -> Outcome {
    for (line, new) in [
        ("demo", "`bpe-lab demo`"),
        ("demo --quick --server mysql-9.7", "`bpe-lab demo`"),
        ("replay --trace - --pool-pages 7 --help", "`bpe-lab replay`"),
        ("console --experience", "`bpe-lab console`"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
            .args(line.split(' '))
            .output()?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(2) && text.contains(new) && text.lines().count() == 1,
            "{line}: {text}"
        );
    }
    let help = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .arg("--help")
        .output()?;
    let help = String::from_utf8(help.stdout)?;
    ensure!(
        !help.contains("demo") && !help.contains("  replay"),
        "{help}"
    );
    Ok(())
}

/// A server whose option file includes a directory, as distributions set it up.
pub struct Host<'a> {
    place: &'a Place,
    /// Directory of the command's records.
    state: PathBuf,
    server: Option<Server>,
    /// Another build of the place's server.
    other: Option<altered::Renamed>,
}

impl<'a> Host<'a> {
    pub fn new(place: &'a Place) -> anyhow::Result<Self> {
        Self::with(place, None)
    }

    /// Takes a server without an option file.
    pub fn of(place: &'a Place, state: PathBuf, server: Server) -> Self {
        Self {
            place,
            state,
            server: Some(server),
            other: None,
        }
    }

    fn with(place: &'a Place, other: Option<altered::Renamed>) -> anyhow::Result<Self> {
        let mut host = Self {
            place,
            state: place.root().join("state"),
            server: None,
            other,
        };
        fs::create_dir(host.conf())?;
        fs::write(
            host.option_file(),
            format!(
                "[mysqld]\ninnodb_buffer_pool_size = {POOL}\n!includedir {}\n",
                host.conf().display()
            ),
        )?;
        host.start(false)?;
        Ok(host)
    }

    pub fn conf(&self) -> PathBuf {
        self.place.root().join("conf.d")
    }

    pub fn snippet(&self) -> PathBuf {
        self.conf().join("zz-bpe.cnf")
    }

    fn option_file(&self) -> PathBuf {
        self.place.root().join("my.cnf")
    }

    fn plugins(&self) -> PathBuf {
        self.place.root().join("run/plugins")
    }

    fn options(&self) -> Options {
        self.place.options().defaults_file(self.option_file())
    }

    /// A start recreates the plugin directory; `with_library` restores the library that `enable` had installed.
    fn start(&mut self, with_library: bool) -> Outcome {
        let mut options = self.options();
        if with_library {
            options = options.plugin(library::library()?, "bpe", Load::BySql);
        }
        self.server = Some(match &self.other {
            Some(other) => other.installation.start(options.preload(&other.shim))?,
            None => self.place.start(options)?,
        });
        Ok(())
    }

    fn restart(&mut self, with_library: bool) -> Outcome {
        self.server.take().context("no server")?.stop()?;
        fs::write(self.log(), "")?;
        self.start(with_library)
    }

    fn log(&self) -> PathBuf {
        self.place.root().join("run/error.log")
    }

    fn log_text(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.log())?).into_owned())
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("the server runs")
    }

    fn value(&self, sql: &str) -> anyhow::Result<String> {
        Ok(self.server().value(sql)?.unwrap_or_default())
    }

    fn pool(&self) -> anyhow::Result<u64> {
        Ok(self.value("SELECT @@innodb_buffer_pool_size")?.parse()?)
    }

    fn is_mysql(&self) -> bool {
        self.place.is_mysql()
    }

    fn bpe<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<Run> {
        let socket = format!("--socket={}", self.server().socket().display());
        let mut all: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        all.extend(["--no-defaults", "--user=root", socket.as_str()].map(OsStr::new));
        let owner = fs::metadata(self.server().socket())?.uid();
        let named = format!("--server-user={owner}");
        if owner != rustix::process::geteuid().as_raw() {
            all.push(OsStr::new(&named));
        }
        self.bpe_bare(&all)
    }

    pub fn bpe_bare<S: AsRef<OsStr>>(&self, arguments: &[S]) -> anyhow::Result<Run> {
        let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
            .args(arguments)
            .env("BPE_STATE_DIR", &self.state)
            .env("HOME", self.place.root())
            .env_remove("MYSQL_PWD")
            .env_remove("MYSQL_HOST")
            .stdin(std::process::Stdio::null())
            .output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok(Run {
            code: output.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }

    pub fn enable(&self, path: &Path, size: &str, more: &[&str]) -> anyhow::Result<Run> {
        let (path, library) = (
            path.to_string_lossy(),
            library::library()?.to_string_lossy(),
        );
        let mut arguments = vec![
            "enable",
            "--yes",
            "--path",
            &*path,
            "--size",
            size,
            "--library",
            &*library,
        ];
        arguments.extend(more);
        self.bpe(&arguments)
    }

    fn enable_well(&self) -> anyhow::Result<Run> {
        self.enable(&self.place.cache(), &CACHE.to_string(), &[])?
            .expect(0, &["Enabled."])
    }

    pub fn disable(&self) -> anyhow::Result<Run> {
        self.bpe(&["disable", "--yes"])?.expect(0, &[])
    }

    /// Everything that `enable` touches.
    pub fn snapshot(&self) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        let mut queries = vec![
            "SELECT GROUP_CONCAT(PLUGIN_NAME ORDER BY 1) FROM information_schema.PLUGINS \
             WHERE PLUGIN_NAME = 'bpe'",
            "SELECT GROUP_CONCAT(name ORDER BY 1) FROM mysql.plugin",
            "SELECT GROUP_CONCAT(name ORDER BY 1) FROM mysql.func",
            "SELECT @@innodb_buffer_pool_size",
            "SELECT @@read_only",
            "SELECT GROUP_CONCAT(SCHEMA_NAME ORDER BY 1) FROM information_schema.SCHEMATA",
            "SELECT GROUP_CONCAT(TABLE_NAME ORDER BY 1) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'bpe'",
        ];
        if self.is_mysql() {
            queries.push(
                "SELECT GROUP_CONCAT(VARIABLE_NAME, '=', VARIABLE_VALUE ORDER BY 1) \
                 FROM performance_schema.persisted_variables",
            );
            queries.push("SELECT @@super_read_only");
        }
        for query in queries {
            all.push(format!("{query}: {}", self.value(query)?));
        }
        for folder in [
            self.conf(),
            self.plugins(),
            self.state.clone(),
            self.place.cache(),
            self.place.memory().to_path_buf(),
        ] {
            for file in files_in(&folder) {
                let contents = fs::read(&file)?;
                all.push(format!("{}, {} bytes", file.display(), contents.len()));
            }
        }
        Ok(all)
    }

    pub fn unchanged_since(&self, before: &[String]) -> Outcome {
        let now = self.snapshot()?;
        ensure!(now == before, "before: {before:#?}\nnow: {now:#?}");
        Ok(())
    }
}

fn enabling_survives_a_restart(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let before = host.snapshot()?;
    host.bpe(&["status"])?.expect(1, &["not installed"])?;

    host.enable_well()?;
    host.bpe(&["status"])?
        .expect(0, &["active", "on the running server"])?;
    let pool = host.pool()?;
    ensure!(
        pool < POOL && POOL - pool <= POOL / 25,
        "the pool is {pool}"
    );
    ensure!(host.snippet().exists());
    let row = host.value("SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe'")?;
    ensure!(
        row == "0",
        "the snippet and mysql.plugin would both load it"
    );

    let enabled = host.snapshot()?;
    host.enable(&place.cache(), &CACHE.to_string(), &[])?
        .expect(0, &["nothing to change"])?;
    host.unchanged_since(&enabled)?;

    host.restart(true)?;
    let status = host.bpe(&["status", "--json"])?.expect(0, &[])?.json()?;
    ensure!(status["status"]["bpe_load_mode"] == "early", "{status:#}");
    ensure!(status["variables"]["bpe_size"] == CACHE, "{status:#}");
    ensure!(host.pool()? == pool, "the pool is {}", host.pool()?);
    // This warning comes from an option of the test itself, on a server built without it.
    let log = host
        .log_text()?
        .replace("unknown variable 'loose-mysqlx=OFF'", "");
    for bad in [
        "already exists",
        "unknown variable",
        "Can't open shared library",
    ] {
        ensure!(!log.contains(bad), "{bad}:\n{log}");
    }

    host.disable()?.expect(0, &["as it was before"])?;
    // The restart linked the library anew; everything else must be unchanged.
    host.unchanged_since(&before)?;
    host.disable()?.expect(0, &["nothing to undo"])?;
    host.restart(false)?;
    let log = host.log_text()?;
    for trace in ["bpe:", "bpe_", "bpe.so"] {
        ensure!(!log.contains(trace), "{trace}:\n{log}");
    }
    host.unchanged_since(&before)
}

/// The configuration that `enable` wrote is enough to keep the cache. `disable` removes the files of a stopped server.
fn what_is_cached_is_kept(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let text = fs::read_to_string(host.option_file())?;
    let small = text.replace(&POOL.to_string(), &(8 * MIB).to_string());
    fs::write(host.option_file(), small)?;
    host.restart(false)?;
    host.enable(&place.cache(), &CACHE.to_string(), &["--keep-pool"])?
        .expect(0, &["memory that outlives the server: about", "Enabled."])?;
    let ledger = Ledger::small(host.server())?;
    // The next server need not recover the state of a server whose plugin was loaded late.
    host.restart(true)?;
    ledger.run(host.server(), Duration::from_secs(3))?;
    host.restart(true)?;
    let inherited = sql::figure(host.server(), "pages_inherited")?;
    ensure!(inherited > 500, "{inherited} pages");
    ledger.verify(host.server())?;
    host.bpe(&["status"])?
        .expect(0, &[" % of the cache was kept"])?;
    let size = CACHE.to_string();
    let cache = place.cache().to_string_lossy().into_owned();
    host.bpe(&["doctor", "--no-measure", "--path", &cache, "--size", &size])?
        .expect(0, &["what is cached is kept: about"])?;
    // Without the library, the server does not remove the persisted files.
    host.restart(false)?;
    let left = files_in(place.memory());
    ensure!(
        left.len() == 2 && place.cache_files().len() == 1,
        "{left:?}"
    );
    host.disable()?
        .expect(0, &[".arena removed", ".files removed", ".cache removed"])?;
    ensure!(files_in(place.memory()).is_empty() && place.cache_files().is_empty());
    host.disable()?.expect(0, &["nothing to undo"])?;
    Ok(())
}

fn a_failed_enable_changes_nothing(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    // Only the extension knows its minimum size; it reports the error after all other steps are done.
    let folder = place.root().join("made");
    host.enable(&folder, "1M", &[])?
        .expect(4, &["too small", "plugin uninstalled", "as it was before"])?;
    ensure!(!folder.exists(), "the folder is still there");
    host.unchanged_since(&before)
}

fn wrong_input_changes_nothing(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    let root = place.root();
    let size = CACHE.to_string();
    let enable = |path: &Path, size: &str| host.enable(path, size, &[]);
    let link = root.join("link");
    std::os::unix::fs::symlink(place.cache(), &link)?;
    let foreign = root.join("foreign");
    fs::write(&foreign, "precious")?;

    enable(Path::new("cache"), &size)?.expect(2, &["relative path"])?;
    enable(&root.join("no/where"), &size)?.expect(1, &["No such file", "what to do"])?;
    enable(&link, &size)?.expect(1, &["symbolic link"])?;
    enable(Path::new("/dev/null"), &size)?.expect(1, &["neither a folder nor a file"])?;
    enable(&foreign, &size)?.expect(1, &["other contents"])?;
    enable(&place.cache(), "4P")?.expect(1, &["has room for", "at most"])?;
    enable(&place.cache(), "0")?.expect(2, &["--size is 0"])?;
    enable(&place.cache(), "lots")?.expect(2, &["not a size"])?;
    enable(&place.cache(), "99999P")?.expect(2, &["larger than any disk"])?;
    host.enable(&place.cache(), &size, &["--instances", "65"])?
        .expect(2, &["65"])?;
    host.enable(&place.cache(), &size, &["--library", "/bin/true"])?
        .expect(2, &["cannot be used multiple times"])?;
    let cache = place.cache().to_string_lossy().into_owned();
    let bare = ["enable", "--path", &cache, "--size", &size, "--library"];
    host.bpe(&[&bare[..], &["/bin/true"]].concat())?
        .expect(1, &["not the extension's plugin"])?;
    host.bpe(&[&bare[..], &["/no/bpe.so"]].concat())?
        .expect(2, &["cannot read"])?;
    let library = library::library()?.to_string_lossy();
    host.bpe(&[&bare[..], &[&*library]].concat())?
        .expect(2, &["--yes"])?;
    ensure!(fs::read_to_string(&foreign)? == "precious");

    host.server()
        .sql("CREATE USER small@localhost IDENTIFIED BY 'pw'")?;
    let socket = host.server().socket().display().to_string();
    let small = ["--no-defaults", "-usmall", "-S", &socket, "--yes"];
    let run = |password: &str| {
        let password = format!("-p{password}");
        host.bpe_bare(&[&bare[..], &[&*library, &*password], &small[..]].concat())
    };
    run("pw")?.expect(1, &["GRANT", "nothing was changed"])?;
    run("wrong")?.expect(3, &["Access denied"])?;
    host.server().sql("DROP USER small@localhost")?;
    host.bpe_bare(&["status", "--no-defaults", "-S", "/no/such.sock"])?
        .expect(3, &["no server listens there"])?;
    host.unchanged_since(&before)
}

/// A stopped server, or the kernel for it, accepts connections and never answers. Every wait has a timeout.
fn a_server_that_hangs(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let process = Pid::from_raw(host.server().pid().try_into()?).context("a process")?;
    kill_process(process, Signal::STOP)?;
    let enabled = host.enable(&place.cache(), &CACHE.to_string(), &[]);
    let status = host.bpe(&["status"]);
    kill_process(process, Signal::CONT)?;
    for run in [enabled?, status?] {
        run.expect(
            3,
            &["cannot connect to the server at", "hangs or is overloaded"],
        )?;
    }
    Ok(())
}

fn a_missing_library_stops_no_server(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let before = host.snapshot()?;
    host.enable_well()?;
    host.restart(false)?;
    ensure!(host.log_text()?.contains("Can't open shared library"));
    host.bpe(&["status"])?.expect(1, &["not installed"])?;
    host.enable_well()?;
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.disable()?;
    host.unchanged_since(&before)
}

/// A percentage is converted to bytes once; repeating it changes nothing. A disk shared with the data directory is not filled.
fn a_part_of_the_room(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    let disk = Mount::image(&place.root().join("disk"), 512 * MIB)?;
    let cache = disk.path().join("cache");
    let doctor = ["doctor", "--no-measure", "--path"];
    host.bpe(
        &[
            &doctor[..],
            &[&cache.display().to_string(), "--size", "50%"],
        ]
        .concat(),
    )?
    .expect(0, &["50 % of the room is"])?;
    host.enable(&place.cache(), "50%", &[])?
        .expect(1, &["file system of the data directory", "in bytes"])?;
    host.enable(&cache, "101%", &[])?
        .expect(2, &["not a part of the room"])?;
    host.unchanged_since(&before)?;
    host.enable(&cache, "50%", &[])?
        .expect(0, &["50 % of the room is", "Enabled."])?;
    let enabled = host.snapshot()?;
    let status = host.bpe(&["status", "--json"])?.expect(0, &[])?.json()?;
    let size = status["variables"]["bpe_size"].as_u64().unwrap_or(0);
    ensure!(
        (150 * MIB..256 * MIB).contains(&size),
        "half of the room of 512 MiB: {size}"
    );
    host.enable(&cache, "50%", &[])?
        .expect(0, &["nothing to change"])?;
    host.unchanged_since(&enabled)?;
    host.disable()?;
    host.unchanged_since(&before)
}

/// A server that failed to enable the extension at its start: the same command enables it after the cause is removed.
fn what_failed_is_tried_again(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    host.enable_well()?;
    let away = place.root().join("away");
    fs::rename(place.cache(), &away)?;
    fs::write(place.cache(), "not a cache file")?;
    host.restart(true)?;
    host.bpe(&["status"])?.expect(1, &["failed"])?;
    let size = CACHE.to_string();
    let run = host.enable(&place.cache(), &size, &[])?;
    ensure!(run.code != 0, "{}", run.text);
    fs::remove_file(place.cache())?;
    fs::rename(&away, place.cache())?;
    let run = host.enable(&place.cache(), &size, &[])?.expect(0, &[])?;
    // The extension retries automatically and may have been faster.
    let is_on = run.text.contains("nothing to change");
    ensure!(
        is_on || run.text.contains("bpe_enabled: ON -> OFF and ON again"),
        "{}",
        run.text
    );
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.enable(&place.cache(), &size, &[])?
        .expect(0, &["nothing to change"])?;
    host.disable()?;
    Ok(())
}

fn settings_change_or_stay(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    host.enable_well()?;
    let enabled = host.snapshot()?;
    host.enable(&place.cache(), "1M", &[])?
        .expect(4, &["too small", "as it was before"])?;
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.unchanged_since(&enabled)?;

    let larger = (2 * CACHE).to_string();
    host.enable(&place.cache(), &larger, &["--instances", "3"])?
        .expect(0, &["the cache is rebuilt"])?;
    let status = host.bpe(&["status", "--json"])?.expect(0, &[])?.json()?;
    ensure!(status["variables"]["bpe_instances"] == 3, "{status:#}");
    ensure!(status["variables"]["bpe_size"] == 2 * CACHE, "{status:#}");
    let pool = host.pool()?;
    ensure!(
        pool < POOL && POOL - pool <= POOL / 25,
        "the pool is {pool}"
    );
    host.disable()?;
    host.unchanged_since(&before)?;

    // A pool that the user resized after `enable` keeps its size.
    host.enable_well()?;
    host.server()
        .sql("SET GLOBAL innodb_buffer_pool_size = 100 * 1024 * 1024")?;
    host.disable()?.expect(0, &["has been changed since"])?;
    ensure!(host.pool()? == 100 * MIB);
    Ok(())
}

/// The command sets the table rules. They survive a restart and a later `bpe enable`, and an empty value clears them.
fn rules_for_tables_stay(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let before = host.snapshot()?;
    let (cache, size) = (place.cache(), CACHE.to_string());
    for wrong in ["exclude", "limit 200% d.t", "exclude d.t, spare d.u"] {
        host.enable(&cache, &size, &["--tables", wrong])?
            .expect(2, &["--tables: "])?;
    }
    host.unchanged_since(&before)?;
    let expect = |host: &Host, rules: &str| {
        let found = host.value("SELECT @@GLOBAL.bpe_tables")?;
        ensure!(found == rules, "`{found}` instead of `{rules}`");
        Ok(())
    };
    let rules = "exclude d.log_*, limit 20% reports.*";
    host.enable(&cache, &size, &["--tables", rules])?
        .expect(0, &["Enabled."])?;
    expect(&host, rules)?;
    host.restart(true)?;
    expect(&host, rules)?;
    host.enable(&cache, &size, &[])?
        .expect(0, &["nothing to change"])?;
    expect(&host, rules)?;
    host.enable(&cache, &size, &["--tables", ""])?
        .expect(0, &[])?;
    expect(&host, "")?;
    host.restart(true)?;
    expect(&host, "")?;
    host.disable()?;
    host.unchanged_since(&before)
}

fn verify_compares(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    host.bpe(&["verify"])?
        .expect(1, &["not installed", "CREATE FUNCTION"])?;
    host.enable_well()?;
    let mut connection = host.server().connect()?;
    // More rows than the pool holds, so that some are cached.
    integration_tests::sql::fill(&mut connection, "d.t", 50_000, 3000, "")?;
    host.bpe(&["verify"])?
        .expect(0, &["Compared ", "Different   none"])?;
    let sample = host
        .bpe(&["verify", "--json", "--sample", "50"])?
        .expect(0, &[])?
        .json()?;
    ensure!(
        sample["wrong"] == 0 && sample["compared"].as_u64() > Some(0),
        "{sample}"
    );
    host.bpe(&["verify", "--sample", "0"])?
        .expect(2, &["--sample"])?;
    host.server().sql("SET GLOBAL bpe_enabled = OFF")?;
    host.bpe(&["verify"])?
        .expect(1, &["disabled", "nothing to compare"])?;
    Ok(())
}

fn nobody_reading_stops_no_change(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    let socket = host.server().socket().to_string_lossy();
    let (reader, writer) = UnixStream::pair()?;
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args([
            "enable",
            "--yes",
            "--no-defaults",
            "--user=root",
            "--socket",
            &*socket,
        ])
        .arg("--path")
        .arg(place.cache())
        .args(["--size", "256M", "--library"])
        .arg(library::library()?)
        .env("BPE_STATE_DIR", place.root().join("state"))
        .stdout(OwnedFd::from(writer.try_clone()?))
        .stderr(OwnedFd::from(writer))
        .status()?;
    ensure!(status.success(), "{status}");
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.disable()?;
    host.unchanged_since(&before)
}

fn without_option_folder(place: &Place) -> Outcome {
    fs::create_dir(place.root().join("conf.d"))?;
    let server = place.start(place.options())?;
    let host = Host::of(place, place.root().join("state"), server);
    let before = host.snapshot()?;
    host.enable(&place.cache(), &CACHE.to_string(), &["--keep-pool"])?
        .expect(0, &["write this into", "bpe"])?;
    let row = host.value("SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe'")?;
    ensure!(row == "1", "nothing else would load it at the next start");
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.disable()?;
    host.unchanged_since(&before)
}

fn doctor_tells(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    let doctor = |path: &Path, size: &str, more: &[&str]| {
        let path = path.to_string_lossy().into_owned();
        host.bpe(&[&["doctor", "--path", &path, "--size", size], more].concat())
    };
    let quick = ["--json", "--no-measure"];
    let good = doctor(&place.cache(), "256M", &quick)?
        .expect(0, &[])?
        .json()?;
    ensure!(good["works"] == true, "{good:#}");
    let text = |topic: &str| -> Option<String> {
        let findings = good["findings"].as_array()?;
        let finding = findings.iter().find(|finding| finding["topic"] == topic)?;
        Some(format!(
            "{} {}",
            finding["level"].as_str()?,
            finding["text"].as_str()?
        ))
    };
    for (topic, wanted) in [
        ("server", "ok "),
        ("calls", "ok all calls"),
        ("async I/O", "ok "),
        ("page cache", "ok "),
        ("loading", "ok "),
        ("room", "ok "),
        ("disks", "warn "),
        ("memory", "ok "),
        ("gain", "warn "),
    ] {
        let found = text(topic).with_context(|| format!("{topic} is missing in {good:#}"))?;
        ensure!(found.starts_with(wanted), "{topic}: {found}");
    }
    doctor(&place.cache(), "4P", &["--no-measure"])?.expect(1, &["fail room", "will not work"])?;
    doctor(&place.root().join("no/where"), "1G", &["--no-measure"])?.expect(1, &["fail path"])?;
    doctor(Path::new("x"), "1G", &[])?.expect(2, &["relative"])?;
    doctor(&place.cache(), "64M", &["--measure-seconds", "1"])?.expect(0, &["cache disk"])?;
    doctor_judges_the_library(place, &host)?;
    doctor_judges_an_executable(place, &host, &text("calls").unwrap_or_default())?;
    host.unchanged_since(&before)
}

/// Data files in the page cache are fast to read without the extension. MariaDB 11 can change this at run time by a variable;
/// the other servers need an option and a restart.
fn doctor_tells_of_the_page_cache(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let text = fs::read_to_string(host.option_file())?;
    fs::write(
        host.option_file(),
        format!("{text}\nloose-innodb-flush-method=fsync\n"),
    )?;
    host.restart(false)?;
    let cache = place.cache().to_string_lossy().into_owned();
    let doctor = ["doctor", "--no-measure", "--path", &cache, "--size", "64M"];
    if place.installation.flavour == Flavour::MariaDb118 {
        let set = "SET GLOBAL innodb_data_file_buffering = OFF";
        host.bpe(&doctor)?.expect(
            0,
            &["warn page cache", "innodb_data_file_buffering is ON", set],
        )?;
        host.server().sql(set)?;
        host.bpe(&doctor)?
            .expect(0, &["ok   page cache", "innodb_data_file_buffering is OFF"])?;
    } else {
        let wanted = "set innodb_flush_method = O_DIRECT for the next start";
        host.bpe(&doctor)?.expect(
            0,
            &["warn page cache", "innodb_flush_method is fsync", wanted],
        )?;
    }
    Ok(())
}

/// Loading a truncated library would crash the server. `doctor` and `bpe enable` report it before that.
fn doctor_judges_the_library(place: &Place, host: &Host) -> Outcome {
    let cache = place.cache();
    let cache = cache.to_string_lossy();
    let doctor = ["doctor", "--no-measure", "--path", &cache, "--size", "64M"];
    let there = host.plugins().join("bpe.so");
    let good = fs::read(library::library()?)?;
    fs::write(&there, &good)?;
    host.bpe(&doctor)?
        .expect(0, &["ok   library", "can be loaded"])?;
    let mut foreign = good.clone();
    // The machine field of the ELF header: s390.
    foreign[18] = 22;
    let whole = place.root().join("whole.so");
    for (bytes, wanted) in [
        (&good[..good.len() / 20], "is cut off"),
        (&foreign[..], "is built for"),
        (b"text", "no ELF file"),
    ] {
        fs::write(&there, bytes)?;
        host.bpe(&doctor)?.expect(1, &["fail library", wanted])?;
        fs::write(&whole, bytes)?;
        let named = ["enable", "--yes", "--path", &cache, "--size", "64M"];
        let library = ["--library", &whole.to_string_lossy()];
        host.bpe(&[&named[..], &library[..]].concat())?
            .expect(1, &[wanted, "nothing was changed"])?;
    }
    fs::remove_file(&whole)?;
    fs::remove_file(&there)?;
    host.bpe(&doctor)?.expect(0, &[])?;
    Ok(())
}

/// Checks the server's executable, which need not run: the same verdict without a query to a server.
fn doctor_judges_an_executable(place: &Place, host: &Host, calls: &str) -> Outcome {
    let judge = |file: &Path| {
        let file = file.to_string_lossy().into_owned();
        host.bpe(&["doctor", "--json", "--server-binary", &file])
    };
    let program = place.installation.server_program();
    let said = judge(program)?.expect(0, &[])?.json()?;
    let findings = said["findings"].as_array().context("no findings")?;
    let found: Vec<String> = findings
        .iter()
        .map(|finding| {
            let part = |name: &str| finding[name].as_str().unwrap_or_default();
            format!("{}: {} {}", part("topic"), part("level"), part("text"))
        })
        .collect();
    ensure!(said["works"] == true && found.len() == 3, "{said:#}");
    let release = place.installation.version.split('-').next();
    let release = release.context("the server's version")?;
    ensure!(
        found[0].starts_with("executable: ok") && found[0].contains(&format!(" {release}, ")),
        "{found:?}"
    );
    ensure!(found[1] == format!("calls: {calls}"), "{found:?}");
    ensure!(
        found[2].starts_with("async I/O: ok libaio")
            && found[2].contains("io_uring") != place.is_mysql()
            && found[2].contains("asynchronous reads are served, too"),
        "{found:?}"
    );
    if place.is_mysql() {
        return Ok(());
    }
    let old = altered::of_release(place, 100_211)?;
    judge(old.server_program())?.expect(1, &["MariaDB 10.2.11 is older than 10.5"])?;
    // An executable for another processor, and a truncated one.
    let copy = place.root().join("copy");
    fs::copy(program, &copy)?;
    let file = fs::File::options().write(true).open(&copy)?;
    const MACHINE: u64 = 18;
    for (machine, code, words) in [(183_u16, 0, "another processor"), (22, 1, "not support")] {
        file.write_all_at(&machine.to_le_bytes(), MACHINE)?;
        judge(&copy)?.expect(code, &[words])?;
    }
    file.set_len(file.metadata()?.len() / 2)?;
    judge(&copy)?.expect(1, &["cut off"])?;
    judge(&host.log())?.expect(1, &["no ELF file"])?;
    judge(&place.root().join("no/such"))?.expect(1, &["cannot open"])?;
    host.bpe(&["doctor", "--server-binary", "x", "--size", "1G"])?
        .expect(2, &["cannot be used with"])?;
    host.bpe(&["doctor", "--size", "1G"])?
        .expect(2, &["--path"])?;
    Ok(())
}

/// All commands and the plugin report the same two sentences. The remedy is offered, applied and undone.
fn a_server_that_cannot_be_followed(place: &Place) -> Outcome {
    let other = altered::renamed(place, "io_submit", b'j', altered::SUBMITS_UNSEEN)?;
    let mut host = Host::with(place, Some(other))?;
    let aio = host.conf().join("a.cnf");
    fs::write(&aio, "[mysqld]\ninnodb_linux_aio = aio\n")?;
    host.restart(false)?;
    let before = host.snapshot()?;

    let cache = place.cache().to_string_lossy().into_owned();
    let doctor = |host: &Host| {
        host.bpe(&[
            "doctor",
            "--json",
            "--no-measure",
            "--path",
            &cache,
            "--size",
            "256M",
        ])
    };
    let said = doctor(&host)?.expect(1, &[])?.json()?;
    let calls = said["findings"]
        .as_array()
        .and_then(|all| all.iter().find(|finding| finding["topic"] == "calls"))
        .with_context(|| said.to_string())?;
    let missing = calls["text"].as_str().context("a text")?;
    let remedy = calls["advice"].as_str().context("advice")?;
    ensure!(missing.contains("io_submit") && remedy.contains("innodb_use_native_aio=OFF"));

    // The plugin and its log report the same.
    let reason = format!("{missing}. {remedy}.");
    host.restart(true)?;
    host.server().sql("INSTALL SONAME 'bpe'")?;
    let state = sql::status(host.server(), "state_reason")?;
    ensure!(state == reason, "{state}");
    ensure!(host.log_text()?.contains(&reason), "not in the log");
    // The same with the plugin installed.
    doctor(&host)?.expect(1, &[missing, remedy])?;
    host.server().sql("UNINSTALL SONAME 'bpe'")?;
    host.restart(false)?;

    // `enable` offers the option and writes nothing else.
    host.enable(&place.cache(), &CACHE.to_string(), &[])?
        .expect(1, &[missing, remedy, "Restart the server"])?;
    ensure!(fs::read_to_string(host.snippet())?.contains("innodb_use_native_aio = OFF"));
    ensure!(host.value("SELECT @@innodb_use_native_aio")? == "1");
    host.enable(&place.cache(), &CACHE.to_string(), &[])?
        .expect(1, &["already", "Restart the server"])?;
    // `disable` takes it back.
    host.disable()?;
    host.unchanged_since(&before)?;

    host.enable(&place.cache(), &CACHE.to_string(), &[])?
        .expect(1, &["Not enabled yet"])?;
    host.restart(false)?;
    ensure!(host.value("SELECT @@innodb_use_native_aio")? == "0");
    doctor(&host)?.expect(0, &[])?;
    host.enable_well()?;
    host.bpe(&["status"])?.expect(0, &["active"])?;
    ensure!(fs::read_to_string(host.snippet())?.contains("innodb_use_native_aio = OFF"));
    host.restart(true)?;
    sql::expect_state(host.server(), "active")?;
    host.bpe(&["status"])?.expect(0, &["active"])?;
    host.disable()?.expect(0, &["as it was before"])?;
    host.unchanged_since(&before)?;
    host.restart(false)?;
    ensure!(host.value("SELECT @@innodb_use_native_aio")? == "1");
    Ok(())
}

/// The extension tracks servers built by mariadb.org with every setting of `innodb_use_native_aio`.
fn libaio_linked_in_is_followed(place: &Place) -> Outcome {
    let mut host = Host::new(place)?;
    let cache = place.cache().to_string_lossy().into_owned();
    for value in ["ON", "OFF"] {
        fs::write(
            host.conf().join("a.cnf"),
            format!("[mysqld]\ninnodb_use_native_aio = {value}\n"),
        )?;
        host.restart(false)?;
        host.bpe(&["doctor", "--no-measure", "--path", &cache, "--size", "256M"])?
            .expect(0, &["all calls that must be intercepted are imported"])?;
        host.enable_well()?;
        host.bpe(&["status"])?.expect(0, &["active"])?;
        host.disable()?.expect(0, &["as it was before"])?;
    }
    Ok(())
}

fn super_read_only_stays(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    host.server().sql("SET GLOBAL super_read_only = ON")?;
    let before = host.snapshot()?;
    host.enable_well()?;
    ensure!(host.value("SELECT @@super_read_only")? == "1");
    host.disable()?;
    host.unchanged_since(&before)?;
    host.enable(&place.cache(), "1M", &[])?
        .expect(4, &["as it was before"])?;
    host.unchanged_since(&before)
}

fn other_early_plugins_stay(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    fs::write(
        host.conf().join("a.cnf"),
        "[mysqld]\nearly-plugin-load = other.so\n",
    )?;
    host.enable_well()?;
    let snippet = fs::read_to_string(host.snippet())?;
    ensure!(snippet.contains("\"other.so;bpe=bpe.so\""), "{snippet}");
    let enabled = host.snapshot()?;
    let size = CACHE.to_string();
    host.enable(&place.cache(), &size, &[])?
        .expect(0, &["nothing to change"])?;
    host.unchanged_since(&enabled)?;
    // The other plugin is replaced. The snippet, which is read last, must not restore the old one.
    fs::write(
        host.conf().join("a.cnf"),
        "[mysqld]\nearly-plugin-load = newer.so\n",
    )?;
    let cache = place.cache().to_string_lossy().into_owned();
    host.bpe(&["doctor", "--no-measure", "--path", &cache, "--size", &size])?
        .expect(0, &["newer.so came into the option files after"])?;
    host.enable(&place.cache(), &size, &[])?
        .expect(0, &["Enabled."])?;
    let snippet = fs::read_to_string(host.snippet())?;
    ensure!(snippet.contains("\"newer.so;bpe=bpe.so\""), "{snippet}");
    Ok(())
}

/// `disable` reports settings in foreign option files and does not undo them.
fn disable_tells_of_other_files(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    host.enable_well()?;
    let other = host.conf().join("60-own.cnf");
    let loads = match place.installation.flavour.is_mysql() {
        true => "early-plugin-load = bpe=bpe.so",
        false => "plugin_load_add = bpe",
    };
    fs::write(
        &other,
        format!("[mysqld]\n{loads}\nloose-bpe-enabled = ON\n"),
    )?;
    host.disable()?
        .expect(0, &["60-own.cnf sets bpe_enabled: take that out"])?;
    fs::remove_file(other)?;
    host.enable_well()?;
    host.disable()?
        .expect(0, &["the server is as it was before"])
        .map(drop)
}

/// Session defaults of the server change the meaning of statements. The command sets every session variable that it depends on.
fn defaults_of_sessions_change_nothing(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let (path, size) = (place.cache().display().to_string(), CACHE.to_string());
    let before = host.snapshot()?;
    // Runs each subcommand; returns results that must not depend on the defaults.
    let round = |what: &str| -> anyhow::Result<Vec<String>> {
        let mut said = Vec::new();
        let mut run = |code: i32, arguments: &[&str]| {
            let run = host.bpe(arguments)?.expect(code, &[]);
            let run = run.with_context(|| format!("{what}: {arguments:?}"))?;
            said.push(format!("{} {}", arguments[0], run.code));
            anyhow::Ok(run.text)
        };
        host.enable_well().with_context(|| what.to_owned())?;
        let doctor = run(0, &["doctor", "--path", &path, "--size", &size])?;
        let state = run(0, &["status", "--json"])?;
        let state: Value = serde_json::from_str(&state).context(state.clone())?;
        ensure!(state["variables"]["bpe_size"] == CACHE, "{what}: {state:#}");
        for arguments in [
            &["status", "--explain"][..],
            &["top", "--once"],
            &["verify"],
            &["ready"],
            &["views", "create"],
            &["views", "drop"],
        ] {
            run(0, arguments)?;
        }
        // The names of the checks. Measured values vary, and with them the verdict in the last line.
        let is_check = |line: &&str| !line.starts_with(' ') && !line.starts_with("It ");
        let looks = doctor.lines().filter(is_check);
        said.extend(looks.map(|line| line.chars().skip(5).take(12).collect()));
        host.disable().with_context(|| what.to_owned())?;
        Ok(said)
    };
    let usual = round("the usual defaults")?;
    host.unchanged_since(&before)
        .context("the usual defaults")?;
    let times = match place.is_mysql() {
        true => "max_execution_time = 1",
        false => "max_statement_time = 0.01",
    };
    for defaults in [
        &["sql_mode = 'NO_BACKSLASH_ESCAPES'"][..],
        &[
            "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH'",
            "sql_quote_show_create = 0",
            "sql_safe_updates = 1",
            "sql_select_limit = 1",
            "sql_notes = 0",
            "max_error_count = 0",
            "lc_messages = 'de_DE'",
            "time_zone = '-11:00'",
            "character_set_client = 'latin1'",
        ],
        &["autocommit = 0", "transaction_read_only = 1"],
        &[times],
    ] {
        let mut back = Vec::new();
        for one in defaults {
            // MariaDB 10.11 has the variable under its old name.
            let one = match place.is_mysql() {
                true => (*one).to_owned(),
                false => one.replace("transaction_read_only", "tx_read_only"),
            };
            let name = one.split(' ').next().unwrap_or_default();
            let kept = host.value(&format!("SELECT @@GLOBAL.{name}"))?;
            let quote = if kept.parse::<f64>().is_ok() { "" } else { "'" };
            back.push(format!("{name} = {quote}{kept}{quote}"));
            host.server().sql(&format!("SET GLOBAL {one}"))?;
        }
        let said = round(&defaults.join(", "));
        // Restore the defaults for the test's own sessions.
        for one in back.iter().rev() {
            host.server().sql(&format!("SET GLOBAL {one}"))?;
        }
        let said = said?;
        host.unchanged_since(&before)
            .with_context(|| defaults.join(", "))?;
        ensure!(said == usual, "{defaults:?}: {said:?} instead of {usual:?}");
    }
    Ok(())
}

fn permissions(_: &Place) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(integration_tests::skip(
            "needs root to run a server as another user",
        ));
    }
    let place = Place::readable_by("nobody", Flavour::MariaDb1011)?;
    // The place belongs to the server's user, who could change records there.
    let state = tempfile::tempdir()?;
    let server = place.start(place.options().user("nobody"))?;
    let mut host = Host::of(&place, state.path().join("state"), server);
    fs::create_dir(host.conf())?;
    let before = host.snapshot()?;
    host.enable(&place.cache(), &CACHE.to_string(), &[])?
        .expect(1, &["neither root nor", "copy it yourself: sudo install"])?;
    host.unchanged_since(&before)?;
    host.server.take().context("a server")?.stop()?;
    let options = place.options().user("nobody");
    let options = options.plugin(place.library()?, "bpe", Load::BySql);
    host.server = Some(place.start(options)?);
    let closed = place.root().join("closed");
    fs::create_dir(&closed)?;
    let before = host.snapshot()?;
    let size = CACHE.to_string();
    host.enable(&closed, &size, &[])?
        .expect(1, &["nobody may not write", "chown nobody"])?;
    host.unchanged_since(&before)?;
    let made = place.root().join("made");
    host.enable(&made, &size, &[])?.expect(0, &["Enabled."])?;
    host.disable()?;
    ensure!(!made.exists(), "the folder that was made is still there");
    host.unchanged_since(&before)
}

fn connection_options(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    host.server()
        .sql("CREATE USER secret@localhost IDENTIFIED BY 'p#w \"x'")?;
    let file = place.root().join("client.cnf");
    let socket = host.server().socket().display().to_string();
    fs::write(
        &file,
        format!("[client_two]\nuser=secret\nsocket={socket}\npassword='p#w \\\"x'\n"),
    )?;
    let file = format!("--defaults-file={}", file.display());
    host.bpe_bare(&["status", &file, "--defaults-group-suffix=_two"])?
        .expect(1, &["not installed"])?;
    let elsewhere = "--socket=/no/such.sock";
    host.bpe_bare(&["status", &file, "--defaults-group-suffix=_two", elsewhere])?
        .expect(3, &[])?;
    host.bpe_bare(&["status", "--defaults-file=/no/such.cnf"])?
        .expect(2, &["/no/such.cnf"])?;
    Ok(())
}
