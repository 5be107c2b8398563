//! Fault injection: failed requests, and partial writes.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Bytes that a medium writes atomically.
pub(crate) const SECTOR: usize = 512;

/// A fault to inject. It applies to requests of the kind `operation` on files whose path ends in `path_suffix`: to
/// every `every`th of these, and `times` times in total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub operation: Operation,
    pub effect: Effect,
    /// 1 applies to all requests, 10 to every tenth.
    pub every: u64,
    /// Suffix of the file's path, such as `.ibd` or `shop/orders.ibd`; `None` for all files.
    pub path_suffix: Option<String>,
    /// Number of times until it is used up; `None`: unlimited.
    pub times: Option<u64>,
}

/// The kind of request that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    /// fsync and fdatasync. A failed sync makes nothing durable.
    Sync,
    Any,
}

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fails with EIO; nothing is transferred.
    Error,
    /// A write of several sectors stores the first few, and fails with EIO.
    Torn,
    /// A write of several sectors stores the first few, and reports success.
    TornSilently,
}

impl Fault {
    /// A fault that fails every request of this kind with EIO.
    pub fn error(operation: Operation) -> Self {
        Fault {
            operation,
            effect: Effect::Error,
            every: 1,
            path_suffix: None,
            times: None,
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    /// `eio|torn|torn-silently [op=read|write|sync|any] [every=N] [suffix=TEXT] [times=N]`
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let effect = match words.next() {
            Some("eio") => Effect::Error,
            Some("torn") => Effect::Torn,
            Some("torn-silently") => Effect::TornSilently,
            other => {
                return Err(format!(
                    "a fault is eio, torn or torn-silently, not `{}`",
                    other.unwrap_or_default()
                ));
            }
        };
        let mut fault = Fault::error(Operation::Any);
        fault.effect = effect;
        if effect != Effect::Error {
            fault.operation = Operation::Write;
        }
        for word in words {
            let number = |text: &str| match text.parse() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(format!("`{text}` is not a number above 0")),
            };
            match word.split_once('=') {
                Some(("op", name)) => {
                    fault.operation = match name {
                        "read" => Operation::Read,
                        "write" => Operation::Write,
                        "sync" => Operation::Sync,
                        "any" => Operation::Any,
                        _ => return Err(format!("op is read, write, sync or any, not `{name}`")),
                    }
                }
                Some(("every", n)) => fault.every = number(n)?,
                Some(("times", n)) => fault.times = Some(number(n)?),
                Some(("suffix", suffix)) => fault.path_suffix = Some(suffix.into()),
                _ => {
                    return Err(format!(
                        "a fault takes op=, every=, suffix= and times=, not `{word}`"
                    ));
                }
            }
        }
        if effect != Effect::Error && fault.operation != Operation::Write {
            return Err("only writes can be torn: use op=write".into());
        }
        Ok(fault)
    }
}

/// Effect on a single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Error,
    /// Stores only this many bytes of the write.
    Torn {
        stored: usize,
        silently: bool,
    },
}

/// The active faults. Of several matching faults, the first applies.
pub(crate) struct Faults {
    any: AtomicBool,
    rules: Mutex<Rules>,
}

struct Rules {
    rules: Vec<Rule>,
    random: fastrand::Rng,
}

struct Rule {
    fault: Fault,
    matched: u64,
    struck: u64,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Faults {
            any: AtomicBool::new(false),
            rules: Mutex::new(Rules {
                rules: Vec::new(),
                random: fastrand::Rng::with_seed(0xfa17),
            }),
        }
    }

    pub(crate) fn add(&self, fault: Fault) {
        let mut rules = self.rules.lock();
        rules.rules.push(Rule {
            fault,
            matched: 0,
            struck: 0,
        });
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        let mut rules = self.rules.lock();
        rules.rules.clear();
        self.any.store(false, Ordering::Release);
    }

    /// Decides about a request of `bytes`. The path is looked up only if a fault depends on it.
    pub(crate) fn strike(
        &self,
        operation: Operation,
        bytes: usize,
        path: impl Fn() -> Vec<u8>,
    ) -> Option<Strike> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let Rules { rules, random } = &mut *self.rules.lock();
        let mut known_path = None;
        for rule in rules {
            let fault = &rule.fault;
            if fault.operation != operation && fault.operation != Operation::Any {
                continue;
            }
            if fault.times.is_some_and(|times| rule.struck >= times) {
                continue;
            }
            if let Some(suffix) = &fault.path_suffix {
                let path = known_path.get_or_insert_with(&path);
                if !path.ends_with(suffix.as_bytes()) {
                    continue;
                }
            }
            rule.matched += 1;
            if rule.matched % fault.every != 0 {
                continue;
            }
            rule.struck += 1;
            let mut torn = |silently| {
                let sectors = bytes.div_ceil(SECTOR);
                Strike::Torn {
                    stored: if sectors > 1 {
                        random.usize(1..sectors) * SECTOR
                    } else {
                        0
                    },
                    silently,
                }
            };
            return Some(match fault.effect {
                Effect::Error => Strike::Error,
                Effect::Torn => torn(false),
                Effect::TornSilently => torn(true),
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(faults: &Faults, operation: Operation, path: &str, requests: usize) -> usize {
        (0..requests)
            .filter(|_| {
                faults
                    .strike(operation, 16384, || path.as_bytes().to_vec())
                    .is_some()
            })
            .count()
    }

    #[test]
    fn faults_strike_what_they_name() {
        let faults = Faults::new();
        assert_eq!(strikes(&faults, Operation::Read, "/a.ibd", 10), 0);
        faults.add("eio op=read every=3 suffix=.ibd".parse().unwrap());
        assert_eq!(strikes(&faults, Operation::Read, "/a.ibd", 30), 10);
        assert_eq!(strikes(&faults, Operation::Read, "/a.log", 30), 0);
        assert_eq!(strikes(&faults, Operation::Write, "/a.ibd", 30), 0);
        faults.clear();
        assert_eq!(strikes(&faults, Operation::Read, "/a.ibd", 30), 0);
    }

    #[test]
    fn faults_are_spent() {
        let faults = Faults::new();
        faults.add("eio times=2".parse().unwrap());
        assert_eq!(strikes(&faults, Operation::Sync, "/a", 30), 2);
    }

    #[test]
    fn torn_writes_store_whole_sectors_but_not_all() {
        let faults = Faults::new();
        faults.add("torn-silently".parse().unwrap());
        for _ in 0..100 {
            match faults.strike(Operation::Write, 16384, Vec::new) {
                Some(Strike::Torn { stored, silently }) => {
                    assert!(silently && stored % SECTOR == 0);
                    assert!((SECTOR..16384).contains(&stored));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "fire",
            "eio op=seek",
            "eio every=0",
            "torn op=read",
            "eio now",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
