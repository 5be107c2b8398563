//! Judges an executable by its symbols: can the hooks see every change that a server makes to its data files?

use std::fmt;

use crate::calls::{ALWAYS, Family, IO_URING, LIBAIO};
use crate::code::Inside;
use crate::in_use::InUse;

/// The dynamic symbols of a server's executable.
pub trait Executable {
    /// Whether it imports a symbol of this name.
    fn imports(&self, name: &str) -> bool;
    /// Behaviour of the exported function of this name; `None` if there is none.
    fn inside(&self, name: &str) -> Option<Inside>;
}

/// Why a server cannot be tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The missing capability: a sentence without its full stop.
    pub missing: String,
    /// The remedy: a sentence without its full stop.
    pub remedy: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}.", self.missing, self.remedy)
    }
}

impl Refusal {
    /// Whether the server can be tracked if InnoDB uses no native asynchronous I/O.
    pub fn is_for_native_aio(&self) -> bool {
        self.remedy == WITHOUT_NATIVE_AIO
    }

    /// An executable without imports.
    pub fn linked_statically() -> Refusal {
        Refusal {
            missing: "the server is linked statically, so none of its calls can be intercepted"
                .into(),
            remedy: ANOTHER_BUILD,
        }
    }
}

const ANOTHER_BUILD: &str = "Use a build of the server that links the C library dynamically, as the packages of \
                             distributions and of the servers' makers do";
const WITHOUT_NATIVE_AIO: &str =
    "Set innodb_use_native_aio=OFF in the server's option file, and restart the server";

/// Visibility of one kind of asynchronous I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every submission passes a hook.
    Seen,
    /// The executable does not name it. If the server uses it anyway, submissions are invisible for this reason.
    Unnamed(Refusal),
    /// The executable names it, and for this reason some submissions would be invisible.
    Unseen(Refusal),
}

impl Way {
    /// The reason why the server must not use it, if the server does.
    fn refuses(&self, in_use: Option<bool>) -> Option<&Refusal> {
        match (self, in_use) {
            (Way::Unseen(refusal), Some(true) | None) | (Way::Unnamed(refusal), Some(true)) => {
                Some(refusal)
            }
            _ => None,
        }
    }
}

/// The verdict on an executable whose plain calls are all visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub libaio: Way,
    pub io_uring: Way,
    /// Whether completions of libaio pass a hook, so that asynchronous reads can be served.
    pub harvested: bool,
    /// Whether the plugin, if loaded before InnoDB, can make libaio look unavailable: the call that creates a context passes
    /// a hook, which can fail it. InnoDB then does without libaio.
    pub libaio_can_fail: bool,
    /// The same for io_uring.
    pub io_uring_can_fail: bool,
}

impl Verdict {
    /// Checks whether a server that uses these kinds can be tracked.
    ///
    /// # Errors
    /// The reason why not.
    pub fn with(&self, in_use: InUse) -> Result<(), Refusal> {
        let refusal = self
            .libaio
            .refuses(in_use.libaio)
            .or_else(|| self.io_uring.refuses(in_use.io_uring));
        match refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        }
    }

    /// Whether the answer depends on the kinds that the server uses.
    pub fn depends(&self) -> bool {
        self.libaio != Way::Seen || self.io_uring != Way::Seen
    }
}

/// Judges an executable.
///
/// # Errors
/// Plain calls would be invisible with every setting of the server.
pub fn judge(executable: &impl Executable) -> Result<Verdict, Refusal> {
    let mut lacking = Vec::new();
    let mut past = Vec::new();
    for family in ALWAYS {
        if !family.needed.is_empty() && !any(executable, family.needed) {
            lacking.push(family.needed.join(" or "));
        }
        past.extend(unhooked(executable, family));
    }
    if !lacking.is_empty() {
        return Err(Refusal {
            missing: format!(
                "the server does not import {}, so changes of its data files could go unseen",
                lacking.join(", ")
            ),
            remedy: ANOTHER_BUILD,
        });
    }
    if !past.is_empty() {
        return Err(Refusal {
            missing: format!(
                "the server imports {}, by which data files can be changed unseen",
                past.join(", ")
            ),
            remedy: ANOTHER_BUILD,
        });
    }
    Ok(Verdict {
        libaio: libaio(executable),
        io_uring: io_uring(executable),
        harvested: any(executable, &["io_getevents", "syscall"]),
        libaio_can_fail: !names_any(executable, &["io_queue_init"])
            && (executable.imports("io_setup")
                || executable.inside("io_setup") == Some(Inside::Redirected)),
        io_uring_can_fail: executable.imports("io_uring_queue_init")
            && !names_any(
                executable,
                &[
                    "io_uring_queue_init_params",
                    "io_uring_queue_init_mem",
                    "io_uring_setup",
                ],
            ),
    })
}

