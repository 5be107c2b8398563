//! The status variables `Bpe_<name>`: the one list of the plugin's counters and measurements.
//!
//! The plugin shows them in this order. `cargo run -p interface --example generate` derives the table of
//! `docs/user/reference.md` and the last row of Grafana's dashboard. `tests/consumers.rs` checks the names in dashboards,
//! alerts, documents, commands and the page. A new variable needs a line here, and a count of the same name in the
//! extension's `Statistics`. A value from elsewhere needs a line in the plugin's `abi/status.rs`, whose unit test fails for
//! a name without a value.

use std::ffi::CStr;

/// Behaviour of a value over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows. Restarts at 0 when the cache is switched on, or the server starts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Not a number.
    Text,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Text => "text",
        }
    }
}

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Items that the name itself states, such as devices.
    Number,
    Reads,
    Pages,
    Bytes,
    Microseconds,
    Seconds,
    Percent,
    /// Not a number.
    Word,
}

impl Unit {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Reads => "reads",
            Self::Pages => "pages",
            Self::Bytes => "bytes",
            Self::Microseconds => "µs",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::Word => "",
        }
    }
}

/// Name of the variable (without `Bpe_`), kind, unit, meaning.
macro_rules! status {
    ($($id:ident $name:literal $kind:ident $unit:ident $meaning:literal)+) => {
        /// A status variable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Status {
            $(#[doc = $meaning] $id,)+
        }

        impl Status {
            /// In the server's output order.
            pub const ALL: &[Self] = &[$(Self::$id),+];

            /// The name for the server, which adds `Bpe_`.
            pub const fn c_name(self) -> &'static CStr {
                match self {
                    $(Self::$id => match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name holds no NUL"),
                    },)+
                }
            }

            /// The name without `Bpe_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$id => $name,)+ }
            }

            pub const fn kind(self) -> Kind {
                match self { $(Self::$id => Kind::$kind,)+ }
            }

            pub const fn unit(self) -> Unit {
                match self { $(Self::$id => Unit::$unit,)+ }
            }

            /// The meaning, in Markdown.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$id => $meaning,)+ }
            }
        }
    };
}

