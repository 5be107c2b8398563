//! Clusters: `bpe` and the console report each server, change one server after the other, and stop where they must. Nothing
//! that belongs to one server reaches another.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use integration_tests::browser;
use integration_tests::cluster::free_ports;
use integration_tests::console::{Console, expect};
use integration_tests::harness::Outcome;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::place::copy_folder;
use integration_tests::{Flavour, Load, Options, Place, Server, Suite, library, note, skip, sql};
use private_server::root;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("cluster")
        .with(
            Flavour::MariaDb1011,
            "a_primary_and_its_replica",
            a_primary_and_its_replica,
        )
        .with(Flavour::MariaDb1011, "in_a_browser", in_a_browser)
        .with(
            Flavour::MariaDb1011,
            "two_nodes_of_galera",
            two_nodes_of_galera,
        )
        .with(Flavour::MySql97, "roles_on_mysql", roles_on_mysql)
}

/// Two servers in the place's directory, and the file that names them.
struct Two<'a> {
    place: &'a Place,
    ports: [[u16; 3]; 2],
}

const NAMES: [&str; 2] = ["first", "second"];

impl<'a> Two<'a> {
    fn new(place: &'a Place) -> anyhow::Result<Self> {
        let two = Self {
            place,
            ports: free_ports()?,
        };
        for node in 0..2 {
            fs::create_dir(two.cache(node))?;
        }
        Ok(two)
    }

    fn data(&self, node: usize) -> PathBuf {
        self.place.root().join(NAMES[node])
    }

    fn cache(&self, node: usize) -> PathBuf {
        self.place.root().join(format!("cache-{node}"))
    }

    /// The library is in the plugin directory, and the plugin is not loaded.
    fn options(&self, node: usize) -> anyhow::Result<Options> {
        let options = self
            .place
            .options_of(NAMES[node], &format!("run-{node}"))
            .plugin(self.place.library()?, "bpe", Load::BySql)
            .port(self.ports[node][0])
            .option(format!("--server-id={}", node + 1))
            .option("--log-bin=bin")
            .option("--binlog-format=ROW")
            .option("--skip-name-resolve");
        Ok(match self.place.is_mysql() {
            true => options
                .option("--gtid-mode=ON")
                .option("--enforce-gtid-consistency=ON"),
            false => options.option("--log-slave-updates=ON"),
        })
    }

    /// Starts a server on a copy of the empty data directory.
    fn make(&self, node: usize) -> anyhow::Result<Server> {
        copy_folder(&self.place.data(), &self.data(node))?;
        let _ = fs::remove_file(self.data(node).join("auto.cnf"));
        self.place.start(self.options(node)?)
    }

    /// Creates accounts for a replica and for a user without privileges on the first server, and starts replication to the
    /// second.
    fn follow(&self, first: &Server, second: &Server) -> Outcome {
        let accounts = [
            "CREATE USER replica@'%' IDENTIFIED BY 'x'",
            "GRANT REPLICATION SLAVE ON *.* TO replica@'%'",
            "CREATE USER looker@localhost",
        ];
        sql::run(first, &accounts)?;
        let port = self.ports[0][0];
        let statements = match self.place.is_mysql() {
            true => [
                format!(
                    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'replica', \
                     SOURCE_PASSWORD = 'x', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
                ),
                "START REPLICA".to_owned(),
            ],
            false => [
                format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'replica', \
                     MASTER_PASSWORD = 'x', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
                ),
                "START SLAVE".to_owned(),
            ],
        };
        sql::run(second, &[&statements[0], &statements[1]])
    }

    /// Writes the file that names both servers; the first server is in the middle of it.
    fn file(&self, servers: [&Server; 2], cluster: &str) -> anyhow::Result<String> {
        let path = self.place.root().join("servers.toml");
        let mut text = String::new();
        for (node, server) in servers.iter().enumerate() {
            text.push_str(&format!(
                "[[server]]\nname = '{}'\nsocket = '{}'\nuser = 'root'\npath = '{}'\n{cluster}\n",
                NAMES[node],
                server.socket().display(),
                self.cache(node).display()
            ));
        }
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bpe"));
        command
            .args(arguments)
            .env("BPE_STATE_DIR", self.place.root().join("state"))
            .env("HOME", self.place.root())
            .env_remove("MYSQL_PWD")
            .env_remove("MYSQL_HOST")
            .stdin(Stdio::null());
        command
    }

    fn bpe(&self, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
        let output = self.command(arguments).output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&text).into_owned(),
        ))
    }

    fn expect(&self, arguments: &[&str], code: i32, parts: &[&str]) -> anyhow::Result<String> {
        let (was, text) = self.bpe(arguments)?;
        ensure!(
            was == code,
            "{arguments:?}: exit code {was} instead of {code}:\n{text}"
        );
        for part in parts {
            ensure!(
                text.contains(part),
                "{arguments:?}: `{part}` is missing in:\n{text}"
            );
        }
        Ok(text)
    }

    /// Runs the command on one server, over its socket.
    fn on(
        &self,
        server: &Server,
        arguments: &[&str],
        code: i32,
        parts: &[&str],
    ) -> anyhow::Result<String> {
        let socket = format!("--socket={}", server.socket().display());
        let mut all = arguments.to_vec();
        all.extend(["--no-defaults", &socket]);
        if !arguments
            .iter()
            .any(|argument| argument.starts_with("--user="))
        {
            all.push("--user=root");
        }
        self.expect(&all, code, parts)
    }
}

