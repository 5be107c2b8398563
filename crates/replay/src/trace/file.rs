//! Reader of trace files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::TraceError;
use super::events::{Builder, Operation, Trace, TracePage};
use super::writer::RECORD_BYTES;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes read at a time; a multiple of a record.
const CHUNK: usize = 64 << 10;

impl Trace {
    /// Reads a trace; `-` is standard input.
    ///
    /// # Errors
    /// The kind and the position of the fault in the file.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        read(path)
    }

    /// Reads a trace, plain or compressed, from any reader; `name` is for messages.
    ///
    /// # Errors
    /// The kind and the position of the fault.
    pub fn from_reader(name: &str, reader: impl std::io::Read) -> Result<Trace, TraceError> {
        from_reader(name, reader)
    }
}

fn read(path: &Path) -> Result<Trace, TraceError> {
    if path == Path::new("-") {
        return from_reader("standard input", io::stdin().lock());
    }
    let name = format!("trace '{}'", path.display());
    match File::open(path) {
        Ok(file) => from_reader(&name, file),
        Err(source) => Err(TraceError::Unreadable { name, source }),
    }
}

fn from_reader(name: &str, mut reader: impl Read) -> Result<Trace, TraceError> {
    let unreadable = |source| TraceError::Unreadable {
        name: name.into(),
        source,
    };
    let mut magic = [0; 4];
    let (have, ended) = fill(&mut reader, &mut magic);
    ended.map_err(unreadable)?;
    let input = (&magic[..have]).chain(reader);
    if magic == ZSTD_MAGIC {
        let decoder = zstd::Decoder::new(input).map_err(unreadable)?;
        decode(name, decoder, |records, source| {
            // System errors have a number, the decoder's errors have none.
            if source.raw_os_error().is_some() {
                unreadable(source)
            } else {
                TraceError::Compression {
                    name: name.into(),
                    records,
                    source,
                }
            }
        })
    } else {
        decode(name, input, |_, source| unreadable(source))
    }
}

/// Reads until the buffer is full or the input ends or fails. Returns the number of bytes read until then.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, io::Result<()>) {
    let mut have = 0;
    while have < buffer.len() {
        match reader.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (have, Err(error)),
        }
    }
    (have, Ok(()))
}

fn decode(
    name: &str,
    mut reader: impl Read,
    failed: impl Fn(u64, io::Error) -> TraceError,
) -> Result<Trace, TraceError> {
    let mut builder = Builder::default();
    let mut buffer = vec![0; CHUNK];
    let mut records = 0;
    loop {
        let (have, ended) = fill(&mut reader, &mut buffer);
        let whole = buffer[..have].chunks_exact(RECORD_BYTES);
        let left = whole.remainder().len();
        for record in whole {
            let wrong = |what| TraceError::Foreign {
                name: name.into(),
                record: records + 1,
                offset: records * RECORD_BYTES as u64,
                what,
            };
            let (page, operation, pages) = parse(record).map_err(wrong)?;
            for n in 0..pages {
                let number = page.number + n;
                if !builder.push(TracePage { number, ..page }, operation) {
                    return Err(TraceError::TooLong { name: name.into() });
                }
            }
            records += 1;
        }
        ended.map_err(|error| failed(records, error))?;
        if left > 0 {
            return Err(TraceError::Truncated {
                name: name.into(),
                records,
                left,
            });
        }
        if have < buffer.len() {
            break;
        }
    }
    if builder.len() == 0 {
        return Err(TraceError::Empty { name: name.into() });
    }
    Ok(builder.finish())
}

