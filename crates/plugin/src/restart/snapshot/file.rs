//! Format of the snapshot: the persisted state in a file that also survives a reboot of the host.
//!
//! Integers are in the byte order of the host, since the file is useless on any other host.
//!
//! | offset | contents |
//! |---|---|
//! | 0 | head: words as in [`Head::words`], the directory of the redo log, zeros; at 4 KiB - 8 the CRC32C of the bytes before it |
//! | 4 KiB | the parts, one after the other |
//! | after the parts | the table: the CRC32C (u32) of each 64 KiB of each part |
//! | at the end | magic, the snapshot's number, CRC32C of the table that begins with that number: u64 each |
//!
//! The file is written once, sequentially, under a temporary name. A reader first invalidates it ([`discard`]), so each
//! snapshot is used once.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cache::{OpenError, make_own, open_own};
use rustix::fs::{Advice, fadvise};

const MAGIC: u64 = u64::from_le_bytes(*b"BPEIMAGE");
const END: u64 = u64::from_le_bytes(*b"BPEIMEND");
/// 1: records and arena. 2: adds the token.
const VERSION: u64 = 2;
/// Bytes of the head in the file.
const HEAD: u64 = 4096;
const WORDS: usize = 18;
/// Offset of the head's checksum.
const CHECK: usize = HEAD as usize - 8;
const TRAILER: u64 = 24;
/// Bytes per checksum.
const BLOCK: usize = 64 << 10;
/// Maximum of each part, bytes. A larger part cannot be valid.
const MAX_PART_BYTES: u64 = 1 << 36;

/// Contents of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub owner: [u8; 16],
    /// The boot of the host during which the snapshot was written.
    pub boot: u128,
    /// The device of the data directory when the snapshot was written.
    pub data_device: u64,
    /// Fence and directory of InnoDB's redo log when the snapshot was written.
    pub fence: [u64; 4],
    pub redo: PathBuf,
    /// The [token](crate::restart::token) that the clean shutdown wrote.
    pub token: u128,
    /// Session of the cache files and the arena.
    pub session: u64,
    /// Bytes of the parts: the records, and the arena.
    pub parts: [u64; 2],
    /// Distinguishes the snapshot from any other.
    pub number: u64,
}

/// Reason why a snapshot cannot be used.
#[derive(Debug)]
pub enum Refused {
    /// There is none.
    Absent,
    /// It is useless for every process, and may be removed.
    Useless(String),
    /// It belongs to another server, or could not be read.
    Failed(String),
}

/// Builds [`Refused::Useless`] with this reason.
pub fn useless(why: &str) -> Refused {
    Refused::Useless(why.into())
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return useless("it is cut off");
        }
        Refused::Failed(error.to_string())
    }
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Refused {
        Refused::Failed(error.to_string())
    }
}

fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

