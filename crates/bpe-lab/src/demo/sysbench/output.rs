//! Output of a program: its lines, and its end. Lines and the whole have memory limits, because a user's script may print
//! endlessly and without a line feed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Context, Result};

/// Maximum bytes of a line; the rest is skipped. sysbench's own lines have a tenth.
const LINE: u64 = 8 << 10;
/// Maximum bytes of the kept end. sysbench's summary has a thousandth.
const KEPT: usize = 1 << 20;
/// Number of lines read ahead.
const AHEAD: usize = 256;

/// Reads lines in a dedicated thread. The thread ends when the last writer has closed the output; it is never joined.
///
/// # Errors
/// The thread cannot be started.
pub fn lines(output: impl Read + Send + 'static) -> Result<Receiver<String>> {
    let (sender, lines) = sync_channel(AHEAD);
    std::thread::Builder::new()
        .name("sysbench".into())
        .spawn(move || {
            let mut reader = BufReader::new(output);
            while let Ok(Some(line)) = next_line(&mut reader) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(lines)
}

/// Returns the next line without its line feed; `None` at the end.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 == LINE {
        reader.skip_until(b'\n')?;
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// The last lines.
#[derive(Default)]
pub struct Tail {
    text: String,
}

impl Tail {
    pub fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        // Not for each line, since trimming moves the rest.
        if self.text.len() > 2 * KEPT {
            let from = self.text.len() - KEPT;
            let line = self.text.as_bytes()[from..]
                .iter()
                .position(|c| *c == b'\n');
            self.text
                .drain(..line.map_or(self.text.len(), |at| from + at + 1));
        }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// Returns the end of a file; empty if it cannot be read.
pub fn end_of(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(KEPT as u64)))?;
        let mut bytes = Vec::new();
        file.take(KEPT as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_bound() {
        let long = LINE as usize;
        let text = [
            "one\n\n".to_owned(),
            "\u{e9}".repeat(long) + "\n",
            "y".repeat(long) + "\n",
            "z".repeat(long - 1) + "\n",
            "last".to_owned(),
        ];
        let text = text.concat();
        // With any chunk size.
        for room in [16, 8192] {
            let mut reader = BufReader::with_capacity(room, text.as_bytes());
            let mut next = || next_line(&mut reader).unwrap();
            assert_eq!(next().as_deref(), Some("one"));
            assert_eq!(next().as_deref(), Some(""));
            assert_eq!(next(), Some("\u{e9}".repeat(long / 2)));
            assert_eq!(next(), Some("y".repeat(long)));
            assert_eq!(next(), Some("z".repeat(long - 1)));
            assert_eq!(next().as_deref(), Some("last"));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn the_end_is_kept() {
        let mut tail = Tail::default();
        tail.push("first");
        let line = "\u{e9}".repeat(500);
        for _ in 0..10_000 {
            tail.push(&line);
            assert!(tail.text.len() <= 2 * KEPT);
        }
        tail.push("last");
        let text = tail.into_text();
        assert!(text.len() > KEPT / 2 && text.ends_with("\nlast\n"));
        assert!(text.lines().all(|one| one == line || one == "last"));

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        assert_eq!(end_of(file.path()).len().min(KEPT), KEPT.min(text.len()));
        assert!(end_of(file.path()).ends_with("\nlast\n"));
        assert_eq!(end_of(Path::new("/nonexistent/file")), "");
    }
}