fn installed(server: &Server) -> anyhow::Result<bool> {
    let count = "SELECT (SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe') \
                 + (SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe') \
                 + (SELECT COUNT(*) FROM mysql.func WHERE name = 'bpe_report')";
    Ok(sql::number(server, count)? > 0)
}

/// Waits until the replica has the account that its primary created.
fn wait_for_account(replica: &Server) -> Outcome {
    sql::wait_until("the account", PATIENCE, || {
        Ok(replica
            .value("SELECT COUNT(*) FROM mysql.user WHERE User = 'looker'")?
            .as_deref()
            == Some("1"))
    })
}

fn signal(server: &Server, signal: Signal) -> Outcome {
    let pid = Pid::from_raw(i32::try_from(server.pid())?).context("a pid")?;
    Ok(kill_process(pid, signal)?)
}

/// A running command, killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_primary_and_its_replica(place: &Place) -> Outcome {
    let two = Two::new(place)?;
    let (first, second) = (two.make(0)?, two.make(1)?);
    let library = library::library()?.display().to_string();
    let all = |file: &str| {
        let mut arguments = [
            "enable",
            "--all",
            file,
            "--size=64M",
            "--yes",
            "--watch=2",
            "--library",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(library.clone());
        arguments
    };
    let run = |file: &str, code, parts: &[&str]| {
        let arguments = all(file);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        two.expect(&arguments, code, parts)
    };

    // Neither the primary nor the cluster can be determined.
    let file = two.file([&first, &second], "cluster = 'shop'")?;
    run(
        &file,
        1,
        &[
            "more than one primary: first and second",
            "nothing was changed",
        ],
    )?;
    let file = two.file([&first, &second], "")?;
    run(
        &file,
        1,
        &[
            "which cluster these belong to: first, second",
            "cluster = \"NAME\"",
        ],
    )?;
    let file = two.file([&first, &second], "clustr = 'shop'")?;
    run(&file, 2, &["line 6", "unknown field"])?;

    two.follow(&first, &second)?;
    let file = two.file([&first, &second], "")?;
    sql::wait_until("a replica in step", PATIENCE, || {
        Ok(two
            .bpe(&["ready", "--servers", &file, "--server=second"])?
            .0
            == 0)
    })?;
    two.expect(
        &["ready", "--servers", &file, "--server=first"],
        0,
        &["first is ready: primary"],
    )?;
    two.expect(
        &[
            "ready",
            "--servers",
            &file,
            "--server=second",
            "--role=primary",
        ],
        1,
        &["second is not ready: it is replica"],
    )?;
    two.expect(
        &["ready", "--servers", &file, "--server=third"],
        2,
        &["it has: first, second"],
    )?;
    // A minimum warmth has no effect where no list was loaded.
    two.on(
        &second,
        &["ready", "--min-warm=90"],
        0,
        &["is ready: replica", "no list"],
    )?;
    wait_for_account(&second)?;
    two.on(
        &second,
        &["ready", "--user=looker"],
        1,
        &["GRANT SLAVE MONITOR ON *.* TO 'looker'@'localhost'"],
    )?;
    let path = place.cache().display().to_string();
    let doctor = ["doctor", "--no-measure", "--size=64M", "--path", &path];
    two.on(&first, &doctor, 0, &["stops replicating with error 1126"])?;

    // The command waits for a hung server until its timeout, and changes nothing.
    signal(&second, Signal::STOP)?;
    let hung = two.expect(
        &[
            "ready",
            "--servers",
            &file,
            "--server=second",
            "--timeout=1",
        ],
        1,
        &["is not ready"],
    );
    let refused = run(
        &file,
        3,
        &["second: the server does not answer", "nothing was changed"],
    );
    signal(&second, Signal::CONT)?;
    hung?;
    refused?;
    ensure!(
        !installed(&first)? && !installed(&second)?,
        "something was changed"
    );

    // A node that dies ends the change; the next node stays unchanged.
    let mut command = two.command(&[]);
    command
        .args(all(&file))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Running(command.spawn()?);
    sql::wait_until("the replica is changed", PATIENCE, || {
        Ok(installed(&second)? && sql::status(&second, "state")? == "active")
    })?;
    second.kill();
    let status = running.0.wait()?;
    let mut text = String::new();
    running
        .0
        .stdout
        .take()
        .context("output")?
        .read_to_string(&mut text)?;
    running
        .0
        .stderr
        .take()
        .context("output")?
        .read_to_string(&mut text)?;
    ensure!(status.code() == Some(4), "{status}: {text}");
    for part in ["stopped at: ", "to go on, mend that", "bpe disable --all"] {
        ensure!(text.contains(part), "`{part}` is missing in {text}");
    }
    ensure!(!installed(&first)?, "the primary was changed: {text}");

    // The same command completes the change. The binary logs contain nothing of it.
    let second = place.start(two.options(1)?)?;
    sql::wait_until("a replica in step", PATIENCE, || {
        Ok(two
            .bpe(&["ready", "--servers", &file, "--server=second"])?
            .0
            == 0)
    })?;
    let text = run(
        &file,
        0,
        &[
            "Cluster first: 2 servers",
            "All servers of cluster first are done",
        ],
    )?;
    ensure!(
        text.rfind("second (1 of 2)") < text.rfind("first (2 of 2)"),
        "the primary is the last: {text}"
    );
    for server in [&first, &second] {
        sql::expect_state(server, "active")?;
    }
    let events: Vec<integration_tests::mysql::Row> = first
        .connect()?
        .query("SHOW BINLOG EVENTS IN 'bin.000001'")?;
    let names = |word: &str| {
        events.iter().any(|row| {
            let info: Option<String> = row.get("Info");
            info.is_some_and(|info| info.to_lowercase().contains(word))
        })
    };
    ensure!(
        names("create user") && !names("function") && !names("bpe"),
        "{events:?}"
    );
    run(&file, 0, &["nothing to change"])?;

    on_the_console(&two, &first, &second)?;
    let file = two.file([&first, &second], "")?;
    two.expect(
        &["disable", "--all", &file, "--yes", "--watch=2"],
        0,
        &["All servers of cluster first are done"],
    )?;
    ensure!(
        !installed(&first)? && !installed(&second)?,
        "something is left"
    );
    for server in [second, first] {
        server.stop()?;
    }
    Ok(())
}