status! {
    Version "version" Text Word "version of the plugin"
    State "state" Text Word "`active`, `disabled`, `passive`, `failed`, or `bypass`: on, but reads go to the data files"
    StateNumber "state_number" Gauge Number "the state: 0 disabled, 1 active, 2 passive, 3 failed, 4 bypass"
    StateReason "state_reason" Text Word "why it is passive, failed or bypassed, which cache disks are not used, or why `bpe_tables` is not followed"
    Bypass "bypass" Text Word "`off`, `on` or `refill`, as `bpe_bypass` is now"
    LoadMode "load_mode" Text Word "`early` if the plugin was there before InnoDB opened its files, otherwise `runtime`"
    AsyncMode "async_mode" Text Word "how the server's asynchronous I/O is followed"
    Hits "hits" Counter Reads "reads that the cache answered"
    BytesSaved "bytes_saved" Counter Bytes "bytes that hits saved the data disk; each page counts with its length in the data file"
    Misses "misses" Counter Reads "reads that the cache could not answer"
    MissesReturned "misses_returned" Counter Reads "misses of pages that had been asked for before; a larger cache would have had many of them"
    HitRatio "hit_ratio" Gauge Percent "share of hits in all reads since the cache was switched on"
    PagesCached "pages_cached" Gauge Pages "pages in the cache"
    PagesInherited "pages_inherited" Gauge Pages "cached pages of the process before that were found at the server's start"
    PagesTrusted "pages_trusted" Gauge Pages "inherited pages of the files that the server has opened since and that are proven equal to their data files; approximate"
    BytesCached "bytes_cached" Gauge Bytes "bytes that the cached pages take"
    CapacityBytes "capacity_bytes" Gauge Bytes "bytes that cached pages can take on the cache disks"
    MemoryBytes "memory_bytes" Gauge Bytes "memory that the extension takes"
    Admitted "admitted" Counter Pages "pages that were admitted"
    Rejected "rejected" Counter Pages "pages that were not admitted: colder than the pages they would replace, or over a limit of `bpe_tables`"
    DroppedStagingFull "dropped_staging_full" Counter Pages "pages that were dropped because the writer was behind"
    WriteLimitRejected "write_limit_rejected" Counter Pages "pages that were not admitted because `bpe_daily_write_limit` was used up"
    Evicted "evicted" Counter Pages "pages that were evicted to make room for others"
    Invalidated "invalidated" Counter Pages "pages that were dropped because the server wrote or removed them"
    BytesWritten "bytes_written" Counter Bytes "bytes written to the cache disks"
    BytesWritten24h "bytes_written_24h" Gauge Bytes "bytes written to the cache disks in the last 24 hours"
    DataReads "data_reads" Counter Reads "page reads that went to the data files"
    CacheReadUsSum "cache_read_us_sum" Counter Microseconds "time of all reads of the cache disks together"
    CacheReadUsCount "cache_read_us_count" Counter Reads "reads of the cache disks whose time was taken"
    DataReadUsSum "data_read_us_sum" Counter Microseconds "time of all reads of the data files together"
    DataReadUsCount "data_read_us_count" Counter Reads "reads of the data files whose time was taken"
    DevicesFailed "devices_failed" Gauge Number "cache disks that are not in use now"
    DeviceErrors "device_errors" Counter Number "errors of the cache disks"
    ReadsGivenUp "reads_given_up" Counter Reads "reads of the cache disks that were not answered within a second"
    ReadsBusy "reads_busy" Counter Reads "reads that went to the data files because a cache disk had too many under way"
    FailedProofs "failed_proofs" Counter Pages "pages that came back from a cache disk altered; the data file was read instead"
    AuditSuspicions "audit_suspicions" Counter Number "how often a data file changed, but not by the server"
    SuspendedFiles "suspended_files" Gauge Number "data files that are not cached for that reason now"
    DamagedPages "damaged_pages" Gauge Pages "pages that are damaged in the data files, and that a comparison found whole in the cache"
    WarmState "warm_state" Text Word "progress of loading pages from a list, which is of the cache before a restart or of another server: `none`, `loading`, `paused` while the server itself needs the data disk, `loaded`, `limited` by `bpe_daily_write_limit`, or `ended` before all was loaded"
    WarmPercent "warm_percent" Gauge Percent "how warm the cache is: share of the pages of that list that are cached, of which the hottest count for most; -1 without a list"
    WarmAgeSeconds "warm_age_seconds" Gauge Seconds "age of that list"
    WarmPagesLoaded "warm_pages_loaded" Counter Pages "pages that were loaded from such lists"
    InstanceLockAccesses "instance_lock_accesses" Counter Number "accesses to the locks of instances"
    InstanceLockWaits "instance_lock_waits" Counter Number "accesses that found the lock held"
}

impl Status {
    /// Finds the variable with this name, with or without `Bpe_`, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let own = lower.strip_prefix("bpe_").unwrap_or(&lower);
        Self::ALL.iter().copied().find(|one| one.name() == own)
    }

    /// Names of the text variables, without `Bpe_`.
    pub fn texts() -> impl Iterator<Item = &'static str> {
        let texts = Self::ALL.iter().filter(|one| one.kind() == Kind::Text);
        texts.map(|one| one.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        for (index, one) in Status::ALL.iter().enumerate() {
            let name = one.name();
            assert!(
                Status::ALL[..index]
                    .iter()
                    .all(|before| before.name() != name)
            );
            assert_eq!(one.c_name().to_str(), Ok(name));
            assert_eq!(Status::by_name(&format!("Bpe_{name}")), Some(*one));
            assert!(
                name.bytes()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
            );
        }
        assert_eq!(Status::by_name("bpe_nothing"), None);
    }

    /// Every variable adds cost to each `SHOW STATUS` and each scrape. Counts that no alert, panel, sentence or test needs
    /// belong in reports.
    #[test]
    fn list_has_at_most_45_variables() {
        assert!(Status::ALL.len() <= 45, "{}", Status::ALL.len());
    }

    #[test]
    fn names_say_the_unit() {
        for one in Status::ALL {
            let (name, unit) = (one.name(), one.unit());
            assert_eq!((one.kind() == Kind::Text), unit == Unit::Word, "{name}");
            let said = name.contains("bytes");
            assert_eq!(said, unit == Unit::Bytes, "{name}");
            let said = name.contains("_us") && !name.ends_with("_count");
            assert_eq!(said, unit == Unit::Microseconds, "{name}");
        }
    }
}
