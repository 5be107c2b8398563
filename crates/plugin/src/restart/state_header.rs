//! The state header at the start of the records, in memory and in a snapshot.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// `BPEFILES`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BPEFILES");
const VERSION: u64 = 3;
/// Bytes of a state header.
pub const STATE_HEADER_BYTES: usize = 48;

/// Identifies the format, the server, and the boot of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHeader {
    pub boot: u128,
    pub owner: [u8; 16],
}

impl StateHeader {
    /// The state header of this server during this boot of the host.
    ///
    /// # Errors
    /// The kernel's boot id cannot be read.
    pub fn now(owner: [u8; 16]) -> io::Result<StateHeader> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
        Ok(StateHeader { boot, owner })
    }

    /// The same state header for another boot of the host.
    pub fn of_boot(self, boot: u128) -> StateHeader {
        StateHeader { boot, ..self }
    }

    /// The state header in its file format.
    pub fn bytes(&self) -> [u8; STATE_HEADER_BYTES] {
        let mut bytes = [0; STATE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..16].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[16..32].copy_from_slice(&self.boot.to_ne_bytes());
        bytes[32..].copy_from_slice(&self.owner);
        bytes
    }

    /// Whether another version of the plugin wrote the file.
    pub fn is_of_another_version(&self, file: &File) -> bool {
        let mut has = [0; 16];
        let ours = &self.bytes()[..16];
        file.read_exact_at(&mut has, 0).is_ok() && has[..8] == ours[..8] && has != ours
    }

    /// Whether the file begins with this state header.
    pub fn is_of(&self, file: &File) -> bool {
        let mut has = [0; STATE_HEADER_BYTES];
        file.read_exact_at(&mut has, 0).is_ok() && has == self.bytes()
    }
}