/// The console shows both servers as a cluster, switches them one after the other, and reports which may get traffic.
fn on_the_console(two: &Two, first: &Server, second: &Server) -> Outcome {
    let [[health]] = free_ports()?;
    // The connection options name the first server.
    let file = two.file([first, second], "")?;
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.split("\n\n").nth(1).context("two servers")?)?;
    let console = Console::start(
        env!("CARGO_BIN_EXE_bpe"),
        two.place.root(),
        first.socket(),
        &[
            "--servers",
            &file,
            &format!("--health={health}"),
            "--max-lag=5",
        ],
    )?;
    let cluster = || -> anyhow::Result<Value> {
        let all = console.get("/api/clusters")?;
        Ok(all.get(0).cloned().unwrap_or_default())
    };
    sql::wait_until("a cluster", PATIENCE, || {
        let cluster = cluster()?;
        let members = cluster["members"].as_array().map_or(0, Vec::len);
        Ok(members >= 2 && cluster["members"].to_string().contains("\"replica\""))
    })?;
    let shown = cluster()?;
    let member = |shown: &Value, name: &str| {
        let members = shown["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|member| member["name"] == name)
    };
    let replica = member(&shown, "second").context("the replica")?;
    ensure!(
        replica["role"] == "replica"
            && replica["in_step"] == true
            && replica["extension"] == "active",
        "{replica}"
    );
    ensure!(replica["warm_percent"].is_null(), "{replica}");
    let name = shown["name"].as_str().context("a name")?.to_owned();
    let at = |what: &str| format!("/api/clusters/{name}/{what}");
    expect(
        &console.ask(
            "POST",
            "/api/clusters/none/plan",
            Some(json!({"action": "off"})),
        )?,
        404,
        &["none"],
    )?;

    let get = |question: &str| -> anyhow::Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", health))?;
        write!(stream, "GET {question} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no head")?;
        Ok((
            head.split(' ').nth(1).unwrap_or_default().parse()?,
            body.to_owned(),
        ))
    };
    ensure!(
        get("/ready?server=second")?.0 == 200,
        "{:?}",
        get("/ready?server=second")?
    );
    ensure!(get("/ready?server=second&role=primary")?.0 == 503);
    ensure!(get("/ready?server=nobody")?.0 == 404 && get("/ready")?.0 == 400);
    ensure!(get("/api/servers")?.0 == 404, "nothing else is told there");
    let weight = |name: &str| get(&format!("/weight?server={name}"));
    ensure!(
        weight("second")?.1 == "up 100%\n",
        "{:?}",
        weight("second")?
    );
    ensure!(weight("nobody")?.1.starts_with("failed"));

    // Killing the console's sessions takes no traffic away.
    let mut ended = 0;
    for _ in 0..3 {
        for id in second.connect()?.query::<u64, _>(
            "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND id <> CONNECTION_ID()",
        )? {
            ended += u32::from(second.sql(&format!("KILL {id}")).is_ok());
        }
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            let (status, why) = get("/ready?server=second")?;
            ensure!(status == 200, "{why}");
            sleep(Duration::from_millis(20));
        }
    }
    ensure!(ended > 0, "the console has no session");

    // Switch off, one server after the other.
    let plan = console.ask("POST", &at("plan"), Some(json!({"action": "off"})))?;
    expect(&plan, 200, &["\"refused\":null"])?;
    ensure!(plan.1["nodes"][0]["name"] == "second", "{}", plan.1);
    let begun = console.ask(
        "POST",
        &at("switch"),
        Some(json!({"action": "off", "watch_s": 2})),
    )?;
    expect(&begun, 202, &["running"])?;
    let again = console.ask("POST", &at("switch"), Some(json!({"action": "off"})))?;
    expect(&again, 409, &["already being changed"])?;
    sql::wait_until("the end", PATIENCE, || {
        Ok(cluster()?["task"]["state"] != "running")
    })?;
    let task = cluster()?["task"].take();
    ensure!(task["state"] == "done", "{task}");
    for server in [first, second] {
        sql::expect_state(server, "disabled")?;
    }
    // A replica whose replication stopped gets no traffic, and prevents a change from starting.
    second.sql("STOP SLAVE")?;
    sql::wait_until("not ready", PATIENCE, || {
        Ok(get("/ready?server=second")?.0 == 503)
    })?;
    let (_, said) = weight("second")?;
    ensure!(
        said.starts_with("down #") && said.contains("not in step"),
        "{said}"
    );
    let begun = console.ask(
        "POST",
        &at("switch"),
        Some(json!({"action": "on", "watch_s": 2})),
    )?;
    expect(&begun, 202, &[])?;
    sql::wait_until("the end", PATIENCE, || {
        Ok(cluster()?["task"]["state"] != "running")
    })?;
    let task = cluster()?["task"].take();
    ensure!(
        task["state"] == "failed"
            && task["error"]
                .to_string()
                .contains("not changed: second is replica"),
        "{task}"
    );
    sql::expect_state(first, "disabled")?;
    second.sql("START SLAVE")?;
    sql::wait_until("ready", PATIENCE, || {
        Ok(get("/ready?server=second")?.0 == 200)
    })?;
    ensure!(
        console.events()?.contains("in step with the others"),
        "{}",
        console.events()?
    );
    console.end()
}

