//! Fields of InnoDB's page header.

/// Page number in the page header; `None` for an all-zero page, which is not worth caching.
#[inline]
pub fn header_page(bytes: &[u8]) -> Option<u32> {
    let head = bytes.get(..38)?;
    if head.iter().all(|byte| *byte == 0) {
        return None;
    }
    Some(u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
}

/// LSN in the page header, 0 for an all-zero page. Readable even if the page is encrypted or compressed.
#[inline]
pub fn header_lsn(bytes: &[u8]) -> u64 {
    let lsn = bytes.get(16..24).and_then(|lsn| lsn.try_into().ok());
    lsn.map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_short_pages_have_no_header() {
        assert_eq!(header_page(&[0; 1024]), None);
        assert_eq!(header_page(&[1; 20]), None);
        let mut page = [0u8; 1024];
        page[4..8].copy_from_slice(&77u32.to_be_bytes());
        assert_eq!(header_page(&page), Some(77));
    }
}
