//! Preconditions of a comparison on a server. Nothing is changed here.

use crate::connect::maintenance::check_may_set;
use crate::connect::server::Server;
use crate::connect::{plain, report};
use crate::observe::Sample;
use crate::support::failure::Failure;

pub const BYPASS: &str = interface::variables::BYPASS.name;
pub const TIMEOUT: &str = "bpe_bypass_timeout";

/// Name of the server lock that a comparison's connection holds until it ends.
const LOCK: &str = "bpe compare";
/// Statements of one reading, which are not part of the load.
const OWN: f64 = 2.0;
/// Minimum load in statements per second.
const IDLE: f64 = 1.0;
/// Maximum lag of a replica at the start, in seconds.
const BEHIND: u64 = 10;

/// Original values of the variables that the comparison will change.
pub struct Checked {
    pub timeout: String,
}

/// Takes the lock, and refuses a server on which a comparison makes no sense.
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
    // Without this report, reads have no latencies.
    report::ask(server, "latency", "cannot tell how long reads take")?;
    Ok(Checked { timeout })
}

/// The bypass timeout in seconds; `None` while a running comparison has set it. A killed comparison leaves its timeout set.
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

/// Refuses an idle server. `readings` is the number of readings after the first one.
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

/// A replica's lag in seconds; `None` for other servers, or without the privilege.
pub fn seconds_behind(server: &mut Server) -> Option<u64> {
    let row: mysql::Row = server.row("SHOW REPLICA STATUS").ok()??;
    let value = |name: &str| row.get_opt::<u64, _>(name).and_then(Result::ok);
    value("Seconds_Behind_Source").or_else(|| value("Seconds_Behind_Master"))
}
