//! A server's responses to the command.

use std::io::{Read, Write};
use std::time::Instant;

use mysql::{Row, from_row_opt};

use protocol::{Bounds, Protocol, Stream};

// Part of the command, which has no library.
#[path = "../../bpe/src/connect/protocol.rs"]
#[allow(dead_code)]
mod protocol;

const BOUNDS: Bounds = Bounds {
    rows: 1000,
    bytes: 1 << 20,
    time: None,
};

/// A server whose packets are parts of the input, each preceded by its length in two bytes.
struct Server<'a> {
    input: &'a [u8],
    packet: Vec<u8>,
    sequence: u8,
}

impl Server<'_> {
    fn next(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.input.split_first_chunk()?;
        let (payload, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        self.input = rest;
        let mut packet = (payload.len() as u32).to_le_bytes().to_vec();
        packet[3] = self.sequence;
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        Some(packet)
    }
}

impl Read for Server<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.packet.is_empty() {
            self.packet = self.next().unwrap_or_default();
        }
        let length = buffer.len().min(self.packet.len());
        buffer[..length].copy_from_slice(&self.packet[..length]);
        self.packet.drain(..length);
        Ok(length)
    }
}

impl Write for Server<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.sequence = bytes[3].wrapping_add(1);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream for Server<'_> {
    fn set_deadline(&mut self, _: Option<Instant>) {}
}

/// A login and repeated statements, until the input ends or a response is invalid.
pub fn answers(bytes: &[u8]) {
    let mut protocol = Protocol::new(Server {
        input: bytes,
        packet: Vec::new(),
        sequence: 0,
    });
    let Ok(greeting) = protocol.greeting() else {
        return;
    };
    assert!(
        greeting.version.len() <= 3 * 256,
        "three bytes for each wrong one"
    );
    if protocol
        .log_in(&greeting, "user", Some("password"), true)
        .is_err()
    {
        return;
    }
    loop {
        let mut rows = 0;
        let result = protocol.query("SELECT 1", BOUNDS, |row: Row| {
            rows += 1;
            let _ = from_row_opt::<(String, Option<u64>)>(row.clone());
            let _ = from_row_opt::<Option<String>>(row.clone());
            let _ = row.get_opt::<u64, _>("Id");
        });
        assert!(rows <= BOUNDS.rows);
        match result {
            Ok(()) | Err(mysql::Error::MySqlError(_)) => {}
            Err(_) => return,
        }
    }
}
