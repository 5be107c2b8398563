//! The console's token: who has it may do everything the console can do, so it is long, random, compared in constant
//! time, and kept in a file only when that was wished.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

use crate::diagnostics::random;
use crate::failure::Failure;
use crate::files;
use crate::private_file::PrivateFile;
use crate::quote::shell_path;

/// Random bytes of a token that is made here.
const BYTES: usize = 32;
/// The least a token from a file must have: 128 bits in base64.
const LEAST: usize = 22;
/// The most, so that a wrong file is noticed.
const MOST: usize = 256;

/// Not printed by `{:?}`.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<hidden>")
    }
}

impl Token {
    /// A new one from the system's random numbers.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn random() -> Result<Self, Failure> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random::<BYTES>()?)))
    }

    /// The one in this file; a new one is written there when the file does not exist.
    ///
    /// # Errors
    /// When others may read the file or it is another user's, or what it holds is no token.
    pub fn from_file(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::refused(format!("token file {}: {error}", path.display()));
        let mut file = match PrivateFile::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(path),
            file => file.map_err(failed)?,
        };
        if file.is_open_to_others() {
            return Err(Failure::refused(format!(
                "token file {} can be read by others (mode {:o})",
                path.display(),
                file.mode()
            ))
            .advise(format!("chmod 600 {}", shell_path(path))));
        }
        let text = file.text(MOST as u64 + 2).map_err(failed)?;
        let text = text.trim();
        let fits = (LEAST..=MOST).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if !fits {
            return Err(Failure::refused(format!(
                "token file {} holds no token: it takes one line of {LEAST} to {MOST} letters, digits and -._~+/=",
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

    /// For the address that is printed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether the value of an `Authorization` header is this token. Takes the same time for every wrong one.
    pub fn admits(&self, header: Option<&[u8]>) -> bool {
        let given = header.and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        });
        given.is_some_and(|given| bool::from(given.ct_eq(self.0.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn only_the_token_is_admitted() {
        let token = Token::random().unwrap();
        assert!(token.0.len() >= LEAST);
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
            &"x".repeat(300),
            "with blanks in the middle of it",
        ] {
            fs::write(&path, wrong).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let text = Token::from_file(&path).unwrap_err().to_string();
            assert!(text.contains("no token"), "{text}");
        }
    }
}
