//! The console over TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::certificate::Certificate;
use integration_tests::harness::Outcome;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::open;

/// A client that knows the certificate, as a browser that was told of it.
fn client(made: &Certificate) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&made.certificate)?)?;
    Ok(Arc::new(
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth(),
    ))
}

pub fn only_tls_is_answered() -> Outcome {
    let folder = tempfile::tempdir()?;
    let made = Certificate::make(folder.path())?;
    let certificate = made.certificate.display().to_string();
    let key = made.key.display().to_string();
    let nobody = folder.path().join("no.sock");
    let console = open(
        folder.path(),
        &nobody,
        &["--tls-cert", &certificate, "--tls-key", &key],
    )?;
    let config = client(&made)?;
    let ask = |path: &str, more: &str| -> anyhow::Result<String> {
        let name = ServerName::try_from("127.0.0.1")?;
        let session = ClientConnection::new(Arc::clone(&config), name)?;
        let tcp = TcpStream::connect(console.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut stream = StreamOwned::new(session, tcp);
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\n{more}\r\n",
            console.address
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let bearer = format!("Authorization: {}\r\n", console.bearer());
    let answer = ask("/api/about", &bearer)?;
    ensure!(
        answer.starts_with("HTTP/1.0 200") && answer.contains("\"version\""),
        "{answer}"
    );
    // Its own pages have an address with https.
    let own = format!("{bearer}Origin: https://{}\r\n", console.address);
    ensure!(ask("/api/about", &own)?.starts_with("HTTP/1.0 200"));
    let plain = format!("{bearer}Origin: http://{}\r\n", console.address);
    ensure!(ask("/api/about", &plain)?.starts_with("HTTP/1.0 403"));
    ensure!(ask("/api/about", "")?.starts_with("HTTP/1.0 401"));
    ensure!(
        ask("/", "")?
            .to_ascii_lowercase()
            .contains("content-security-policy:")
    );

    // Without TLS not even what there is.
    for path in ["/", "/api/about"] {
        let mut stream = TcpStream::connect(console.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\n{bearer}\r\n",
            console.address
        );
        // It may be hung up on at any time.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        ensure!(
            !answer.windows(5).any(|part| part == b"HTTP/"),
            "{answer:?}"
        );
    }
    // One that does not know the certificate is not talked into it.
    let strange = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(strange), ServerName::try_from("127.0.0.1")?)?;
    let mut stream = StreamOwned::new(session, TcpStream::connect(console.address)?);
    let refused = stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .err()
        .context("it was taken")?;
    ensure!(refused.to_string().contains("certificate"), "{refused}");

    // A key that is another certificate's is told from the beginning.
    let other = tempfile::tempdir()?;
    let other = Certificate::make(other.path())?.key.display().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args([
            "console",
            "--listen=127.0.0.1:0",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &other,
        ])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && text.contains("cannot be used"),
        "{text}"
    );
    Ok(())
}