/// In the browser, with the plugin on neither server: enables both one after the other, and disables both at once.
fn in_a_browser(place: &Place) -> Outcome {
    browser::look_for_tools()?;
    let two = Two::new(place)?;
    let (first, second) = (two.make(0)?, two.make(1)?);
    two.follow(&first, &second)?;
    let file = two.file([&first, &second], "cluster = 'shop'")?;
    let page = browser::web().join("dist").display().to_string();
    let library = library::library()?.display().to_string();
    let console = Console::start_with(
        env!("CARGO_BIN_EXE_bpe"),
        place.root(),
        &[
            "--servers",
            &file,
            "--web-folder",
            &page,
            "--library",
            &library,
        ],
    )?;
    let url = format!("http://{}/", console.address);
    let options = [
        ["--url", &url],
        ["--token", &console.token],
        ["--server", NAMES[0]],
        ["--replica", NAMES[1]],
        ["--cluster", "shop"],
        ["--size", "64M"],
        ["--only", "rolling"],
    ];
    browser::run(options.as_flattened(), |command| {
        bail!("nobody does {command}")
    })?;
    for server in [&first, &second] {
        ensure!(installed(server)?, "nothing is left to be switched on");
        sql::expect_state(server, "disabled")?;
    }
    console.end()?;
    one_primary(&two, &file, [&first, &second])?;
    for server in [second, first] {
        server.stop()?;
    }
    Ok(())
}

