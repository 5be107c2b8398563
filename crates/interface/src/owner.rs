//! Identity of the server that owns a cache's files. The plugin recognises its own by it, and `bpe disable` the leftover
//! files of a server.

/// Identifies a server by host name and canonical data directory; stays the same across restarts and reboots.
///
/// FNV-1a, 128 bits: stable over toolchain versions, unlike the hashers of the standard library.
pub fn identity(host: &[u8], data: &[u8]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in host.iter().chain(b"\0").chain(data) {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    }
    hash.to_be_bytes()
}

/// Prefix of the names of the server's files.
pub fn stem(owner: &[u8; 16]) -> String {
    let hex: String = owner[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("bpe-{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of an older version keep their name.
    #[test]
    fn a_server_keeps_its_name() {
        let owner = identity(b"db1", b"/var/lib/mysql");
        assert_eq!(stem(&owner), "bpe-0a5b8394865c3f95");
        assert_ne!(owner, identity(b"db", b"1/var/lib/mysql"));
    }
}
