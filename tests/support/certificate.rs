//! A certificate for TLS on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::harness::skip;

/// Files in PEM form.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Signed by itself; without a section of its own, openssl would make it a certificate of an authority, which no server's
/// may be.
const CONFIGURATION: &str = "[req]
distinguished_name = name
x509_extensions = own
prompt = no
[name]
CN = localhost
[own]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1, DNS:localhost
";

impl Certificate {
    /// Makes one for 127.0.0.1 and localhost, good for two days, in the folder.
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let configuration = folder.join("certificate.cnf");
        fs::write(&configuration, CONFIGURATION)?;
        let made = Self {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
        };
        let output = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config"])
            .arg(&configuration)
            .arg("-out")
            .arg(&made.certificate)
            .arg("-keyout")
            .arg(&made.key)
            .stdin(Stdio::null())
            .output();
        match output {
            Err(_) => Err(skip("openssl is not installed: apt-get install openssl")),
            Ok(output) => {
                ensure!(output.status.success(), "{output:?}");
                Ok(made)
            }
        }
    }
}
