//! The rows of `bpe_report()`: their members, the column names of the views, and the meanings.
//!
//! The columns of `sql/views.sql`, the page's types and PMM's descriptions are generated from this list. A new column needs
//! a line here and a field in the plugin's report.

use crate::status::Kind;

/// Reports without an argument, for which `PROCESS` is enough, as for InnoDB's own.
pub const PLAIN: [&str; 8] = [
    "summary",
    "status",
    "instances",
    "devices",
    "files",
    "rules",
    "suspended",
    "latency",
];

/// Whether an argument of `bpe_report()` needs the right to `SET GLOBAL` beside `PROCESS`: it may load the server for its client,
/// or show more than InnoDB shows. [`PLAIN`] reports and the heat list (`heat`, `heat:FILE:PAGE`) do not need it.
pub fn is_privileged(argument: &str) -> bool {
    let is_plain = argument.is_empty() || PLAIN.contains(&argument);
    !(is_plain || argument == "heat" || argument.starts_with("heat:"))
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Whole,
    /// Below 2^32.
    Small,
    Real,
    Yes,
    /// At most this many characters.
    Text(u16),
    /// The same, or null.
    Name(u16),
}

/// A member of the rows of a report.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The name in the report.
    pub key: &'static str,
    /// The name in the view; `None` if the view omits it.
    pub view: Option<&'static str>,
    pub value: Value,
    pub kind: Kind,
    pub meaning: &'static str,
}

/// Key; the view's name, `seen` for the same name, or `unseen`; value type; kind; meaning.
macro_rules! columns {
    (@view $key:literal unseen) => { None };
    (@view $key:literal seen) => { Some($key) };
    (@view $key:literal $view:literal) => { Some($view) };
    ($($(#[$doc:meta])* $name:ident { $($key:literal $view:tt $value:expr, $kind:ident $meaning:literal)+ })+) => {
        $($(#[$doc])* pub const $name: &[Column] = &[$(Column {
            key: $key,
            view: columns!(@view $key $view),
            value: $value,
            kind: Kind::$kind,
            meaning: $meaning,
        }),+];)+
    };
}

use Value::{Name, Real, Small, Text, Whole, Yes};

columns! {
    /// `bpe_report('instances')`
    INSTANCES {
        "instance" seen Small, Text "Number of the instance"
        "accesses" seen Whole, Counter "Page reads that came to the instance"
        "share" seen Real, Gauge "Percent of all accesses"
        "hits" seen Whole, Counter "Page reads that it answered"
        "misses" seen Whole, Counter "Page reads that it could not answer"
        "pages" "cached_pages" Whole, Gauge "Pages in the instance"
        "staged" "staged_pages" Whole, Gauge "Pages that wait in memory to be written"
        "capacity" "capacity_pages" Whole, Gauge "Pages that fit"
        "lock_accesses" seen Whole, Counter "Times its lock was taken"
        "lock_waits" seen Whole, Counter "Times its lock was found held"
    }
    /// `bpe_report('devices')`
    DEVICES {
        "path" seen Text(1024), Text "Cache file or device"
        "active" seen Yes, Gauge "1 if the disk is used"
        "state" seen Text(1024), Text "Why it is not used"
        "bytes" seen Whole, Gauge "Size of the cache on this disk"
        "pages" "cached_pages" Whole, Gauge "Pages on this disk"
        "reads" seen Whole, Counter "Reads"
        "bytes_read" seen Whole, Counter "Bytes read"
        "writes" seen Whole, Counter "Writes"
        "bytes_written" seen Whole, Counter "Bytes written"
        "write_us" seen Real, Gauge "Microseconds that a write takes, of late"
        "errors" seen Whole, Counter "Reads and writes that failed"
        "reads_given_up" seen Whole, Counter "Reads that were not answered within a second"
        "reads_busy" seen Whole, Counter "Reads not made because the disk could take no more just then"
        "direct_io" seen Yes, Gauge "1 if the kernel's page cache is passed by"
        "segments" unseen Whole, Gauge "Segments that the disk is cut into"
        "free_segments" unseen Whole, Gauge "Of them, those that hold nothing"
    }
    /// `bpe_report('files')`
    FILES {
        "file" seen Text(1024), Text "Path of the data file"
        "schema" "schema_name" Name(64), Text "Schema of its table; null for system, undo and general tablespaces"
        "table" "table_name" Name(64), Text "Its table"
        "partition" "partition_name" Name(130), Text "Its partition, if the table has some"
        "page_size" seen Small, Gauge "Bytes of its pages"
        "hits" seen Whole, Counter "Page reads that the cache answered"
        "misses" seen Whole, Counter "Page reads that went to the data disk"
        "hit_ratio" seen Real, Gauge "Percent of the reads that were hits"
        "cached_pages" seen Whole, Gauge "Pages of the file in the cache"
        "cached_bytes" seen Whole, Gauge "Bytes of these pages"
        "rule" "file_rule" Name(400), Text "The rule of bpe_tables that counts for it; null if none"
        "kept_out" seen Whole, Counter "Page reads and writes that passed the cache by because the rules exclude it"
    }
    /// `bpe_report('rules')`
    RULES {
        "rule" "number" Small, Text "Number of the rule in bpe_tables; the first that fits counts"
        "text" "rule_text" Text(400), Text "The rule"
        "action" seen Text(16), Text "include, exclude, normal, prefer or limit"
        "tables" seen Text(400), Text "The tables that it fits"
        "files" seen Small, Gauge "Data files for which it counts now; 0: no table of such a name is open"
        "hits" seen Whole, Counter "Page reads of them that the cache answered"
        "misses" seen Whole, Counter "Page reads of them that went to the data disk"
        "cached_pages" seen Whole, Gauge "Their pages in the cache"
        "limit_pages" seen Whole, Gauge "Pages that they may have there; null without a limit"
        "kept_out" seen Whole, Counter "Page reads and writes that passed the cache by because the rule excludes them"
    }
}

impl Value {
    /// The SQL type of a view's column.
    pub fn sql(self) -> String {
        match self {
            Whole => "BIGINT UNSIGNED".to_owned(),
            Small => "INT UNSIGNED".to_owned(),
            Real => "DOUBLE".to_owned(),
            Yes => "BOOLEAN".to_owned(),
            Text(most) | Name(most) => {
                format!("VARCHAR({most}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_for_a_client_is_privileged() {
        for plain in ["heat", "heat:0:0", ""].iter().chain(&PLAIN) {
            assert!(!is_privileged(plain), "{plain}");
        }
        for argument in [
            "trace-start",
            "verify-page a 0 0",
            "warm-next a",
            "heat-prints 0 []",
            " trace-start",
            "\tverify-start",
            "Trace-start",
            "nonsense",
        ] {
            assert!(is_privileged(argument), "{argument}");
        }
    }

    #[test]
    fn names_are_their_own() {
        for report in [INSTANCES, DEVICES, FILES, RULES] {
            for (index, one) in report.iter().enumerate() {
                let before = &report[..index];
                assert!(
                    before.iter().all(|other| other.key != one.key),
                    "{}",
                    one.key
                );
                assert!(
                    before
                        .iter()
                        .all(|other| one.view.is_none() || other.view != one.view)
                );
                assert!(
                    !matches!(one.value, Text(_) | Name(_)) || one.kind == Kind::Text,
                    "{}",
                    one.key
                );
            }
        }
    }
}
