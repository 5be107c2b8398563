//! A session with a server after the login.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mysql::{Error, Row};

use super::protocol::{Bounds, Greeting, Protocol};
use super::stream::Wire;
use super::trust::Holder;

/// Default bounds of an answer.
pub const BOUNDS: Bounds = Bounds {
    rows: 1 << 20,
    bytes: 64 << 20,
    time: Some(Duration::from_secs(600)),
};
/// Time limit for a statement that changes the server; shrinking a large pool takes minutes.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(1800);
/// Time limit for closing a session, because the server may hang.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Session {
    protocol: Protocol<Wire>,
    pub greeting: Greeting,
    /// The process of the server, as the peer of a Unix socket.
    pub holder: Option<Holder>,
    /// Answer timeout; `None` applies only the bounds of the answer.
    pub limit: Option<Duration>,
}

impl Session {
    pub fn new(protocol: Protocol<Wire>, greeting: Greeting, holder: Option<Holder>) -> Self {
        Self {
            protocol,
            greeting,
            holder,
            limit: None,
        }
    }

    /// Runs a statement, and passes each row to the caller.
    ///
    /// # Errors
    /// The server's own error, a malformed answer, or one that exceeds its bounds.
    pub fn query(
        &mut self,
        statement: &str,
        bounds: Bounds,
        each: impl FnMut(Row),
    ) -> Result<(), Error> {
        let time = self.limit.or(bounds.time);
        self.protocol
            .query(statement, Bounds { time, ..bounds }, each)
    }

    /// Runs a statement that may take long, and discards its rows.
    ///
    /// # Errors
    /// As in [`query`](Self::query).
    pub fn execute(&mut self, statement: &str) -> Result<(), Error> {
        let bounds = Bounds {
            time: Some(STATEMENT_TIMEOUT),
            ..BOUNDS
        };
        self.query(statement, bounds, drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.protocol
            .set_deadline(Some(Instant::now() + QUIT_TIMEOUT));
        // The server logs a connection that ends without this packet.
        let _ = self.protocol.quit();
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.protocol.stream().as_fd()
    }
}
