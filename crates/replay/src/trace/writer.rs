//! Writer of trace files.

use std::io::{self, Write};

use super::events::Operation;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;

/// Compresses enough, and faster than any server reads pages.
const LEVEL: i32 = 3;

/// Writes a trace, compressed with zstd.
pub struct TraceWriter<W: Write> {
    encoder: zstd::Encoder<'static, W>,
    sequence: u32,
}

impl<W: Write> TraceWriter<W> {
    /// # Errors
    /// If there is no memory for the compression.
    pub fn new(out: W) -> io::Result<TraceWriter<W>> {
        Ok(TraceWriter {
            encoder: zstd::Encoder::new(out, LEVEL)?,
            sequence: 0,
        })
    }

    /// Appends a record of one page. Sequence numbers begin at 0 and wrap after 2^32 records.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, file: u32, page: u32, operation: Operation) -> io::Result<()> {
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&file.to_le_bytes());
        record[4..8].copy_from_slice(&page.to_le_bytes());
        record[8] = u8::from(operation == Operation::Write);
        record[9] = 1;
        record[12..].copy_from_slice(&self.sequence.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        self.encoder.write_all(&record)
    }

    /// Appends whole, already encoded records.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_records(&mut self, records: &[u8]) -> io::Result<()> {
        debug_assert!(records.len() % RECORD_BYTES == 0);
        self.encoder.write_all(records)
    }

    /// Ends the compression. Without this call, a trace is not readable to its end.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(self) -> io::Result<W> {
        self.encoder.finish()
    }
}
