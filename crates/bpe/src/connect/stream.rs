//! Connections with a time limit for each read and write, and TLS over them.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
pub use rustls::{ClientConfig, Error};

use super::protocol;
use super::socket_path::SocketPath;
use crate::support::files::read_bounded;

/// Maximum size of a certificate file in bytes; system files have about 200 KiB.
const MAX_CERTIFICATES: u64 = 16 << 20;
/// Keepalive time, which detects a vanished server during statements without a limit.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Certificate files of the system: Debian and Ubuntu, Red Hat, SUSE, Alpine.
const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A non-blocking socket, so that neither signals nor slow bytes prolong a limit.
pub struct Socket {
    fd: OwnedFd,
    deadline: Option<Instant>,
}

impl Socket {
    /// Connects to a Unix socket by its descriptor. Waits until the limit for a server that accepts no connection.
    ///
    /// # Errors
    /// The system's error.
    pub fn unix(place: &SocketPath, limit: Option<Duration>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, limit)?;
        let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
        let address = SocketAddrUnix::new(path)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address)).map_err(|error| {
            match error {
                Errno::AGAIN => io::ErrorKind::TimedOut.into(),
                error => io::Error::from(error),
            }
        })?;
        Self::of(fd)
    }

    /// # Errors
    /// The system's error for the last address of the host.
    pub fn tcp(host: &str, port: u16, limit: Duration) -> io::Result<Self> {
        let mut failure = io::ErrorKind::NotFound.into();
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    sockopt::set_socket_keepalive(&stream, true)?;
                    sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
                    return Self::of(stream.into());
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn of(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd, deadline: None })
    }

    fn wait(&self, event: PollFlags) -> io::Result<()> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let limit = self
            .deadline
            .and_then(|deadline| Timespec::try_from(left(deadline)).ok());
        match poll(&mut [PollFd::new(&self.fd, event)], limit.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Repeats a call until it is complete or the limit expires.
    fn until_done(
        &self,
        event: PollFlags,
        mut call: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        loop {
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match call(&self.fd) {
                Err(Errno::AGAIN) => self.wait(event)?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(PollFlags::IN, |fd| rustix::io::read(fd, &mut *buffer))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(PollFlags::OUT, |fd| {
            rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// With TLS or without.
pub enum Wire {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Wire {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Adds TLS to a connection. Returns after the certificate is verified.
    ///
    /// # Errors
    /// The certificate belongs to another host or an unknown authority, or the system's error.
    pub fn secured(self, host: &str, config: Arc<ClientConfig>) -> io::Result<Self> {
        let Self::Plain(socket) = self else {
            return Ok(self);
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let client = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = Box::new(StreamOwned::new(client, socket));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Tls(stream))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().fd.as_fd()
    }
}

impl protocol::Stream for Wire {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        match self {
            Self::Plain(socket) => socket.deadline = deadline,
            Self::Tls(stream) => stream.sock.deadline = deadline,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A TLS configuration that verifies the server's certificate by these authorities, or by those of the system.
///
/// # Errors
/// A message: there is no certificate of an authority.
pub fn tls_config(
    authorities: Option<&Path>,
    checks_name: bool,
) -> Result<Arc<ClientConfig>, String> {
    let file = match authorities {
        Some(file) => file.to_owned(),
        None => SYSTEM_CERTIFICATES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .ok_or("this system has no certificates of authorities")?,
    };
    let bytes = read_bounded(&file, MAX_CERTIFICATES)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).flatten());
    if roots.is_empty() {
        return Err(format!(
            "{} holds no certificate in PEM form",
            file.display()
        ));
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = if checks_name {
        config.with_webpki_verifier(verifier)
    } else {
        config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
    };
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Verifies a certificate except for the name: `VERIFY_CA`.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let verified = self
            .0
            .verify_server_cert(certificate, others, name, ocsp, now);
        match verified {
            // The name is checked last, after all other properties.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
