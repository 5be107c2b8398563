//! A hostile server for tests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Args;

mod packets;

pub use packets::{END, column, framed, text};

pub const AUTHORITY: &str = include_str!("rogue/ca.pem");
pub const OK: &[u8] = b"\0\0\0\x02\0\0\0";
const TLS: u32 = 1 << 11;

pub fn greeting(version: &str, method: &str, flags: u32) -> Vec<u8> {
    let flags = 0x000f_a20d | flags;
    let mut packet = vec![10];
    packet.extend_from_slice(version.as_bytes());
    packet.extend_from_slice(b"\0\x07\0\0\0abcdefgh\0");
    packet.extend_from_slice(&flags.to_le_bytes()[..2]);
    packet.extend_from_slice(&[45, 2, 0]);
    packet.extend_from_slice(&flags.to_le_bytes()[2..]);
    packet.push(21);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(b"ijklmnopqrst\0");
    packet.extend_from_slice(method.as_bytes());
    packet.push(0);
    packet
}

/// The packets before the rows.
pub fn columns(count: usize) -> Vec<Vec<u8>> {
    let mut packets = vec![match count {
        0..=250 => vec![count as u8],
        _ => [b"\xfc", &(count as u16).to_le_bytes()[..]].concat(),
    }];
    for _ in 0..count {
        packets.push(column());
    }
    packets.push(END.to_vec());
    packets
}

pub fn rows(count: usize, rows: &[&[&str]]) -> Vec<Vec<u8>> {
    let mut packets = columns(count);
    for row in rows {
        packets.push(
            row.iter()
                .flat_map(|value| text(value.as_bytes()))
                .collect(),
        );
    }
    packets.push(END.to_vec());
    packets
}

pub fn greet(stream: &mut impl Write, version: &str, method: &str) {
    let _ = stream.write_all(&framed(0, &greeting(version, method, 0)));
}

pub fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

pub fn greet_and_read(listener: &UnixListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    greet(&mut stream, "8.4.0", "caching_sha2_password");
    rest(&mut stream)
}

/// The packets that answer a statement.
type Answer = dyn Fn(&str) -> Vec<Vec<u8>> + Send + Sync;

/// Behaviour of the server.
#[derive(Clone)]
pub struct Case {
    pub version: String,
    pub method: &'static str,
    /// Packets after the client's proof; each answers one packet of the client.
    pub login: Vec<Vec<u8>>,
    /// Number of bytes after which it closes the connection.
    pub budget: usize,
    pub answer: Arc<Answer>,
    /// Repeats the last packet of each answer that lacks an end.
    pub is_endless: bool,
}

impl Case {
    pub fn new(answer: impl Fn(&str) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self {
            version: "8.4.0".to_owned(),
            method: "caching_sha2_password",
            login: vec![OK.to_vec()],
            budget: usize::MAX,
            answer: Arc::new(answer),
            is_endless: false,
        }
    }

    /// A server that knows nothing.
    pub fn harmless() -> Self {
        Self::new(|statement| match statement {
            statement if statement.starts_with("SET") => vec![OK.to_vec()],
            statement if statement.contains("@@version") => rows(2, &[&["8.4.0", "Source"]]),
            _ => rows(1, &[&["1"]]),
        })
    }

    /// Listens until the test ends. The caller must keep the directory until then.
    pub fn start(self) -> (tempfile::TempDir, Args) {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let args = Args {
            socket: Some(path.display().to_string()),
            no_defaults: true,
            ..Args::default()
        };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let case = self.clone();
                thread::spawn(move || case.serve(stream, false));
            }
        });
        (folder, args)
    }

    /// Listens on TCP, and continues over TLS with one of the certificates here. Returns the port.
    pub fn start_tls(self, certificate: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = include_bytes!("rogue/key.der").as_slice();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::try_from(key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                self.clone().secure(stream, Arc::clone(&config));
            }
        });
        port
    }

    fn secure(self, mut stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
        let greeting = greeting(&self.version, self.method, TLS);
        stream.write_all(&framed(0, &greeting)).ok()?;
        read(&mut stream)?;
        let connection = ServerConnection::new(config).ok()?;
        self.serve(StreamOwned::new(connection, stream), true)
    }

    fn serve(self, mut stream: impl Read + Write, is_greeted: bool) -> Option<()> {
        let mut budget = self.budget;
        let mut send = |stream: &mut dyn Write, bytes: &[u8]| {
            let most = bytes.len().min(budget);
            budget -= most;
            stream.write_all(&bytes[..most]).ok()?;
            stream.flush().ok()?;
            (budget > 0).then_some(())
        };
        if !is_greeted {
            let greeting = greeting(&self.version, self.method, 0);
            send(&mut stream, &framed(0, &greeting))?;
        }
        for payload in &self.login {
            let (sequence, _) = read(&mut stream)?;
            send(&mut stream, &framed(sequence.wrapping_add(1), payload))?;
        }
        loop {
            let (mut sequence, command) = read(&mut stream)?;
            let statement = String::from_utf8_lossy(command.get(1..)?).into_owned();
            let packets = (self.answer)(&statement);
            let again = packets
                .last()
                .filter(|last| self.is_endless && last.as_slice() != OK && last.as_slice() != END);
            for packet in packets.iter().chain(again.into_iter().cycle()) {
                sequence = sequence.wrapping_add(1);
                send(&mut stream, &framed(sequence, packet))?;
            }
        }
    }
}

fn read(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], payload))
}
