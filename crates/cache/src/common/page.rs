//! Identity of a page, and the hashes derived from it.
//!
//! A page is identified by its file and its number in that file. One 64-bit mix of the two ([`PageId::hash`]) selects
//! directory bucket, fingerprint and sketch counters. A second, coarser one ([`PageId::instance`]) selects the
//! instance, so that the 64 pages of an extent share one for read-ahead and neighbour writes. The *check* of a page
//! ([`check`]) proves its identity. It is a hash of the bytes, combined with a seed that is one-to-one in the page
//! number within a file. So the intact bytes of one page never pass for another page of the same file.
//!
//! The hash is XXH3, because InnoDB stores its own checksums in pages, and a hash of the same family adds no
//! information. The CRC-32C of a page that ends with its CRC-32C in big-endian order, like those of MariaDB, takes only
//! 2^16 values.

use std::hash::Hasher;

use serde::Serialize;
use twox_hash::XxHash3_64;

/// Smallest physical page that the cache accepts, in bytes.
pub const MIN_PAGE: usize = 1024;
/// Largest physical page that the cache accepts, in bytes.
pub const MAX_PAGE: usize = 65536;
/// Bytes of the unit in which frames and places on devices are counted.
pub(crate) const UNIT: usize = 1024;

/// One incarnation of a data file's contents. Numbers are never reused: after a whole file is dropped, the caller
/// continues with a new `FileId`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct FileId(pub u32);

/// Hash of a number for tables under a lock. The keys are our own numbers or addresses, so an attacker cannot choose
/// colliding ones.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = mix64(self.0 ^ number);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A page: its file, and its offset divided by the physical page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PageId {
    pub file: FileId,
    pub page: u32,
}

/// Low bits of a page number within an extent. All pages of an extent share an instance.
pub const EXTENT_SHIFT: u32 = 6;

impl PageId {
    pub fn new(file: FileId, page: u32) -> PageId {
        PageId { file, page }
    }

    /// One-to-one mix of file and page number.
    pub(crate) fn hash(self) -> u64 {
        mix64((u64::from(self.file.0) << 32) | u64::from(self.page))
    }

    /// Index of the page's instance, below `instances`.
    pub(crate) fn instance(self, instances: u32) -> usize {
        extent_instance(self.file, self.page >> EXTENT_SHIFT, instances)
    }

    /// Turns a checksum of bytes into the check of this page. One-to-one in the page number for a fixed file, and in
    /// the file for a fixed page number; [`PageId::of_seed`] is the inverse.
    fn seed(self) -> u32 {
        mix32(self.page ^ mix32(self.file.0 ^ 0x9e37_79b9))
    }

    /// The page that has this seed, given its number.
    pub(crate) fn of_seed(seed: u32, page: u32) -> PageId {
        let file = unmix32(unmix32(seed) ^ page) ^ 0x9e37_79b9;
        PageId {
            file: FileId(file),
            page,
        }
    }
}

pub(crate) fn extent_instance(file: FileId, extent: u32, instances: u32) -> usize {
    let hash = mix64((u64::from(file.0) << 32) | u64::from(extent) | 1 << 31);
    (((hash >> 32) * u64::from(instances)) >> 32) as usize
}

/// Whether the cache accepts a page of this many bytes.
pub fn is_page_length(length: usize) -> bool {
    length.is_power_of_two() && (MIN_PAGE..=MAX_PAGE).contains(&length)
}

/// The check of a page. It proves both that the bytes are intact and that they belong to this page.
pub(crate) fn check(page: PageId, bytes: &[u8]) -> u32 {
    digest(bytes) ^ page.seed()
}

/// The check of a page, for a search for collisions.
#[cfg(any(checker, debug_assertions))]
pub fn check_of(page: PageId, bytes: &[u8]) -> u32 {
    check(page, bytes)
}

/// XXH3, whose values are stable across releases.
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Hash of a page's bytes. It must be independent of the checksums that InnoDB stores in them.
fn digest(bytes: &[u8]) -> u32 {
    let hash = hash(bytes);
    (hash ^ (hash >> 32)) as u32
}

/// Whether InnoDB's page number in the bytes equals the number of the page. It differs in the second and later files of
/// a tablespace.
pub(crate) fn is_numbered(page: PageId, bytes: &[u8]) -> bool {
    bytes[4..8] == page.page.to_be_bytes()
}

/// Identity of the page that the bytes belong to, derived from their stored check. Exact if the bytes are intact and
/// InnoDB's page number at bytes 4..8 equals the number of the page. It distinguishes a fingerprint collision from
/// damage.
pub(crate) fn identity_of(stored_check: u32, bytes: &[u8]) -> PageId {
    let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    PageId::of_seed(stored_check ^ digest(bytes), number)
}

