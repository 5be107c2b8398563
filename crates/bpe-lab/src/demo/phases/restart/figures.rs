//! Measurements of restarts, and derived values.

use serde::{Deserialize, Serialize};

use super::super::second::{Second, hit_ratio};
use crate::report::share;
use crate::sysbench::settled::recovery;

/// Seconds after the first query for measuring the recovered cache.
pub const FIRST: usize = 5;
/// Goal: percent of the previous hit ratio in these seconds.
pub const HITS: f64 = 95.0;
/// Goal: percent of the previous throughput ...
pub const THROUGHPUT: f64 = 90.0;
/// ... this many seconds after the server accepts connections.
pub const WITHIN: f64 = 5.0;

/// Status variables of the recovered cache, without `Bpe_`: pages found, pages trusted, and pages loaded from the list of
/// unproven ones. A library without persistence has none of them.
pub const TOLD: [&str; 3] = ["pages_inherited", "pages_trusted", "warm_pages_loaded"];

/// How a server ends, and its cache at the next start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Stopped and started.
    #[default]
    Clean,
    /// Killed and started.
    Kill,
    /// Stopped, and started with an empty cache.
    Cold,
}

/// All restarts, in their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Restarts {
    pub restarts: Vec<Restart>,
}

/// One restart under load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Restart {
    pub how: How,
    /// The load before the shutdown. `t` counts from its beginning.
    pub before: Vec<Second>,
    /// Bytes in the cache at its end.
    pub cached: u64,
    /// Duration of the shutdown, seconds.
    pub stop: f64,
    /// Seconds from the start command until the server answered a client, including InnoDB's recovery.
    pub start: f64,
    /// Seconds from then until the first query of the load.
    pub first_query: f64,
    /// The load after the restart. `t` counts from when the server answered.
    pub after: Vec<Second>,
    /// Values of the status variables [`TOLD`] at the end of the load after the restart. Earlier values are too low: a file's
    /// pages are trusted only when the server opens the file.
    pub told: Vec<(String, u64)>,
}

impl How {
    pub const ALL: [How; 3] = [How::Clean, How::Kill, How::Cold];

    /// Title for the report.
    pub fn title(self) -> &'static str {
        match self {
            How::Clean => "clean restart",
            How::Kill => "kill -9",
            How::Cold => "cold start",
        }
    }

    /// Component of a log's name.
    pub fn name(self) -> &'static str {
        match self {
            How::Clean => "clean",
            How::Kill => "kill",
            How::Cold => "cold",
        }
    }

    /// Progress message.
    pub fn ending(self) -> &'static str {
        match self {
            How::Kill => "killing the server",
            How::Clean | How::Cold => "stopping the server",
        }
    }
}

/// Average queries per second; 0 for an empty slice.
pub fn qps(of: &[Second]) -> f64 {
    of.iter().map(|one| one.qps).sum::<f64>() / of.len().max(1) as f64
}

impl Restart {
    /// An empty measurement.
    pub fn of(how: How) -> Restart {
        Restart {
            how,
            ..Restart::default()
        }
    }

    /// Queries per second before the restart.
    pub fn qps_before(&self) -> f64 {
        qps(&self.before)
    }

    /// Hit ratio before the restart, percent.
    pub fn hits_before(&self) -> f64 {
        hit_ratio(&self.before)
    }

    /// Splits the load after into the first seconds and the rest.
    pub fn parts(&self) -> (&[Second], &[Second]) {
        self.after.split_at(self.after.len().min(FIRST))
    }

    /// Hit ratio of the first seconds, percent of the previous one.
    pub fn hits_kept(&self) -> Option<f64> {
        share(hit_ratio(self.parts().0), self.hits_before())
    }

    /// Seconds from accepting connections until the throughput recovered.
    pub fn back_after(&self) -> Option<f64> {
        let goal = self.qps_before() * THROUGHPUT / 100.0;
        recovery(self.after.iter().map(|one| (one.t, one.qps)), goal)
    }

    /// Describes the throughput's recovery.
    pub fn back(&self) -> String {
        match self.back_after() {
            Some(seconds) => format!("was back after {seconds:.1} s"),
            None => format!("was not back within {:.0} s", self.measured()),
        }
    }

    /// Seconds measured after the server accepts connections.
    pub fn measured(&self) -> f64 {
        self.after.last().map_or(0.0, |last| last.t)
    }

    /// Value of one of [`TOLD`].
    pub fn told(&self, name: &str) -> Option<u64> {
        let found = self.told.iter().find(|(key, _)| key == name)?;
        Some(found.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(t: f64, qps: f64, hits: u64) -> Second {
        Second {
            t,
            qps,
            hits,
            reads: 100,
            ..Second::default()
        }
    }

    /// 1,000 QPS and 80 % before; then these QPS and hits, one second each, from 0.5 s on.
    fn restart(after: &[(f64, u64)]) -> Restart {
        let after = after.iter().zip(1..);
        Restart {
            before: vec![second(9.0, 900.0, 70), second(10.0, 1100.0, 90)],
            after: after
                .map(|(one, n)| second(0.5 + f64::from(n), one.0, one.1))
                .collect(),
            ..Restart::default()
        }
    }

    #[test]
    fn the_first_seconds_are_compared_with_those_before() {
        let warm = restart(&[
            (500.0, 60),
            (900.0, 80),
            (950.0, 80),
            (900.0, 80),
            (1000.0, 80),
            (2000.0, 0),
        ]);
        assert_eq!((warm.qps_before(), warm.hits_before()), (1000.0, 80.0));
        assert_eq!(warm.hits_kept(), Some(95.0));
        assert_eq!(share(qps(warm.parts().0), warm.qps_before()), Some(85.0));
        assert_eq!(warm.parts().1.len(), 1);
        // Fewer seconds than the first part has.
        assert_eq!(restart(&[(100.0, 40)]).hits_kept(), Some(50.0));
        let nothing = Restart::default();
        assert_eq!((nothing.hits_kept(), share(0.0, 0.0)), (None, None));
    }

    #[test]
    fn the_throughput_is_back_when_it_stays() {
        let back = |qps: &[f64]| {
            let after: Vec<_> = qps.iter().map(|qps| (*qps, 0)).collect();
            restart(&after).back_after()
        };
        assert_eq!(back(&[900.0, 900.0, 900.0]), Some(1.5));
        // A single fast second does not count.
        assert_eq!(back(&[950.0, 500.0, 600.0, 920.0, 900.0, 930.0]), Some(4.5));
        // One slow second among others is allowed, but not as the first.
        assert_eq!(back(&[850.0, 1000.0, 1000.0, 800.0, 0.0]), Some(2.5));
        assert_eq!(back(&[899.0; 20]), None);
        // Two seconds are not enough.
        assert_eq!(back(&[950.0, 950.0]), None);
        assert_eq!(back(&[]), None);
    }
}
