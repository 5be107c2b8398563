//! Replaces a known server with another one, to try the plugin with a series or build without tests.
//!
//! `BPE_SERVER_MARIADB_11_8=FOLDER` makes [`crate::Flavour::MariaDb118`] the server in that directory, of any version.
//! The directory is an unpacked tarball (`bin/mariadbd`), or a root with a system (`usr/sbin/mariadbd`), whose own
//! dynamic loader runs the server.

use std::path::{Path, PathBuf};

/// The environment variable for a server with this name, such as `mariadb-11.8`.
pub fn variable(name: &str) -> String {
    let word = name.to_ascii_uppercase().replace(['-', '.'], "_");
    format!("BPE_SERVER_{word}")
}

/// Location of a server program in a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// In a root; its program.
    Root(PathBuf),
    /// In an unpacked tarball; its program.
    Base(PathBuf),
}

/// The server program `name` (`mariadbd`, `mysqld`) in `folder`.
///
/// # Errors
/// The searched locations.
pub fn program(folder: &Path, name: &str) -> Result<Found, String> {
    let in_root = ["usr/sbin", "usr/libexec"].map(|sub| folder.join(sub).join(name));
    let in_base = ["bin", "sbin"].map(|sub| folder.join(sub).join(name));
    if let Some(program) = in_root.iter().find(|program| program.is_file()) {
        return Ok(Found::Root(program.clone()));
    }
    if let Some(program) = in_base.iter().find(|program| program.is_file()) {
        return Ok(Found::Base(program.clone()));
    }
    Err(format!(
        "{} has neither usr/sbin/{name} nor bin/{name}",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_variable_is_made_of_the_name() {
        assert_eq!(variable("mariadb-11.8"), "BPE_SERVER_MARIADB_11_8");
        assert_eq!(
            variable("mariadb-11.4-upstream"),
            "BPE_SERVER_MARIADB_11_4_UPSTREAM"
        );
    }

    #[test]
    fn a_root_and_a_tarball_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let missing = program(folder, "mysqld").unwrap_err();
        assert!(missing.contains("usr/sbin/mysqld"), "{missing}");
        for (sub, found) in [
            ("bin", Found::Base as fn(_) -> _),
            ("usr/sbin", Found::Root),
        ] {
            fs::create_dir_all(folder.join(sub)).unwrap();
            let path = folder.join(sub).join("mysqld");
            fs::write(&path, "").unwrap();
            assert_eq!(program(folder, "mysqld"), Ok(found(path)));
        }
        assert!(program(folder, "mariadbd").is_err());
    }
}
