//! The console's socket: with TLS or without, and never more connections than it can bear.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
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
/// After the system has refused a connection (too many open files), so that the loop does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts callers.
pub struct Door {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
    handshakes: JoinSet<Option<(Caller, SocketAddr)>>,
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
pub struct Caller {
    stream: Stream,
    _place: OwnedSemaphorePermit,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Listener for Door {
    type Io = Caller;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Caller, SocketAddr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(caller)) = done {
                        return caller;
                    }
                }
                (stream, address, place) = next(&self.tcp, &self.room) => {
                    let Some(tls) = self.tls.clone() else {
                        return (Caller { stream: Stream::Plain(stream), _place: place }, address);
                    };
                    // Beside the others, so that nobody has to wait for one who does not finish it.
                    self.handshakes.spawn(async move {
                        let done = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
                        let stream = Stream::Tls(Box::new(done.ok()?.ok()?));
                        Some((Caller { stream, _place: place }, address))
                    });
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn next(
    tcp: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        // The semaphore is never closed.
        if let Ok(place) = Arc::clone(room).acquire_owned().await {
            if let Ok((stream, address)) = tcp.accept().await {
                let _ = stream.set_nodelay(true);
                return (stream, address, place);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
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
