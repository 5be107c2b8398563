//! The account of the command that keeps standbys warm.

use anyhow::Result;
use private_server::Server;

/// Account name. Server statistics count its statements separately.
pub const ACCOUNT: &str = "warm";

/// Creates the account, before a server's files are copied.
///
/// # Errors
/// A statement fails.
pub fn prepare(server: &Server) -> Result<()> {
    server.sql(&format!("CREATE USER {ACCOUNT}@localhost"))?;
    server.sql(&format!("GRANT ALL ON *.* TO {ACCOUNT}@localhost"))?;
    Ok(())
}
