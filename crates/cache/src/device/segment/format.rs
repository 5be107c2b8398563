//! File format of a cache file.
//!
//! All integers are little-endian.
//!
//! Header, 4 KiB at offset 0: magic `BPECACHE`, version u32, state u32 (1: in use, 0: empty), owner 16 bytes, session u64
//! (random, new each time the file is opened: segments of another session are garbage), file bytes u64, segment bytes u64,
//! CRC-32C u32 of all before it. The block at offset 4 KiB is for probing. Segments begin at 64 KiB.
//!
//! Footer of a segment, at its end: records of 16 bytes (file u32, page u32, check u32, first unit in the segment u16, kind
//! u8, units u8), then a trailer of 64 bytes at the very end: magic `BPEFOOTR`, session u64, segment u32, sequence u32, records
//! u32, CRC-32C u32 of the records and of the trailer with this field zero; the rest is zero.
//!
//! A page is stored uncompressed, aligned to 4 KiB or, if smaller, to its size. Or it is stored compressed, aligned to 1 KiB:
//! bytes of the LZ4 block u32, bytes of the page u32, the LZ4 block.

use crate::common::config::OwnerIdentity;
use crate::common::page::{FileId, PageId, UNIT};
use crate::index::directory::Kind;

/// Version 1 verified pages by their CRC-32C. Its header and all its positions were the same as now.
pub(crate) const VERSION: u32 = 2;
pub(crate) const HEADER_BYTES: usize = 4096;
pub(crate) const PROBE_OFFSET: u64 = 4096;
pub(crate) const DATA_OFFSET: u64 = 65536;
/// Writes begin and end at multiples of this.
pub(crate) const BLOCK: usize = 4096;
/// Bytes in front of a compressed page.
pub(crate) const PACKED_HEADER: usize = 8;
const HEADER_MAGIC: &[u8; 8] = b"BPECACHE";
const FOOTER_MAGIC: &[u8; 8] = b"BPEFOOTR";
const RECORD: usize = 16;
const TRAILER: usize = 64;
const HEADER_CHECKED: usize = 56;

/// Contents of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub in_use: bool,
    pub owner: OwnerIdentity,
    pub session: u64,
    pub file_bytes: u64,
    pub segment_bytes: u64,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum HeaderError {
    /// Not a cache file.
    Foreign,
    Version(u32),
}

impl Header {
    pub fn encode(&self, block: &mut [u8]) {
        block[..HEADER_BYTES].fill(0);
        block[..8].copy_from_slice(HEADER_MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&u32::from(self.in_use).to_le_bytes());
        block[16..32].copy_from_slice(&self.owner.0);
        block[32..40].copy_from_slice(&self.session.to_le_bytes());
        block[40..48].copy_from_slice(&self.file_bytes.to_le_bytes());
        block[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&block[..HEADER_CHECKED]);
        block[HEADER_CHECKED..HEADER_CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    }

    pub fn decode(block: &[u8]) -> Result<Header, HeaderError> {
        if block.len() < HEADER_CHECKED + 4 || &block[..8] != HEADER_MAGIC {
            return Err(HeaderError::Foreign);
        }
        let version = u32_at(block, 8);
        // Only the header of an existing file is read here, and older versions have the same header.
        if !(1..=VERSION).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        if u32_at(block, HEADER_CHECKED) != crc32c::crc32c(&block[..HEADER_CHECKED]) {
            return Err(HeaderError::Foreign);
        }
        let mut owner = [0; 16];
        owner.copy_from_slice(&block[16..32]);
        Ok(Header {
            in_use: u32_at(block, 12) == 1,
            owner: OwnerIdentity(owner),
            session: u64_at(block, 32),
            file_bytes: u64_at(block, 40),
            segment_bytes: u64_at(block, 48),
        })
    }
}

/// One page in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub page: PageId,
    pub check: u32,
    /// First unit in the segment, and number of units.
    pub unit: u16,
    pub units: u8,
    pub kind: Kind,
}

impl Record {
    /// Bytes from the beginning of the segment.
    pub fn start(&self) -> usize {
        usize::from(self.unit) * UNIT
    }

