//! Client side of the MySQL and MariaDB protocol: greeting, login, and statements with text rows.
//!
//! The server may be hostile. Every answer has bounds, and a malformed one is an error. No answer makes the command
//! read a file, use other login methods than the two below, or send a password over a connection that is not private.
//! The client does not announce multiple statements, so a server refuses them.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interface::canary;
use mysql::consts::CapabilityFlags;
use mysql::{Column, DriverError, Error, MySqlError, Row, Value};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, HandshakeResponse, SslRequest};
use mysql_common::proto::{MySerialize, Text};
use mysql_common::row::RowDeserializer;
use mysql_common::value::ServerSide;

/// A packet of this size continues in the next one.
const CHUNK: usize = 0xff_ffff;
/// Maximum bytes of a login; the largest packet is a greeting.
const MAX_LOGIN: usize = 64 << 10;
/// Maximum packets of a login: a change of the method, those of the method, and the end.
const MAX_LOGIN_PACKETS: usize = 8;
const MAX_VERSION: usize = 256;
const MAX_METHOD: usize = 64;
/// Maximum bytes of an error message; the servers' own limit is 512.
const MAX_MESSAGE: usize = 1024;
/// The servers' limit of columns in a table.
const MAX_COLUMNS: u64 = 4096;
const UTF8MB4_GENERAL_CI: u8 = 45;
const FLAGS: CapabilityFlags = CapabilityFlags::CLIENT_PROTOCOL_41
    .union(CapabilityFlags::CLIENT_SECURE_CONNECTION)
    .union(CapabilityFlags::CLIENT_LONG_PASSWORD)
    .union(CapabilityFlags::CLIENT_TRANSACTIONS)
    .union(CapabilityFlags::CLIENT_PLUGIN_AUTH);

/// A connection with a deadline for reads and writes.
pub trait Stream: Read + Write {
    fn set_deadline(&mut self, deadline: Option<Instant>);
}

/// Limits of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub rows: usize,
    pub bytes: usize,
    /// Time limit for the complete answer; `None` waits without limit.
    pub time: Option<Duration>,
}

pub struct Greeting {
    pub version: String,
    pub connection_id: u32,
    capabilities: CapabilityFlags,
    nonce: Vec<u8>,
    method: AuthPlugin<'static>,
}

impl Greeting {
    pub fn offers_tls(&self) -> bool {
        self.capabilities.contains(CapabilityFlags::CLIENT_SSL)
    }
}

pub struct Protocol<S> {
    stream: BufReader<S>,
    /// Sequence number of the next packet.
    sequence: u8,
}

