//! The library `bpe.so`: its search path, and its copy in the server's `plugin_dir`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::Architecture;

use crate::connect::server::Flavour;
use crate::support::elf::Symbols;
use crate::support::failure::Failure;
use crate::support::files::read_bounded;

/// Its name in `plugin_dir`.
pub const FILE_NAME: &str = "bpe.so";

/// Finds the library: as given by the user, beside the command (a build writes it there under either name), or in the
/// directory of a package.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return fs::canonicalize(path).map_err(|error| {
            Failure::usage(format!("cannot read --library {}: {error}", path.display()))
        });
    }
    let mut candidates = Vec::new();
    if let Ok(command) = std::env::current_exe() {
        if let Some(folder) = command.parent() {
            candidates.push(folder.join(FILE_NAME));
            candidates.push(folder.join("libbpe_plugin.so"));
            if let Some(prefix) = folder.parent() {
                candidates.push(prefix.join("lib/innodb-bpe").join(FILE_NAME));
            }
        }
    }
    candidates.push(Path::new("/usr/lib/innodb-bpe").join(FILE_NAME));
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let places: Vec<_> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Failure::refused(format!("bpe.so was not found ({})", places.join(", ")))
                .advise("install the package innodb-bpe; if this server has another plugin_dir, name the package's library with --library")
        })
}

/// Whether this file is our plugin for this product and architecture.
pub fn check(path: &Path, flavour: Flavour, server: Option<Architecture>) -> Result<(), String> {
    let symbols = Symbols::of(path)?;
    let declaration = match flavour {
        Flavour::MySql => "_mysql_plugin_declarations_",
        Flavour::MariaDb => "_maria_plugin_declarations_",
    };
    if !symbols.exports.contains(declaration) || !symbols.exports.contains("bpe_report") {
        return Err(format!(
            "{} is not the extension's plugin for {flavour}",
            path.display()
        ));
    }
    match server {
        Some(wanted) if wanted != symbols.architecture => Err(format!(
            "{} is built for {:?}, the server is {wanted:?}",
            path.display(),
            symbols.architecture
        )),
        _ => Ok(()),
    }
}

/// Maximum size of a library in bytes; with debug information it has about 200 MiB.
const MAX_BYTES: u64 = 1 << 30;

/// Reads the library for copying.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_are_refused() {
        let own = Path::new("/proc/self/exe");
        let error = check(own, Flavour::MariaDb, None).unwrap_err();
        assert!(error.contains("not the extension's plugin"), "{error}");
    }
}
