//! Performance profile of a volume: caps, latency, burst credits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::{parse_bytes, parse_duration};

/// The performance of a volume. The default is a common general purpose cloud volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// I/Os per second, shared by reads and writes; `None` for no cap.
    pub iops: Option<u64>,
    /// Bytes per second, shared by reads and writes; `None` for no cap.
    pub bandwidth: Option<u64>,
    /// Minimum time between an I/O's start and its completion. An I/O starts when the caps allow it, so the queueing
    /// time is additional.
    pub latency: Duration,
    /// Random time on top of the latency.
    pub jitter: Option<Jitter>,
    /// Credits that let the volume exceed `iops` for a while. Has no effect without `iops`.
    pub burst: Option<Burst>,
    /// An I/O up to this many bytes counts as one against `iops`, a larger one as several.
    pub billed_size: u64,
}

/// Random time added to an I/O's latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Maximum of the added time.
    pub bound: Duration,
    pub shape: JitterShape,
}

/// How jitter is distributed between zero and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterShape {
    /// Every value equally likely.
    Uniform,
    /// Mostly near zero, rarely near the bound: the median is 1/128 of the bound, the mean 1/8.
    Tail,
}

/// Burst credits, counted in I/Os. The volume starts with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Maximum number of saved credits.
    pub credits: u64,
    /// I/Os per second while credits last.
    pub iops: u64,
    /// Credits per second that an idle volume earns. A volume that uses a part of its `iops` earns in proportion to the
    /// rest. `None`: as many as `iops`, so that every unused I/O is saved.
    pub refill: Option<u64>,
}

impl Default for Profile {
    /// 3,000 IOPS, 125 MB/s, 0.5 ms, I/Os billed per 256 KiB.
    fn default() -> Self {
        Profile {
            iops: Some(3000),
            bandwidth: Some(125_000_000),
            latency: Duration::from_micros(500),
            jitter: None,
            burst: None,
            billed_size: 256 * 1024,
        }
    }
}

impl Profile {
    /// No caps and no added latency: as fast as the backing directory allows.
    pub fn unlimited() -> Self {
        Profile {
            iops: None,
            bandwidth: None,
            latency: Duration::ZERO,
            jitter: None,
            burst: None,
            billed_size: 256 * 1024,
        }
    }

    /// Whether an I/O never has to wait.
    pub fn is_unlimited(&self) -> bool {
        self.iops.is_none()
            && self.bandwidth.is_none()
            && self.latency.is_zero()
            && self.jitter.is_none()
    }

    pub(crate) fn billed(&self, bytes: u64) -> u64 {
        billed(bytes, self.billed_size)
    }

    /// Changes one property by name, in the syntax of the command line and the control socket.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let cap = |value: &str, parse: &dyn Fn(&str) -> Result<u64, String>| match value {
            "none" | "unlimited" => Ok(None),
            _ => match parse(value)? {
                0 => Err(format!("{name} must be above 0 (or `none` for no cap)")),
                n => Ok(Some(n)),
            },
        };
        match name {
            "iops" => {
                self.iops = cap(value, &|v| {
                    v.parse().map_err(|_| format!("`{v}` is not a number"))
                })?
            }
            "bandwidth" => self.bandwidth = cap(value, &parse_bytes)?,
            "latency" => self.latency = parse_duration(value)?,
            "jitter" => self.jitter = none_or(value, str::parse)?,
            "burst" => self.burst = none_or(value, str::parse)?,
            "billed-size" => {
                self.billed_size = cap(value, &parse_bytes)?.unwrap_or(u64::MAX);
            }
            _ => {
                return Err(format!(
                    "a profile has no `{name}`: it has iops, bandwidth, latency, jitter, burst and billed-size"
                ));
            }
        }
        Ok(())
    }
}

/// I/Os that a request of `bytes` counts as.
pub(crate) fn billed(bytes: u64, billed_size: u64) -> u64 {
    bytes.div_ceil(billed_size.max(1)).max(1)
}

fn none_or<T>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    match value {
        "none" => Ok(None),
        _ => parse(value).map(Some),
    }
}

impl FromStr for Jitter {
    type Err = String;

    /// `0.2ms`, or `5ms:tail`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (bound, shape) = match text.split_once(':') {
            None => (text, JitterShape::Uniform),
            Some((bound, "uniform")) => (bound, JitterShape::Uniform),
            Some((bound, "tail")) => (bound, JitterShape::Tail),
            Some((_, other)) => {
                return Err(format!("jitter is `uniform` or `tail`, not `{other}`"));
            }
        };
        Ok(Jitter {
            bound: parse_duration(bound)?,
            shape,
        })
    }
}

impl FromStr for Burst {
    type Err = String;

    /// `CREDITS:IOPS` or `CREDITS:IOPS:REFILL`.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split(':')
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|_| format!("`{text}` is not CREDITS:IOPS or CREDITS:IOPS:REFILL"))?;
        let (credits, iops, refill) = match numbers[..] {
            [credits, iops] => (credits, iops, None),
            [credits, iops, refill] => (credits, iops, Some(refill)),
            _ => {
                return Err(format!(
                    "`{text}` is not CREDITS:IOPS or CREDITS:IOPS:REFILL"
                ));
            }
        };
        if iops == 0 {
            return Err("the burst's IOPS must be above 0".into());
        }
        Ok(Burst {
            credits,
            iops,
            refill,
        })
    }
}

impl fmt::Display for Profile {
    /// In the syntax of [`Profile::set`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cap = |n: Option<u64>| n.map_or("none".to_string(), |n| n.to_string());
        write!(
            f,
            "iops={} bandwidth={} latency={:?}",
            cap(self.iops),
            cap(self.bandwidth),
            self.latency
        )?;
        if let Some(jitter) = self.jitter {
            let shape = match jitter.shape {
                JitterShape::Uniform => "uniform",
                JitterShape::Tail => "tail",
            };
            write!(f, " jitter={:?}:{shape}", jitter.bound)?;
        }
        if let Some(burst) = self.burst {
            write!(f, " burst={}:{}", burst.credits, burst.iops)?;
            if let Some(refill) = burst.refill {
                write!(f, ":{refill}")?;
            }
        }
        write!(f, " billed-size={}", self.billed_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_count_as_several() {
        let profile = Profile::default();
        for (bytes, ios) in [(0, 1), (512, 1), (262_144, 1), (262_145, 2), (1 << 20, 4)] {
            assert_eq!(profile.billed(bytes), ios, "{bytes} bytes");
        }
    }

    #[test]
    fn what_is_displayed_can_be_set() {
        let mut profile = Profile::default();
        for (name, value) in [
            ("iops", "100"),
            ("bandwidth", "none"),
            ("latency", "500us"),
            ("jitter", "5ms:tail"),
            ("burst", "5400000:3000:100"),
            ("billed-size", "16KiB"),
        ] {
            profile.set(name, value).unwrap();
        }
        let mut again = Profile::unlimited();
        for word in profile.to_string().split(' ') {
            let (name, value) = word.split_once('=').unwrap();
            again.set(name, value).unwrap();
        }
        assert_eq!(again, profile);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut profile = Profile::default();
        for (name, value) in [
            ("iops", "0"),
            ("iops", "many"),
            ("burst", "5"),
            ("burst", "5:0"),
            ("jitter", "5ms:normal"),
            ("colour", "red"),
        ] {
            assert!(profile.set(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(profile, Profile::default());
    }
}