impl<S: Stream> Protocol<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
            sequence: 0,
        }
    }

    pub fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.stream.get_mut().set_deadline(deadline);
    }

    /// # Errors
    /// The server's own error, or a malformed packet.
    pub fn greeting(&mut self) -> Result<Greeting, Error> {
        let packet = self.packet(&mut MAX_LOGIN.clone())?;
        if packet.first() == Some(&0xff) {
            return Err(server_error(&packet));
        }
        let greeting = parsed(&packet).ok_or_else(|| malformed("it is no greeting"))?;
        if greeting.version.chars().count() > MAX_VERSION {
            return Err(malformed("its version is too long").into());
        }
        if !greeting
            .capabilities
            .contains(CapabilityFlags::CLIENT_PROTOCOL_41)
        {
            return Err(malformed("its protocol is older than the one of MySQL 4.1").into());
        }
        Ok(greeting)
    }

    /// Requests TLS, and continues over the connection that `secure` returns.
    ///
    /// # Errors
    /// The error of the connection or of `secure`.
    pub fn over_tls(
        mut self,
        greeting: &Greeting,
        secure: impl FnOnce(S) -> io::Result<S>,
    ) -> Result<Self, Error> {
        let flags = greeting.capabilities & FLAGS | CapabilityFlags::CLIENT_SSL;
        let mut request = Vec::new();
        SslRequest::new(flags, CHUNK as u32, UTF8MB4_GENERAL_CI).serialize(&mut request);
        self.send(&request)?;
        // Bytes before TLS may come from an attacker.
        if !self.stream.buffer().is_empty() {
            return Err(malformed("it sends more than its greeting before TLS").into());
        }
        Ok(Self {
            stream: BufReader::new(secure(self.stream.into_inner())?),
            sequence: self.sequence,
        })
    }

    /// Logs in. `is_private`: the peer is verified, so that the password may be sent.
    ///
    /// # Errors
    /// The server's own error, an unsupported method, or a malformed packet.
    pub fn log_in(
        &mut self,
        greeting: &Greeting,
        user: &str,
        password: Option<&str>,
        is_private: bool,
    ) -> Result<(), Error> {
        let password = password.filter(|password| !password.is_empty());
        if password.is_some() && !is_private && !canary!("password-in-clear") {
            return Err(io::Error::other("the connection is not private").into());
        }
        let mut method = greeting.method.clone();
        let proof = method.gen_data(password, &greeting.nonce);
        let mut flags = greeting.capabilities & FLAGS;
        if self.sequence > 1 {
            flags |= CapabilityFlags::CLIENT_SSL;
        }
        let response = HandshakeResponse::new(
            proof.as_deref(),
            (8, 0, 0),
            Some(user.as_bytes()),
            None::<&[u8]>,
            Some(method.clone()),
            flags,
            None,
            CHUNK as u32,
        );
        let mut bytes = Vec::new();
        response.serialize(&mut bytes);
        self.send(&bytes)?;
        let mut left = MAX_LOGIN;
        let mut has_changed = false;
        for _ in 0..MAX_LOGIN_PACKETS {
            let packet = self.packet(&mut left)?;
            let is_sha2 = method == AuthPlugin::CachingSha2Password;
            match packet.as_slice() {
                [0x00, ..] => return Ok(()),
                [0xff, ..] => return Err(server_error(&packet)),
                [0xfe, request @ ..] if !has_changed => {
                    has_changed = true;
                    let nonce;
                    (method, nonce) = change_of_method(request)?;
                    let proof = method.gen_data(password, nonce);
                    self.send(proof.as_deref().unwrap_or_default())?;
                }
                // The server accepts the cached proof; the final packet follows.
                [0x01, 0x03] if is_sha2 => {}
                // The server requests the plain password.
                [0x01, 0x04] if is_sha2 => {
                    let secret = password.unwrap_or_default();
                    self.send(&[secret.as_bytes(), b"\0"].concat())?;
                }
                _ => break,
            }
        }
        Err(malformed("an unexpected packet while logging in").into())
    }

    /// Runs a statement, and passes each row to the caller.
    ///
    /// # Errors
    /// The server's own error, a malformed answer, or one that exceeds its bounds.
    pub fn query(
        &mut self,
        statement: &str,
        bounds: Bounds,
        mut each: impl FnMut(Row),
    ) -> Result<(), Error> {
        self.set_deadline(bounds.time.map(|time| Instant::now() + time));
        if !self.stream.buffer().is_empty() {
            return Err(malformed("more than what was asked for").into());
        }
        self.sequence = 0;
        self.send(&[b"\x03", statement.as_bytes()].concat())?;
        let mut left = bounds.bytes;
        let head = self.packet(&mut left)?;
        let columns = match head.as_slice() {
            [0x00, ..] => return Ok(()),
            [0xff, ..] => return Err(server_error(&head)),
            [0xfb, ..] => return Err(malformed("it asks for a file").into()),
            head => ParseBuf(head)
                .checked_eat_lenenc_int()
                .filter(|count| (1..=MAX_COLUMNS).contains(count))
                .ok_or_else(|| malformed("a wrong number of columns"))?,
        };
        let columns: Arc<[Column]> = (0..columns)
            .map(|_| Ok(ParseBuf(&self.packet(&mut left)?).parse(())?))
            .collect::<Result<_, Error>>()?;
        if !is_end(&self.packet(&mut left)?) {
            return Err(malformed("no end of the columns").into());
        }
        let most = match canary!("rows-of-an-answer") {
            true => usize::MAX - 1,
            false => bounds.rows,
        };
        for _ in 0..=most {
            let packet = self.packet(&mut left)?;
            match packet.first() {
                Some(0xff) => return Err(server_error(&packet)),
                _ if is_end(&packet) => return Ok(()),
                _ => {}
            }
            // A value takes memory beside its bytes: a null has one byte only.
            left = columns
                .len()
                .checked_mul(size_of::<Value>())
                .and_then(|bytes| left.checked_sub(bytes))
                .or(canary!("bytes-of-an-answer").then_some(left))
                .ok_or_else(|| malformed("too many bytes"))?;
            let row = ParseBuf(&packet)
                .parse::<RowDeserializer<ServerSide, Text>>(Arc::clone(&columns))?;
            each(row.into_inner());
        }
        Err(malformed("too many rows").into())
    }

    /// Announces the end of the session.
    ///
    /// # Errors
    /// The connection's error.
    pub fn quit(&mut self) -> io::Result<()> {
        self.sequence = 0;
        self.send(b"\x01")
    }

    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() >= CHUNK {
            return Err(io::Error::other("the statement is too long"));
        }
        let mut packet = (payload.len() as u32).to_le_bytes().to_vec();
        packet[3] = self.sequence;
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        let stream = self.stream.get_mut();
        stream.write_all(&packet)?;
        stream.flush()
    }

    /// `left`: remaining bytes of the answer's limit.
    fn packet(&mut self, left: &mut usize) -> io::Result<Vec<u8>> {
        let mut packet = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
            if head[3] != self.sequence {
                return Err(malformed("packets out of order"));
            }
            self.sequence = self.sequence.wrapping_add(1);
            *left = left
                .checked_sub(length + head.len())
                .or(canary!("bytes-of-an-answer").then_some(*left))
                .ok_or_else(|| malformed("too many bytes"))?;
            let start = packet.len();
            packet.resize(start + length, 0);
            self.stream.read_exact(&mut packet[start..])?;
            if length < CHUNK {
                return Ok(packet);
            }
        }
    }
}

