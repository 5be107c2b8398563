//! Facts about a run: when it ran, on which server and machine.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bpe::size;
use private_server::Installation;
use serde::{Deserialize, Serialize};

/// The run, its server and its machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub version: String,
    /// Seconds since 1970 at the beginning.
    pub began: u64,
    /// Wall-clock time of the whole run, seconds.
    pub seconds: f64,
    pub quick: bool,
    /// For example `MariaDB 10.11.19`.
    pub server: String,
    /// The version that the server prints, with the packager's additions.
    pub server_version: String,
    pub machine: Machine,
    /// Server options, each with its reason.
    pub settings: Vec<(String, String)>,
}

/// The machine it ran on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    /// Bytes.
    pub memory: u64,
    pub kernel: String,
    pub system: String,
    /// File system type of the demonstration's folder.
    pub file_system: String,
}

impl Environment {
    /// Everything known at the beginning. `folder` is on the file system in use.
    pub fn begin(
        quick: bool,
        installation: &Installation,
        folder: &Path,
        settings: Vec<(String, String)>,
    ) -> Environment {
        Environment {
            version: env!("CARGO_PKG_VERSION").into(),
            began: now() as u64,
            seconds: 0.0,
            quick,
            server: server_title(installation),
            server_version: installation.version.clone(),
            machine: Machine::look(folder),
            settings,
        }
    }

    /// Records the total time.
    pub fn end(&mut self) {
        self.seconds = (now() - self.began as f64).max(0.0);
    }

    /// `2026-03-01 14:05 UTC, took 4 min 05 s`.
    pub fn time(&self) -> String {
        let seconds = self.seconds.round() as u64;
        let date = date(self.began);
        format!("{date}, took {} min {:02} s", seconds / 60, seconds % 60)
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

impl Machine {
    /// Describes the machine, with the file system of `folder`. Facts that cannot be read stay empty.
    fn look(folder: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| -> Option<String> {
            text.lines()
                .find(|line| line.starts_with(key))
                .and_then(|line| line.split_once([':', '=']))
                .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
            .map_or(0, |kib| kib << 10);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            memory,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME").unwrap_or_default(),
            file_system: file_system_of(folder).unwrap_or_default(),
        }
    }

    /// Describes the machine in words.
    pub fn words(&self) -> String {
        let processor = match &self.processor[..] {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        format!(
            "{} cores{processor}, {} of memory, {}, Linux {}, {}",
            self.cores,
            size::human(self.memory),
            self.system,
            self.kernel,
            self.file_system
        )
    }
}

/// For example `MariaDB 10.11.19`.
pub fn server_title(installation: &Installation) -> String {
    let product = if installation.flavour.is_mysql() {
        "MySQL"
    } else {
        "MariaDB"
    };
    let bare = installation.version.split(['-', '+']).next();
    format!("{product} {}", bare.unwrap_or_default())
}

/// Type of the file system of `folder`: that of its longest ancestor among the mount points.
fn file_system_of(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(place, _)| folder.starts_with(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}

/// `2026-03-01 14:05 UTC`.
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01 make leap days the last of their year (H. Hinnant's civil_from_days).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        rest / 3600,
        rest % 3600 / 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_772_373_900), "2026-03-01 14:05 UTC");
    }
}
