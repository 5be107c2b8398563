//! Parsers of cache-file bytes, for fuzzers. Compiled with the feature `fuzz` only.

use crate::device::segment::format::{self, BLOCK, Header, SegmentName};

/// Decodes the header of a cache file. Encoding the result must reproduce it.
pub fn header(bytes: &[u8]) {
    if let Ok(header) = Header::decode(bytes) {
        let mut block = vec![0; format::HEADER_BYTES];
        header.encode(&mut block);
        assert_eq!(Header::decode(&block), Ok(header));
    }
}

/// Decodes the footer of a segment twice: as given, and with corrected names and checksum, so that the code behind
/// these checks is reached.
pub fn footer(bytes: &[u8]) {
    let name = SegmentName {
        session: 0x1122_3344_5566_7788,
        segment: 3,
        sequence: 9,
    };
    let mut records = Vec::new();
    format::decode_footer(name, &mut bytes.to_vec(), &mut records);
    let mut area = vec![0; bytes.len().next_multiple_of(BLOCK).max(BLOCK)];
    let end = area.len();
    area[end - bytes.len()..].copy_from_slice(bytes);
    // The trailer has 64 bytes, a record 16.
    let count = u32::from(bytes.first().copied().unwrap_or_default());
    let trailer = end - 64;
    let table = trailer.saturating_sub(count as usize * 16);
    area[trailer..trailer + 8].copy_from_slice(b"BPEFOOTR");
    area[trailer + 8..trailer + 16].copy_from_slice(&name.session.to_le_bytes());
    area[trailer + 16..trailer + 20].copy_from_slice(&name.segment.to_le_bytes());
    area[trailer + 20..trailer + 24].copy_from_slice(&name.sequence.to_le_bytes());
    area[trailer + 24..trailer + 28].copy_from_slice(&count.to_le_bytes());
    area[trailer + 28..trailer + 32].fill(0);
    let check = crc32c::crc32c(&area[table..]);
    area[trailer + 28..trailer + 32].copy_from_slice(&check.to_le_bytes());
    if format::decode_footer(name, &mut area, &mut records) {
        assert_eq!(records.len(), count as usize);
        for record in &records {
            let _ = (record.start() + record.length(), record.kind.stored(16384));
        }
    }
}

/// A compressed page of each length.
pub fn packed(bytes: &[u8]) {
    for length in [1024, 16384, 65536] {
        let mut page = vec![0; length];
        format::unpack(bytes, &mut page);
        // With a matching header.
        let mut stored = vec![0; 8];
        format::encode_packed_header(bytes.len(), length, &mut stored);
        stored.extend(bytes);
        format::unpack(&stored, &mut page);
    }
}
