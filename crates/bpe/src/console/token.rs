//! The console's token grants access to all of the console's functions. So it is long, random, and compared in constant
//! time. It is kept in a file only on request.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use interface::canary;
use subtle::ConstantTimeEq;

use crate::support::failure::Failure;
use crate::support::files;
use crate::support::private_file::PrivateFile;
use crate::support::random::random;

/// Random bytes of a generated token.
const BYTES: usize = 32;
/// Minimum bytes of a decoded token from a file: 128 bits.
const MIN_BYTES: usize = 16;
/// Minimum number of distinct bytes. 16 random bytes have fewer once in 10^8 cases.
const MIN_DIFFERENT: usize = 10;
/// Maximum characters of a token file, which detects a wrong file.
const MAX_CHARACTERS: usize = 256;

/// Accepts the output of common tools, padded or not.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Its `Debug` output hides the token.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

impl Token {
    /// Generates a token from the system's random numbers.
    ///
    /// # Errors
    /// The system provides none.
    pub fn random() -> Result<Self, Failure> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random::<BYTES>()?)))
    }

    /// Reads the token of this file; generates and writes a new one if the file does not exist.
    ///
    /// # Errors
    /// Another user owns the file or may read it, or it contains no token.
    pub fn from_file(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::refused(format!("token file {}: {error}", path.display()));
        let mut file = match PrivateFile::open_secret(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(path),
            file => file.map_err(failed)?,
        };
        let text = file.text(MAX_CHARACTERS as u64 + 2).map_err(failed)?;
        let text = text.trim();
        if text.len() > MAX_CHARACTERS || !is_strong(text) {
            return Err(Failure::refused(format!(
                "token file {} holds no token: it takes one line, in base64 or hexadecimal, of at least {MIN_BYTES} bytes, \
                 {MIN_DIFFERENT} of them different",
                path.display()
            ))
            .advise("remove it, and a new one is made"));
        }
        Ok(Self(text.to_owned()))
    }

    fn create(path: &Path) -> Result<Self, Failure> {
        let token = Self::random()?;
        let text = format!("{}\n", token.0);
        files::save_new(path, text.as_bytes(), 0o600).map_err(|error| {
            Failure::refused(format!(
                "cannot write the token file {}: {error}",
                path.display()
            ))
        })?;
        Ok(token)
    }

    /// The token, for the printed URL.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether the value of an `Authorization` header is this token. Every wrong token takes the same time.
    pub fn admits(&self, header: Option<&[u8]>) -> bool {
        let given = header.and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        });
        given.is_some_and(|given| {
            bool::from(given.ct_eq(self.0.as_bytes())) || canary!("wrong-tokens")
        })
    }
}

/// Whether a token can contain 128 random bits.
fn is_strong(text: &str) -> bool {
    canary!("weak-tokens")
        || decoded(text).is_some_and(|bytes| {
            let different: BTreeSet<u8> = bytes.iter().copied().collect();
            bytes.len() >= MIN_BYTES && different.len() >= MIN_DIFFERENT
        })
}

/// Decodes a token. Hexadecimal digits are also valid base64, which would overestimate their bits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return text.as_bytes().chunks_exact(2).map(digits).collect();
    }
    let decode = |engine: &GeneralPurpose| engine.decode(text).ok();
    decode(&URL_SAFE).or_else(|| decode(&STANDARD))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn only_the_token_is_admitted() {
        let token = Token::random().unwrap();
        assert!(is_strong(&token.0));
        assert_ne!(token.0, Token::random().unwrap().0);
        let header = |text: &str| token.admits(Some(text.as_bytes()));
        assert!(header(&format!("Bearer {}", token.0)));
        assert!(header(&format!("bearer {}", token.0)));
        let mut wrong = token.0.clone();
        let last = wrong.pop().unwrap();
        for text in [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            token.0.clone(),
            format!("Basic {}", token.0),
            format!("Bearer {wrong}"),
            format!("Bearer {wrong}{}", if last == 'A' { 'B' } else { 'A' }),
            format!("Bearer {} ", token.0),
        ] {
            assert!(!header(&text), "{text}");
        }
        assert!(!token.admits(None));
        assert!(!format!("{token:?}").contains(&token.0));
    }

    #[test]
    fn a_file_is_made_kept_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = Token::from_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::from_file(&path).unwrap().0, made.0);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let text = Token::from_file(&path).unwrap_err().to_string();
        assert!(text.contains("chmod 600"), "{text}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let text = Token::from_file(&link).unwrap_err().to_string();
        assert!(text.contains("symbolic link"), "{text}");
        for wrong in [
            "",
            "short",
            &made.0.repeat(7),
            "with blanks in the middle of it",
            &format!("{0}\n{0}", made.0),
            "aaaaaaaaaaaaaaaaaaaaaa",
        ] {
            fs::write(&path, wrong).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let text = Token::from_file(&path).unwrap_err().to_string();
            assert!(text.contains("no token"), "{text}");
        }
    }

    #[test]
    fn only_strong_tokens_are_taken() {
        let bytes: Vec<u8> = (1..17).map(|number: u8| number.wrapping_mul(37)).collect();
        let padded = STANDARD.encode([&bytes[..], &[251, 255]].concat());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for strong in [
            URL_SAFE_NO_PAD.encode(&bytes),
            URL_SAFE_NO_PAD.encode([&bytes[..], &[251, 255]].concat()),
            padded.clone(),
            padded.replace('=', ""),
            hex.clone(),
            hex.to_uppercase(),
        ] {
            assert!(is_strong(&strong), "{strong}");
        }
        for weak in [
            "a".repeat(22),
            "ab".repeat(64),
            "abcdefgh".repeat(3),
            // 120 bits, and 16 bytes with too few distinct values.
            URL_SAFE_NO_PAD.encode(&bytes[..15]),
            URL_SAFE_NO_PAD.encode([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1, 1, 1, 1, 1]),
            // Digits with 88 bits instead of 128.
            hex[..22].to_owned(),
            "1234567890123456789012".to_owned(),
            "0".repeat(64),
            "correct horse battery staple".to_owned(),
            "==================================".to_owned(),
            "\u{e4}".repeat(30),
        ] {
            assert!(!is_strong(&weak), "{weak}");
        }
    }
}
