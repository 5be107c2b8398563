//! Random bytes from the system.

use std::fs::File;
use std::io::Read;

use crate::support::failure::Failure;

/// # Errors
/// The system provides none.
pub fn random<const BYTES: usize>() -> Result<[u8; BYTES], Failure> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| {
            Failure::refused(format!(
                "cannot read random numbers from /dev/urandom: {error}"
            ))
        })?;
    Ok(bytes)
}
