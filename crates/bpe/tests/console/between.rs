//! A proxy between the console and a server. It injects failures of networks and servers when a given statement passes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use private_server::SocketPath;

/// What happens when the statement passes.
pub enum Then {
    /// The server executes the statement; the connection is cut before its answer.
    Cut,
    /// As `Cut`, and later logins fail.
    CutAndShut,
    /// The server executes the statement; the answer is replaced by an interruption.
    Interrupt,
    /// The statement does not reach the server, and gets no answer.
    Hang,
    /// The server gets the statement, and the closure runs at that moment.
    Do(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Shared {
    server: Mutex<PathBuf>,
    rule: Mutex<Option<(Vec<u8>, Then)>>,
    is_shut: AtomicBool,
}

/// Its socket replaces the server's for the clients.
pub struct Between {
    pub socket: PathBuf,
    shared: Arc<Shared>,
    _place: SocketPath,
}

impl Between {
    pub fn new(folder: &Path, server: &Path) -> anyhow::Result<Self> {
        let place = SocketPath::of(folder, "between.sock")?;
        let socket = place.path().to_owned();
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let shared = Arc::new(Shared::default());
        server.clone_into(&mut shared.server.lock().unwrap());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = own.server.lock().unwrap().clone();
                if own.is_shut.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(server) = UnixStream::connect(server) {
                    connect(&own, client, server);
                }
            }
        });
        Ok(Self {
            socket,
            shared,
            _place: place,
        })
    }

    /// Forwards to this server from now on.
    pub fn lead_to(&self, server: &Path) {
        server.clone_into(&mut self.shared.server.lock().unwrap());
        self.shared.is_shut.store(false, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.shared.is_shut.store(false, Ordering::SeqCst);
    }

    /// Sets the rule for the next statement with this text. It applies once.
    pub fn at(&self, text: &str, then: Then) {
        *self.shared.rule.lock().unwrap() = Some((text.as_bytes().to_vec(), then));
    }

    /// Whether the rule has been applied.
    pub fn has_happened(&self) -> bool {
        self.shared.rule.lock().unwrap().is_none()
    }
}

fn connect(shared: &Arc<Shared>, client: UnixStream, server: UnixStream) {
    let is_mute = Arc::new(AtomicBool::new(false));
    let interrupts = Arc::new(AtomicBool::new(false));
    let (Ok(to_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let (mute, other) = (Arc::clone(&is_mute), Arc::clone(&interrupts));
    std::thread::spawn(move || answers(from_server, to_client, &mute, &other));
    let shared = Arc::clone(shared);
    std::thread::spawn(move || statements(client, server, &shared, &is_mute, &interrupts));
}

/// "Query execution was interrupted", error 1317, as the first packet of an answer.
const INTERRUPTED: &[u8] = b"\x14\0\0\x01\xff\x25\x05#70100interrupted";

fn answers(
    mut server: UnixStream,
    mut client: UnixStream,
    is_mute: &AtomicBool,
    interrupts: &AtomicBool,
) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        // The answers of these statements come in one piece.
        let answer = if interrupts.swap(false, Ordering::SeqCst) {
            INTERRUPTED
        } else {
            &buffer[..length]
        };
        if is_mute.load(Ordering::SeqCst) || client.write_all(answer).is_err() {
            break;
        }
    }
    // Also where an answer must not arrive.
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn statements(
    mut client: UnixStream,
    mut server: UnixStream,
    shared: &Shared,
    is_mute: &AtomicBool,
    interrupts: &AtomicBool,
) {
    let mut buffer = [0; 16 << 10];
    // Statements of these tests come in one piece.
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let said = &buffer[..length];
        match shared.taken(said) {
            Some(Then::Hang) => {
                // Until the client closes the connection.
                while let Ok(1..) = client.read(&mut buffer) {}
                break;
            }
            Some(then) => {
                let is_interrupt = matches!(then, Then::Interrupt);
                interrupts.store(is_interrupt, Ordering::SeqCst);
                if !is_interrupt && !matches!(then, Then::Do(_)) {
                    is_mute.store(true, Ordering::SeqCst);
                }
                let shuts = matches!(then, Then::CutAndShut);
                shared.is_shut.fetch_or(shuts, Ordering::SeqCst);
                if server.write_all(said).is_err() {
                    break;
                }
                if let Then::Do(it) = then {
                    it();
                }
            }
            None if server.write_all(said).is_err() => break,
            None => {}
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

impl Shared {
    /// Takes the rule if it applies to this statement; it does not apply again.
    fn taken(&self, said: &[u8]) -> Option<Then> {
        let mut rule = self.rule.lock().unwrap();
        let applies = rule
            .as_ref()
            .is_some_and(|(text, _)| said.windows(text.len()).any(|part| part == text));
        rule.take_if(|_| applies).map(|(_, then)| then)
    }
}
