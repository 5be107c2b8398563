//! State of a server's extension, as it reports it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Time limit for creating the cache. Slightly longer than the extension waits for the cache files of the previous process.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// `Bpe_state` and its reason; both empty if the plugin is not installed.
pub fn state(server: &mut Server) -> Result<(String, String), Failure> {
    let mut status = server.status("bpe\\_state%")?;
    let mut text = |name: &str| status.remove(name).unwrap_or_default();
    Ok((text("bpe_state"), text("bpe_state_reason")))
}

/// Whether a cache is kept current. A bypassed cache is, although it serves no reads.
pub fn is_on(state: &str) -> bool {
    matches!(state, "active" | "bypass")
}

/// Waits until the extension is on. Call once `bpe_enabled` is ON. A server with the extension in its configuration may
/// be creating or rebuilding the cache at that time.
///
/// # Errors
/// The extension is not on; contains its own reason.
pub fn wait_until_active(server: &mut Server) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let (state, reason) = state(server)?;
        match state.as_str() {
            state if is_on(state) => return Ok(()),
            // Disabled with a reason: switching on is in progress.
            "disabled" if !reason.is_empty() && begin.elapsed() < BUILD_TIMEOUT => {
                sleep(POLL_INTERVAL)
            }
            "" => return Err(Failure::step("the extension is not installed any more")),
            _ => return Err(Failure::step(format!("the extension is {state}: {reason}"))),
        }
    }
}
