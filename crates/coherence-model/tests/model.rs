//! The model finds no violation in the plugin, and detects the removal of rules.
//!
//! Runs end after a number of operations, not after a time, so that a slow host tries as much as a fast one.

use std::path::Path;
use std::process::Command;

use coherence::canary::noticed;

/// Far more seconds than any run takes; only a hanging run reaches it.
const PATIENCE: &str = "600";

/// Tried in order until the removed rule is detected.
const SEEDS: [&str; 8] = ["3", "17", "5", "7", "9", "25", "28", "1"];

/// Rules of `coherence::canary` whose removal the exact mode detects soon on every host. `store-outside-lock` is not among
/// them, because it needs a thread that is delayed over OFF, ON and a quarantine: `checks/interleavings` detects it within
/// seconds.
const CANARIES: [(&str, &str); 16] = [
    ("writes", "a write drops nothing"),
    ("generations", "an insertion ignores the generation"),
    ("ranges", "holes and vectored writes drop nothing"),
    ("truncation", "a truncation drops nothing"),
    ("reopening", "a file opened again is taken for unchanged"),
    ("unfollowed", "writes without an offset"),
    ("second-names", "a file opened under another name"),
    ("rings", "requests of io_uring"),
    ("results", "failed writes are offered"),
    ("proof", "an asynchronous hit is believed"),
    ("giving-back", "a refused request stays redirected"),
    ("looks", "growth and set times count as no change"),
    ("bypass-skips-writes", "writes in bypass drop nothing"),
    (
        "warm-ticket-after-read",
        "a page is loaded under a ticket of later",
    ),
    (
        "warm-unsettled",
        "pages are loaded while a write of before is under way",
    ),
    ("warm-one-ticket", "one ticket for pages loaded at once"),
];

/// Shared memory zeroes the pages of a cache when they are preallocated, which takes half of the processor time. So the caches are
/// with the temporary files, usually on a disk.
fn run(program: &Path, canary: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(["--seconds", PATIENCE])
        .arg("--cache")
        .arg(std::env::temp_dir())
        .args(arguments)
        .env("BPE_CANARY", canary)
        .output()
        .expect("the model starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

/// Amount of work until the model detected a violation: operations, or deaths.
fn tried(text: &str) -> String {
    let before = |what: &str| {
        let count = text
            .split_once(what)?
            .0
            .rsplit(char::is_whitespace)
            .next()?;
        Some(format!("{count}{what}"))
    };
    if text.contains(" lives in ") {
        before(" deaths")
    } else {
        before(" operations")
    }
    .unwrap_or_else(|| panic!("it does not say after what: {text}"))
}

fn model() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_coherence-model"))
}

fn must_pass(arguments: &[&str]) -> String {
    let (passed, text) = run(model(), "", arguments);
    assert!(passed, "{text}");
    println!("{text}");
    text
}

#[test]
fn nothing_old_is_read_by_several_threads() {
    must_pass(&["--threads", "4", "--operations", "120000"]);
}

#[test]
fn nothing_old_is_read_in_any_exact_sequence() {
    for seed in ["1", "2", "3"] {
        must_pass(&["--threads", "1", "--seed", seed, "--operations", "40000"]);
    }
    // A random seed, which the output shows.
    must_pass(&["--threads", "1", "--operations", "120000"]);
}

#[test]
fn a_seed_replays_exactly() {
    let arguments = [
        "--minutes",
        "--threads",
        "1",
        "--seed",
        "77",
        "--operations",
        "15000",
    ];
    let once = || {
        let (passed, text) = run(model(), "", &arguments);
        assert!(passed, "{text}");
        text
    };
    let digest = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("digest"))
            .map(String::from)
    };
    let (one, other) = (once(), once());
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: without a tmpfs the numbers of inodes are up to the file system: {one}");
        return;
    }
    assert!(digest(&one).is_some(), "{one}");
    assert_eq!(digest(&one), digest(&other));
}

/// Rules whose removal is detected when one process recovers another one's state, on this host's kernel. Its change times never
/// repeat or go back, which hides the removal of other rules. `coherence::restart::model_tests` simulates kernels where they do,
/// `checks/interleavings` tries "off-keeps-live", and the unit tests of `coherence::files` try "io-uring-voids".
const OF_DEATHS: [(&str, &str); 3] = [
    ("inherit-blindly", "whatever was left is believed"),
    ("unseen-writes", "a write before the extension is there"),
    ("writes", "a write drops nothing"),
];

