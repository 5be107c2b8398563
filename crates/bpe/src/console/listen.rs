//! The console's socket: with TLS or without, never more connections than it can bear, and none for those who ask
//! nothing.

use std::fs;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::failure::Failure;

/// Connections at a time. Further ones wait in the kernel's queue.
const CONNECTIONS: usize = 256;
/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Who has not sent the head of a request after so long, the first or a further one, has to come again: otherwise a few
/// hundred silent connections would keep everybody else out.
pub const HEAD: Duration = Duration::from_secs(10);
/// Nor does anybody keep a place who reads nothing of an answer for so long.
const UNREAD: Duration = Duration::from_secs(30);
/// After the system has refused a connection (too many open files), so that the loop does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Where callers come in.
pub struct Door {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
    handshakes: JoinSet<Option<Caller>>,
}

impl Door {
    pub fn new(tcp: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        Self {
            tcp,
            tls,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            handshakes: JoinSet::new(),
        }
    }
}

/// A connection, and its place among those there may be.
struct Caller {
    stream: Stream,
    place: OwnedSemaphorePermit,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Answers every caller, for ever. `head`: how long the head of a request may take.
pub async fn serve(door: Door, router: Router, head: Duration) {
    serve_within(door, router, head, UNREAD).await;
}

/// `unread`: how long a caller may read nothing of its answer.
async fn serve_within(mut door: Door, router: Router, head: Duration, unread: Duration) {
    loop {
        let Caller { stream, place } = door.accept().await;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(unread));
            let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
            http.http1()
                .timer(TokioTimer::new())
                .header_read_timeout(head);
            // It fails when the caller goes away or does not speak HTTP, which is nobody's concern.
            let stream = TokioIo::new(Box::pin(stream));
            let _ = http.serve_connection(stream, service).await;
        });
    }
}

impl Door {
    async fn accept(&mut self) -> Caller {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(caller)) = done {
                        return caller;
                    }
                }
                (stream, place) = next(&self.tcp, &self.room) => {
                    let Some(tls) = self.tls.clone() else {
                        return Caller { stream: Stream::Plain(stream), place };
                    };
                    // Beside the others, so that nobody has to wait for one who does not finish it.
                    self.handshakes.spawn(async move {
                        let done = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
                        let stream = Stream::Tls(Box::new(done.ok()?.ok()?));
                        Some(Caller { stream, place })
                    });
                }
            }
        }
    }
}

async fn next(tcp: &TcpListener, room: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        // The semaphore is never closed.
        if let Ok(place) = Arc::clone(room).acquire_owned().await {
            if let Ok((stream, _)) = tcp.accept().await {
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// TLS with the certificates and the key of these PEM files.
///
/// # Errors
/// When a file cannot be read, holds something else, or the key does not belong to the certificate.
pub fn tls(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| Failure::refused(format!("cannot read {}: {error}", path.display())))
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if chain.is_empty() {
        return Err(Failure::refused(format!(
            "{} holds no certificate in PEM form",
            certificate.display()
        )));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| {
        Failure::refused(format!(
            "{} holds no private key in PEM form",
            key.display()
        ))
    })?;
    let wrong = |error: tokio_rustls::rustls::Error| {
        Failure::refused(format!(
            "{} and {} cannot be used: {error}",
            certificate.display(),
            key.display()
        ))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(wrong)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;

    const SHORT: Duration = Duration::from_millis(100);

    /// A server with an address, whose one answer takes longer than a head may, and whose other never ends.
    fn start() -> SocketAddr {
        let slow = async || {
            Body::from_stream(stream::unfold(0, async |number| {
                tokio::time::sleep(SHORT).await;
                (number < 5).then(|| (Ok::<_, io::Error>(format!("line {number}\n")), number + 1))
            }))
        };
        let endless = async || {
            Body::from_stream(stream::repeat_with(|| {
                Ok::<_, io::Error>(vec![b'x'; 1 << 16])
            }))
        };
        let router = Router::new()
            .route("/slow", get(slow))
            .route("/endless", get(endless));
        let (sender, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(tcp.local_addr().unwrap()).unwrap();
                serve_within(Door::new(tcp, None), router, SHORT, SHORT).await;
            });
        });
        address.recv().unwrap()
    }

    /// What comes until the connection is closed by the other side.
    fn say(address: SocketAddr, text: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn who_says_nothing_is_shown_out() {
        let address = start();
        assert_eq!(say(address, ""), "");
        assert!(!say(address, "GET / HTTP/1.1\r\nHost: a\r\n").contains("200"));
        // The connection is kept for a further request, but not for long.
        let answer = say(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }

    #[test]
    fn who_reads_nothing_is_shown_out() {
        let mut stream = std::net::TcpStream::connect(start()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        write!(stream, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::thread::sleep(SHORT * 10);
        // What the kernel has taken meanwhile, and then the end.
        const MUCH: usize = 256 << 20;
        let mut answer = Vec::new();
        let _ = stream.take(MUCH as u64).read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() < MUCH);
    }

    #[test]
    fn an_answer_may_take_its_time() {
        let answer = say(start(), "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("line 4"),
            "{answer}"
        );
    }
}
