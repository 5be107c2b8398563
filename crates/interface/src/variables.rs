//! The system variables `bpe_<name>`: one row each, with all of their properties.
//!
//! Derived from this list: the tables that both servers read (the plugin's `abi/variables.rs`), the console's settings, the
//! command's rebuild warnings, the table of `docs/user/reference.md` and the page's list (`cargo run -p interface --example
//! generate`). The plugin implements the variables' effects.

use std::ffi::CStr;

/// The possible values of a variable, with the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ON or OFF. OFF by default.
    Switch,
    /// One of these; the first is the default.
    Choice(&'static [&'static CStr]),
    /// A whole number, 0 or more.
    Number {
        default: u64,
        most: u64,
    },
    /// The same. The page also accepts `100G`.
    Bytes,
    Text(&'static CStr),
}

/// The effect of setting a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It takes effect at once.
    AtOnce,
    /// The cache is rebuilt, and starts empty. These variables determine the layout of a cache.
    Rebuilds,
    /// The server reads it at start; it cannot be set later.
    AtStart,
    /// Each session has a value; option files have none.
    OfSession,
}

/// The console page's text beside a setting, by language.
#[derive(Debug, Clone, Copy)]
pub struct Hint {
    pub en: &'static str,
    pub ja: &'static str,
    pub zh_tw: &'static str,
}

/// A system variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// The name for the server, which adds `bpe_`.
    pub c_name: &'static CStr,
    /// The full name.
    pub name: &'static str,
    pub kind: Kind,
    pub change: Change,
    /// The text of the server's `--help --verbose`, and of the reference.
    pub comment: &'static CStr,
    /// `None` if the page does not set it.
    pub hint: Option<Hint>,
}

impl Variable {
    /// The default of a number.
    pub const fn default_number(&self) -> u64 {
        match self.kind {
            Kind::Number { default, .. } => default,
            _ => 0,
        }
    }

    /// The default, as the server shows it; empty for an empty text.
    pub fn default(&self) -> String {
        match self.kind {
            Kind::Switch => "OFF".to_owned(),
            Kind::Choice(names) => names[0].to_string_lossy().into_owned(),
            Kind::Number { default, .. } => default.to_string(),
            Kind::Bytes => "0".to_owned(),
            Kind::Text(default) => default.to_string_lossy().into_owned(),
        }
    }

    /// The accepted values, as text.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Switch => "ON, OFF".to_owned(),
            Kind::Choice(names) => names
                .iter()
                .map(|name| name.to_string_lossy())
                .collect::<Vec<_>>()
                .join(", "),
            Kind::Number { most: u64::MAX, .. } => "0 or more".to_owned(),
            Kind::Number { most, .. } => format!("0 to {most}"),
            Kind::Bytes => "bytes".to_owned(),
            Kind::Text(_) => "text".to_owned(),
        }
    }
}

/// The variable with this name.
pub fn by_name(name: &str) -> Option<&'static Variable> {
    ALL.iter().find(|one| one.name == name)
}

/// Whether a change of the variable with this name rebuilds the cache.
pub fn rebuilds(name: &str) -> bool {
    by_name(name).is_some_and(|one| one.change == Change::Rebuilds)
}

/// Names of the variables whose change rebuilds the cache.
pub fn rebuilding() -> impl Iterator<Item = &'static str> {
    let names = ALL.iter().map(|one| one.name);
    names.filter(|name| rebuilds(name))
}

/// The variables that the console's page shows and sets, in its order.
pub fn settings() -> impl Iterator<Item = &'static Variable> {
    ALL.iter().filter(|one| one.hint.is_some())
}

macro_rules! variables {
    ($($id:ident $name:literal $kind:expr, $change:ident $comment:literal $(hint $en:literal $ja:literal $zh_tw:literal)?;)+) => {
        $(pub const $id: Variable = Variable {
            c_name: match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name holds no NUL"),
            },
            name: concat!("bpe_", $name),
            kind: $kind,
            change: Change::$change,
            comment: $comment,
            hint: variables!(@hint $($en $ja $zh_tw)?),
        };)+

        /// In the server's output order.
        pub const ALL: &[Variable] = &[$($id),+];
    };
    (@hint) => { None };
    (@hint $en:literal $ja:literal $zh_tw:literal) => { Some(Hint { en: $en, ja: $ja, zh_tw: $zh_tw }) };
}

/// A number without an upper bound, 0 by default.
const COUNT: Kind = up_to(u64::MAX);

const fn up_to(most: u64) -> Kind {
    Kind::Number { default: 0, most }
}

