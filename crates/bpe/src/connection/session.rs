//! A session with a server that is logged in to.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mysql::{Error, Row};

use super::protocol::{Bounds, Greeting, Protocol};
use super::stream::Wire;
use super::trust::Holder;

/// What an answer may be, where a statement says nothing else.
pub const BOUNDS: Bounds = Bounds {
    rows: 1 << 20,
    bytes: 64 << 20,
    time: Some(Duration::from_secs(600)),
};
/// For a statement that changes the server: shrinking a large pool takes minutes.
const LONG: Duration = Duration::from_secs(1800);
/// For the end of a session, whose server may hang.
const QUIT_LIMIT: Duration = Duration::from_secs(1);

pub struct Session {
    protocol: Protocol<Wire>,
    pub greeting: Greeting,
    /// The process of the server, as the peer of a Unix socket.
    pub holder: Option<Holder>,
    /// How long an answer is waited for; None: as long as its bounds allow.
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

    /// Runs a statement, and hands over each row.
    ///
    /// # Errors
    /// The server's own, a malformed answer, or one beyond its bounds.
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

    /// Runs a statement whose rows do not matter, and which may take long.
    ///
    /// # Errors
    /// As those of [`query`](Self::query).
    pub fn execute(&mut self, statement: &str) -> Result<(), Error> {
        let bounds = Bounds {
            time: Some(LONG),
            ..BOUNDS
        };
        self.query(statement, bounds, drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.protocol
            .set_deadline(Some(Instant::now() + QUIT_LIMIT));
        // The server notes a connection that ends without this.
        let _ = self.protocol.quit();
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.protocol.stream().as_fd()
    }
}