fn whole(low: u64, high: u64) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Head {
    fn words(&self) -> [u64; WORDS] {
        let [owner_low, owner_high] = halves(u128::from_ne_bytes(self.owner));
        let [boot_low, boot_high] = halves(self.boot);
        let [token_low, token_high] = halves(self.token);
        let [one, two, three, four] = self.fence;
        let [records, arena] = self.parts;
        [
            MAGIC,
            VERSION,
            owner_low,
            owner_high,
            boot_low,
            boot_high,
            self.data_device,
            one,
            two,
            three,
            four,
            self.session,
            records,
            arena,
            self.number,
            self.redo.as_os_str().len() as u64,
            token_low,
            token_high,
        ]
    }

    /// Returns `None` if the directory's name is too long.
    fn encode(&self) -> Option<Vec<u8>> {
        let mut head = bytes(&self.words());
        head.extend(self.redo.as_os_str().as_bytes());
        if head.len() > CHECK {
            return None;
        }
        head.resize(CHECK, 0);
        head.extend(u64::from(crc32c::crc32c(&head)).to_ne_bytes());
        debug_assert_eq!(head.len() as u64, HEAD);
        Some(head)
    }

    fn decode(head: &[u8]) -> Result<Head, Refused> {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        match words[0] {
            MAGIC => {}
            0 => return Err(useless("it was used already, or never finished")),
            _ => return Err(Refused::Failed("it is not an image of ours".into())),
        }
        if words[1] != VERSION {
            return Err(useless("another version has written it"));
        }
        let (covered, check) = head.split_at(CHECK);
        if check != u64::from(crc32c::crc32c(covered)).to_ne_bytes() {
            return Err(damaged());
        }
        let redo = usize::try_from(words[15]).ok();
        let redo = redo.and_then(|length| covered[WORDS * 8..].get(..length));
        let redo = Path::new(OsStr::from_bytes(redo.ok_or_else(damaged)?));
        let head = Head {
            owner: whole(words[2], words[3]).to_ne_bytes(),
            boot: whole(words[4], words[5]),
            data_device: words[6],
            fence: [words[7], words[8], words[9], words[10]],
            redo: redo.into(),
            token: whole(words[16], words[17]),
            session: words[11],
            parts: [words[12], words[13]],
            number: words[14],
        };
        if head.parts.iter().any(|&part| part > MAX_PART_BYTES) {
            return Err(damaged());
        }
        Ok(head)
    }

    /// Returns the offsets of the table of checksums and of the trailer.
    fn end(&self) -> (u64, u64) {
        let table = HEAD + self.parts.iter().sum::<u64>();
        (table, table + self.blocks() * 4)
    }

    fn blocks(&self) -> u64 {
        let blocks = self.parts.iter().map(|part| part.div_ceil(BLOCK as u64));
        blocks.sum()
    }

    fn trailer(&self, table: &[u8]) -> [u64; 3] {
        let check = crc32c::crc32c_append(self.number as u32, table);
        [END, self.number, check.into()]
    }

    /// Iterates over the blocks of the parts: number of the part, offset in it, and length.
    fn all_blocks(&self) -> impl Iterator<Item = (usize, u64, usize)> + use<> {
        self.parts.into_iter().enumerate().flat_map(|(part, end)| {
            (0..end)
                .step_by(BLOCK)
                .map(move |at| (part, at, (end - at).min(BLOCK as u64) as usize))
        })
    }

    /// Computes the table of checksums of the parts as they are now. `see` receives each block.
    fn checks(
        &self,
        parts: [&File; 2],
        mut see: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<u8>> {
        let mut table = Vec::new();
        let mut block = vec![0; BLOCK];
        for (part, at, length) in self.all_blocks() {
            let block = &mut block[..length];
            parts[part].read_exact_at(block, at)?;
            table.extend(crc32c::crc32c(block).to_ne_bytes());
            see(block)?;
        }
        Ok(table)
    }
}

fn damaged() -> Refused {
    useless("it is damaged")
}

/// The temporary name of an unfinished snapshot.
fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("image-new")
}

/// Writes the parts durably; their lengths must match the head. The snapshot appears only when it is complete.
///
/// # Errors
/// The reason. No snapshot is left behind then.
pub fn write(path: &Path, head: &Head, parts: [&File; 2]) -> Result<u64, String> {
    debug_assert!(head.parts.iter().all(|&bytes| bytes <= MAX_PART_BYTES));
    // A file under this name is an older snapshot of this server. It is replaced.
    discard(path)?;
    let name = unfinished(path);
    let file = make_own(&name).map_err(|error| error.to_string())?;
    let written = fill(&file, head, parts).and_then(|length| {
        fs::rename(&name, path)?;
        Ok(length)
    });
    if written.is_err() {
        let _ = fs::remove_file(&name);
    }
    // Without the sync of the directory, a power loss may remove the snapshot.
    written
        .and_then(|length| sync_folder(path).map(|()| length))
        .map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot write '{}': {error}", path.display())
}

fn fill(file: &File, head: &Head, parts: [&File; 2]) -> io::Result<u64> {
    let mut to = HEAD;
    let table = head.checks(parts, |block| {
        file.write_all_at(block, to)?;
        to += block.len() as u64;
        Ok(())
    })?;
    let (table_at, end) = head.end();
    debug_assert_eq!((to, to + table.len() as u64), (table_at, end));
    file.write_all_at(&table, table_at)?;
    let encoded = head.encode();
    let encoded =
        encoded.ok_or_else(|| io::Error::other("the redo log's folder has too long a name"))?;
    file.write_all_at(&encoded, 0)?;
    file.sync_data()?;
    if head.checks(parts, |_| Ok(()))? != table {
        return Err(io::Error::other("the server still changes its files"));
    }
    // The trailer makes the snapshot valid, so everything before it must be durable.
    file.write_all_at(&bytes(&head.trailer(&table)), end)?;
    file.sync_data()?;
    Ok(end + TRAILER)
}

