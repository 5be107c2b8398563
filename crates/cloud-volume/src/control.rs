//! Control socket of a mounted volume: one line per command over a Unix socket. The answer is one line, too: `ok` and
//! the result, or `error:` and the reason.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::faults::{Fault, SECTOR};
use crate::profile::Profile;
use crate::stopper::Stopper;
use crate::undo::Tear;
use crate::units::parse_duration;

const HELP: &str = "\
statistics | profile [unlimited|default] [NAME=VALUE...] | \
fault eio|torn|torn-silently [op=read|write|sync|any] [every=N] [suffix=TEXT] [times=N] | \
clear-faults | stall TIME | resume | power-loss [torn=SEED] | unmount | help";

/// Targets of the commands.
#[derive(Clone)]
pub(crate) struct Controls {
    pub(crate) engine: Arc<Engine>,
    pub(crate) stopper: Stopper,
}

impl Controls {
    fn execute(&self, line: &str) -> Result<String, String> {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let engine = &self.engine;
        match command {
            "statistics" => {
                serde_json::to_string(&engine.statistics()).map_err(|error| error.to_string())
            }
            "profile" => {
                if !rest.trim().is_empty() {
                    engine
                        .pacer
                        .set_profile(parse_profile(engine.pacer.profile(), rest)?);
                }
                Ok(engine.pacer.profile().to_string())
            }
            "fault" => {
                engine.faults.add(rest.parse::<Fault>()?);
                Ok(String::new())
            }
            "clear-faults" => {
                engine.faults.clear();
                Ok(String::new())
            }
            "stall" => {
                engine.pacer.stall(parse_duration(rest)?);
                Ok(String::new())
            }
            "resume" => {
                engine.pacer.resume();
                Ok(String::new())
            }
            "power-loss" => {
                let torn = match rest.trim().strip_prefix("torn=") {
                    Some(seed) => {
                        let seed = seed
                            .parse()
                            .map_err(|_| format!("`{seed}` is not a number"))?;
                        Some(Tear::new(seed, SECTOR as u64))
                    }
                    None if rest.trim().is_empty() => None,
                    None => return Err(format!("power-loss takes torn=SEED, not `{rest}`")),
                };
                let files = engine.power_loss(torn).map_err(|error| error.to_string())?;
                Ok(format!("{files} files reverted"))
            }
            "unmount" => {
                self.stopper.stop();
                Ok(String::new())
            }
            "help" => Ok(HELP.into()),
            _ => Err(format!("no command `{command}`; there are: {HELP}")),
        }
    }
}

/// `unlimited` or `default` or nothing (the current profile), then changes.
fn parse_profile(now: Profile, words: &str) -> Result<Profile, String> {
    let mut profile = now;
    for word in words.split_whitespace() {
        match word.split_once('=') {
            Some((name, value)) => profile.set(name, value)?,
            None => {
                profile = match word {
                    "unlimited" => Profile::unlimited(),
                    "default" => Profile::default(),
                    _ => return Err(format!("`{word}` is not unlimited, default or NAME=VALUE")),
                }
            }
        }
    }
    Ok(profile)
}

/// Sends one command to the volume that listens at `socket`. A command that the volume rejects is an error of kind
/// `Other`.
pub fn send(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{}", command.trim())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().strip_prefix("ok") {
        Some(said) => Ok(said.trim_start().to_string()),
        None => Err(io::Error::other(
            answer.trim_start_matches("error:").trim().to_string(),
        )),
    }
}

/// The listening socket. Dropping it removes the socket file, unless that is a different file by then.
pub(crate) struct Control {
    path: PathBuf,
    /// Device and inode of the socket file.
    identity: (u64, u64),
    /// A second descriptor of the listener, used to wake its thread: the socket file may be gone by then.
    listener: UnixStream,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    pub(crate) fn listen(path: &Path, controls: Controls) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok_and(|_| true) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another volume listens there",
            ));
        }
        match fs::symlink_metadata(path) {
            // Left by a killed volume.
            Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                fs::remove_file(path)?;
            }
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let identity = identity(path)?;
        let second = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = std::thread::Builder::new()
            .name("volume-control".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let controls = controls.clone();
                    if let Ok(stream) = stream {
                        // Ends with its client.
                        let _ = std::thread::Builder::new()
                            .name("volume-client".into())
                            .spawn(move || converse(&stream, &controls));
                    }
                }
            })?;
        Ok(Control {
            path: path.to_owned(),
            identity,
            listener: second,
            stopping,
            thread: Some(thread),
        })
    }
}

fn converse(stream: &UnixStream, controls: &Controls) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        let answer = match controls.execute(&line?) {
            Ok(said) if said.is_empty() => "ok\n".to_string(),
            Ok(said) => format!("ok {said}\n"),
            Err(why) => format!("error: {why}\n"),
        };
        let mut stream = stream;
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Ends the listener's accept, and rejects further connections.
        let _ = self.listener.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
