//! Judges a server executable without running it: whether the extension can hook it, by the plugin's own rules.

use std::path::Path;

use interface::{InUse, Refusal, Verdict, Way};
use object::Architecture;

use super::finding::Finding;
use super::server::calls;
use crate::installation::interception::Answer;
use crate::support::elf::{CUT_OFF, Symbols};

/// Architecture of this program, which is built together with the plugin.
const OWN: Option<Architecture> = if cfg!(target_arch = "x86_64") {
    Some(Architecture::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(Architecture::Aarch64)
} else {
    None
};

/// Judges the file without executing any of it.
pub fn check(file: &Path) -> Vec<Finding> {
    match read(file) {
        Ok(symbols) => judge(&symbols),
        Err(why) => vec![Finding::fail("executable", why).advise(
            "name the server's own program, such as /usr/sbin/mariadbd or /usr/sbin/mysqld",
        )],
    }
}

fn read(file: &Path) -> Result<Symbols, String> {
    let metadata = file
        .metadata()
        .map_err(|error| format!("cannot open {}: {error}", file.display()))?;
    // Opening a pipe would block until another process opens it for writing.
    if !metadata.is_file() {
        return Err(format!("{} is no file", file.display()));
    }
    Symbols::of(file).map_err(|why| match why.ends_with(CUT_OFF) {
        true => why,
        false => format!("{why}; it may be a script, a package, or cut off"),
    })
}

fn judge(symbols: &Symbols) -> Vec<Finding> {
    let known = [Architecture::X86_64, Architecture::Aarch64];
    if !known.contains(&symbols.architecture) {
        return vec![
            Finding::fail(
                "executable",
                format!(
                    "it is built for {:?}, which the extension does not support",
                    symbols.architecture
                ),
            )
            .advise("use a build for x86-64 or AArch64"),
        ];
    }
    let release = symbols.release.map(|release| format!("{release}, "));
    let release = release.unwrap_or_default();
    let mut findings = vec![if Some(symbols.architecture) == OWN {
        Finding::ok(
            "executable",
            format!(
                "{release}built for {:?}, as this program",
                symbols.architecture
            ),
        )
    } else {
        Finding::warn(
            "executable",
            format!(
                "{release}built for {:?}, but this program for another processor",
                symbols.architecture
            ),
        )
        .advise("install a bpe.so that is built for that processor")
    }];
    match symbols.judge() {
        Err(refusal) => findings.push(calls(&Answer::Refused(refusal))),
        Ok(verdict) => {
            findings.push(asynchronous(&verdict));
            findings.insert(1, calls(&Answer::Works(verdict)));
        }
    }
    findings
}

/// The plugin's message if the server uses native asynchronous I/O, which is known only at run time.
fn asynchronous(verdict: &Verdict) -> Finding {
    let refused = |libaio| -> Option<Refusal> {
        let in_use = InUse {
            libaio: Some(libaio),
            io_uring: Some(!libaio),
        };
        verdict.with(in_use).err()
    };
    let unseen = [
        (&verdict.libaio, refused(true), verdict.libaio_can_fail),
        (&verdict.io_uring, refused(false), verdict.io_uring_can_fail),
    ];
    for (way, refusal, can_fail) in unseen {
        let (Way::Unseen(_), Some(refusal)) = (way, refusal) else {
            continue;
        };
        let text = if can_fail {
            format!(
                "{}. Loaded before InnoDB, the extension makes the server do without it; on a running server that uses it, it \
                 is passive",
                refusal.missing
            )
        } else {
            format!(
                "{}. If the server uses it, the extension is passive",
                refusal.missing
            )
        };
        return Finding::warn("async I/O", text).advise(refusal.remedy);
    }
    let (libaio, io_uring) = (verdict.libaio == Way::Seen, verdict.io_uring == Way::Seen);
    let text = match (libaio && verdict.harvested, io_uring) {
        (true, true) => {
            "libaio and io_uring: loaded before InnoDB, the extension makes the server use libaio, and asynchronous reads are \
             served, too"
        }
        (true, false) => "libaio: asynchronous reads are served, too",
        (false, true) => "io_uring: only synchronous reads are served",
        (false, false) if libaio => "libaio: only synchronous reads are served",
        (false, false) => "no native asynchronous I/O: plain calls, all of which are seen",
    };
    Finding::ok("async I/O", text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::finding::Level;
    use super::*;

    const PLAIN: [&str; 7] = [
        "pread64",
        "pwrite64",
        "open64",
        "close",
        "ftruncate64",
        "unlink",
        "rename",
    ];

    fn judged(more: &[&str]) -> Vec<Finding> {
        judge(&Symbols::importing(&[&PLAIN, more].concat()))
    }

    fn last(findings: &[Finding]) -> (Level, &str) {
        let finding = findings.last().unwrap();
        (finding.level, &finding.text)
    }

    #[test]
    fn what_would_be_seen_is_told_for_each_way() {
        let both = [
            "io_submit",
            "io_getevents",
            "io_uring_queue_init",
            "io_uring_submit",
        ];
        for (imports, level, words) in [
            (&both[..], Level::Ok, "use libaio"),
            (&both[..2], Level::Ok, "asynchronous reads are served, too"),
            (&both[2..], Level::Ok, "only synchronous"),
            (&[], Level::Ok, "plain calls"),
            (
                &["io_setup"],
                Level::Warn,
                "does without it|makes the server do without it",
            ),
            (&["io_getevents"], Level::Warn, "If the server uses it"),
        ] {
            let findings = judged(imports);
            assert_eq!(
                findings[1].text,
                "all calls that must be intercepted are imported"
            );
            let (found, text) = last(&findings);
            assert!(
                found == level && words.split('|').any(|words| text.contains(words)),
                "{imports:?}: {text}"
            );
        }
        let (level, text) = (
            judged(&["io_setup"]).pop().unwrap().advice,
            "innodb_use_native_aio=OFF",
        );
        assert!(level.is_some_and(|advice| advice.contains(text)));
    }

    #[test]
    fn what_lacks_calls_or_is_static_is_refused() {
        let lacking = judge(&Symbols::importing(&PLAIN[1..]));
        assert!(matches!(last(&lacking), (Level::Fail, text) if text.contains("pread64")));
        let without = judge(&Symbols::importing(&[]));
        assert!(
            matches!(last(&without), (Level::Fail, text) if text.contains("linked statically"))
        );
    }

    #[test]
    fn another_processor_is_told_from_one_that_is_not_known() {
        for (architecture, level) in [
            (Architecture::X86_64, Level::Ok),
            (Architecture::Aarch64, Level::Warn),
            (Architecture::I386, Level::Fail),
            (Architecture::S390x, Level::Fail),
        ] {
            let mut symbols = Symbols::importing(&PLAIN);
            symbols.architecture = architecture;
            let expected = match (Some(architecture) == OWN, level) {
                (_, Level::Fail) => Level::Fail,
                (true, _) => Level::Ok,
                (false, _) => Level::Warn,
            };
            assert_eq!(judge(&symbols)[0].level, expected, "{architecture:?}");
        }
    }

    /// A file truncated at any length counts neither as a working nor as a statically linked server.
    #[test]
    fn what_is_no_executable_or_cut_off_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let whole = fs::read("/bin/true").unwrap();
        let file = folder.path().join("cut-off");
        let steps = (0..whole.len()).step_by(whole.len() / 97 + 1);
        for length in steps.chain([1, 4, 63, 64, 65, whole.len() - 1]) {
            fs::write(&file, &whole[..length]).unwrap();
            let findings = check(&file);
            assert_eq!(findings.len(), 1, "{length}: {findings:?}");
            assert_eq!(last(&findings).0, Level::Fail, "{length}");
            assert!(
                last(&findings).1.contains("cut off"),
                "{length}: {findings:?}"
            );
        }
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(last(&check(&file)).1.contains("no ELF file"));
        assert!(last(&check(folder.path())).1.contains("is no file"));
        assert!(
            last(&check(Path::new("/no/such/file")))
                .1
                .contains("cannot open")
        );
    }
}