/// First page, operation and number of pages of a record, or the reason why it is invalid.
fn parse(record: &[u8]) -> Result<(TracePage, Operation, u32), String> {
    let word = |at: usize| {
        u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    let page = TracePage {
        file: word(0),
        number: word(4),
    };
    let operation = match record[8] {
        0 => Operation::Read,
        1 => Operation::Write,
        other => {
            return Err(format!(
                "has operation {other}, which is neither read (0) nor write (1)"
            ));
        }
    };
    let pages = u32::from(record[9]);
    if pages == 0 {
        return Err("has no pages".into());
    }
    if record[10..12] != [0, 0] {
        return Err("is not zero in bytes 10 and 11".into());
    }
    if page.number.checked_add(pages - 1).is_none() {
        return Err(format!(
            "has page number {} and {pages} pages, which is beyond any file",
            page.number
        ));
    }
    Ok((page, operation, pages))
}

#[cfg(test)]
mod tests {
    use super::super::TraceWriter;
    use super::*;

    fn record(file: u32, page: u32, operation: u8, pages: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(file.to_le_bytes());
        bytes.extend(page.to_le_bytes());
        bytes.extend([operation, pages, 0, 0]);
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        Trace::from_reader("it", bytes).unwrap_err().to_string()
    }

    fn many() -> Vec<(u32, u32, Operation)> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut one = |_| {
            let operation = if random.bool() {
                Operation::Read
            } else {
                Operation::Write
            };
            (random.u32(..), random.u32(..), operation)
        };
        (0..20_000).map(&mut one).collect()
    }

    fn compressed(events: &[(u32, u32, Operation)]) -> Vec<u8> {
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        for &(file, page, operation) in events {
            writer.write(file, page, operation).unwrap();
        }
        writer.finish().unwrap()
    }

    fn same(trace: &Trace, events: &[(u32, u32, Operation)]) -> bool {
        trace.events().len() == events.len()
            && trace
                .events()
                .iter()
                .zip(events)
                .all(|(event, &(file, number, operation))| {
                    trace.page(event.page()) == TracePage { file, number }
                        && event.is_write() == (operation == Operation::Write)
                })
    }

    #[test]
    fn what_is_written_is_read() {
        let events = many();
        let bytes = compressed(&events);
        assert_eq!(bytes[..4], ZSTD_MAGIC);
        assert!(same(&Trace::from_reader("it", &*bytes).unwrap(), &events));
        let plain = zstd::decode_all(&*bytes).unwrap();
        assert_eq!(plain.len(), events.len() * RECORD_BYTES);
        assert!(same(&Trace::from_reader("it", &*plain).unwrap(), &events));
        let twice = [&bytes[..], &bytes[..]].concat();
        let twice = Trace::from_reader("it", &*twice).unwrap();
        assert_eq!(
            twice.events().len(),
            events.len() * 2,
            "frames in a row are one trace"
        );
    }

    #[test]
    fn records_of_several_pages_are_several_events() {
        let bytes = [record(3, 10, 0, 3), record(3, 11, 1, 1)].concat();
        let trace = Trace::from_reader("it", &*bytes).unwrap();
        let events: Vec<_> = trace
            .events()
            .iter()
            .map(|e| (trace.page(e.page()).number, e.is_write()))
            .collect();
        assert_eq!(events, [(10, false), (11, false), (12, false), (11, true)]);
        assert_eq!(trace.distinct_pages(), 3);
    }

    #[test]
    fn empty_and_truncated_traces() {
        assert!(message(b"").contains("is empty"));
        assert!(message(&compressed(&[])).contains("is empty"));
        assert!(message(b"abc").contains("0 whole records of 16 bytes, 3 bytes are left"));
        let bytes = [record(1, 2, 0, 1), record(1, 3, 0, 1)].concat();
        assert!(message(&bytes[..31]).contains("1 whole records of 16 bytes, 15 bytes"));
        let plain = zstd::encode_all(&bytes[..20], 1).unwrap();
        assert!(message(&plain).contains("4 bytes are left"));
    }

    #[test]
    fn broken_compression() {
        let bytes = compressed(&many());
        for broken in [&bytes[..bytes.len() / 2], &bytes[..bytes.len() - 1]] {
            assert!(message(broken).contains("its zstd compression cannot be undone"));
        }
        let mut broken = bytes.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 64].fill(0x55);
        let text = message(&broken);
        assert!(
            text.contains("cannot be undone") || text.contains("is not a trace"),
            "{text}"
        );
        let trailing = [&bytes[..], b"something else"].concat();
        assert!(message(&trailing).contains("after record 20000"));
    }

    #[test]
    fn foreign_records_are_located() {
        let good = record(1, 2, 1, 1);
        for (bad, part) in [
            (record(1, 2, 2, 1), "has operation 2"),
            (record(1, 2, 0, 0), "has no pages"),
            (record(1, u32::MAX, 0, 2), "beyond any file"),
        ] {
            let text = message(&[good.clone(), good.clone(), bad].concat());
            assert!(
                text.contains("record 3, at byte 32") && text.contains(part),
                "{text}"
            );
        }
        let mut bad = good.clone();
        bad[11] = 1;
        assert!(message(&bad).contains("record 1, at byte 0, is not zero"));
        assert!(Trace::from_reader("it", &*record(1, u32::MAX, 0, 1)).is_ok());
    }

    #[test]
    fn an_unreadable_trace() {
        let error = Trace::read(Path::new("/nowhere/trace")).unwrap_err();
        assert!(
            error.to_string().contains("'/nowhere/trace': No such file"),
            "{error}"
        );
        let error = Trace::read(Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
    }
}
