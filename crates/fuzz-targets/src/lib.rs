//! Calls every parser of bytes from a disk, a user or a server with arbitrary bytes. No parser may panic, hang, or use
//! more than its input and its limits allow.
//!
//! `fuzz/` runs these under libFuzzer (nightly Rust). The test of this crate runs them with the seeds in `fuzz/seeds`
//! and some thousand mutations of them (stable Rust, part of `make test`).

mod answers;
mod cache_file;
mod settings;

// Part of the command, which has no library.
#[path = "../../bpe/src/connect"]
#[allow(dead_code)]
mod connect {
    pub mod option_file;
}
#[path = "../../bpe/src/support"]
#[allow(dead_code)]
mod support {
    pub mod elf;
    pub mod files;
    pub mod quote;
    pub mod size;
}

use std::path::Path;

use connect::option_file;
use support::{elf, size};

/// A name, and the function to call with the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("trace", trace),
    ("segment_header", cache::fuzzing::header),
    ("segment_footer", cache::fuzzing::footer),
    ("compressed_page", cache::fuzzing::packed),
    ("cache_file", cache_file::cache_file),
    ("option_file", option_files),
    ("sizes", sizes),
    ("volume_commands", volume_commands),
    ("report", report),
    ("settings", settings::settings),
    ("executable", executable),
    ("heat_list", heat_list),
    ("tables", tables),
    ("answers", answers::answers),
];

/// `bpe replay`: a recorded trace, plain or compressed.
pub fn trace(bytes: &[u8]) {
    let plain = replay::Trace::from_reader("input", bytes);
    if let Ok(trace) = &plain {
        assert!(!trace.events().is_empty() && trace.distinct_pages() <= trace.events().len());
    }
    let mut compressed = vec![0x28, 0xb5, 0x2f, 0xfd];
    compressed.extend(bytes);
    let _ = replay::Trace::from_reader("input", &compressed[..]);
    if let Ok(packed) = zstd::encode_all(bytes, 1) {
        let unpacked = replay::Trace::from_reader("input", &packed[..]);
        assert_eq!(unpacked.is_ok(), plain.is_ok(), "the same, packed");
    }
}

/// Another server's heat list, as parsed by the command and by the receiving server.
pub fn heat_list(bytes: &[u8]) {
    use interface::heat::{Decoder, LEVELS, pieces};
    let decoded: Vec<(u32, u8)> = Decoder::new(bytes, 0).map_while(Result::ok).collect();
    assert!(decoded.windows(2).all(|two| two[0].0 < two[1].0));
    assert!(decoded.iter().all(|(_, heat)| usize::from(*heat) < LEVELS));
    let again = pieces(decoded.iter().copied());
    let back = again
        .iter()
        .flat_map(|(from, bytes)| Decoder::new(bytes, *from));
    assert!(back.filter_map(Result::ok).eq(decoded));
    let mut list = bpe_plugin::reports::warm::list::List::new();
    let text = String::from_utf8_lossy(bytes);
    let _ = (list.put(&text), list.put(&text));
    list.rank(1 << 30);
    assert!(list.pages <= 2 * bytes.len() as u64);
    assert!(list.memory() <= bpe_plugin::reports::warm::list::MAX_MEMORY);
    // Fingerprint of a page.
    let _ = coherence::fingerprint::LeafFingerprint::of(bytes, &[7; 16]);
}

/// The servers' option files, which the command reads.
pub fn option_files(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else {
        return;
    };
    // Included files are looked up below this directory.
    let mut files = option_file::OptionFiles::in_root(folder.path());
    if std::fs::write(folder.path().join("my.cnf"), bytes).is_ok() {
        files.read_if_present(Path::new("/my.cnf"));
        let groups = ["mysqld".to_owned(), "client".to_owned()];
        let _ = (
            files.value(&groups, "port"),
            files.last(&groups, "bpe_size"),
        );
    }
}

/// Sizes and durations in their text form.
pub fn sizes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(size) = size::parse(&text) {
        assert!(size <= i64::MAX as u64);
        assert!(!size::human(size).is_empty());
    }
    let _ = cloud_volume::parse_bytes(&text);
    let _ = cloud_volume::parse_duration(&text);
    let _ = text.parse::<replay::policies::PolicyName>();
}

/// Commands to the control socket of a cloud volume.
pub fn volume_commands(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut profile = cloud_volume::Profile::default();
    for word in text.split_whitespace() {
        if let Some((name, value)) = word.split_once('=') {
            let _ = profile.set(name, value);
        }
        let _ = word.parse::<cloud_volume::Jitter>();
        let _ = word.parse::<cloud_volume::Burst>();
    }
    assert!(!profile.to_string().is_empty());
    let _ = text.parse::<cloud_volume::Fault>();
}

/// The argument of `bpe_report()`.
pub fn report(bytes: &[u8]) {
    let _ = bpe_plugin::abi::report_function::answer(&String::from_utf8_lossy(bytes));
}

/// The server's executable, which `bpe doctor` inspects.
pub fn executable(bytes: &[u8]) {
    let Ok(file) = tempfile::NamedTempFile::new() else {
        return;
    };
    if std::fs::write(file.path(), bytes).is_ok() {
        if let Ok(symbols) = elf::Symbols::of(file.path()) {
            let _ = symbols.judge();
        }
    }
}

/// Table rules from clients and option files. An accepted rule can be written, and read again.
pub fn tables(bytes: &[u8]) {
    use interface::tables::{Action, Named, Rules};
    let text = String::from_utf8_lossy(bytes);
    for folds in [false, true] {
        let Ok(rules) = Rules::parse(&text, folds) else {
            continue;
        };
        let written = rules.to_string();
        if written.len() <= interface::tables::LONGEST {
            let again = Rules::parse(&written, folds);
            assert_eq!(again.as_ref(), Ok(&rules), "{written}");
        }
        let (schema, table) = text.split_once('.').unwrap_or(("a", "b"));
        let named = Named::Table {
            schema,
            table,
            partition: Some("p:s"),
        };
        let _ = (rules.of(&named), rules.of(&Named::System));
        let changed = rules.with(schema, table, Some(Action::Exclude));
        if let Ok(changed) = changed {
            assert!(Rules::parse(&changed, folds).is_ok(), "{changed}");
        }
    }
}
