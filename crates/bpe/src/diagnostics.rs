//! The key with which a recording or a verification begins: set by `SET GLOBAL bpe_diagnostics_key`, used once, and
//! forgotten by the server after a minute. So nothing has to be put back, however this command ends.

use std::fs::File;
use std::io::Read;

use crate::connection::plain;
use crate::failure::Failure;
use crate::maintenance::account;
use crate::quote::sql_text;
use crate::server::{Flavour, Server, error_code};

/// Random bytes of a key.
const BYTES: usize = 16;
/// "You need the ... privilege" and "access denied".
const DENIED: [u16; 3] = [1044, 1142, 1227];
/// No such variable.
const UNKNOWN: u16 = 1193;

/// Random bytes of the system's.
///
/// # Errors
/// When the system gives none.
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

/// Sets a new key. `what` may not be done without the right to that, as in "recording".
///
/// # Errors
/// The account lacks the right, or the server's plugin has no such variable.
pub fn key(server: &mut Server, what: &str) -> Result<String, Failure> {
    let bytes = random::<BYTES>()?;
    let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let Err(error) = server.execute(&format!(
        "SET GLOBAL bpe_diagnostics_key = {}",
        sql_text(&key)
    )) else {
        return Ok(key);
    };
    let why = plain(&error);
    Err(match error_code(&error) {
        code if DENIED.contains(&code) => {
            Failure::refused(format!("{what} takes the right to SET GLOBAL, which this account lacks: {why}"))
                .advise(grant(server))
        }
        UNKNOWN => Failure::refused(
            "the plugin on this server is older than this command, or is not installed: it has no bpe_diagnostics_key",
        )
        .advise("install the bpe.so that belongs to this command, and restart the server"),
        _ => Failure::step(format!("{what} was not allowed: {why}")),
    })
}

/// What an administrator has to run.
fn grant(server: &mut Server) -> String {
    let right = match server.flavour {
        Flavour::MariaDb => "SUPER",
        Flavour::MySql => "SYSTEM_VARIABLES_ADMIN",
    };
    format!(
        "log in as an administrator (--user), or let one run: GRANT {right} ON *.* TO {}",
        account(server)
    )
}