/// An opened snapshot.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    path: PathBuf,
    head: Head,
    table: Vec<u8>,
}

impl Snapshot {
    /// Opens a snapshot, and checks that it is complete.
    ///
    /// # Errors
    /// The reason why it is useless.
    pub fn open(path: &Path) -> Result<Snapshot, Refused> {
        let file = open_own(path)?.ok_or(Refused::Absent)?;
        let mut head = vec![0; HEAD as usize];
        file.read_exact_at(&mut head, 0)?;
        let head = Head::decode(&head)?;
        let (table_at, end) = head.end();
        // Checked first, so that a wrong head cannot cause a large read.
        if file.metadata()?.len() != end + TRAILER {
            return Err(useless("it is cut off"));
        }
        let mut table = vec![0; (end - table_at) as usize];
        file.read_exact_at(&mut table, table_at)?;
        let mut trailer = [0; TRAILER as usize];
        file.read_exact_at(&mut trailer, end)?;
        if trailer[..] != bytes(&head.trailer(&table)) {
            return Err(damaged());
        }
        Ok(Snapshot {
            file,
            path: path.to_path_buf(),
            head,
            table,
        })
    }

    /// The contents of its head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Reads the parts. `put` receives each block: number of the part, offset in it, and the bytes.
    ///
    /// # Errors
    /// The snapshot is damaged or unreadable, or `put` failed. The blocks that `put` received are useless then.
    pub fn read(
        &self,
        mut put: impl FnMut(usize, u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Refused> {
        let mut block = vec![0; BLOCK];
        let mut from = HEAD;
        // Starts the disk's readahead. A failure only costs time.
        let _ = fadvise(&self.file, 0, None, Advice::WillNeed);
        let blocks = self.head.all_blocks().zip(self.table.chunks_exact(4));
        for ((part, at, length), check) in blocks {
            let block = &mut block[..length];
            self.file.read_exact_at(block, from)?;
            if crc32c::crc32c(block).to_ne_bytes() != check {
                return Err(damaged());
            }
            put(part, at, block)?;
            from += length as u64;
        }
        debug_assert_eq!(from, self.head.end().0);
        Ok(())
    }

    /// Invalidates the snapshot durably, also against a power loss.
    ///
    /// # Errors
    /// The snapshot may still be valid.
    pub fn discard(self) -> io::Result<()> {
        invalidate(&self.path, &self.file)
    }
}

/// Overwrites the magic first. That is sufficient, and also works where names cannot be removed.
fn invalidate(path: &Path, file: &File) -> io::Result<()> {
    file.write_all_at(&[0; 8], 0)?;
    file.sync_data()?;
    // After a long delay another snapshot may have the name.
    let is = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let named = fs::symlink_metadata(path).map(is);
    if named.is_ok_and(|named| file.metadata().is_ok_and(|ours| is(ours) == named)) {
        let _ = fs::remove_file(path);
        let _ = sync_folder(path);
    }
    Ok(())
}

/// Invalidates any snapshot at this path, and removes an unfinished one.
///
/// # Errors
/// The snapshot may still be there.
pub fn discard(path: &Path) -> Result<(), String> {
    let unfinished = remove_own(&unfinished(path));
    let Some(file) = open_own(path).map_err(|error| error.to_string())? else {
        return unfinished;
    };
    let mut magic = [0; 8];
    let is_ours = file.read_exact_at(&mut magic, 0).is_err()
        || [MAGIC, 0].contains(&u64::from_ne_bytes(magic));
    if !is_ours {
        return Err(format!("'{}' is not an image of ours", path.display()));
    }
    invalidate(path, &file).map_err(|error| failed(path, &error))
}

/// Removes a file if it exists and belongs to this server.
fn remove_own(path: &Path) -> Result<(), String> {
    match open_own(path).map_err(|error| error.to_string())? {
        Some(_) => fs::remove_file(path).map_err(|error| failed(path, &error)),
        None => Ok(()),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(folder)?;
    folder.sync_all()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
