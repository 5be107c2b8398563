//! Logging in over a Unix socket with a limit, whatever state the server is in.
//!
//! connect(2) waits without a limit for room in the queue of a server that takes nobody in: it is stopped, say, and its
//! applications have filled the queue. The library knows a limit only for what comes after. So a thread of its own logs in,
//! and where it takes too long, nobody waits for it any more. It ends when the server goes on, or ends itself; what it then
//! has is closed properly. To look whether there is room in the queue, as another way, would take a connection without a
//! login each time, of which servers warn in their error logs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

/// Threads that may be stuck for one socket; then it is not tried again until one of them is through.
const MOST_STUCK: usize = 4;

/// What lives as long as each thread that nobody waits for any more, by socket. A leaf among the locks.
static STUCK: Mutex<BTreeMap<PathBuf, Vec<Weak<()>>>> = Mutex::new(BTreeMap::new());

/// Does it in a thread, and waits so long for the result.
///
/// # Errors
/// It took too long, earlier ones are stuck still, or there was no thread, in words.
pub fn log_in<T: Send + 'static>(
    socket: &Path,
    limit: Duration,
    log_in: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    if stuck(socket, None) >= MOST_STUCK {
        return Err(
            "several attempts took too long; the next one starts when one of them has ended"
                .to_owned(),
        );
    }
    let alive = Arc::new(());
    let mark = Arc::downgrade(&alive);
    let (result, results) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("login".into())
        .spawn(move || {
            let _alive = alive;
            // Where nobody waits any more, it is dropped.
            let _ = result.send(log_in());
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    results.recv_timeout(limit).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => {
            stuck(socket, Some(mark));
            "it took too long".to_owned()
        }
        mpsc::RecvTimeoutError::Disconnected => "the thread for it failed".to_owned(),
    })
}

/// How many threads are stuck for this socket, with one more or without.
fn stuck(socket: &Path, one_more: Option<Weak<()>>) -> usize {
    let mut all = STUCK.lock().unwrap_or_else(|e| e.into_inner());
    for marks in all.values_mut() {
        marks.retain(|mark| mark.strong_count() > 0);
    }
    all.retain(|_, marks| !marks.is_empty());
    if let Some(mark) = one_more {
        all.entry(socket.to_owned()).or_default().push(mark);
    }
    all.get(socket).map_or(0, Vec::len)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::connection::Args;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A socket in whose queue there is no room, as long as both are kept.
    pub fn full(socket: &Path) -> (UnixListener, UnixStream) {
        let listener = UnixListener::bind(socket).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = UnixStream::connect(socket).unwrap();
        (listener, first)
    }

    #[test]
    fn a_full_queue_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let kept = full(&path);
        let args = Args {
            socket: Some(path.display().to_string()),
            no_defaults: true,
            ..Args::default()
        };
        let mut target = args.target().unwrap();
        let mut failure = || {
            let failure = target.connect(Some(Duration::from_millis(50)));
            failure.map(drop).unwrap_err().what
        };
        for _ in 0..MOST_STUCK {
            let what = failure();
            assert!(what.ends_with("it took too long"), "{what}");
        }
        let what = failure();
        assert!(what.contains("several attempts"), "{what}");
        // Others are not kept from theirs.
        assert_eq!(
            log_in(Path::new("/other"), Duration::from_secs(60), || 1),
            Ok(1)
        );
        // They end with the server, and it is tried again.
        drop(kept);
        while stuck(&path, None) > 0 {
            std::thread::yield_now();
        }
        let what = failure();
        assert!(what.contains("refused"), "{what}");
    }
}