/// Parses a greeting of protocol version 10. The crate's own parser can overflow.
fn parsed(packet: &[u8]) -> Option<Greeting> {
    let rest = packet.strip_prefix(&[10])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (version, rest) = (&rest[..end], &rest[end + 1..]);
    // Number, nonce, 0, flags, collation, status, flags, length of the whole nonce, filler.
    let (head, rest) = rest.split_first_chunk::<31>()?;
    let flags = [head[13], head[14], head[18], head[19]];
    let length = usize::from(head[20]).saturating_sub(8).max(13);
    let (nonce, name) = rest.split_at_checked(length).unwrap_or((rest, b""));
    let mut nonce = [&head[4..12], nonce].concat();
    // Without the trailing 0.
    nonce.resize(20, 0);
    Some(Greeting {
        version: String::from_utf8_lossy(version).into_owned(),
        connection_id: u32::from_le_bytes([head[0], head[1], head[2], head[3]]),
        capabilities: CapabilityFlags::from_bits_truncate(u32::from_le_bytes(flags)),
        nonce,
        method: match AuthPlugin::from_bytes(name) {
            AuthPlugin::CachingSha2Password => AuthPlugin::CachingSha2Password,
            _ => AuthPlugin::MysqlNativePassword,
        },
    })
}

/// The requested method and its nonce. The server may name any method, but others send the password or reveal it.
fn change_of_method(request: &[u8]) -> Result<(AuthPlugin<'static>, &[u8]), Error> {
    let mut parts = request.splitn(2, |byte| *byte == 0);
    let name = parts.next().unwrap_or_default();
    let nonce = parts.next().unwrap_or_default();
    let method = match AuthPlugin::from_bytes(name) {
        AuthPlugin::CachingSha2Password => AuthPlugin::CachingSha2Password,
        AuthPlugin::MysqlNativePassword => AuthPlugin::MysqlNativePassword,
        _ => {
            let name = match name {
                [] => b"mysql_old_password",
                name => &name[..name.len().min(MAX_METHOD)],
            };
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(DriverError::UnknownAuthPlugin(name).into());
        }
    };
    Ok((method, nonce.strip_suffix(b"\0").unwrap_or(nonce)))
}

fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&0xfe) && packet.len() < 9
}

fn server_error(packet: &[u8]) -> Error {
    let code = packet
        .get(1..3)
        .map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
    let text = packet.get(3..).unwrap_or_default();
    let (state, message) = match text {
        [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
        _ => (b"HY000".as_slice(), text),
    };
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    MySqlError {
        state: words(state),
        message: words(&message[..message.len().min(MAX_MESSAGE)]),
        code,
    }
    .into()
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("its answer is malformed: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with fixed output, and a copy of its input.
    #[derive(Default)]
    struct Heard {
        said: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Heard {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.said.read(buffer)
        }
    }

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Heard {
        fn set_deadline(&mut self, _: Option<Instant>) {}
    }

    fn greeting() -> Vec<u8> {
        let mut packet = b"\x0a8.4.0\0\x07\0\0\0abcdefgh\0\x0d\xa2\x2d\x02\0\x0f\0\x15".to_vec();
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"ijklmnopqrst\0caching_sha2_password\0");
        packet
    }

    #[test]
    fn password_goes_over_private_connections_alone() {
        let greeting = parsed(&greeting()).unwrap();
        // The server requests the plain password.
        let said = b"\x02\0\0\x01\x01\x04\x07\0\0\x03\0\0\0\x02\0\0\0".to_vec();
        for (is_private, password, is_told) in [
            (true, "secret", true),
            (false, "secret", false),
            (false, "", false),
        ] {
            let mut protocol = Protocol::new(Heard {
                said: io::Cursor::new(said.clone()),
                ..Heard::default()
            });
            let result = protocol.log_in(&greeting, "root", Some(password), is_private);
            assert_eq!(result.is_ok(), is_private || password.is_empty());
            let sent = &protocol.stream().sent;
            let has_it = sent.windows(6).any(|part| part == b"secret");
            assert_eq!(has_it, is_told, "{is_private} {password}");
        }
    }

    #[test]
    fn greeting_of_any_length_is_parsed() {
        let mut packet = greeting();
        let greeting = parsed(&packet).unwrap();
        assert_eq!(greeting.version, "8.4.0");
        assert_eq!(greeting.connection_id, 7);
        assert_eq!(greeting.nonce, b"abcdefghijklmnopqrst");
        assert_eq!(greeting.method, AuthPlugin::CachingSha2Password);
        for length in 0..packet.len() {
            let _ = parsed(&packet[..length]);
        }
        for length in 0..=u8::MAX {
            packet[27] = length;
            let greeting = parsed(&packet).unwrap();
            assert_eq!(greeting.nonce.len(), 20, "{length}");
        }
    }
}