#[test]
fn nothing_old_is_read_after_any_death() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: nothing outlives a process without a tmpfs at /dev/shm");
        return;
    }
    must_pass(&["--deaths", "60"]);
}

#[test]
fn each_rule_about_deaths_that_is_left_out_is_noticed() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: nothing outlives a process without a tmpfs at /dev/shm");
        return;
    }
    for (rule, what) in OF_DEATHS {
        let (passed, text) = run(model(), rule, &["--minutes", "--deaths", "5000"]);
        assert!(!passed, "{rule} ({what}) was not noticed: {text}");
        let violation = text.lines().find(|line| line.contains("VIOLATION"));
        assert!(violation.is_some(), "{rule} ({what}): {text}");
        noticed(rule, &tried(&text));
    }
}

/// `<target>/<profile>/coherence-model`.
fn target_folder() -> &'static Path {
    model().ancestors().nth(2).expect("a target folder")
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    for (rule, what) in CANARIES {
        let violation = SEEDS.iter().find_map(|seed| {
            let arguments = [
                "--minutes",
                "--threads",
                "1",
                "--seed",
                seed,
                "--operations",
                "100000",
                "--partial",
            ];
            let (passed, text) = run(model(), rule, &arguments);
            (!passed).then_some((seed, text))
        });
        let Some((seed, text)) = violation else {
            panic!("{rule} ({what}) was not noticed with any of {SEEDS:?}");
        };
        assert!(text.contains("VIOLATION"), "{rule} ({what}): {text}");
        noticed(rule, &format!("{}, seed {seed}", tried(&text)));
        assert!(
            text.contains(&format!("--seed {seed} --threads 1")),
            "it says how to repeat it: {text}"
        );
    }
}

#[test]
fn a_violation_is_replayed_by_its_seed() {
    let arguments = [
        "--minutes",
        "--threads",
        "1",
        "--seed",
        "11",
        "--operations",
        "400000",
        "--partial",
    ];
    let violation = || {
        let (_, text) = run(model(), "generations", &arguments);
        text.lines()
            .find(|line| line.contains("VIOLATION"))
            .map(String::from)
    };
    let one = violation();
    assert!(one.is_some());
    if Path::new("/dev/shm").is_dir() {
        assert_eq!(one, violation());
    }
}

#[test]
fn the_two_main_canaries_are_noticed_by_several_threads() {
    for rule in ["writes", "generations"] {
        let (passed, text) = run(
            model(),
            rule,
            &[
                "--minutes",
                "--threads",
                "4",
                "--operations",
                "2000000",
                "--partial",
            ],
        );
        assert!(
            !passed && text.contains("VIOLATION"),
            "{rule} was not noticed: {text}"
        );
    }
}

#[test]
fn delayed_threads_read_nothing_stale_after_minutes() {
    for (threads, operations) in [("1", "60000"), ("4", "120000")] {
        let arguments = [
            "--minutes",
            "--threads",
            threads,
            "--seed",
            "3",
            "--operations",
            operations,
            "--partial",
            "--verbose",
        ];
        let text = must_pass(&arguments);
        if threads != "1" {
            continue;
        }
        // Without `--minutes`, there is no time for these cases.
        for what in [
            " runs of pages loaded for another server",
            " such runs with pages that were written meanwhile",
        ] {
            let line = text.lines().find(|line| line.contains(what));
            let count = line.and_then(|line| line.trim_start().split(' ').next());
            assert!(count.is_some_and(|count| count != "0"), "{what}: {text}");
        }
    }
}

#[test]
fn no_shipped_library_has_the_switches() {
    let library = target_folder().join("release/libbpe_plugin.so");
    let Ok(bytes) = std::fs::read(&library) else {
        println!(
            "skipped: no shipped library has the switches: {} is not built",
            library.display()
        );
        return;
    };
    let mark = b"BPE_CANARY";
    assert!(!bytes.windows(mark.len()).any(|window| window == mark));
    // The mark distinguishes them.
    let model = std::fs::read(model()).expect("the model is there");
    assert!(model.windows(mark.len()).any(|window| window == mark));
}
