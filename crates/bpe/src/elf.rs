//! What an executable or library imports and exports, from its dynamic symbol table.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Architecture, Object, ObjectSymbol};

/// The dynamic symbols of one ELF file.
#[derive(Debug)]
pub struct Symbols {
    pub architecture: Architecture,
    pub imports: BTreeSet<String>,
    pub exports: BTreeSet<String>,
}

impl Symbols {
    /// Reads only the tables, not the whole file.
    ///
    /// # Errors
    /// A text: cannot be opened, or is not an ELF file with symbols one can read.
    pub fn of(path: &Path) -> Result<Self, String> {
        let file =
            File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache)
            .map_err(|error| format!("{} is no ELF file: {error}", path.display()))?;
        let mut symbols = Self {
            architecture: object.architecture(),
            imports: BTreeSet::new(),
            exports: BTreeSet::new(),
        };
        for symbol in object.dynamic_symbols() {
            let Ok(name) = symbol.name() else { continue };
            if name.is_empty() {
                continue;
            }
            if symbol.is_undefined() {
                symbols.imports.insert(name.to_owned());
            } else {
                symbols.exports.insert(name.to_owned());
            }
        }
        Ok(symbols)
    }

    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.imports.contains(*name))
    }
}

/// Calls of which every one must be interceptable, each under any of its names. Without one of
/// them a write or truncation could go unseen, so the extension would stay passive.
const REQUIRED: [&[&str]; 9] = [
    &["pread64", "pread", "__pread64_chk", "__pread_chk"],
    &["pwrite64", "pwrite"],
    &["open64", "open", "__open64_2", "__open_2"],
    &["close"],
    &["ftruncate64", "ftruncate"],
    &["fallocate64", "fallocate"],
    &["unlink", "remove", "unlinkat"],
    &["rename", "renameat"],
    &["fsync", "fdatasync"],
];

/// How a server can do asynchronous I/O, by its imports.
#[derive(Debug, PartialEq, Eq)]
pub struct AsyncCalls {
    pub libaio: bool,
    pub io_uring: bool,
}

/// The first name of each required call that `symbols` does not import.
pub fn missing(symbols: &Symbols) -> Vec<&'static str> {
    REQUIRED
        .iter()
        .filter(|names| !symbols.any(names))
        .map(|names| names[0])
        .collect()
}

/// Which kinds of asynchronous I/O can be seen.
pub fn async_calls(symbols: &Symbols) -> AsyncCalls {
    AsyncCalls {
        // MariaDB harvests by syscall(SYS_io_getevents).
        libaio: symbols.any(&["io_submit"]) && symbols.any(&["io_getevents", "syscall"]),
        io_uring: symbols.any(&["io_uring_queue_init"]) && symbols.any(&["io_uring_submit"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn importing(names: &[&str]) -> Symbols {
        Symbols {
            architecture: Architecture::X86_64,
            imports: names.iter().map(|&name| name.to_owned()).collect(),
            exports: BTreeSet::new(),
        }
    }

    const SERVER: [&str; 12] = [
        "pread64",
        "pwrite64",
        "open64",
        "close",
        "ftruncate64",
        "fallocate64",
        "unlink",
        "rename",
        "fdatasync",
        "io_setup",
        "io_submit",
        "syscall",
    ];

    #[test]
    fn a_whole_server_misses_nothing() {
        let symbols = importing(&SERVER);
        assert!(missing(&symbols).is_empty());
        assert_eq!(
            async_calls(&symbols),
            AsyncCalls {
                libaio: true,
                io_uring: false
            }
        );
    }

    #[test]
    fn each_missing_call_is_named() {
        for left_out in &SERVER[..9] {
            let rest: Vec<_> = SERVER.into_iter().filter(|name| name != left_out).collect();
            let wanted = if *left_out == "fdatasync" {
                "fsync"
            } else {
                left_out
            };
            assert_eq!(missing(&importing(&rest)), [wanted]);
        }
    }

    #[test]
    fn names_without_64_do_as_well() {
        let names: Vec<_> = SERVER
            .iter()
            .map(|name| name.trim_end_matches("64"))
            .collect();
        assert!(missing(&importing(&names)).is_empty());
    }

    #[test]
    fn submitting_without_harvesting_is_not_enough() {
        let symbols = importing(&["io_submit"]);
        assert!(!async_calls(&symbols).libaio);
    }

    #[test]
    fn this_test_program_can_be_read() {
        let own = Symbols::of(Path::new("/proc/self/exe")).unwrap();
        assert!(own.imports.contains("close"), "{:?}", own.imports);
        assert!(Symbols::of(Path::new("/etc/passwd")).is_err());
    }
}
