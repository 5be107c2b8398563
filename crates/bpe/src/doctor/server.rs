//! The server itself: is its release known, can its calls be intercepted, how does it do I/O.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::elf::{self, Symbols};
use crate::failure::Failure;
use crate::process::Process;
use crate::server::{Flavour, Server, Support, support};
use crate::server_options::ServerOptions;

pub fn version(server: &Server) -> Finding {
    let name = format!("{} {}", server.flavour, server.version_text);
    match support(server.flavour, server.version) {
        Support::Tested => Finding::ok("server", format!("{name}, a tested series")),
        Support::Expected => Finding::warn(
            "server",
            format!("{name} is expected to work, but not tested by this project"),
        )
        .advise("try it on a replica first"),
        Support::No => Finding::fail("server", format!("{name} is not supported"))
            .advise("it takes MariaDB 10.6 or MySQL 8.0, or newer"),
    }
}

/// Whether InnoDB's calls go through the executable's imports, and its asynchronous I/O can be seen.
pub fn engine(server: &mut Server, process: &Process) -> Vec<Finding> {
    let mut findings = Vec::new();
    let library = server.value(
        "SELECT PLUGIN_LIBRARY FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'InnoDB'",
    );
    if let Ok(Some(library)) = library {
        findings.push(Finding::fail(
            "InnoDB",
            format!(
                "InnoDB is the plugin {library} here, not part of the server: the extension would \
                 stay passive"
            ),
        ));
        return findings;
    }
    let symbols = match Symbols::of(&process.executable()) {
        Ok(symbols) => symbols,
        Err(why) => {
            findings.push(
                Finding::warn(
                    "calls",
                    format!("the server's executable cannot be read: {why}"),
                )
                .advise("run `bpe doctor` with sudo"),
            );
            return findings;
        }
    };
    let native = on(server.variable("innodb_use_native_aio"));
    findings.push(calls(&symbols, native));
    if native {
        findings.push(asynchronous(&symbols, uses_io_uring(process)));
    } else {
        findings.push(Finding::ok(
            "async I/O",
            "innodb_use_native_aio is OFF: plain calls, all of which are seen",
        ));
    }
    if let Some(preload) = process.environment.get("LD_PRELOAD") {
        findings.push(Finding::warn(
            "calls",
            format!("other libraries are preloaded ({preload}); the extension chains to them"),
        ));
    }
    findings
}

fn calls(symbols: &Symbols, native_aio: bool) -> Finding {
    if symbols.imports.is_empty() {
        return Finding::fail(
            "calls",
            "the server is linked statically: its calls cannot be intercepted, the extension would \
             stay passive",
        )
        .advise("use a build that links the C library dynamically, as distributions do");
    }
    let mut missing = elf::missing(symbols);
    let found = elf::async_calls(symbols);
    if native_aio && !found.libaio && !found.io_uring {
        missing.push("io_submit and io_getevents");
    }
    if missing.is_empty() {
        return Finding::ok("calls", "all calls that must be intercepted are imported");
    }
    Finding::fail(
        "calls",
        format!(
            "the server does not import {}: the extension would stay passive",
            missing.join(", ")
        ),
    )
    .advise("use the server's build of your distribution, or innodb_use_native_aio=OFF if only io_* are missing")
}

fn asynchronous(symbols: &Symbols, uring_in_use: Option<bool>) -> Finding {
    let found = elf::async_calls(symbols);
    match (found.io_uring, found.libaio, uring_in_use) {
        (true, libaio, Some(true) | None) => {
            let seen = if uring_in_use.is_some() {
                "uses io_uring now"
            } else {
                "may use io_uring"
            };
            Finding::ok(
                "async I/O",
                format!(
                    "the server {seen}: on the running server only synchronous reads are served; \
                     after its next start it is made to use {}",
                    if libaio {
                        "libaio, and all are"
                    } else {
                        "plain calls, and all are"
                    }
                ),
            )
        }
        _ => Finding::ok("async I/O", "libaio: asynchronous reads are served, too"),
    }
}

/// Whether the process has an io_uring open; None when one may not look.
fn uses_io_uring(process: &Process) -> Option<bool> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.pid)).ok()?;
    Some(entries.flatten().any(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| target == Path::new("anon_inode:[io_uring]"))
    }))
}

/// How the plugin can be loaded, now and at the next start.
pub fn load_modes(server: &mut Server, process: &Process) -> Vec<Finding> {
    let mut findings = Vec::new();
    let options = ServerOptions::read(process, server.flavour, server.version);
    let early = match server.flavour {
        Flavour::MariaDb => "plugin_load_add",
        Flavour::MySql => "early-plugin-load",
    };
    findings.push(match options.snippet_folder() {
        Some(folder) => Finding::ok(
            "loading",
            format!(
                "at once on the running server; from its next start before InnoDB, by {early} in {}",
                folder.display()
            ),
        ),
        None => Finding::warn(
            "loading",
            "the server's option files include no folder, so nothing can be made permanent for you",
        )
        .advise(format!(
            "add an !includedir line to its option file, or write {early} there by hand as \
             `bpe enable` says"
        )),
    });
    if server.flavour == Flavour::MySql && !on(server.variable("persisted_globals_load")) {
        findings.push(
            Finding::warn(
                "loading",
                "persisted_globals_load is OFF: settings will not survive a restart",
            )
            .advise("switch it on, or write the settings into an option file"),
        );
    }
    if on(server.variable("super_read_only")) {
        findings.push(Finding::ok(
            "loading",
            "super_read_only is ON; `bpe enable` lifts it for a moment",
        ));
    }
    findings
}

fn on(value: Result<Option<String>, Failure>) -> bool {
    matches!(value.ok().flatten().as_deref(), Some("ON" | "1"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use object::Architecture;
    use std::collections::BTreeSet;

    fn importing(names: &[&str]) -> Symbols {
        Symbols {
            architecture: Architecture::X86_64,
            imports: names.iter().map(|&name| name.to_owned()).collect(),
            exports: BTreeSet::new(),
        }
    }

    const PLAIN: [&str; 9] = [
        "pread64",
        "pwrite64",
        "open64",
        "close",
        "ftruncate64",
        "fallocate64",
        "unlink",
        "rename",
        "fdatasync",
    ];

    #[test]
    fn native_aio_must_be_seen() {
        let without = importing(&PLAIN);
        assert_eq!(calls(&without, false).level, Level::Ok);
        let finding = calls(&without, true);
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.text.contains("io_submit"));
        assert!(calls(&importing(&[]), true).text.contains("statically"));
    }

    #[test]
    fn io_uring_in_use_is_told() {
        let mut names = PLAIN.to_vec();
        names.extend([
            "io_submit",
            "syscall",
            "io_uring_queue_init",
            "io_uring_submit",
        ]);
        let both = importing(&names);
        assert!(
            asynchronous(&both, Some(true))
                .text
                .contains("uses io_uring now")
        );
        assert!(asynchronous(&both, None).text.contains("may use io_uring"));
        assert!(asynchronous(&both, Some(false)).text.starts_with("libaio"));
    }
}
