//! InnoDB's page checksums, which distinguish a damaged page from another version of it.
//!
//! Formats, from the sources of both servers; numbers are big-endian:
//!
//! | format | checksum |
//! |---|---|
//! | MySQL; MariaDB's older tables | CRC-32C of bytes 4 to 26, XOR that from 38 to 8 before the end; at 0 and 8 before the end |
//! | MariaDB 10.5+ (`full_crc32`) | CRC-32C of all bytes before it, encrypted or not; at the end. A compressed page's type gives its end |
//! | `ROW_FORMAT=COMPRESSED` of both | CRC-32C of bytes 4 to 16, XOR that of 24 to 26, XOR that from 34 on; at 0 |
//!
//! None of these formats matches the following pages:
//! - encrypted by MySQL, or compressed by its `COMPRESSION=...`
//! - encrypted by older versions of MariaDB
//! - with an older algorithm (`innodb_checksum_algorithm`)

use crate::page::header::{header_lsn, header_page};

/// Bit of the page type in `full_crc32`: the page is compressed, and the other bits are its length in units of 256 bytes.
const COMPRESSED: u16 = 0x8000;
/// Lengths of a page's header and trailer, bytes.
const HEADER: usize = 38;
const TRAILER: usize = 8;

/// Types of pages that the servers have encrypted or compressed: MySQL's, and MariaDB's `page_compressed`, encrypted or not.
/// The type in the header is never encrypted.
const TRANSFORMED: [u16; 6] = [14, 15, 16, 17, 34354, 37401];

/// Whether the stored copy of a page is damaged, rather than another version. Conditions:
/// - The checksum of the stored copy is wrong, and that of the other copy is right.
/// - The stored header does not indicate a later version in a format without a known checksum.
pub fn is_damaged(stored: &[u8], other: &[u8]) -> bool {
    debug_assert_eq!(stored.len(), other.len());
    if is_right(stored) || !is_right(other) || header_page(other).is_none() {
        return false;
    }
    let Some(kind) = stored.get(24..26) else {
        return false;
    };
    let is_transformed = TRANSFORMED.contains(&u16::from_be_bytes([kind[0], kind[1]]));
    let is_same_page = header_page(stored) == header_page(other);
    let is_later = is_same_page && header_lsn(stored) > header_lsn(other);
    !is_transformed && !is_later
}

/// Whether one of the checksums is right. An all-zero page was never written, and counts as right without a checksum.
pub fn is_right(page: &[u8]) -> bool {
    if page.len() < 1024 {
        return false;
    }
    page.iter().all(|byte| *byte == 0)
        || has_crc32(page)
        || has_full_crc32(page)
        || has_crc32_of_compressed(page)
}

fn has_crc32(page: &[u8]) -> bool {
    let end = page.len() - TRAILER;
    let sum = crc32c::crc32c(&page[4..26]) ^ crc32c::crc32c(&page[HEADER..end]);
    word(page, 0) == sum && word(page, end) == sum
}

fn has_full_crc32(page: &[u8]) -> bool {
    let kind = u16::from_be_bytes([page[24], page[25]]);
    let length = if kind & COMPRESSED == 0 {
        page.len()
    } else {
        usize::from(kind & !COMPRESSED) << 8
    };
    let is_possible = (HEADER..=page.len()).contains(&length);
    is_possible && word(page, length - 4) == crc32c::crc32c(&page[..length - 4])
}

fn has_crc32_of_compressed(page: &[u8]) -> bool {
    let parts = [&page[4..16], &page[24..26], &page[34..]];
    let sum = parts.iter().fold(0, |sum, part| sum ^ crc32c::crc32c(part));
    word(page, 0) == sum
}

fn word(page: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 / 3) as u8).collect()
    }

    fn put(page: &mut [u8], at: usize, sum: u32) {
        page[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Checks that the page is right, and wrong after a change of any one of these bytes.
    fn check(page: &mut [u8], covered: &[usize]) {
        assert!(is_right(page));
        for &at in covered {
            page[at] ^= 1;
            assert!(!is_right(page), "byte {at}");
            page[at] ^= 1;
        }
    }

    #[test]
    fn each_format_is_known_and_covers_the_page() {
        for length in [1024, 16384, 65536] {
            assert!(!is_right(&page(length)));
            let mut usual = page(length);
            let sum = crc32c::crc32c(&usual[4..26]) ^ crc32c::crc32c(&usual[38..length - 8]);
            put(&mut usual, 0, sum);
            put(&mut usual, length - 8, sum);
            check(&mut usual, &[0, 5, 25, 38, length - 9, length - 8]);

            let mut full = page(length);
            (full[24], full[25]) = (0x45, 0xbf);
            let sum = crc32c::crc32c(&full[..length - 4]);
            put(&mut full, length - 4, sum);
            check(&mut full, &[0, 30, length - 5, length - 1]);

            let mut zip = page(length);
            let sum = crc32c::crc32c(&zip[4..16])
                ^ crc32c::crc32c(&zip[24..26])
                ^ crc32c::crc32c(&zip[34..]);
            put(&mut zip, 0, sum);
            check(&mut zip, &[0, 4, 24, 34, length - 1]);
        }
    }

    #[test]
    fn a_compressed_page_ends_where_its_type_says() {
        let mut compressed = page(16384);
        (compressed[24], compressed[25]) = (0x80, 10);
        let sum = crc32c::crc32c(&compressed[..2556]);
        put(&mut compressed, 2556, sum);
        check(&mut compressed, &[0, 2555]);
        compressed[9000] ^= 1;
        assert!(is_right(&compressed), "nothing of the page is there");
        // A type with a length beyond the page, or shorter than a header.
        for kind in [[0xff, 0xff], [0x80, 0]] {
            compressed[24..26].copy_from_slice(&kind);
            assert!(!is_right(&compressed));
        }
    }

    #[test]
    fn a_later_version_is_no_damage() {
        let mut cached = page(16384);
        cached[24..26].copy_from_slice(&17855_u16.to_be_bytes());
        cached[16..24].copy_from_slice(&500_u64.to_be_bytes());
        let sum = crc32c::crc32c(&cached[..16380]);
        put(&mut cached, 16380, sum);
        let mut stored = cached.clone();
        stored[8192..8704].fill(0xa5);
        assert!(is_damaged(&stored, &cached));
        assert!(
            !is_damaged(&cached, &stored),
            "the cached copy is the damaged one"
        );
        assert!(!is_damaged(&cached, &cached));
        assert!(!is_damaged(&stored, &[0; 16384]));
        // Encrypted or compressed by an unobserved write.
        for kind in TRANSFORMED {
            let mut stored = stored.clone();
            stored[24..26].copy_from_slice(&kind.to_be_bytes());
            assert!(!is_damaged(&stored, &cached));
        }
        stored[16..24].copy_from_slice(&501_u64.to_be_bytes());
        assert!(!is_damaged(&stored, &cached), "written later");
        // The header is damaged as well.
        stored[..512].fill(0xa5);
        assert!(is_damaged(&stored, &cached));
    }

    #[test]
    fn zeros_are_right_and_fragments_are_not() {
        assert!(is_right(&[0; 16384]));
        assert!(!is_right(&[0; 512]));
    }
}
