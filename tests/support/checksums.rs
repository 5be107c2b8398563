//! InnoDB's checksum of a page, as each server writes it by default.

/// Sets the checksum of a 16 KiB page of a table that is neither compressed nor encrypted.
pub fn set(page: &mut [u8], is_mysql: bool) {
    let end = page.len();
    if is_mysql {
        let sum = crc32c::crc32c(&page[4..26]) ^ crc32c::crc32c(&page[38..end - 8]);
        page[..4].copy_from_slice(&sum.to_be_bytes());
        page[end - 8..end - 4].copy_from_slice(&sum.to_be_bytes());
    } else {
        let sum = crc32c::crc32c(&page[..end - 4]);
        page[end - 4..].copy_from_slice(&sum.to_be_bytes());
    }
}
