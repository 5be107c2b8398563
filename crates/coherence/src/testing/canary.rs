//! Deliberate faults: removes protocol rules, so that a test can prove that the other tests detect it.
//!
//! Only builds with debug assertions contain the switches. The server's environment variable `BPE_CANARY` lists the rules to
//! remove, separated by commas: names of [`RULES`], or `none`. A unit test removes one rule in its thread. In every other
//! build, [`canary!`] is the constant `false`.

use std::cell::Cell;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Names that remove no rule. `fine-stamps`: treat the kernel as one without fine-grained timestamps.
const SWITCHES: [&str; 1] = ["fine-stamps"];

/// Each rule, with the effect of its removal.
pub const RULES: &[(&str, &str)] = &[
    ("writes", "a write drops nothing"),
    (
        "generations",
        "an insertion ignores a concurrent write of its page",
    ),
    (
        "ranges",
        "holes, zeroed ranges and vectored writes drop nothing",
    ),
    ("truncation", "a truncation drops nothing"),
    (
        "reopening",
        "a file that is opened again is taken for unchanged",
    ),
    (
        "unfollowed",
        "a file that was written without an offset stays cached",
    ),
    (
        "second-names",
        "a file opened under another name is not followed",
    ),
    (
        "store-outside-lock",
        "a descriptor is stored after the registry's lock is released",
    ),
    ("rings", "requests of io_uring are not looked at"),
    ("results", "a write is offered whether it succeeded or not"),
    ("proof", "an asynchronous read of a cache file is believed"),
    (
        "giving-back",
        "a request that was not accepted stays pointed at the cache file",
    ),
    (
        "checks",
        "whatever a cache disk answers is believed, by every way of reading",
    ),
    (
        "persist",
        "pages survive the server and are believed by their names (the plugin's `naive`)",
    ),
    (
        "write-back",
        "pages are kept instead of written (the plugin's `naive`)",
    ),
    (
        "looks",
        "what makes a file longer or sets its times counts as no change",
    ),
    ("no-panic", "every hook panics before the call is made"),
    ("audit", "the audit ignores foreign writes to data files"),
    (
        "bypass-skips-writes",
        "a write drops nothing while the extension is bypassed",
    ),
    (
        "inherit-blindly",
        "whatever another process has left of a file is believed",
    ),
    (
        "stamp-before-call",
        "the change stamp of a file is stored before the write that changes it",
    ),
    (
        "stamp-order",
        "a file is trusted if its change stamp is not later than the stored one",
    ),
    ("superblock", "a file on another mount is trusted"),
    (
        "subvolume",
        "a file of another btrfs subvolume of the same number is trusted",
    ),
    (
        "tick-rule",
        "a stamp of the last tick proves something on a kernel without fine stamps",
    ),
    (
        "whole-seconds",
        "a stamp without a fraction of a second proves something",
    ),
    (
        "page-cache",
        "a file that was written through the page cache is trusted after a kill",
    ),
    ("token", "an image is trusted whatever the token says"),
    ("token-stays", "a start does not replace the token"),
    (
        "unproven-image",
        "after a kill the records of an unproven image count as those of this boot",
    ),
    (
        "io-uring-voids",
        "a file that is written through io_uring keeps its stamp",
    ),
    ("lsn", "the highest LSN of a written page is not kept"),
    (
        "flush-failed",
        "a failed flush leaves the persisted state valid",
    ),
    (
        "gap-forgotten",
        "a gap in tracking before the extension is active is forgotten",
    ),
    (
        "off-keeps-live",
        "the end of tracking is not recorded for the next process",
    ),
    (
        "unseen-writes",
        "a write to an inherited file drops nothing as long as no extension is active",
    ),
    (
        "fence",
        "after a reboot the persisted state is trusted without the redo fence",
    ),
    (
        "warm-ticket-after-read",
        "a page that is loaded for another server gets its ticket when it was read",
    ),
    (
        "warm-unsettled",
        "pages are loaded while an untracked write may be in flight",
    ),
    (
        "warm-one-ticket",
        "all pages that are loaded at once get the ticket of the first",
    ),
    (
        "exclude",
        "a table that the rules exclude is served and cached as any other",
    ),
    (
        "exclude-keeps",
        "cached pages of an excluded file stay reachable",
    ),
    // Detected only by the model checker.
    (
        "detached-once",
        "the end of tracking is recorded without checking for a new start of tracking",
    ),
    (
        "used-while-off",
        "the bypass setting takes effect without an active extension",
    ),
    (
        "word-not-compared",
        "`HARVEST` is left whatever was switched since the word was looked at",
    ),
    (
        "pending-after-look",
        "a request looks at the word before it is announced",
    ),
    (
        "interrupted-keeps-it",
        "an interrupted publisher keeps an extension that another thread must close",
    ),
    (
        "gap-not-seen",
        "file metadata from before a gap in tracking is kept",
    ),
    (
        "ticket-after-read",
        "a read takes its ticket when it has read",
    ),
    (
        "unlearned",
        "a write of a file whose page size is not known keeps nothing out",
    ),
    (
        "stamp-first",
        "an event of a recording is published before its place is filled",
    ),
    ("count-after", "a change counts from its end on"),
    (
        "overdue-before-submitted",
        "a read may be given up before the kernel has it",
    ),
    (
        "free-on-give-up",
        "the memory of a read that was given up is lent again before it was answered",
    ),
    (
        "attach-while-off",
        "an open registers its file although tracking has ended",
    ),
    (
        "rest",
        "the object of a forgotten file is used again at once",
    ),
    ("no-prove", "a descriptor that a scan found is believed"),
    (
        "prove-again",
        "a descriptor is not looked up again after its fstat",
    ),
    (
        "prove-without-lock",
        "the fstat of an entry counts for a newer entry of the same descriptor",
    ),
    (
        "block-after-id",
        "a file is blocked after it has got its new identity",
    ),
    (
        "id-before-bump",
        "a write takes the identity before it moves the generations on",
    ),
    (
        "adjust-before-publish",
        "a published extension keeps outdated settings",
    ),
    (
        "ahead-not-counted",
        "an extension is not waited for while a session brings it to the lock",
    ),
    (
        "life-not-compared",
        "the thread of an installation goes on in the next one",
    ),
    (
        "panic-after-lock",
        "a hook that panics waits for the controller",
    ),
    (
        "notify-before-change",
        "waiters are notified before the change",
    ),
];

