//! What the extension of a server says that it is doing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::server::Server;

/// How long a server may take to build the extension: a little longer than it waits for the cache files of the time before.
const BUILT_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `Bpe_state` and the reason for it; both empty where the plugin is not installed.
pub fn state(server: &mut Server) -> Result<(String, String), Failure> {
    let mut status = server.status("bpe\\_state%")?;
    let mut text = |name: &str| status.remove(name).unwrap_or_default();
    Ok((text("bpe_state"), text("bpe_state_reason")))
}

/// Whether there is a cache that is kept current: that of a server that is bypassed is, though no read is served from it.
pub fn is_on(state: &str) -> bool {
    matches!(state, "active" | "bypass")
}

/// To be called once `bpe_enabled` is ON. A server whose configuration asks for the extension may be building it just then,
/// or anew: that is waited for.
///
/// # Errors
/// With the extension's own reason when it is not on.
pub fn wait_until_active(server: &mut Server) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let (state, reason) = state(server)?;
        match state.as_str() {
            state if is_on(state) => return Ok(()),
            // Disabled for a reason: it is being switched on.
            "disabled" if !reason.is_empty() && begin.elapsed() < BUILT_WITHIN => sleep(LOOK_EVERY),
            "" => return Err(Failure::step("the extension is not installed any more")),
            _ => return Err(Failure::step(format!("the extension is {state}: {reason}"))),
        }
    }
}
