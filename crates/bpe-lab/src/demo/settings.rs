//! The options of every server of the demonstration. All sides get the same ones. Options that affect durability and speed
//! are the server's defaults or stricter.

use private_server::Flavour;

/// An option and its reason, for the report.
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
        "--innodb-flush-neighbors=0",
        "what both servers do on a block device that is an SSD, as cloud volumes are; a FUSE mount \
         cannot say that it is one",
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

const EMPTY_POOL: &[Setting] = &[
    setting(
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "every side starts with an empty buffer pool",
    ),
    setting(
        "--innodb-buffer-pool-load-at-startup=OFF",
        "every side starts with an empty buffer pool",
    ),
];
const WARM_POOL: &[Setting] = &[
    setting(
        "--innodb-buffer-pool-dump-at-shutdown=ON",
        "the default of both servers: a clean stop writes down which pages were in the pool",
    ),
    setting(
        "--innodb-buffer-pool-load-at-startup=ON",
        "the default of both servers: a start reads the pages of the last clean stop, while clients are served",
    ),
];

const REDO_LOG: &str = "the default (about 96 MiB) is full within a minute on the faster sides, and the checkpoints it \
                        forces would fall into some measured tests and not into others";

const MARIADB: &[Setting] = &[setting("--innodb-log-file-size=1G", REDO_LOG)];
const MYSQL: &[Setting] = &[setting("--innodb-redo-log-capacity=1G", REDO_LOG)];

/// All other options have the server's defaults, in particular I/O capacity and the binary log's sync. A restarted server
/// reloads its pool as it does by default; otherwise the pool starts empty.
pub fn settings(flavour: Flavour, restart: bool) -> impl Iterator<Item = &'static Setting> {
    let own = if flavour.is_mysql() { MYSQL } else { MARIADB };
    let pool = if restart { WARM_POOL } else { EMPTY_POOL };
    COMMON.iter().chain(pool).chain(own)
}

/// The options with their reasons, for the report.
pub fn with_reasons(flavour: Flavour, restart: bool) -> Vec<(String, String)> {
    let all = settings(flavour, restart);
    all.map(|one| (one.option.into(), one.reason.into()))
        .collect()
}

/// Options for loading the tables only: no durability, much memory. The clean stop after loading restores durability.
pub const LOADING: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--innodb-io-capacity=5000",
    "--innodb-io-capacity-max=20000",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--max-connections=300",
];