/// The second is promoted without a change on the first: neither is ready for writes until one of them stops taking writes.
fn one_primary(two: &Two, file: &str, [first, second]: [&Server; 2]) -> Outcome {
    let ask = |name: &str| {
        let name = format!("--server={name}");
        two.bpe(&["ready", "--servers", file, "--role=primary", &name])
    };
    let expect = |name: &str, code: i32, part: &str| -> Outcome {
        let (was, text) = ask(name)?;
        ensure!(was == code && text.contains(part), "{was}: {text}");
        Ok(())
    };
    expect(NAMES[0], 0, "first is ready")?;
    expect(NAMES[1], 1, "second is not ready: it is replica")?;
    sql::run(second, &["STOP SLAVE", "RESET SLAVE ALL"])?;
    // A primary notices a lost replica when it sends something.
    first.sql("CREATE DATABASE later")?;
    sql::wait_until("nobody follows the first", PATIENCE, || {
        first.sql("CREATE OR REPLACE DATABASE later")?;
        let (code, text) = ask(NAMES[0])?;
        Ok(code == 1 && text.contains("second takes writes, too"))
    })?;
    expect(NAMES[1], 1, "first takes writes, too")?;
    second.sql("SET GLOBAL read_only = ON")?;
    expect(NAMES[0], 0, "first is ready")?;
    expect(NAMES[1], 1, "second is not ready: it is read-only")?;
    Ok(())
}

