//! What a leaf page of an index can be told by, so that two servers can find out whether a page number means the same on both.
//!
//! No contents leave a server: of the first record's key there are sums of 16 bits.

use crate::header::header_page;

/// `FIL_PAGE_INDEX`.
const INDEX: u16 = 17855;
/// Where a page's type, its index's level and number, and in the compact formats its first record are found.
const TYPE: usize = 24;
const LEVEL: usize = 64;
const INDEX_ID: usize = 66;
const INFIMUM: usize = 99;
const FORMAT: usize = 42;
/// Records of the compact formats begin here at the earliest.
const FIRST: usize = 120;
/// Bytes of the first record of which there are sums: those of an INT, of a BIGINT, of a longer key.
const LENGTHS: [usize; 3] = [4, 8, 16];

/// What a leaf page of an index is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// `PAGE_INDEX_ID`, by which a server tells its indexes apart.
    pub index: u64,
    /// Sums of the first 4, 8 and 16 bytes of the first record.
    pub first: [u16; 3],
}

impl Print {
    /// `None` for a page that is no leaf of an index in a compact format, is empty, or cannot be read without more (compressed or
    /// encrypted).
    pub fn of(bytes: &[u8]) -> Option<Print> {
        header_page(bytes)?;
        let word = |at: usize| {
            bytes
                .get(at..at + 2)
                .map(|two| u16::from_be_bytes([two[0], two[1]]))
        };
        let is_leaf = word(TYPE)? == INDEX && word(LEVEL)? == 0 && word(FORMAT)? & 0x8000 != 0;
        let next = word(INFIMUM - 2)?;
        // Relative, and it may wrap.
        let first = INFIMUM.wrapping_add(usize::from(next)) & 0xffff;
        let record = bytes.get(first..first + LENGTHS[2]);
        let index = u64::from_be_bytes(bytes.get(INDEX_ID..INDEX_ID + 8)?.try_into().ok()?);
        let record = record.filter(|_| is_leaf && first >= FIRST)?;
        Some(Print {
            index,
            first: LENGTHS.map(|length| sum(&record[..length])),
        })
    }
}

fn sum(bytes: &[u8]) -> u16 {
    // FNV-1a, folded.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(index: u64, key: u32) -> Vec<u8> {
        let mut page = vec![0; 16384];
        page[7] = 9;
        page[TYPE..TYPE + 2].copy_from_slice(&INDEX.to_be_bytes());
        page[FORMAT] = 0x80;
        page[INDEX_ID..INDEX_ID + 8].copy_from_slice(&index.to_be_bytes());
        page[INFIMUM - 2..INFIMUM].copy_from_slice(&27u16.to_be_bytes());
        page[126..130].copy_from_slice(&key.to_be_bytes());
        page
    }

    #[test]
    fn leaves_are_told_by_index_and_first_record() {
        let print = |index, key| Print::of(&leaf(index, key)).unwrap();
        assert_eq!(print(5, 7), print(5, 7));
        assert_ne!(print(5, 7), print(6, 7));
        assert_ne!(print(5, 7).first, print(5, 8).first);
    }

    #[test]
    fn other_pages_have_none() {
        let with = |at: usize, byte: u8| {
            let mut page = leaf(1, 1);
            page[at] = byte;
            Print::of(&page)
        };
        assert!(with(7, 8).is_some());
        assert_eq!(with(TYPE, 0), None);
        assert_eq!(with(LEVEL + 1, 1), None, "no leaf");
        assert_eq!(with(FORMAT, 0), None, "redundant");
        assert_eq!(with(INFIMUM - 1, 13), None, "empty: the supremum follows");
        assert_eq!(with(INFIMUM - 2, 0x7f), None, "beyond the page");
        assert_eq!(Print::of(&[1; 50]), None);
        assert_eq!(Print::of(&[0; 16384]), None);
    }
}