/// Finaliser of MurmurHash3 (public domain), one-to-one on 64 bits.
pub(crate) fn mix64(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Finaliser of MurmurHash3 for 32 bits.
fn mix32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// The inverse of [`mix32`].
fn unmix32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(inverse(0xc2b2_ae35));
    x ^= (x >> 13) ^ (x >> 26);
    x = x.wrapping_mul(inverse(0x85eb_ca6b));
    x ^ (x >> 16)
}

/// Inverse of an odd number modulo 2^32, by Newton's iteration.
const fn inverse(odd: u32) -> u32 {
    let mut y = odd;
    let mut i = 0;
    while i < 5 {
        y = y.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(y)));
        i += 1;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: u32, page: u32) -> PageId {
        PageId::new(FileId(file), page)
    }

    #[test]
    fn mixing_is_invertible() {
        for x in (0..u32::MAX).step_by(if cfg!(miri) { 10_472_903 } else { 104_729 }) {
            assert_eq!(unmix32(mix32(x)), x);
        }
    }

    #[test]
    fn the_seed_gives_the_page_back() {
        for (f, n) in [(0, 0), (1, 7), (77, u32::MAX), (u32::MAX, 12345)] {
            assert_eq!(PageId::of_seed(page(f, n).seed(), n), page(f, n));
        }
    }

    #[test]
    fn bytes_of_another_page_fail_the_check_and_are_recognised() {
        let mut bytes = vec![5u8; 16384];
        bytes[4..8].copy_from_slice(&9u32.to_be_bytes());
        let stored = check(page(3, 9), &bytes);
        assert_ne!(check(page(3, 10), &bytes), stored);
        assert_ne!(check(page(4, 9), &bytes), stored);
        assert_eq!(identity_of(stored, &bytes), page(3, 9));
        bytes[100] ^= 1;
        assert_ne!(check(page(3, 9), &bytes), stored);
        assert_ne!(identity_of(stored, &bytes), page(3, 9));
    }

    /// A page like MariaDB's with `innodb_checksum_algorithm=full_crc32`: its last four bytes are the CRC-32C of all
    /// others, in big-endian order.
    fn full_crc32_page(version: u64, bytes: &mut [u8]) {
        let (content, trailer) = bytes.split_at_mut(bytes.len() - 4);
        content[4..8].copy_from_slice(&9u32.to_be_bytes());
        // The log sequence number, and some content.
        content[16..24].copy_from_slice(&version.to_be_bytes());
        content[200..208].copy_from_slice(&mix64(version).to_be_bytes());
        trailer.copy_from_slice(&crc32c::crc32c(content).to_be_bytes());
    }

    /// Number of bits that vary independently: the rank of the differences to the first value.
    fn independent_bits(values: &[u32]) -> usize {
        let mut basis: Vec<u32> = Vec::new();
        for value in values {
            let rest = basis.iter().fold(value ^ values[0], |x, &b| x.min(x ^ b));
            if rest != 0 {
                basis.push(rest);
                basis.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
        basis.len()
    }

    #[test]
    fn checks_of_pages_with_own_checksum_use_all_32_bits() {
        const PAGES: u64 = if cfg!(miri) { 100 } else { 200_000 };
        let mut bytes = vec![0; if cfg!(miri) { 1024 } else { 16384 }];
        let mut checks: Vec<u32> = (0..PAGES)
            .map(|version| {
                full_crc32_page(version, &mut bytes);
                check(page(3, 9), &bytes)
            })
            .collect();
        assert_eq!(independent_bits(&checks), 32);
        checks.sort_unstable();
        checks.dedup();
        // By chance, five of 200,000 values of 32 bits are duplicates.
        assert!(
            PAGES - checks.len() as u64 <= 30,
            "{} distinct",
            checks.len()
        );
    }

    #[test]
    fn extents_stay_in_one_instance_and_instances_are_even() {
        for p in 0..64 {
            assert_eq!(page(5, 640 + p).instance(16), page(5, 640).instance(16));
        }
        const EACH: u32 = if cfg!(miri) { 200 } else { 1000 };
        let mut count = [0u32; 16];
        for extent in 0..16 * EACH {
            count[page(5, extent << EXTENT_SHIFT).instance(16)] += 1;
        }
        let even = EACH * 8 / 10..EACH * 12 / 10;
        assert!(count.iter().all(|c| even.contains(c)), "{count:?}");
    }

    #[test]
    fn lengths() {
        for good in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            assert!(is_page_length(good));
        }
        for bad in [0, 512, 1000, 16383, 131072] {
            assert!(!is_page_length(bad));
        }
    }
}
