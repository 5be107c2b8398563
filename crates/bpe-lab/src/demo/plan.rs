//! Sizes and durations: the reference's ratios, scaled to this machine.

use super::args::{Args, SideName, Variable};
use crate::sysbench::Tables;

/// Tables of the reference's test.
pub const TABLES: u64 = 30;
/// Data size in pools, between the reference's 24 and 25.
const DATA_PER_POOL: f64 = 24.5;
/// Cache size in pools.
const CACHE_PER_POOL: u64 = 8;
/// Bytes of data and index in a sysbench table, by both servers' statistics: for each table, and for each row. The files are
/// about a tenth larger, as they grow in steps.
const BYTES_PER_TABLE: f64 = 1.2 * MIB as f64;
const BYTES_PER_ROW: f64 = 240.0;

/// Approximate seconds for a server's stop and start.
const AROUND: u64 = 10;

const MIB: u64 = 1 << 20;

/// One run with one size of the buffer pool.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Memory for InnoDB's buffer pool, bytes; the side with the extension shares it.
    pub pool: u64,
    /// Size of the extension's cache, bytes.
    pub cache: u64,
    /// Rows in each of the tables.
    pub rows: u64,
    /// Whether the server with the extension is restarted under load, instead of everything else.
    pub restart: bool,
    /// Variables of the extension with a value other than the default.
    pub variables: Vec<Variable>,
    pub times: Times,
}

/// Durations in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Minimum load before each measured test, not counted.
    pub lead: u64,
    /// Maximum load before it, while hit ratio or throughput rise.
    pub lead_max: u64,
    /// Duration of each measured test.
    pub test: u64,
    /// Maximum for filling the cache.
    pub warm_max: u64,
    /// Duration of the test with bypass, off and on.
    pub switch: u64,
    /// Duration of the load after each restart.
    pub after: u64,
}

/// Derives the plans from the arguments.
pub fn plans(args: &Args) -> Vec<Plan> {
    let (pool, times) = if args.quick {
        (
            40 * MIB,
            Times {
                lead: 3,
                lead_max: 3,
                test: 10,
                warm_max: 30,
                switch: 20,
                after: 20,
            },
        )
    } else {
        (
            128 * MIB,
            Times {
                lead: 8,
                lead_max: 120,
                test: 30,
                warm_max: 150,
                switch: 60,
                after: 60,
            },
        )
    };
    let times = Times {
        test: args.time.unwrap_or(times.test),
        ..times
    };
    let pools = if args.pool.is_empty() {
        vec![pool * args.scale]
    } else {
        args.pool.clone()
    };
    pools
        .into_iter()
        .map(|pool| Plan {
            variables: args.set.clone(),
            restart: args.restart,
            ..Plan::new(pool, times)
        })
        .collect()
}

impl Plan {
    /// A plan with the reference's ratios for `pool` bytes.
    pub fn new(pool: u64, times: Times) -> Plan {
        // Whole MiB, the step in which the servers can resize the pool; 8 MiB is their minimum.
        let pool = (pool / MIB).max(8) * MIB;
        let per_table = pool as f64 * DATA_PER_POOL / TABLES as f64;
        let rows = (per_table - BYTES_PER_TABLE) / BYTES_PER_ROW;
        Plan {
            pool,
            cache: pool * CACHE_PER_POOL,
            rows: (rows / 100.0).round() as u64 * 100,
            restart: false,
            variables: Vec::new(),
            times,
        }
    }

    /// The tables of the reference's test.
    pub fn tables(&self) -> Tables {
        Tables {
            database: "sbtest",
            count: TABLES,
            rows: self.rows,
        }
    }

    /// Approximate bytes of the tables.
    pub fn data(&self) -> u64 {
        (TABLES as f64 * (BYTES_PER_TABLE + self.rows as f64 * BYTES_PER_ROW)) as u64
    }

    /// Disk space for the loaded tables, one working copy with its logs, and the cache.
    pub fn disk_space(&self) -> u64 {
        5 * self.data() / 2 + self.cache + (2 << 30)
    }

    /// Approximate seconds for loading the tables and copying them once.
    pub fn preparation(&self) -> u64 {
        (self.gib() * 25.0) as u64 + 11
    }

    fn gib(&self) -> f64 {
        self.data() as f64 / (1_u64 << 30) as f64
    }

    /// Approximate seconds of the run.
    pub fn estimate(&self, args: &Args) -> u64 {
        let gib = self.gib();
        let load = (gib * 20.0) as u64 + 5;
        if self.restart {
            let Times {
                lead, test, after, ..
            } = self.times;
            let one = self.times.warm_max / 2 + lead + test + AROUND + after;
            return load + (gib * 5.0) as u64 + 6 + 3 * one;
        }
        let lead = (self.times.lead + self.times.lead_max) / 2;
        let one_side = 3 * (lead + self.times.test) + (gib * 5.0) as u64 + 6;
        let on = one_side + self.times.warm_max / 2 + self.times.switch;
        load + args
            .sides
            .iter()
            .map(|side| if *side == SideName::On { on } else { one_side })
            .sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_words() {
        let statement = |text: &str| Variable::parse(text).map(|v| v.statement());
        assert_eq!(
            statement("bpe_compression=lz4").unwrap(),
            "SET GLOBAL bpe_compression = 'lz4'"
        );
        assert_eq!(
            statement("io_capacity=0").unwrap(),
            "SET GLOBAL bpe_io_capacity = 0"
        );
        for bad in [
            "",
            "compression",
            "a=",
            "=b",
            "a='",
            "a=b c",
            "a b=c",
            "path=x",
            "bpe_size=1",
            "bypass=on",
            "persist=off",
        ] {
            assert!(Variable::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn restarts_end_within_their_promise() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let parse = |words: &[&str]| {
            let words = ["demo", "--restart"].iter().chain(words);
            let cli = <Cli as clap::Parser>::try_parse_from(words).unwrap();
            cli.args.completed()
        };
        let quick = parse(&["--quick"]);
        assert_eq!(
            (&quick.sides[..], quick.tests.len()),
            (&[SideName::On][..], 0)
        );
        let seconds: u64 = plans(&quick).iter().map(|plan| plan.estimate(&quick)).sum();
        assert!(seconds <= 300, "{seconds} s");
        let whole = parse(&[]);
        let plan = &plans(&whole)[0];
        assert!(plan.restart && plan.times.after == 60);
        assert!(plan.estimate(&whole) > 3 * (plan.times.test + plan.times.after));
    }

    #[test]
    fn the_ratios_are_the_references() {
        let times = Times {
            lead: 1,
            lead_max: 1,
            test: 1,
            warm_max: 1,
            switch: 1,
            after: 1,
        };
        for pool in [32 * MIB, 64 * MIB, 1 << 30] {
            let plan = Plan::new(pool, times);
            assert_eq!(plan.cache, 8 * pool);
            let ratio = plan.data() as f64 / pool as f64;
            assert!((24.0..=25.0).contains(&ratio), "{ratio}");
        }
        assert_eq!(Plan::new(1, times).pool, 8 * MIB);
    }
}
