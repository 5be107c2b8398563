//! A rogue server: one answer to one statement of a subcommand is replaced. The command must end with an error message.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::harness::Outcome;
use integration_tests::{Place, note, sql};
use private_server::SocketPath;

use super::command::Host;

#[path = "../../src/connect/rogue/packets.rs"]
mod packets;

use packets::{END, column, framed, text};

/// The first `FIRST` statements of a subcommand and `OTHERS` of the rest get replaced answers.
const FIRST: usize = 6;
const OTHERS: usize = 10;
/// Time limit of a run, without the minutes of load of `compare`.
const LONGEST: Duration = Duration::from_secs(60);
/// Bytes of address space of a run.
const MEMORY: u64 = 2 << 30;
/// Bytes after which an endless answer ends.
const ENDLESS: usize = 256 << 20;

const HOSTILE: &str = "\u{1b}]0;owned\u{7}\r\n[mysqld]\ninit_file=/evil.sql\n\u{202e}'; DROP DATABASE mysql; -- `$(reboot)`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// The connection ends after that many bytes of the answer.
    Cut(usize),
    Text,
    Null,
    Numbers,
    MoreColumns,
    NoRows,
    Endless,
    Error,
    File,
    Done,
    Rubbish,
}

const LIES: [Lie; 14] = [
    Lie::Text,
    Lie::Null,
    Lie::Numbers,
    Lie::MoreColumns,
    Lie::NoRows,
    Lie::Endless,
    Lie::Error,
    Lie::File,
    Lie::Done,
    Lie::Rubbish,
    Lie::Cut(0),
    Lie::Cut(1),
    Lie::Cut(5),
    Lie::Cut(40),
];

#[derive(Default)]
struct Rule {
    /// Index of the statement whose answer is replaced, over all connections of a run.
    at: Option<(usize, Lie)>,
    statements: usize,
}

struct Rogue {
    socket: PathBuf,
    rule: Arc<Mutex<Rule>>,
    _place: SocketPath,
}

impl Rogue {
    fn new(folder: &Path, server: &Path) -> anyhow::Result<Self> {
        let place = SocketPath::of(folder, "rogue.sock")?;
        let listener = UnixListener::bind(place.path())?;
        let rule = Arc::new(Mutex::new(Rule::default()));
        let (own, server) = (Arc::clone(&rule), server.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (rule, server) = (Arc::clone(&own), server.clone());
                std::thread::spawn(move || {
                    // Either end may close the connection at any time.
                    let _ =
                        UnixStream::connect(server).and_then(|server| serve(client, server, &rule));
                });
            }
        });
        Ok(Self {
            socket: place.path().to_owned(),
            rule,
            _place: place,
        })
    }

    /// Begins a run. Returns the number of statements of the previous one.
    fn begin(&self, at: Option<(usize, Lie)>) -> usize {
        let mut rule = self.rule.lock().unwrap();
        let before = std::mem::take(&mut *rule);
        rule.at = at;
        before.statements
    }
}

/// Reads one packet: sequence number and payload.
fn packet(stream: &mut UnixStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok((head[3], payload))
}

fn send(stream: &mut UnixStream, number: u8, payload: &[u8]) -> std::io::Result<()> {
    stream.write_all(&framed(number, payload))
}

fn is_end(payload: &[u8]) -> bool {
    payload.first() == Some(&0xfe) && payload.len() < 9
}

fn serve(
    mut client: UnixStream,
    mut server: UnixStream,
    rule: &Mutex<Rule>,
) -> std::io::Result<()> {
    // The login passes unchanged.
    loop {
        let (number, payload) = packet(&mut server)?;
        send(&mut client, number, &payload)?;
        match payload.as_slice() {
            [0, ..] => break,
            [0xff, ..] => return Ok(()),
            // Cached password: the end of the handshake follows.
            [1, 3] => continue,
            _ => {}
        }
        let (number, payload) = packet(&mut client)?;
        send(&mut server, number, &payload)?;
    }
    loop {
        let (number, statement) = packet(&mut client)?;
        send(&mut server, number, &statement)?;
        if statement.first() == Some(&1) {
            return Ok(());
        }
        let answer = whole_answer(&mut server)?;
        let lie = {
            let mut rule = rule.lock().unwrap();
            let number = rule.statements;
            rule.statements += 1;
            rule.at.filter(|(at, _)| *at == number).map(|(_, lie)| lie)
        };
        let Some(lie) = lie else {
            for (index, payload) in answer.iter().enumerate() {
                send(&mut client, (index + 1) as u8, payload)?;
            }
            continue;
        };
        if !told(lie, &answer, &mut client)? {
            return Ok(());
        }
    }
}

