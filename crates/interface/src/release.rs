//! Supported server releases: those whose plugin interface and calls were examined, and newer ones.

use std::fmt;

use crate::Refusal;

/// The vendor of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    MariaDb,
    /// MySQL, or a derived server.
    MySql,
}

/// A release of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub maker: Maker,
    /// The servers' own numbering: 10.11.5 is 101105, 8.0.40 is 80040.
    pub number: u32,
}

/// The oldest examined releases: MariaDB 10.5 and MySQL 8.0.
const OLDEST_MARIADB: u32 = 100_500;
const OLDEST_MYSQL: u32 = 80_000;

impl Release {
    /// Converts the interface version that a server's own storage engines declare, its number times 256.
    pub fn of_interface(maker: Maker, version: u32) -> Release {
        Release {
            maker,
            number: version >> 8,
        }
    }

    /// # Errors
    /// The release is older than every examined one.
    pub fn check(self) -> Result<(), Refusal> {
        let oldest = match self.maker {
            Maker::MariaDb => OLDEST_MARIADB,
            Maker::MySql => OLDEST_MYSQL,
        };
        if self.number >= oldest {
            return Ok(());
        }
        Err(Refusal {
            missing: format!(
                "{self} is older than {}.{}, the oldest release that the extension can follow",
                oldest / 10_000,
                oldest / 100 % 100
            ),
            remedy: "Use MariaDB 10.5 or MySQL 8.0, or a newer release",
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.maker {
            Maker::MariaDb => "MariaDB",
            Maker::MySql => "MySQL",
        };
        let number = self.number;
        write!(
            f,
            "{name} {}.{}.{}",
            number / 10_000,
            number / 100 % 100,
            number % 100
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_was_looked_at_is_refused() {
        for (maker, number, expected) in [
            (
                Maker::MariaDb,
                100_211,
                Some("MariaDB 10.2.11 is older than 10.5,"),
            ),
            (Maker::MariaDb, 100_499, Some("10.4.99")),
            (Maker::MariaDb, 100_500, None),
            (Maker::MariaDb, 120_002, None),
            (
                Maker::MySql,
                50_744,
                Some("MySQL 5.7.44 is older than 8.0,"),
            ),
            (Maker::MySql, 80_011, None),
            (Maker::MySql, 90_704, None),
        ] {
            let said = Release::of_interface(maker, number << 8).check();
            match expected {
                Some(words) => assert!(said.unwrap_err().missing.contains(words)),
                None => assert_eq!(said, Ok(())),
            }
        }
    }
}
