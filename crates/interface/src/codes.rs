//! Codes of the messages in the server's error log, for filters and alerts that must not depend on the text.
//!
//! A line begins with its code, as in `BPE-0002: switched on`. A number belongs to its message permanently: a new message
//! gets a new number, and free numbers are not reused. The table in `docs/user/troubleshooting.md` is generated from this
//! list.

/// The code of lines without a specific code.
pub const OTHER: u16 = 0;

/// Codes, each with a unique part of its message. The first match in a text determines the code.
pub const ALL: &[(u16, &str)] = &[
    (1, "not switched on: "),
    (2, "switched on: "),
    (3, "switched off; the cache files are removed"),
    (4, "Everything cached is dropped and the extension is off."),
    (5, "passive: "),
    (6, "the cache is laid out anew for them"),
    (7, "the cache cannot be laid out for pages of"),
    (8, "an internal error occurred"),
    (9, "the cache is "),
    (10, "bypass begins: "),
    (11, "bypass ends after"),
    (12, "bypass goes on: "),
    (20, "lies on the same file system as the data directory"),
    (21, "has room for"),
    (22, "does not answer"),
    (23, "the process may not end before it answers"),
    (24, "was used by this server under other settings"),
    (
        25,
        "files of these settings are not removed when others are chosen",
    ),
    (
        26,
        "this server made it under other settings, and uses it no more",
    ),
    (30, "the cache works, but will be empty after a restart"),
    (31, "the cache starts empty: another version of the plugin"),
    (
        32,
        "crashed within 10 minutes after it had recovered what was cached",
    ),
    (33, "data files were changed by others than the server"),
    (34, "is not kept over a restart of the machine or a remount"),
    (35, "will be lost if the machine is restarted now"),
    (
        36,
        "what is cached will be there after a restart of the machine",
    ),
    (37, "an image of what was cached may be left"),
    (38, "what was cached is only listed, and loaded anew"),
    (39, "is not used: "),
    (40, "bpe_persist="),
    (41, "recovered "),
    (
        50,
        "but not by a call of the server that the extension has seen",
    ),
    (51, "is damaged: "),
    (
        52,
        "in the cache differed from the data file and was dropped",
    ),
    (60, "a recording of page reads and writes begins"),
    (61, "the recording of page reads and writes ends"),
    (62, "a verification of cached pages begins"),
    (
        70,
        "pages that were not proven after the restart are loaded from the data files",
    ),
    (
        71,
        "the pages that were not proven after the restart are loaded again",
    ),
    (80, "prefer and limit in bpe_tables are not followed"),
    (
        81,
        "bpe_tables is not followed, and all tables are cached as usual",
    ),
    (90, "libaio reported as unavailable"),
    (91, "io_uring reported as unavailable"),
    (
        92,
        "reports are refused: this server exports no function that checks privileges",
    ),
];

/// Returns the code of a message, formatted as in the log.
pub fn code_of(message: &str) -> String {
    let known = ALL.iter().find(|(_, part)| message.contains(part));
    format!("BPE-{:04}", known.map_or(OTHER, |(code, _)| *code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_their_own() {
        for (index, (code, part)) in ALL.iter().enumerate() {
            assert!(*code > OTHER && part.len() > 8, "{part}");
            let before = &ALL[..index];
            assert!(before.iter().all(|(other, _)| other < code), "{code}");
            assert!(
                before.iter().all(|(_, other)| !part.contains(other)),
                "{part} has the code of another"
            );
        }
    }

    #[test]
    fn messages_have_the_code_of_their_part() {
        assert_eq!(
            code_of("switched on: 64 bytes on /x, 1 instance(s), early mode"),
            "BPE-0002"
        );
        assert_eq!(
            code_of("page 4 of 'd/t.ibd' is damaged: x, and the cache has it whole"),
            "BPE-0051"
        );
        assert_eq!(code_of("nothing known"), "BPE-0000");
    }
}
