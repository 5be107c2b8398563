//! The options of every server of the demonstration. All sides get the same ones, and what matters
//! for durability and speed is the server's own default or stricter.

use private_server::Flavour;

/// An option and why it is there, for the report.
pub struct Setting {
    pub option: &'static str,
    pub reason: &'static str,
}

const fn setting(option: &'static str, reason: &'static str) -> Setting {
    Setting { option, reason }
}

const COMMON: &[Setting] = &[
    setting(
        "--innodb-flush-method=O_DIRECT",
        "the default of both servers: no second cache in the kernel",
    ),
    setting("--innodb-doublewrite=ON", "the default"),
    setting(
        "--innodb-flush-log-at-trx-commit=1",
        "the default: every commit is durable",
    ),
    setting(
        "--log-bin=binlog",
        "binary log on the data disk, as in the reference; its sync is the server's default",
    ),
    setting("--server-id=1", "needed by the binary log"),
    setting(
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "every side starts with an empty buffer pool",
    ),
    setting(
        "--innodb-buffer-pool-load-at-startup=OFF",
        "every side starts with an empty buffer pool",
    ),
    setting(
        "--max-prepared-stmt-count=100000",
        "64 threads prepare their statements for 30 tables",
    ),
    setting(
        "--max-connections=300",
        "room for 64 threads and the observer",
    ),
];

/// Everything else is at the server's default, in particular the redo log's size, I/O capacity and
/// the binary log's sync.
pub fn settings(_flavour: Flavour) -> impl Iterator<Item = &'static Setting> {
    COMMON.iter()
}

/// For loading the tables only: no durability, much memory. Undone by the clean stop after it.
pub const LOADING: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-io-capacity=5000",
    "--innodb-io-capacity-max=20000",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--max-connections=300",
];
