//! Each fuzz target with its seeds, and with mutations of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use fuzz_targets::{TARGETS, Target};

/// Mutated inputs per target; `FUZZ_MUTATIONS` overrides it.
const MUTATIONS: usize = 3000;
/// Inputs per target that sets up a whole cache.
const SLOW: usize = 40;
/// Maximum length of an input.
const MOST: usize = 1 << 16;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{} has no seeds: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

fn mutate(random: &mut fastrand::Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    const TOKENS: [&[u8]; 12] = [
        b"=",
        b"\n[",
        b"!include ",
        b"\"",
        b"\\",
        b"..",
        b":",
        b"9999999999999999999",
        b"-1",
        b"1e308",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
    ];
    let mut bytes = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..1 + random.usize(..6) {
        let at = random.usize(..=bytes.len());
        match random.u8(..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            1 if at < bytes.len() => bytes[at] = random.u8(..),
            2 => bytes.truncate(at),
            3 => {
                let token = TOKENS[random.usize(..TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
            4 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                let part: Vec<u8> = other[from..]
                    .iter()
                    .copied()
                    .take(random.usize(..64))
                    .collect();
                bytes.splice(at..at, part);
            }
            5 => {
                let end = (at + random.usize(..32)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => bytes.extend((0..random.usize(..32)).map(|_| random.u8(..))),
        }
    }
    bytes.truncate(MOST);
    bytes
}

fn run((name, target): Target) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let wanted = std::env::var("FUZZ_MUTATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(MUTATIONS);
    let mutations = if name == "cache_file" {
        wanted.min(SLOW)
    } else {
        wanted
    };
    // Detects an input that hangs.
    let (next, inputs) = mpsc::sync_channel::<Vec<u8>>(0);
    let (done, results) = mpsc::channel();
    std::thread::spawn(move || {
        for input in inputs {
            let result = catch_unwind(AssertUnwindSafe(|| target(&input)));
            done.send(result.is_ok()).ok();
        }
    });
    for n in 0..seeds.len() + mutations {
        let input = seeds
            .get(n)
            .cloned()
            .unwrap_or_else(|| mutate(&mut random, &seeds));
        next.send(input.clone()).unwrap();
        let passed = results.recv_timeout(Duration::from_secs(60));
        assert_eq!(
            passed,
            Ok(true),
            "{name} (seed {seed}, input {n}) with {:?}",
            String::from_utf8_lossy(&input)
        );
    }
    println!("{name}: {} seeds, {mutations} mutations", seeds.len());
}

#[test]
fn nothing_that_is_parsed_makes_a_parser_panic() {
    for target in TARGETS {
        run(*target);
    }
}

#[test]
fn a_target_that_panics_is_noticed() {
    let broken: Target = ("sizes", |bytes| assert!(!bytes.contains(&b'9')));
    assert!(catch_unwind(|| run(broken)).is_err());
}

#[test]
fn every_target_has_a_fuzzer() {
    for (name, _) in TARGETS {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../fuzz/fuzz_targets/{name}.rs"));
        assert!(file.is_file(), "{} is missing", file.display());
    }
}
