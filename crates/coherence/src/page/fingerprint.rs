//! Leaf fingerprints: two servers use them to verify that a page number means the same page on both.
//!
//! Keys are short and often guessable: a search through all keys reveals the key behind a plain hash. So a fingerprint is a keyed
//! hash. The secret is created for one comparison. Only the two servers and the command between them know it.

use siphasher::sip::SipHasher24;

use crate::page::header::header_page;

/// `FIL_PAGE_INDEX`.
const INDEX: u16 = 17855;
/// Offsets in a page: type, index level, and in the compact formats the pointer to the first record.
const TYPE: usize = 24;
const LEVEL: usize = 64;
const INFIMUM: usize = 99;
const FORMAT: usize = 42;
/// Minimum offset of the first record in the compact formats.
const FIRST: usize = 120;
/// Hashed bytes of the first record: the lengths of an INT, of a BIGINT and of a longer key. The length of the key is unknown
/// here. The comparison uses the shortest length whose hashes differ between pages, because the bytes after a short key differ
/// between servers.
const LENGTHS: [usize; 3] = [4, 8, 16];

/// The key of the hash.
pub type Secret = [u8; 16];

/// Fingerprint of a leaf page: keyed hashes of the first 4, 8 and 16 bytes of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafFingerprint(pub [u64; 3]);

impl LeafFingerprint {
    /// Returns `None` for a page that is not a leaf of an index in a compact format, is empty, or is unreadable because it is
    /// compressed or encrypted.
    pub fn of(bytes: &[u8], secret: &Secret) -> Option<LeafFingerprint> {
        header_page(bytes)?;
        let word = |at: usize| {
            bytes
                .get(at..at + 2)
                .map(|two| u16::from_be_bytes([two[0], two[1]]))
        };
        let is_leaf = word(TYPE)? == INDEX && word(LEVEL)? == 0 && word(FORMAT)? & 0x8000 != 0;
        let next = word(INFIMUM - 2)?;
        // The pointer is relative, and may wrap.
        let first = INFIMUM.wrapping_add(usize::from(next)) & 0xffff;
        let record = bytes.get(first..first + LENGTHS[2]);
        let record = record.filter(|_| is_leaf && first >= FIRST)?;
        let hash = SipHasher24::new_with_key(secret);
        Some(LeafFingerprint(
            LENGTHS.map(|length| hash.hash(&record[..length])),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = *b"0123456789abcdef";

    fn leaf(key: u32) -> Vec<u8> {
        let mut page = vec![0; 16384];
        page[7] = 9;
        page[TYPE..TYPE + 2].copy_from_slice(&INDEX.to_be_bytes());
        page[FORMAT] = 0x80;
        page[INFIMUM - 2..INFIMUM].copy_from_slice(&27u16.to_be_bytes());
        page[126..130].copy_from_slice(&key.to_be_bytes());
        page
    }

    #[test]
    fn leaves_differ_by_first_record() {
        let print = |key| LeafFingerprint::of(&leaf(key), &SECRET).unwrap();
        assert_eq!(print(7), print(7));
        for (one, other) in print(7).0.iter().zip(print(8).0) {
            assert_ne!(*one, other);
        }
    }

    #[test]
    fn another_secret_gives_other_prints() {
        let mut other = SECRET;
        other[15] ^= 1;
        let print = |secret| LeafFingerprint::of(&leaf(7), secret).unwrap();
        for (one, other) in print(&SECRET).0.iter().zip(print(&other).0) {
            assert_ne!(*one, other);
        }
    }

    #[test]
    fn other_pages_have_none() {
        let with = |at: usize, byte: u8| {
            let mut page = leaf(1);
            page[at] = byte;
            LeafFingerprint::of(&page, &SECRET)
        };
        assert!(with(7, 8).is_some());
        assert_eq!(with(TYPE, 0), None);
        assert_eq!(with(LEVEL + 1, 1), None, "no leaf");
        assert_eq!(with(FORMAT, 0), None, "redundant");
        assert_eq!(with(INFIMUM - 1, 13), None, "empty: the supremum follows");
        assert_eq!(with(INFIMUM - 2, 0x7f), None, "beyond the page");
        assert_eq!(LeafFingerprint::of(&[1; 50], &SECRET), None);
        assert_eq!(LeafFingerprint::of(&[0; 16384], &SECRET), None);
    }
}