// Name, kind, what a change does, comment, hint.
variables! {
    ENABLED "enabled" Kind::Switch, AtOnce
        c"Switches the buffer pool extension on or off at once; OFF empties the cache";
    BYPASS "bypass" Kind::Choice(&[c"OFF", c"ON", c"REFILL"]), AtOnce
        c"ON: reads go to the data files as if the extension were off, writes still drop what they touch, what is cached stays; REFILL: the same, but pages that are written are cached as ever";
    BYPASS_TIMEOUT "bypass_timeout" up_to(86_400), AtOnce
        c"Seconds after which bypass ends by itself, counted from the last time that bpe_bypass was set; until then reads are timed, and one extent of pages in 64 is always read from the data files, so that both ways can be compared; 0: never";
    PATH "path" Kind::Text(c""), Rebuilds
        c"Files or directories on fast local disks, separated by colons; in a directory the server creates a file under a name of its own"
        hint "Folders or files on fast disks, separated by :."
            "高速ディスク上のフォルダーまたはファイル。: で区切ります。"
            "高速磁碟上的資料夾或檔案，以 : 分隔。";
    SIZE "size" Kind::Bytes, Rebuilds
        c"Bytes the cache may take on disk, all disks together; 10 to 100: percent of the room there, as far as bpe_memory_limit allows"
        hint "All disks together, such as 100G."
            "全ディスクの合計。例: 100G。"
            "所有磁碟合計，例如 100G。";
    INSTANCES "instances" up_to(64), Rebuilds
        c"Parts of the cache, each with its own lock; 0: 1 below 8 cores, 8 from 8 cores on"
        hint "Parts of the cache, each with its own lock; 0: by the number of cores."
            "それぞれロックを持つ部分の数。0 はコア数に応じて決定。"
            "各有一把鎖的部分數；0：依核心數決定。";
    IO_CAPACITY "io_capacity" COUNT, AtOnce
        c"At most this many writes of 16 KiB per second to the cache disks; 0: no limit"
        hint "16 KiB writes a second to the cache disks; 0: no limit."
            "キャッシュディスクへの 16 KiB 書き込みの毎秒上限。0 は無制限。"
            "每秒寫入快取磁碟的 16 KiB 次數；0：不限。";
    MEMORY_LIMIT "memory_limit" Kind::Bytes, Rebuilds
        c"Bytes of memory the extension may take; 0: what bpe_size needs, or if that is a percentage, 4 % of the buffer pool, at least 4 MiB for each path"
        hint "Such as 64M; 0: what the size needs."
            "例: 64M。0 はサイズに応じた量。"
            "例如 64M；0：依大小所需。";
    COMPRESSION "compression" Kind::Choice(&[c"off", c"lz4"]), Rebuilds
        c"lz4: pages that shrink by an eighth are stored compressed"
        hint "Pages that shrink by an eighth are stored compressed."
            "8 分の 1 以上縮むページを圧縮して保存します。"
            "能縮小八分之一以上的頁面會壓縮儲存。";
    DAILY_WRITE_LIMIT "daily_write_limit" Kind::Bytes, AtOnce
        c"At most this many bytes written to the cache disks in 24 hours, of which a quarter is available at once; 0: no limit"
        hint "Bytes written to the cache disks in 24 hours, such as 500G; 0: no limit."
            "キャッシュディスクへの 24 時間の書き込み上限。例: 500G。0 は無制限。"
            "24 小時內寫入快取磁碟的位元組，例如 500G；0：不限。";
    TABLES "tables" Kind::Text(c""), AtOnce
        c"Rules for tables, separated by commas: exclude shop.log_*, limit 20% reports.*, prefer shop.orders; include: only what is named is cached; normal: an exception; the first rule that fits counts"
        hint "Rules for tables: exclude shop.log_*, limit 20% reports.*, prefer shop.orders."
            "テーブルのルール。例: exclude shop.log_*, limit 20% reports.*, prefer shop.orders"
            "資料表的規則，例如 exclude shop.log_*, limit 20% reports.*, prefer shop.orders。";
    PERSIST_PATH "persist_path" Kind::Text(c"/dev/shm"), AtStart
        c"Directory on a file system in memory (tmpfs), in which the server keeps what it needs to find cached pages again after it was restarted or killed, about 12 bytes a page; empty: the cache is empty then";
    WARM_IO_CAPACITY "warm_io_capacity" Kind::Number { default: 1000, most: 1_000_000 }, AtOnce
        c"At most this many reads of the data disk per second while pages are loaded into the cache: after a restart those that could not be proven, and with bpe warm those that another server has cached; 0: none are loaded";
    REPORT "report" Kind::Text(c""), OfSession
        c"Set to the name of a report (summary, status, instances, devices, files, rules, suspended, latency), it reads as that report in JSON; what bpe_report() gives, for servers without that function";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        for (index, one) in ALL.iter().enumerate() {
            assert!(!one.comment.is_empty());
            assert!(ALL[..index].iter().all(|before| before.name != one.name));
            assert_eq!(one.name.strip_prefix("bpe_"), one.c_name.to_str().ok());
            assert_eq!(by_name(one.name).map(|found| found.name), Some(one.name));
        }
        assert!(by_name("bpe_nothing").is_none());
    }

    #[test]
    fn there_are_few_variables() {
        assert!(ALL.len() <= 14, "{}", ALL.len());
    }

    #[test]
    fn page_sets_what_can_be_set() {
        for one in settings() {
            assert!(
                matches!(one.change, Change::AtOnce | Change::Rebuilds),
                "{}",
                one.name
            );
        }
    }
}