fn any(executable: &impl Executable, names: &[&str]) -> bool {
    names.iter().any(|name| executable.imports(name))
}

/// Returns the imported calls of a family that bypass the hooks.
fn unhooked(executable: &impl Executable, family: &'static Family) -> Vec<&'static str> {
    let mut names = family.unhooked.to_vec();
    names.retain(|name| executable.imports(name));
    names
}

/// Whether the executable imports or exports any of these.
fn names_any(executable: &impl Executable, names: &[&str]) -> bool {
    any(executable, names) || names.iter().any(|name| executable.inside(name).is_some())
}

fn native(missing: String) -> Refusal {
    Refusal {
        missing,
        remedy: WITHOUT_NATIVE_AIO,
    }
}

fn libaio(executable: &impl Executable) -> Way {
    const KIND: &str = "native asynchronous I/O (libaio)";
    let past = unhooked(executable, &LIBAIO);
    if !past.is_empty() {
        return Way::Unseen(native(format!(
            "the server imports {}, by which {KIND} ends unseen",
            past.join(", ")
        )));
    }
    if executable.imports("io_submit") {
        return Way::Seen;
    }
    match executable.inside("io_submit") {
        Some(Inside::Redirected) => Way::Seen,
        Some(Inside::Unseen) => Way::Unseen(native(format!(
            "the server has libaio linked in and does not import io_submit, so pages that it writes with {KIND} go unseen"
        ))),
        None => {
            let refusal = native(format!(
                "the server does not import io_submit, so pages that it writes with {KIND} go unseen"
            ));
            // The executable creates contexts or harvests, so something submits.
            if names_any(executable, &["io_setup", "io_getevents", "io_destroy"]) {
                Way::Unseen(refusal)
            } else {
                Way::Unnamed(refusal)
            }
        }
    }
}

fn io_uring(executable: &impl Executable) -> Way {
    const KIND: &str = "native asynchronous I/O (io_uring)";
    let past = unhooked(executable, &IO_URING);
    if !past.is_empty() {
        return Way::Unseen(native(format!(
            "the server imports {}, by which {KIND} is submitted unseen",
            past.join(", ")
        )));
    }
    if executable.imports("io_uring_submit") {
        return Way::Seen;
    }
    let refusal = native(format!(
        "the server does not import io_uring_submit, so pages that it writes with {KIND} go unseen"
    ));
    let signs = [
        "io_uring_submit",
        "io_uring_queue_init",
        "io_uring_queue_init_params",
        "io_uring_queue_exit",
        "io_uring_setup",
    ];
    if names_any(executable, &signs) {
        Way::Unseen(refusal)
    } else {
        Way::Unnamed(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Imports, and exported functions.
    struct Named(BTreeSet<&'static str>, Vec<(&'static str, Inside)>);

    impl Executable for Named {
        fn imports(&self, name: &str) -> bool {
            self.0.contains(name)
        }

        fn inside(&self, name: &str) -> Option<Inside> {
            let found = self.1.iter().find(|(known, _)| *known == name);
            found.map(|(_, inside)| *inside)
        }
    }

    const PLAIN: [&str; 7] = [
        "pread64",
        "pwrite64",
        "open64",
        "close",
        "unlink",
        "rename",
        "ftruncate64",
    ];

    fn importing(more: &[&'static str]) -> Named {
        Named(PLAIN.iter().chain(more).copied().collect(), Vec::new())
    }

    const LIBAIO_ONLY: InUse = InUse {
        libaio: Some(true),
        io_uring: Some(false),
    };
    const RING_ONLY: InUse = InUse {
        libaio: Some(false),
        io_uring: Some(true),
    };
    const UNKNOWN: InUse = InUse {
        libaio: None,
        io_uring: None,
    };

    #[test]
    fn each_plain_call_is_missed() {
        for left_out in PLAIN {
            let mut server = importing(&["io_submit", "io_getevents"]);
            server.0.remove(left_out);
            let refusal = judge(&server).unwrap_err();
            assert!(
                refusal.missing.contains(left_out) && !refusal.is_for_native_aio(),
                "{refusal}"
            );
            server.0.insert(left_out.trim_end_matches("64"));
            assert!(judge(&server).is_ok(), "{left_out} without 64");
        }
    }

    #[test]
    fn a_member_without_hook_is_refused() {
        for name in ["aio_write64", "lio_listio", "__openat64_2"] {
            let refusal = judge(&importing(&["io_submit", name])).unwrap_err();
            assert!(refusal.missing.contains(name), "{refusal}");
        }
    }

    #[test]
    fn without_native_aio_nothing_of_it_is_needed() {
        let verdict = judge(&importing(&[])).unwrap();
        assert_eq!(verdict.with(InUse::NOTHING), Ok(()));
        assert_eq!(verdict.with(InUse::by_variable(false)), Ok(()));
        for in_use in [LIBAIO_ONLY, RING_ONLY, InUse::by_variable(true)] {
            let refusal = verdict.with(in_use).unwrap_err();
            assert!(refusal.is_for_native_aio(), "{refusal}");
        }
        // A kind that the executable does not name needs no check.
        assert_eq!(verdict.with(UNKNOWN), Ok(()));
    }

    #[test]
    fn one_kind_does_not_stand_for_the_other() {
        let verdict = judge(&importing(&["io_submit", "syscall", "io_uring_queue_init"])).unwrap();
        assert_eq!(verdict.with(LIBAIO_ONLY), Ok(()));
        let refusal = verdict.with(RING_ONLY).unwrap_err();
        assert!(refusal.missing.contains("io_uring_submit"), "{refusal}");
        let verdict = judge(&importing(&["io_uring_submit", "io_setup", "syscall"])).unwrap();
        assert_eq!(verdict.with(RING_ONLY), Ok(()));
        let refusal = verdict.with(LIBAIO_ONLY).unwrap_err();
        assert!(refusal.missing.contains("io_submit"), "{refusal}");
        assert!(
            verdict.with(UNKNOWN).is_err(),
            "it is named, and one cannot look"
        );
    }

    #[test]
    fn what_is_imported_of_a_kind_is_hooked_whole() {
        for (name, in_use) in [
            ("io_pgetevents", LIBAIO_ONLY),
            ("io_uring_submit_and_wait", RING_ONLY),
        ] {
            let server = importing(&["io_submit", "io_getevents", "io_uring_submit", name]);
            let verdict = judge(&server).unwrap();
            let refusal = verdict.with(in_use).unwrap_err();
            assert!(refusal.missing.contains(name), "{refusal}");
            assert_eq!(verdict.with(InUse::NOTHING), Ok(()));
        }
    }

    #[test]
    fn libaio_linked_in_is_seen_through_syscall() {
        let mut server = importing(&["syscall"]);
        server.1 = vec![
            ("io_submit", Inside::Redirected),
            ("io_setup", Inside::Redirected),
        ];
        let verdict = judge(&server).unwrap();
        assert_eq!(verdict.with(LIBAIO_ONLY), Ok(()));
        assert!(verdict.harvested);
        server.1[0].1 = Inside::Unseen;
        let refusal = judge(&server).unwrap().with(LIBAIO_ONLY).unwrap_err();
        assert!(refusal.missing.contains("linked in"), "{refusal}");
    }

    #[test]
    fn two_sentences() {
        let verdict = judge(&importing(&["io_setup"])).unwrap();
        let refusal = verdict.with(LIBAIO_ONLY).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the server does not import io_submit, so pages that it writes with native asynchronous I/O (libaio) go \
             unseen. Set innodb_use_native_aio=OFF in the server's option file, and restart the server."
        );
        assert!(!Refusal::linked_statically().is_for_native_aio());
    }
}
