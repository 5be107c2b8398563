//! The account of the command that keeps standbys warm.

use anyhow::Result;
use private_server::Server;

/// By which its statements are told from others.
pub const ACCOUNT: &str = "warm";

/// Makes it, before a server's files are copied.
///
/// # Errors
/// Those of the server.
pub fn prepare(server: &Server) -> Result<()> {
    server.sql(&format!("CREATE USER {ACCOUNT}@localhost"))?;
    server.sql(&format!("GRANT ALL ON *.* TO {ACCOUNT}@localhost"))?;
    Ok(())
}