/// Both begin with the same data, so that the second needs no copy of the first.
fn two_nodes_of_galera(place: &Place) -> Outcome {
    if !PathBuf::from(PROVIDER).is_file() {
        return Err(skip(
            "Galera is not installed: scripts/install-dependencies tests",
        ));
    }
    let two = Two::new(place)?;
    let programs = root::tools().map_err(anyhow::Error::msg)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let options = |node: usize| -> anyhow::Result<Options> {
        let [clients, group, missed] = two.ports[node];
        let all: Vec<String> = two
            .ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports[1]))
            .collect();
        Ok(two
            .options(node)?
            .start_timeout(PATIENCE)
            .environment("PATH", &format!("{path}:{}", programs.display()))
            .option("--innodb-autoinc-lock-mode=2")
            .option("--wsrep-on=ON")
            .option(format!("--wsrep-provider={PROVIDER}"))
            .option("--wsrep-cluster-name=innodb-bpe-two")
            .option(format!("--wsrep-cluster-address=gcomm://{}", all.join(",")))
            .option(format!("--wsrep-node-name={}", NAMES[node]))
            .option(format!("--wsrep-node-address=127.0.0.1:{group}"))
            .option(format!("--wsrep-node-incoming-address=127.0.0.1:{clients}"))
            .option("--wsrep-sst-method=mariabackup")
            .option(format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{missed};\
                 gcache.size=16M;socket.ssl=no"
            )))
    };
    copy_folder(&place.data(), &two.data(0))?;
    let begin = |node| place.start(options(node)?.option("--wsrep-new-cluster"));
    begin(0)?.stop()?;
    copy_folder(&two.data(0), &two.data(1))?;
    fs::remove_file(two.data(1).join("gvwstate.dat")).ok();
    let first = begin(0)?;
    let second = place.start(options(1)?)?;
    for server in [&first, &second] {
        sql::wait_until("synced", PATIENCE, || {
            let state = server.status("wsrep_local_state_comment")?;
            Ok(state.values().any(|state| state == "Synced"))
        })?;
    }
    let file = two.file([&first, &second], "")?;
    two.expect(
        &["ready", "--servers", &file, "--server=first"],
        0,
        &["Galera node, Synced"],
    )?;

    // A cache in the data directory: a joining node would receive a copy of it.
    let library = library::library()?.display().to_string();
    let inside = two.data(0).join("cache").display().to_string();
    let enable = [
        "enable",
        "--size=64M",
        "--yes",
        "--library",
        &library,
        "--path",
        &inside,
    ];
    two.on(
        &first,
        &enable,
        1,
        &[
            "lies in the data directory of a Galera node",
            "nothing was changed",
        ],
    )?;
    let doctor = ["doctor", "--no-measure", "--size=64M", "--path", &inside];
    two.on(
        &first,
        &doctor,
        1,
        &[
            "lies in the data directory of a Galera node",
            "reach all nodes",
        ],
    )?;

    // Galera does not replicate the installation to the other node.
    let own = two.cache(0).display().to_string();
    let enable = [
        "enable",
        "--size=64M",
        "--yes",
        "--library",
        &library,
        "--path",
        &own,
    ];
    two.on(&first, &enable, 0, &["Enabled"])?;
    second.sql("CREATE DATABASE after_it")?;
    sql::wait_until("the other's write", PATIENCE, || {
        Ok(first.value("SHOW DATABASES LIKE 'after_it'")?.is_some())
    })?;
    ensure!(
        installed(&first)? && !installed(&second)?,
        "it reached the other node"
    );
    let all = [
        "enable",
        "--all",
        &file,
        "--size=64M",
        "--yes",
        "--watch=2",
        "--library",
        &library,
    ];
    two.expect(
        &all,
        0,
        &[
            "Cluster innodb-bpe-two",
            "nothing to change",
            "as wished:  first",
        ],
    )?;
    for server in [&first, &second] {
        sql::expect_state(server, "active")?;
    }

    // The remaining node has no majority and refuses statements. `bpe` can still inspect it.
    first.kill();
    sql::wait_until("no majority", PATIENCE, || {
        // The node may refuse the query for a while.
        let part = second.status("wsrep_cluster_status");
        Ok(part.is_ok_and(|part| part.values().any(|part| part == "non-Primary")))
    })?;
    two.on(
        &second,
        &["ready"],
        1,
        &["is not ready: Galera node", "cluster non-Primary"],
    )?;
    two.on(&second, &["status"], 0, &["active"])?;
    second.kill();
    Ok(())
}

fn roles_on_mysql(place: &Place) -> Outcome {
    let two = Two::new(place)?;
    let (first, second) = (two.make(0)?, two.make(1)?);
    two.follow(&first, &second)?;
    let file = two.file([&first, &second], "")?;
    sql::wait_until("a replica in step", PATIENCE, || {
        Ok(two
            .bpe(&[
                "ready",
                "--servers",
                &file,
                "--server=second",
                "--role=replica",
            ])?
            .0
            == 0)
    })?;
    two.expect(
        &["ready", "--servers", &file, "--server=first"],
        0,
        &["first is ready: primary"],
    )?;
    wait_for_account(&second)?;
    two.on(
        &second,
        &["ready", "--user=looker"],
        1,
        &["GRANT REPLICATION CLIENT ON *.*"],
    )?;

    // A replication group of one.
    sql::run(
        &second,
        &[
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = OFF",
        ],
    )?;
    let [_, group, _] = two.ports[0];
    if let Err(error) = first.sql("INSTALL PLUGIN group_replication SONAME 'group_replication.so'")
    {
        note(format!("no group replication: {error}"));
        return Ok(());
    }
    sql::run(
        &first,
        &[
            "SET GLOBAL group_replication_group_name = '5f6c0d5e-6a1b-4f0e-9a37-1c2d3e4f5a6c'",
            &format!("SET GLOBAL group_replication_local_address = '127.0.0.1:{group}'"),
            &format!("SET GLOBAL group_replication_group_seeds = '127.0.0.1:{group}'"),
        ],
    )?;
    two.on(&first, &["ready"], 1, &["secondary of the group, OFFLINE"])?;
    sql::run(
        &first,
        &[
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION",
        ],
    )?;
    sql::wait_until("a primary", PATIENCE, || {
        Ok(two
            .bpe(&["ready", "--servers", &file, "--server=first"])?
            .1
            .contains("primary of the group, ONLINE"))
    })?;
    two.on(
        &first,
        &["ready", "--user=looker"],
        1,
        &["GRANT SELECT ON performance_schema.*"],
    )?;
    for server in [second, first] {
        server.stop()?;
    }
    Ok(())
}
