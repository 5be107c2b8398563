//! InnoDB pages in a live cache file, found by their headers and trailers, so that a test damages pages that the server will
//! read.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: usize = 16384;
/// Pages start at multiples of this.
const STEP: usize = 512;
/// Type of an index page, at byte 24.
const INDEX: [u8; 2] = 17855u16.to_be_bytes();

/// An index page in the cache file.
pub struct Cached {
    pub offset: u64,
    pub lsn: u64,
    pub bytes: Vec<u8>,
}

/// Tablespace and number of a page.
pub type Name = (u32, u32);

/// The newest uncompressed copy of every index page in the file.
pub fn scan(path: &Path) -> anyhow::Result<HashMap<Name, Cached>> {
    let all = std::fs::read(path)?;
    let mut found: HashMap<Name, Cached> = HashMap::new();
    let mut at = 0;
    while at + PAGE <= all.len() {
        let bytes = &all[at..at + PAGE];
        let Some((name, lsn)) = recognise(bytes) else {
            at += STEP;
            continue;
        };
        if found.get(&name).is_none_or(|known| known.lsn < lsn) {
            let cached = Cached {
                offset: at as u64,
                lsn,
                bytes: bytes.to_vec(),
            };
            found.insert(name, cached);
        }
        at += PAGE;
    }
    Ok(found)
}

fn recognise(bytes: &[u8]) -> Option<(Name, u64)> {
    let number =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let low = number(20);
    // The trailer repeats the low half of the LSN, at a place that depends on the server.
    let whole = low != 0 && (number(PAGE - 4) == low || number(PAGE - 8) == low);
    (bytes[24..26] == INDEX && whole).then(|| {
        (
            (number(34), number(4)),
            u64::from(number(16)) << 32 | u64::from(low),
        )
    })
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One flipped bit.
    Bit,
    /// A torn write: the first quarter is of this version, the rest of an older one.
    Shorn,
    /// A misdirected write: another page of the same tablespace is there.
    Swapped,
    Zeroed,
    /// A lost write: an intact older version of the same page.
    Older,
}

impl Damage {
    pub const ALL: [Damage; 5] = [
        Damage::Bit,
        Damage::Shorn,
        Damage::Swapped,
        Damage::Zeroed,
        Damage::Older,
    ];
}

/// Damages every page in the file that has an older version in `before`; returns the number.
pub fn damage(path: &Path, before: &HashMap<Name, Cached>, how: Damage) -> anyhow::Result<usize> {
    let now = scan(path)?;
    let file = File::options().write(true).open(path)?;
    let mut last: HashMap<u32, (u64, &[u8])> = HashMap::new();
    let mut damaged = 0;
    for (name, page) in &now {
        let Some(old) = before.get(name).filter(|old| old.lsn < page.lsn) else {
            continue;
        };
        let mut bytes = page.bytes.clone();
        match how {
            // In the middle of a row, away from header and trailer.
            Damage::Bit => bytes[5000] ^= 4,
            Damage::Shorn => bytes[PAGE / 4..].copy_from_slice(&old.bytes[PAGE / 4..]),
            Damage::Zeroed => bytes.fill(0),
            Damage::Older => bytes.copy_from_slice(&old.bytes),
            Damage::Swapped => {
                let Some((offset, other)) = last.insert(name.0, (page.offset, &page.bytes)) else {
                    continue;
                };
                file.write_all_at(&page.bytes, offset)?;
                bytes.copy_from_slice(other);
                last.remove(&name.0);
                damaged += 1;
            }
        }
        file.write_all_at(&bytes, page.offset)?;
        damaged += 1;
    }
    Ok(damaged)
}
