//! The console's page in a real browser: headless Chromium, driven by `web/tests/browser`, against `bpe-lab console` and a MariaDB
//! under sysbench.
//! The scenarios are in `web/tests/browser`. This program executes what a browser cannot do: it kills and starts the server
//! and the console.
//! console.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use integration_tests::browser;
use integration_tests::harness::{Outcome, note};
use integration_tests::sysbench::{Run, Sysbench};
use integration_tests::{Flavour, Options, Place, Server, Suite};

const CACHE: u64 = 128 << 20;
const TABLES: u32 = 4;
const ROWS: u32 = 30_000;
const TOKEN: &str = "a-token-that-only-this-test-knows-0123456789";
const NAME: &str = "shop";
const MAKE_REPORT: &str = "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'";

fn main() -> ExitCode {
    integration_tests::harness::run([Suite::new("console_page").with(
        Flavour::MariaDb1011,
        "in_a_browser",
        in_a_browser,
    )])
}

/// The processes beside the browser.
struct Stage<'a> {
    place: &'a Place,
    sysbench: Sysbench,
    server: Option<Server>,
    load: Option<Run>,
    console: Option<Child>,
    address: SocketAddr,
    /// Has a link to the server's socket, whose path changes with a restart.
    links: tempfile::TempDir,
}

impl<'a> Stage<'a> {
    fn new(place: &'a Place) -> anyhow::Result<Self> {
        let server = place.start(options(place)?)?;
        let sysbench = Sysbench::prepare(&server, place.root(), TABLES, ROWS)?;
        // The state that `bpe enable` leaves.
        server.sql(MAKE_REPORT)?;
        let token = place.root().join("token");
        fs::write(&token, format!("{TOKEN}\n"))?;
        fs::set_permissions(&token, PermissionsExt::from_mode(0o600))?;
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut stage = Self {
            place,
            sysbench,
            server: Some(server),
            load: None,
            console: None,
            address: free,
            links: tempfile::tempdir()?,
        };
        stage.link_socket()?;
        stage.start_load()?;
        stage.start_console()?;
        Ok(stage)
    }

    fn socket(&self) -> PathBuf {
        self.links.path().join("socket")
    }

    fn link_socket(&self) -> Outcome {
        let server = self.server.as_ref().context("no server")?;
        let _ = fs::remove_file(self.socket());
        Ok(std::os::unix::fs::symlink(server.socket(), self.socket())?)
    }

    fn start_load(&mut self) -> Outcome {
        let server = self.server.as_ref().context("no server")?;
        self.load = Some(self.sysbench.run(server, "oltp_read_only", 2, 600)?);
        Ok(())
    }

    fn start_console(&mut self) -> Outcome {
        let log = fs::File::create(self.place.root().join("console.log"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_bpe-lab"));
        command
            .args(["console", "--no-defaults", "-u", "root", "--name", NAME])
            .arg("-S")
            .arg(self.socket())
            .args(["--listen", &self.address.to_string()])
            .arg("--token-file")
            .arg(self.place.root().join("token"))
            .arg("--state-dir")
            .arg(self.place.root().join("state"))
            .arg("--web-folder")
            .arg(browser::web().join("dist"));
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.console = Some(child);
        let limit = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(self.address).is_err() {
            ensure!(
                Instant::now() < limit,
                "the console does not listen: {}",
                self.console_log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn console_log(&self) -> String {
        fs::read_to_string(self.place.root().join("console.log")).unwrap_or_default()
    }

    fn kill_console(&mut self) {
        if let Some(mut console) = self.console.take() {
            let _ = console.kill();
            let _ = console.wait();
        }
    }

    /// Executes a command of the scenarios.
    fn obey(&mut self, command: &str) -> Outcome {
        match command {
            "kill-server" => {
                // The load first: it would end with an error.
                drop(self.load.take());
                self.server.take().context("no server")?.kill();
            }
            "start-server" => {
                self.server = Some(self.place.start(options(self.place)?)?);
                self.link_socket()?;
                self.start_load()?;
            }
            "kill-console" => self.kill_console(),
            "start-console" => self.start_console()?,
            _ => bail!("unknown command {command}"),
        }
        Ok(())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.kill_console();
    }
}

/// Options of a server with the plugin loaded and configured, but not switched on.
fn options(place: &Place) -> anyhow::Result<Options> {
    place.early_disabled(CACHE)
}

fn in_a_browser(place: &Place) -> Outcome {
    browser::look_for_tools()?;
    let mut stage = Stage::new(place)?;
    let url = format!("http://{}/", stage.address);
    let cache = place.cache().display().to_string();
    let options = [
        ["--url", &url],
        ["--token", TOKEN],
        ["--server", NAME],
        ["--size", "128M"],
        ["--experience", "1"],
        ["--path", &cache],
    ];
    let said = browser::run(options.as_flattened(), |command| stage.obey(command))
        .with_context(|| format!("console:\n{}", stage.console_log()))?;
    note(said.lines().last().unwrap_or_default());
    Ok(())
}