    /// Stored bytes.
    pub fn length(&self) -> usize {
        usize::from(self.units) * UNIT
    }
}

/// Identity of the segment that a footer must belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentName {
    pub session: u64,
    pub segment: u32,
    pub sequence: u32,
}

/// Bytes of a footer with this many records, in whole blocks.
pub(crate) fn footer_bytes(records: usize) -> usize {
    (records * RECORD + TRAILER).next_multiple_of(BLOCK)
}

/// Writes the footer to the end of `area`, which has `footer_bytes(records.len())`.
pub(crate) fn encode_footer(name: SegmentName, records: &[Record], area: &mut [u8]) {
    debug_assert_eq!(area.len(), footer_bytes(records.len()));
    area.fill(0);
    let trailer = area.len() - TRAILER;
    let table = trailer - records.len() * RECORD;
    for (record, at) in records.iter().zip(area[table..].chunks_exact_mut(RECORD)) {
        at[..4].copy_from_slice(&record.page.file.0.to_le_bytes());
        at[4..8].copy_from_slice(&record.page.page.to_le_bytes());
        at[8..12].copy_from_slice(&record.check.to_le_bytes());
        at[12..14].copy_from_slice(&record.unit.to_le_bytes());
        at[14] = record.kind.to_byte();
        at[15] = record.units;
    }
    let t = &mut area[trailer..];
    t[..8].copy_from_slice(FOOTER_MAGIC);
    t[8..16].copy_from_slice(&name.session.to_le_bytes());
    t[16..20].copy_from_slice(&name.segment.to_le_bytes());
    t[20..24].copy_from_slice(&name.sequence.to_le_bytes());
    t[24..28].copy_from_slice(&(records.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c(&area[table..]);
    area[trailer + 28..trailer + 32].copy_from_slice(&crc.to_le_bytes());
}

/// Number of records according to the trailer, the last bytes of `tail`; `None` if it is not that segment's.
pub(crate) fn records_in(name: SegmentName, tail: &[u8]) -> Option<usize> {
    let t = &tail[tail.len().checked_sub(TRAILER)?..];
    let wanted = &t[..8] == FOOTER_MAGIC
        && u64_at(t, 8) == name.session
        && u32_at(t, 16) == name.segment
        && u32_at(t, 20) == name.sequence;
    wanted.then_some(u32_at(t, 24) as usize)
}

/// Reads the footer at the end of `area` into `records`. False if it is damaged or another segment's.
pub(crate) fn decode_footer(name: SegmentName, area: &mut [u8], records: &mut Vec<Record>) -> bool {
    records.clear();
    let Some(count) = records_in(name, area) else {
        return false;
    };
    let trailer = area.len() - TRAILER;
    let Some(table) = count
        .checked_mul(RECORD)
        .and_then(|bytes| trailer.checked_sub(bytes))
    else {
        return false;
    };
    let crc = u32_at(area, trailer + 28);
    area[trailer + 28..trailer + 32].fill(0);
    if crc32c::crc32c(&area[table..]) != crc {
        return false;
    }
    for at in area[table..trailer].chunks_exact(RECORD) {
        let Some(kind) = Kind::from_byte(at[14]) else {
            return false;
        };
        let page = PageId {
            file: FileId(u32_at(at, 0)),
            page: u32_at(at, 4),
        };
        let unit = u16::from_le_bytes([at[12], at[13]]);
        records.push(Record {
            page,
            check: u32_at(at, 8),
            unit,
            units: at[15],
            kind,
        });
    }
    true
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Puts a header in front of an LZ4 block of `packed` bytes.
pub(crate) fn encode_packed_header(packed: usize, page: usize, to: &mut [u8]) {
    to[..4].copy_from_slice(&(packed as u32).to_le_bytes());
    to[4..8].copy_from_slice(&(page as u32).to_le_bytes());
}

/// Decompresses stored bytes into `page`. False if they are damaged or the page has another length.
pub(crate) fn unpack(stored: &[u8], page: &mut [u8]) -> bool {
    if stored.len() < PACKED_HEADER || u32_at(stored, 4) as usize != page.len() {
        return false;
    }
    let Some(end) = PACKED_HEADER.checked_add(u32_at(stored, 0) as usize) else {
        return false;
    };
    let Some(block) = stored.get(PACKED_HEADER..end) else {
        return false;
    };
    lz4_flex::block::decompress_into(block, page).is_ok_and(|length| length == page.len())
}

/// Bytes of the stored page, according to its header.
pub(crate) fn packed_page_length(stored: &[u8]) -> usize {
    u32_at(stored, 4) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: SegmentName = SegmentName {
        session: 77,
        segment: 5,
        sequence: 9,
    };

    fn records(n: u32) -> Vec<Record> {
        (0..n)
            .map(|i| Record {
                page: PageId::new(FileId(i / 9), i),
                check: i * 3,
                unit: i as u16,
                units: 4,
                kind: if i % 2 == 0 {
                    Kind::raw(4096)
                } else {
                    Kind::packed(3)
                },
            })
            .collect()
    }

    #[test]
    fn footers_are_read_as_written() {
        for n in [0, 1, 252, 253, if cfg!(miri) { 300 } else { 4000 }] {
            let mut area = vec![1; footer_bytes(n as usize)];
            encode_footer(NAME, &records(n), &mut area);
            assert_eq!(
                records_in(NAME, &area[area.len() - BLOCK..]),
                Some(n as usize)
            );
            let mut read = vec![];
            assert!(decode_footer(NAME, &mut area, &mut read));
            assert_eq!(read, records(n));
        }
    }

    #[test]
    fn damaged_and_foreign_footers_are_refused() {
        let mut area = vec![0; footer_bytes(10)];
        encode_footer(NAME, &records(10), &mut area);
        let first = area.len() - TRAILER - 10 * RECORD;
        let mut out = vec![];
        for bit in (first * 8..area.len() * 8).step_by(if cfg!(miri) { 41 } else { 3 }) {
            let mut damaged = area.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!decode_footer(NAME, &mut damaged, &mut out), "bit {bit}");
        }
        for name in [
            SegmentName {
                session: 78,
                ..NAME
            },
            SegmentName { segment: 6, ..NAME },
            SegmentName {
                sequence: 8,
                ..NAME
            },
        ] {
            assert!(!decode_footer(name, &mut area.clone(), &mut out));
        }
        assert!(!decode_footer(NAME, &mut [0; 10], &mut out));
        assert!(!decode_footer(NAME, &mut vec![0; 4096], &mut out));
    }

    #[test]
    fn headers() {
        let header = Header {
            in_use: true,
            owner: OwnerIdentity([7; 16]),
            session: 1,
            file_bytes: 1 << 40,
            segment_bytes: 1 << 22,
        };
        let mut block = vec![9; HEADER_BYTES];
        header.encode(&mut block);
        assert_eq!(Header::decode(&block), Ok(header));
        block[20] ^= 1;
        assert_eq!(Header::decode(&block), Err(HeaderError::Foreign));
        block[8] = 3;
        assert_eq!(Header::decode(&block), Err(HeaderError::Version(3)));
        header.encode(&mut block);
        block[8] = 1;
        let crc = crc32c::crc32c(&block[..HEADER_CHECKED]);
        block[HEADER_CHECKED..HEADER_CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&block), Ok(header), "left by version 1");
        assert_eq!(Header::decode(b"short"), Err(HeaderError::Foreign));
        assert_eq!(Header::decode(&[0; 4096]), Err(HeaderError::Foreign));
    }

    #[test]
    fn packed_pages() {
        let page: Vec<u8> = (0..16384u32).map(|i| (i / 64) as u8).collect();
        let mut stored = vec![0; 20000];
        let packed = lz4_flex::block::compress_into(&page, &mut stored[PACKED_HEADER..]).unwrap();
        encode_packed_header(packed, page.len(), &mut stored);
        let mut out = vec![0; 16384];
        assert!(unpack(&stored, &mut out));
        assert_eq!(out, page);
        assert_eq!(packed_page_length(&stored), 16384);
        assert!(!unpack(&stored, &mut out[..8192]));
        assert!(!unpack(&stored[..packed], &mut out));
        assert!(!unpack(&[255; 64], &mut out));
    }
}
