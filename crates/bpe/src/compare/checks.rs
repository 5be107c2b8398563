//! What a server must be for a comparison. Nothing is changed here.

use crate::connection::plain;
use crate::failure::Failure;
use crate::maintenance::check_may_set;
use crate::observe::Sample;
use crate::report;
use crate::server::Server;

pub const BYPASS: &str = "bpe_bypass";
pub const TIMEOUT: &str = "bpe_bypass_timeout";

/// The server's lock that a comparison holds as long as its connection lives.
const LOCK: &str = "bpe compare";
/// Statements of a reading, which are not the load's.
const OWN: f64 = 2.0;
/// Statements per second below which there is nothing to compare.
const IDLE: f64 = 1.0;
/// Seconds that a replica may be behind at the beginning.
const BEHIND: u64 = 10;

/// What the comparison will change, as it was.
pub struct Checked {
    pub timeout: String,
}

/// Refuses a server on which nothing can be compared, and takes the lock.
pub fn check(server: &mut Server) -> Result<Checked, Failure> {
    report::require_plugin(server)?;
    let mut variables = server.variables("bpe\\_%")?;
    let (Some(bypass), Some(timeout)) = (variables.remove(BYPASS), variables.remove(TIMEOUT))
    else {
        return Err(Failure::refused(format!(
            "the plugin on this server is older than this command: it has no {BYPASS}"
        ))
        .advise("install the bpe.so that belongs to this command, and restart the server"));
    };
    take_lock(server)?;
    if bypass != "OFF" {
        return Err(Failure::refused(format!(
            "{BYPASS} is {bypass} already: somebody else has set it"
        ))
        .advise(format!("when they are done: SET GLOBAL {BYPASS} = OFF")));
    }
    let status = server.status("bpe\\_state%")?;
    let text = |name: &str| status.get(name).map_or("", String::as_str);
    if text("bpe_state") != "active" {
        let reason = match text("bpe_state_reason") {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        return Err(Failure::refused(format!(
            "the extension is {}{reason}: there is nothing to compare",
            text("bpe_state")
        ))
        .advise("switch it on with SET GLOBAL bpe_enabled = ON, and let it fill"));
    }
    check_may_set(server)?;
    if let Some(behind) = seconds_behind(server).filter(|behind| *behind > BEHIND) {
        return Err(Failure::refused(format!(
            "this replica is {behind} s behind: what it does now is not its usual load"
        ))
        .advise("wait until it has caught up"));
    }
    // Where it is missing, no read has a time.
    report::ask(server, "latency", "cannot tell how long reads take")?;
    Ok(Checked { timeout })
}

/// Seconds after which bypass ends by itself, unless a comparison is running that has set them. One that was killed leaves
/// its own.
pub fn timeout_in_force(server: &mut Server) -> Option<u64> {
    let timeout = server.value(&format!("SELECT @@GLOBAL.{TIMEOUT}")).ok()??;
    let seconds = timeout.parse().ok().filter(|seconds| *seconds > 0)?;
    let owner = server.value(&format!("SELECT IS_USED_LOCK('{LOCK}')"));
    owner.ok()?.is_none().then_some(seconds)
}

fn take_lock(server: &mut Server) -> Result<(), Failure> {
    let failed = |error| Failure::step(format!("cannot take a lock: {}", plain(&error)));
    let taken = server.value(&format!("SELECT GET_LOCK('{LOCK}', 0)"));
    if taken.map_err(failed)?.as_deref() == Some("1") {
        return Ok(());
    }
    let owner = server.value(&format!("SELECT IS_USED_LOCK('{LOCK}')"));
    let owner = owner.ok().flatten().map(|id| format!(" (connection {id})"));
    Err(Failure::refused(format!(
        "another comparison is running on this server{}",
        owner.unwrap_or_default()
    ))
    .advise("wait until it has ended"))
}

/// Refuses a server that does nothing. The readings are the first and the last, and how many came after the first.
pub fn check_load(first: &Sample, last: &Sample, readings: usize) -> Result<(), Failure> {
    let seconds = (last.taken - first.taken).as_secs_f64().max(1e-3);
    let statements = last.growth(first, "questions") as f64 - OWN * readings as f64;
    if statements / seconds >= IDLE {
        return Ok(());
    }
    Err(
        Failure::refused("the server is idle: without statements there is nothing to compare")
            .advise("compare while its applications are at work"),
    )
}

/// Seconds that a replica is behind; `None` of other servers, and where the account may not know.
pub fn seconds_behind(server: &mut Server) -> Option<u64> {
    let row: mysql::Row = server.row("SHOW REPLICA STATUS").ok()??;
    let value = |name: &str| row.get_opt::<u64, _>(name).and_then(Result::ok);
    value("Seconds_Behind_Source").or_else(|| value("Seconds_Behind_Master"))
}