thread_local! {
    static LEFT_OUT_HERE: Cell<&'static str> = const { Cell::new("") };
}

/// Removes a rule in this thread from now on; an empty name removes none.
pub fn remove_rule(rule: &'static str) {
    LEFT_OUT_HERE.set(rule);
}

/// Whether the rule is removed.
pub fn is_removed(rule: &str) -> bool {
    static LEFT_OUT: OnceLock<Vec<String>> = OnceLock::new();
    let left_out = LEFT_OUT.get_or_init(named);
    LEFT_OUT_HERE.get() == rule || left_out.iter().any(|named| named == rule)
}

/// Records as evidence that a test detected the removal of a rule, and after how much work. Writes a line to `BPE_TEST_REPORT`
/// and one to the test's output.
pub fn noticed(rule: &str, after: &str) {
    println!("without '{rule}': noticed after {after}");
    let report = std::env::var_os("BPE_TEST_REPORT").and_then(|path| {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        file.ok()
    });
    if let Some(mut report) = report {
        let line = format!("canary\t{rule}\tafter {after}\n");
        report
            .write_all(line.as_bytes())
            .expect("the report is writable");
    }
}

/// The rules in the environment variable. Aborts the process on an unknown name, because a test without a removed rule would
/// pass.
fn named() -> Vec<String> {
    let Ok(rules) = std::env::var("BPE_CANARY") else {
        return Vec::new();
    };
    eprintln!("this library was built to be wrong, for tests only; it leaves out: {rules}");
    let rules: Vec<String> = rules
        .split(',')
        .filter(|rule| !["", "none"].contains(rule))
        .map(String::from)
        .collect();
    for rule in &rules {
        let is_rule = RULES.iter().any(|(name, _)| name == rule);
        if !is_rule && !SWITCHES.contains(&rule.as_str()) {
            eprintln!("BPE_CANARY names no rule: {rule}");
            std::process::abort();
        }
    }
    let ignores = |rule: &str| rules.iter().any(|named| named == rule);
    cache::canary::IGNORE_GENERATIONS.store(ignores("generations"), Ordering::SeqCst);
    cache::canary::IGNORE_CHECKS.store(ignores("checks"), Ordering::SeqCst);
    rules
}
