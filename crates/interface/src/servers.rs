//! Verdicts on all servers with recorded symbols (`servers/`).

use std::collections::BTreeSet;

use crate::{Executable, InUse, Inside, Verdict, Way, judge};

/// The recorded symbols of one server.
struct Recorded {
    imports: BTreeSet<&'static str>,
    linked_in: BTreeSet<&'static str>,
    /// Behaviour of the linked-in functions.
    inside: Inside,
}

impl Recorded {
    fn read(text: &'static str) -> Recorded {
        let (mut imports, mut linked_in) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("linked-in ") {
                Some(name) => linked_in.insert(name),
                None => imports.insert(line),
            };
        }
        assert!(imports.len() > 20, "{imports:?}");
        Recorded {
            imports,
            linked_in,
            inside: Inside::Redirected,
        }
    }

    fn judged(&self) -> Verdict {
        judge(self).expect("every call that is needed")
    }
}

impl Executable for Recorded {
    fn imports(&self, name: &str) -> bool {
        self.imports.contains(name)
    }

    fn inside(&self, name: &str) -> Option<Inside> {
        self.linked_in.contains(name).then_some(self.inside)
    }
}

macro_rules! server {
    ($name:literal) => {
        Recorded::read(include_str!(concat!("../servers/", $name, ".txt")))
    };
}

const EVERYTHING: InUse = InUse {
    libaio: Some(true),
    io_uring: Some(true),
};
const LIBAIO: InUse = InUse {
    libaio: Some(true),
    io_uring: Some(false),
};

#[test]
fn debians_mariadb_is_seen_whole() {
    for server in [
        server!("mariadb-10.11.19-debian"),
        server!("mariadb-11.8.6-debian"),
        server!("mariadb-11.8.9-debian"),
    ] {
        let verdict = server.judged();
        assert_eq!(verdict.with(EVERYTHING), Ok(()));
        assert!(!verdict.depends() && verdict.harvested);
    }
}

#[test]
fn servers_that_know_no_io_uring_are_seen_with_libaio() {
    for server in [
        server!("mariadb-10.5.29-debian"),
        server!("mysql-9.7.4-debian"),
    ] {
        let verdict = server.judged();
        assert_eq!(verdict.libaio, Way::Seen);
        assert!(matches!(verdict.io_uring, Way::Unnamed(_)));
        assert_eq!(verdict.with(LIBAIO), Ok(()));
        assert!(
            verdict.with(EVERYTHING).is_err(),
            "whose ring is it, if there is one?"
        );
        assert!(verdict.harvested);
    }
}

#[test]
fn builds_with_libaio_linked_in_are_seen_through_syscall() {
    for mut server in [
        server!("mariadb-10.11.5-upstream"),
        server!("mariadb-11.4.5-upstream"),
    ] {
        assert!(server.imports.contains("syscall") && !server.imports.contains("io_submit"));
        assert!(server.linked_in.contains("io_submit"));
        assert_eq!(server.judged().with(LIBAIO), Ok(()));
        // The same build with an older libaio.
        server.inside = Inside::Unseen;
        let verdict = server.judged();
        assert_eq!(verdict.with(InUse::by_variable(false)), Ok(()));
        let refusal = verdict.with(InUse::by_variable(true)).unwrap_err();
        assert!(refusal.is_for_native_aio(), "{refusal}");
    }
}
