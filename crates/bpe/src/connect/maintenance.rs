//! Changes of a server's plugins without side effects. Checks the required privileges by statements that change
//! nothing, and provides a session whose statements reach no replica.
//!
//! CREATE FUNCTION is written to the binary log, and a replica without the library would stop at it. Therefore
//! `sql_log_bin` (and `wsrep_on` on Galera) is off in the session. MySQL's `super_read_only` refuses INSTALL PLUGIN, so
//! it is lifted temporarily; `read_only` stays.

use crate::connect::plain;
use crate::connect::server::{Server, error_code};
use crate::support::failure::Failure;
use crate::support::quote::sql_account;
use crate::support::terminal::complain;

/// Variants of "You need the ... privilege".
const DENIED: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1370];
/// "The server is running with the --super-read-only option".
const READ_ONLY: u16 = 1290;

/// Checks that the account may set global variables, without changing anything.
pub fn check_may_set(server: &mut Server) -> Result<(), Failure> {
    probe(server, 1)
}

/// Checks that the account has all privileges for `enable` and `disable`, without changing anything.
pub fn check_rights(server: &mut Server) -> Result<(), Failure> {
    probe(server, usize::MAX)
}

/// Tries the first `count` of the statements that change nothing.
fn probe(server: &mut Server, count: usize) -> Result<(), Failure> {
    let mut missing = Vec::new();
    let probes = [
        (
            "SET GLOBAL max_connect_errors = @@GLOBAL.max_connect_errors",
            server.flavour.right_to_set_global(),
            "*.*",
        ),
        (
            "SET SESSION sql_log_bin = OFF",
            server.flavour.right_to_skip_binary_log(),
            "*.*",
        ),
        (
            "INSERT INTO mysql.plugin SELECT * FROM mysql.plugin WHERE 1 = 0",
            "SELECT, INSERT",
            "mysql.*",
        ),
        (
            "INSERT INTO mysql.func SELECT * FROM mysql.func WHERE 1 = 0",
            "SELECT, INSERT",
            "mysql.*",
        ),
        ("DELETE FROM mysql.plugin WHERE 1 = 0", "DELETE", "mysql.*"),
        ("DELETE FROM mysql.func WHERE 1 = 0", "DELETE", "mysql.*"),
    ];
    for (sql, privilege, on) in probes.into_iter().take(count) {
        let Err(error) = server.execute(sql) else {
            continue;
        };
        match error_code(&error) {
            READ_ONLY => {}
            code if DENIED.contains(&code) => {
                let grant = format!("GRANT {privilege} ON {on} TO ");
                if !missing.contains(&grant) {
                    missing.push(grant);
                }
            }
            _ => {
                return Err(Failure::refused(format!(
                    "cannot find out what this account may do: {} ({sql})",
                    plain(&error)
                )));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let account = account(server);
    let grants: Vec<_> = missing
        .iter()
        .map(|grant| format!("{grant}{account};"))
        .collect();
    Err(Failure::refused(format!(
        "the account {account} lacks the rights to change plugins and global variables; \
         nothing was changed"
    ))
    .advise(format!(
        "log in as an administrator, or as one:\n{}",
        grants.join("\n")
    )))
}

/// The current account in GRANT syntax.
pub fn account(server: &mut Server) -> String {
    let account = server
        .value("SELECT CURRENT_USER()")
        .ok()
        .flatten()
        .unwrap_or_else(|| server.user.clone());
    sql_account(&account)
}

/// A session whose statements reach no replica; `end` restores the server's variables.
#[derive(Debug, Default)]
pub struct Maintenance {
    lifted: bool,
}

impl Maintenance {
    /// Prepares a session; also used for a new session after a lost one. `end` still restores what the lost session lifted.
    ///
    /// # Errors
    /// A message. `super_read_only` may already be lifted, so call `end`.
    pub fn begin(&mut self, server: &mut Server) -> Result<(), String> {
        let run = |server: &mut Server, sql: &str| {
            server
                .execute(sql)
                .map_err(|error| format!("{sql} failed: {}", plain(&error)))
        };
        run(server, "SET SESSION sql_log_bin = OFF")?;
        let is_on = |server: &mut Server, name: &str| {
            let value = server.variable(name).map_err(|failure| failure.to_string());
            Ok::<_, String>(matches!(value?.as_deref(), Some("ON" | "1")))
        };
        if is_on(server, "wsrep_on")? {
            run(server, "SET SESSION wsrep_on = OFF")?;
        }
        if is_on(server, "super_read_only")? {
            // Set before the statement, because its answer may be lost.
            self.lifted = true;
            run(server, "SET GLOBAL super_read_only = OFF")?;
        }
        Ok(())
    }

    /// Restores `super_read_only`. A server that became writable in between was promoted, and stays writable.
    pub fn end(self, server: &mut Server) -> Result<(), String> {
        if !self.lifted {
            return Ok(());
        }
        let read_only = server.variable("read_only").ok().flatten();
        if matches!(read_only.as_deref(), Some("OFF" | "0")) {
            complain!(
                "bpe: note: read_only was switched off meanwhile, so super_read_only, which was on before, stays off"
            );
            return Ok(());
        }
        server
            .execute("SET GLOBAL super_read_only = ON")
            .map_err(|error| {
                format!(
                    "super_read_only could NOT be switched on again: {}",
                    plain(&error)
                )
            })
    }
}

/// Whether [`Maintenance`] will lift super_read_only.
pub fn will_lift_read_only(server: &mut Server) -> Result<bool, Failure> {
    Ok(server.variable("super_read_only")?.as_deref() == Some("ON"))
}
