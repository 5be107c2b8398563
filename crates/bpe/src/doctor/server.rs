//! The server: support of its release, interception of its calls, and I/O method.

use interface::{Verdict, Way};

use super::finding::Finding;
use crate::change::enable::snippet_folder;
use crate::compare::{TIMEOUT, timeout_in_force};
use crate::connect::process::Process;
use crate::connect::server::{Flavour, Server, Support, support};
use crate::connect::state::state;
use crate::installation::interception::{self, Answer};
use crate::installation::server_options::{SNIPPET, ServerOptions};
use crate::support::failure::Failure;

pub fn version(server: &Server) -> Finding {
    let name = format!("{} {}", server.flavour, server.version_text);
    match support(server.flavour, server.version) {
        Support::Tested => Finding::ok("server", format!("{name}, a tested series")),
        Support::Expected => Finding::warn(
            "server",
            format!(
                "{name} is expected to work, but this project does not test its series regularly"
            ),
        )
        .advise("try it on a replica first"),
        Support::No => Finding::fail("server", format!("{name} is not supported"))
            .advise("MariaDB 10.5 or MySQL 8.0, or newer, is required"),
    }
}

/// Whether InnoDB's calls use the executable's imports, and whether the hooks see its asynchronous I/O.
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
    let answer = match interception::of(server, process) {
        Ok(answer) => answer,
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
    findings.push(calls(&answer));
    if let Answer::Works(verdict) = &answer {
        if interception::native_aio(server) {
            findings.push(asynchronous(verdict, interception::uses_io_uring(process)));
        } else {
            findings.push(Finding::ok(
                "async I/O",
                "innodb_use_native_aio is OFF: plain calls, all of which are seen",
            ));
        }
    }
    if let Some(preload) = process.environment.get("LD_PRELOAD") {
        findings.push(Finding::warn(
            "calls",
            format!("other libraries are preloaded ({preload}); the extension chains to them"),
        ));
    }
    findings
}

/// Reports an extension that is bypassed on purpose, and when the bypass ends.
pub fn bypass(server: &mut Server) -> Vec<Finding> {
    let is_bypassed = state(server).is_ok_and(|(state, _)| state == "bypass");
    let bypassed = is_bypassed.then(|| {
        Finding::warn(
            "bypass",
            "the extension is bypassed: reads go to the data files, so nothing is gained now",
        )
        .advise("SET GLOBAL bpe_bypass = OFF serves them again")
    });
    let ends = timeout_in_force(server).map(|seconds| {
        Finding::ok(
            "bypass",
            format!("{TIMEOUT} is {seconds}: whoever sets bpe_bypass, it ends by itself after so many seconds"),
        )
        .advise(format!(
            "if nobody wants that, a comparison that was killed has left it: SET GLOBAL {TIMEOUT} = 0"
        ))
    });
    bypassed.into_iter().chain(ends).collect()
}

pub fn calls(answer: &Answer) -> Finding {
    match answer {
        Answer::Works(_) => Finding::ok("calls", "all calls that must be intercepted are imported"),
        Answer::Refused(refusal) => {
            Finding::fail("calls", refusal.missing.clone()).advise(refusal.remedy)
        }
        Answer::Passive(reason) => {
            Finding::fail("calls", format!("the extension is passive: {reason}"))
        }
    }
}

fn asynchronous(verdict: &Verdict, uring_in_use: Option<bool>) -> Finding {
    let (libaio, io_uring) = (verdict.libaio == Way::Seen, verdict.io_uring == Way::Seen);
    match uring_in_use {
        Some(true) | None if io_uring => {
            let seen = if uring_in_use.is_some() {
                "uses io_uring now"
            } else {
                "may use io_uring"
            };
            let next = if libaio {
                "; after its next start it is made to use libaio, and all are"
            } else {
                ", and it knows no libaio that could be used instead"
            };
            Finding::ok(
                "async I/O",
                format!(
                    "the server {seen}: on the running server only synchronous reads are served{next}"
                ),
            )
        }
        _ if verdict.harvested => {
            Finding::ok("async I/O", "libaio: asynchronous reads are served, too")
        }
        _ => Finding::ok("async I/O", "libaio: only synchronous reads are served"),
    }
}

/// Ways to load the plugin, now and at the next start.
pub fn load_modes(server: &mut Server, process: &Process) -> Vec<Finding> {
    let mut findings = Vec::new();
    let options = ServerOptions::read(process, server.flavour, server.version);
    let early = match server.flavour {
        Flavour::MariaDb => "plugin_load_add",
        Flavour::MySql => "early-plugin-load",
    };
    findings.push(match snippet_folder(process, &options) {
        Ok(folder) => Finding::ok(
            "loading",
            format!(
                "at once on the running server; from its next start before InnoDB, by {early} in {}",
                folder.display()
            ),
        ),
        Err(why) => Finding::warn(
            "loading",
            format!("{why}, so nothing can be made permanent for you"),
        )
        .advise(format!(
            "give it an option file of root's with an !includedir line, or write {early} there by hand \
             as `bpe enable` says"
        )),
    });
    let left_out = options.early_plugins_left_out().join(", ");
    if !left_out.is_empty() && process.option("early_plugin_load").is_none() {
        findings.push(
            Finding::warn(
                "loading",
                format!(
                    "{left_out} came into the option files after `bpe enable`, whose {SNIPPET} wins: the next start does not load it"
                ),
            )
            .advise("run `bpe enable` again with the same settings, before that start"),
        );
    }
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
    use crate::support::elf::Symbols;
    use interface::InUse;

    const PLAIN: [&str; 7] = [
        "pread64",
        "pwrite64",
        "open64",
        "close",
        "ftruncate64",
        "unlink",
        "rename",
    ];

    fn judged(more: &[&str]) -> Verdict {
        Symbols::importing(&[&PLAIN, more].concat())
            .judge()
            .unwrap()
    }

    #[test]
    fn what_is_refused_is_told_in_two_sentences() {
        let verdict = judged(&["io_setup"]);
        assert_eq!(calls(&Answer::Works(verdict.clone())).level, Level::Ok);
        let refusal = verdict.with(InUse::by_variable(true)).unwrap_err();
        let finding = calls(&Answer::Refused(refusal.clone()));
        assert_eq!(finding.level, Level::Fail);
        assert_eq!(finding.text, refusal.missing);
        assert_eq!(finding.advice.as_deref(), Some(refusal.remedy));
        let finding = calls(&Answer::Passive(refusal.to_string()));
        assert!(finding.text.contains(&refusal.missing) && finding.text.contains(refusal.remedy));
    }

    #[test]
    fn io_uring_in_use_is_told() {
        let both = judged(&[
            "io_submit",
            "syscall",
            "io_uring_queue_init",
            "io_uring_submit",
        ]);
        let text = |verdict: &Verdict, ring| asynchronous(verdict, ring).text;
        assert!(text(&both, Some(true)).contains("uses io_uring now"));
        assert!(text(&both, None).contains("may use io_uring"));
        assert!(text(&both, Some(false)).starts_with("libaio"));
        let ring_only = judged(&["io_uring_queue_init", "io_uring_submit"]);
        assert!(text(&ring_only, Some(true)).contains("knows no libaio"));
        // MySQL and MariaDB 10.5 have no io_uring, so no ring needs to be detected.
        let libaio_only = judged(&["io_submit", "io_getevents"]);
        assert!(text(&libaio_only, None).contains("are served, too"));
    }
}