/// All packets of an answer.
fn whole_answer(server: &mut UnixStream) -> std::io::Result<Vec<Vec<u8>>> {
    let mut packets = vec![packet(server)?.1];
    if matches!(packets[0].first(), Some(0 | 0xff) | None) {
        return Ok(packets);
    }
    let mut ends = 0;
    while ends < 2 {
        let (_, payload) = packet(server)?;
        ends += usize::from(is_end(&payload));
        let is_error = payload.first() == Some(&0xff) && ends == 1;
        packets.push(payload);
        if is_error {
            break;
        }
    }
    Ok(packets)
}

/// Sends a replaced answer. Returns whether the connection goes on.
fn told(lie: Lie, answer: &[Vec<u8>], client: &mut UnixStream) -> std::io::Result<bool> {
    let mut number = 0_u8;
    let mut give = |payload: &[u8]| {
        number = number.wrapping_add(1);
        send(client, number, payload)
    };
    // An answer without rows is replaced by one of two columns.
    let count = match answer[0].as_slice() {
        [count @ 1..=250] => usize::from(*count),
        _ => 2,
    };
    let rows_of = |lie: Lie| -> Vec<Vec<u8>> {
        let values: &[&str] = match lie {
            Lie::Numbers => &["18446744073709551616", "-1", "1e999", "", "NaN", "0x"],
            _ => &[HOSTILE],
        };
        let value = |at: usize| match lie {
            Lie::Null => vec![0xfb],
            _ => text(values[at % values.len()].as_bytes()),
        };
        let rows = if lie == Lie::NoRows { 0 } else { 3 };
        (0..rows)
            .map(|row| (0..count).flat_map(|column| value(row + column)).collect())
            .collect()
    };
    match lie {
        Lie::Cut(at) => {
            let whole: Vec<u8> = answer
                .iter()
                .enumerate()
                .flat_map(|(index, payload)| framed((index + 1) as u8, payload))
                .collect();
            client.write_all(&whole[..at.min(whole.len())])?;
            return Ok(false);
        }
        Lie::Text | Lie::Null | Lie::Numbers | Lie::NoRows | Lie::MoreColumns | Lie::Endless => {
            let count = count + usize::from(lie == Lie::MoreColumns);
            give(&[count as u8])?;
            for _ in 0..count {
                give(&column())?;
            }
            give(END)?;
            let rows = rows_of(lie);
            if lie == Lie::Endless {
                let mut given = 0;
                while given < ENDLESS {
                    give(&rows[0])?;
                    given += rows[0].len();
                }
                return Ok(false);
            }
            for row in &rows {
                give(row)?;
            }
            give(END)?;
        }
        Lie::Error => {
            let words = HOSTILE.repeat(600);
            give(&[b"\xff\x51\x04#HY000", words.as_bytes()].concat())?;
        }
        Lie::File => give(b"\xfb/etc/shadow")?,
        Lie::Done => give(b"\0\0\0\x02\0\0\0")?,
        Lie::Rubbish => {
            // The rest of the packet never arrives.
            give(&[0x9d; 700])?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs a subcommand against the rogue.
fn run(place: &Place, rogue: &Rogue, arguments: &[String]) -> Outcome {
    let began = Instant::now();
    let mut child = Command::new("prlimit")
        .arg(format!("--as={MEMORY}"))
        .arg("--")
        .arg(env!("CARGO_BIN_EXE_bpe"))
        .args(arguments)
        .args(["--no-defaults", "--user=root", "--socket"])
        .arg(&rogue.socket)
        .env("BPE_STATE_DIR", place.root().join("state"))
        .env("HOME", place.root())
        .env_remove("MYSQL_PWD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("prlimit")?;
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let said = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.read_to_end(&mut bytes);
        bytes
    });
    let killer = {
        let pid = rustix::process::Pid::from_child(&child);
        let (done, over) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if over.recv_timeout(LONGEST) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        done
    };
    let mut bytes = Vec::new();
    match out.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let status = child.wait()?;
    drop(killer);
    bytes.extend(said.join().unwrap_or_default());
    let shown = String::from_utf8_lossy(&bytes);
    ensure!(
        status.signal().is_none() && matches!(status.code(), Some(0..=4)),
        "{status} after {:.1} s: {shown}",
        began.elapsed().as_secs_f64()
    );
    let strange = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
    ensure!(!shown.contains(strange), "control characters: {shown:?}");
    ensure!(
        !shown
            .lines()
            .any(|line| line.starts_with("[mysqld]") || line.starts_with("init_file")),
        "a line of the server's text: {shown}"
    );
    Ok(())
}

pub fn wrong_answers_end_in_words(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let rogue = Rogue::new(place.root(), host.server().socket())?;
    let cache = place.cache().display().to_string();
    let saved = place.root().join("list").display().to_string();
    let recorded = place.root().join("recorded").display().to_string();
    let socket = rogue.socket.display().to_string();
    let before = host.snapshot()?;
    let enabled = |on: bool| match on {
        true => host.enable(&place.cache(), "64M", &[]).map(drop),
        false => host.disable().map(drop),
    };
    let pool = sql::number(host.server(), "SELECT @@innodb_buffer_pool_size")?;
    // Whether the extension is on before the command, and the command.
    let commands: [(bool, &[&str]); 14] = [
        (true, &["status"]),
        (true, &["status", "--json"]),
        (true, &["status", "--explain"]),
        (true, &["top", "--once"]),
        (true, &["doctor", "--path", &cache, "--size", "64M"]),
        (true, &["verify"]),
        (true, &["ready"]),
        (true, &["record", "--output", &recorded, "--seconds", "1"]),
        (true, &["warm", "--save", &saved, "--from", &socket]),
        (true, &["views", "create"]),
        (true, &["views", "drop"]),
        (
            true,
            &["enable", "--yes", "--path", &cache, "--size", "96M"],
        ),
        (true, &["disable", "--yes"]),
        (
            false,
            &["enable", "--yes", "--path", &cache, "--size", "64M"],
        ),
    ];
    let mut runs = 0;
    let mut lie = 0;
    for (on, command) in commands {
        let mut arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        if command[0] == "enable" {
            let library = integration_tests::library::library()?;
            arguments.extend(["--library".into(), library.display().to_string()]);
        }
        enabled(on)?;
        rogue.begin(None);
        run(place, &rogue, &arguments).with_context(|| format!("{command:?}"))?;
        let statements = rogue.begin(None);
        ensure!(statements > 0, "{command:?} asks nothing");
        let others = statements.saturating_sub(FIRST);
        let step = others.div_ceil(OTHERS).max(1);
        let chosen = (0..statements.min(FIRST)).chain((FIRST..statements).step_by(step));
        for at in chosen {
            lie = (lie + 1) % LIES.len();
            let changes = matches!(command[0], "enable" | "disable");
            if changes {
                enabled(on)?;
            }
            rogue.begin(Some((at, LIES[lie])));
            let what = || format!("{command:?}, {:?} to statement {at}", LIES[lie]);
            run(place, &rogue, &arguments).with_context(what)?;
            let _ = fs::remove_file(&recorded);
            runs += 1;
        }
    }
    host.disable()?;
    // A server that misreports its identity gets records under other names, so that its pool is not restored.
    host.server()
        .sql(&format!("SET GLOBAL innodb_buffer_pool_size = {pool}"))?;
    if place.is_mysql() {
        host.server()
            .sql("RESET PERSIST IF EXISTS innodb_buffer_pool_size")?;
    }
    for entry in fs::read_dir(place.root().join("state"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(name.starts_with("remote-"), "{name}");
        fs::remove_file(&path)?;
    }
    host.unchanged_since(&before)?;
    note(format!(
        "{runs} wrong answers to {} commands",
        commands.len()
    ));
    Ok(())
}
