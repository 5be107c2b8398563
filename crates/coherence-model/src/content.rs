//! Contents that the model writes: every sector identifies the writing file, its position and its version.
//!
//! A [`Stamp`] represents the contents of one sector of 512 bytes; the zero stamp represents zeros. The model of a file is one
//! stamp for each sector. Short writes, holes inside a page and partial tails therefore have an exact expectation too.

/// Size of a sector, bytes.
pub const SECTOR: usize = 512;

const HEADER: usize = 38;

/// Origin of a sector: 24 bits of file number, 40 bits of a unique version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(pub u64);

/// Stamp of an all-zero sector.
pub const ZERO: Stamp = Stamp(0);

impl Stamp {
    pub fn new(file: u32, version: u64) -> Stamp {
        Stamp(u64::from(file) << 40 | version)
    }

    fn file(self) -> u64 {
        self.0 >> 40
    }

    pub fn version(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == ZERO {
            write!(f, "zeros")
        } else {
            write!(f, "version {} of file {}", self.version(), self.file())
        }
    }
}

/// Page geometry of a file.
#[derive(Clone, Copy)]
pub struct Shape {
    pub page_size: usize,
    /// Difference between the page number in the header and the page's position in the file.
    pub base: u32,
}

/// Writes the bytes of a sector.
pub fn fill(sector: u64, stamp: Stamp, shape: Shape, bytes: &mut [u8]) {
    debug_assert_eq!(bytes.len(), SECTOR);
    if stamp == ZERO {
        bytes.fill(0);
        return;
    }
    let word = (stamp.0 ^ sector.rotate_left(48)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for eight in bytes.chunks_exact_mut(8) {
        eight.copy_from_slice(&word.to_le_bytes());
    }
    let sectors = (shape.page_size / SECTOR) as u64;
    if sector % sectors == 0 {
        let page = (sector / sectors) as u32 + shape.base;
        bytes[4..8].copy_from_slice(&page.to_be_bytes());
        bytes[16..24].copy_from_slice(&stamp.version().to_be_bytes()); // position of InnoDB's LSN
        bytes[24..26].copy_from_slice(&17855u16.to_be_bytes()); // an index page
        bytes[34..38].copy_from_slice(&(stamp.file() as u32).to_be_bytes()); // position of InnoDB's space id
    }
    bytes[HEADER..HEADER + 8].copy_from_slice(&stamp.0.to_le_bytes());
    bytes[HEADER + 8..HEADER + 16].copy_from_slice(&sector.to_le_bytes());
}

/// Stamp of a completely written sector.
pub fn stamp_of(bytes: &[u8]) -> Stamp {
    let stamp = &bytes[HEADER..HEADER + 8];
    Stamp(u64::from_le_bytes(stamp.try_into().unwrap_or_default()))
}

/// Describes a sector that was read.
pub fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return "zeros".into();
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let (stamp, sector) = (Stamp(word(HEADER)), word(HEADER + 8));
    let mut expected = [0; SECTOR];
    // The bytes behind the header decide whether the sector is intact.
    let shape = Shape {
        page_size: 1 << 30,
        base: 0,
    };
    fill(sector, stamp, shape, &mut expected);
    if stamp != ZERO && expected[HEADER..] == bytes[HEADER..] {
        format!("{stamp}, sector {sector}")
    } else {
        format!(
            "nothing that was ever written, beginning {:02x?}",
            &bytes[..16]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_says_what_it_is() {
        let shape = Shape {
            page_size: 4096,
            base: 7,
        };
        let mut bytes = [0xee; SECTOR];
        fill(16, Stamp::new(3, 99), shape, &mut bytes);
        assert_eq!(
            bytes[4..8],
            [0, 0, 0, 9],
            "page 2 of a file that begins at 7"
        );
        assert_eq!(describe(&bytes), "version 99 of file 3, sector 16");
        bytes[300] ^= 1;
        assert!(describe(&bytes).starts_with("nothing"));
        fill(16, ZERO, shape, &mut bytes);
        assert_eq!(describe(&bytes), "zeros");
    }
}
