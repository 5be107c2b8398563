//! Opening an extension: checks the configuration, plans the memory, opens the devices, builds the parts.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::api::recovering::attach;
use crate::common::config::{Compression, Config, MAX_INSTANCES, OpenError, PolicyName};
use crate::common::page::{EXTENT_SHIFT, UNIT, is_page_length, mix64};
use crate::common::statistics::CachePadded;
use crate::device::Device;
use crate::device::file::Wrap;
use crate::device::segment::{Geometry, MIN_DEVICE_BYTES, Table};
use crate::index::directory::Directory;
use crate::index::generation::Generations;
use crate::instance::Instance;
use crate::instance::arena::{self, Arena, Layout};
use crate::instance::balancing::max_uniform_units;
use crate::instance::shared::{Parts, Shared};
use crate::instance::staging::Staging;
use crate::log::writer::Writer;
use crate::policy::MemoryPressure;

/// Size of staging for bursts: this part of the devices, within bounds. Only the part in use is resident. A memory limit may
/// lower it to the minimum.
const STAGING_SHARE: u64 = 400;
// The checker creates each frame's counters anew for every schedule.
const USUAL_STAGING: u64 = if cfg!(checker) { 4 << 16 } else { 3 << 20 };
const MAX_STAGING: u64 = 64 << 20;
const MIN_STAGING: u64 = 1 << 20;
/// Memory that is not planned in detail: histograms, counters, small vectors.
const SUNDRIES: u64 = 64 << 10;
/// Compressed pages that fit into the space of one page, times five: text shrinks to a half or a third. If pages compress
/// less, the directory is larger than necessary; if they compress better, the directory is full before the device.
const LZ4_FIFTHS: u64 = 12;

/// Distribution of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plan {
    instances: u64,
    /// Pages for which the directory of an instance is sized.
    entries: u64,
    /// Pages of an instance on average.
    pages: u64,
    /// The same without compression.
    min_pages: u64,
    policy: PolicyName,
    pressure: MemoryPressure,
    staging: u64,
    /// Memory that writers allocate on demand.
    buffers: u64,
    fixed: u64,
}

impl Plan {
    fn new(config: &Config, geometries: &[Geometry]) -> Plan {
        let instances = u64::from(config.instances);
        let bytes: u64 = geometries.iter().map(Geometry::data_bytes).sum();
        let units: u64 = geometries.iter().map(max_uniform_units).sum();
        let total = units * UNIT as u64 / u64::from(config.nominal_page);
        let min_pages = total.div_ceil(instances);
        let pages = match config.compression {
            Compression::Off => min_pages,
            Compression::Lz4 => (total * LZ4_FIFTHS / 5).div_ceil(instances),
        };
        let segments: u64 = geometries
            .iter()
            .map(|g| Table::memory_needed(g.segments))
            .sum();
        Plan {
            instances,
            entries: Self::entries(pages, instances),
            pages,
            min_pages,
            policy: config.policy,
            pressure: MemoryPressure::Normal,
            staging: (bytes / STAGING_SHARE).clamp(USUAL_STAGING, MAX_STAGING),
            buffers: geometries.len() as u64 * Writer::max_buffers(),
            fixed: segments
                + geometries.len() as u64 * Writer::bytes(config.compression)
                + Generations::BYTES
                + SUNDRIES,
        }
    }

    /// Extents are distributed over instances by a hash: one standard deviation more than the mean, and the directory's own slack.
    fn entries(pages: u64, instances: u64) -> u64 {
        let extent = 1u64 << EXTENT_SHIFT;
        if instances > 1 {
            pages + extent * (pages / extent + 1).isqrt()
        } else {
            pages
        }
    }

    fn memory(&self) -> u64 {
        let instance =
            Directory::memory_needed(self.entries) + self.policy.bytes(self.pages, self.pressure);
        self.instances * instance + Staging::memory_needed(self.staging) + self.buffers + self.fixed
    }

    /// The same including the groups of entries, which exist while rules for tables need them. Rules may be set at any time.
    fn memory_at_most(&self) -> u64 {
        self.memory() + self.instances * Directory::tags_needed(self.entries)
    }

    /// Reduces staging, then the policy's memory, then the places for pages gained by compression, until the plan fits.
    fn fit(mut self, limit: u64, device_bytes: u64) -> Result<Plan, OpenError> {
        while limit > 0 && self.memory_at_most() > limit {
            if self.staging > USUAL_STAGING {
                self.staging = (self.staging / 2).max(USUAL_STAGING);
            } else if self.staging > MIN_STAGING {
                self.staging = (self.staging / 2).max(MIN_STAGING);
            } else if self.pressure == MemoryPressure::Normal {
                self.pressure = MemoryPressure::High;
            } else if self.pages > self.min_pages {
                self.pages = (self.pages / 8 * 7).max(self.min_pages);
                self.entries = Self::entries(self.pages, self.instances);
            } else {
                return Err(OpenError::MemoryLimit {
                    limit,
                    device_bytes,
                    needed: self.memory_at_most(),
                });
            }
        }
        Ok(self)
    }

    fn directories(&self) -> io::Result<Vec<Directory>> {
        let directories = (0..self.instances).map(|_| Directory::new(self.entries));
        directories.collect()
    }

    fn instances(&self, directories: Vec<Directory>) -> io::Result<Box<[CachePadded<Instance>]>> {
        let pages = directories.iter().map(Directory::capacity).sum();
        let model = self.policy.model(pages);
        let instances = directories.len() as u32;
        let instance = |(at, directory): (usize, Directory)| {
            let policy = model.policy(self.pages, self.pressure)?;
            Ok(CachePadded(Instance::new(directory, policy, at, instances)))
        };
        directories.into_iter().enumerate().map(instance).collect()
    }
}

fn check(config: &Config) -> Result<(), OpenError> {
    if config.devices.is_empty() {
        return Err(OpenError::NoDevice);
    }
    if !(1..=MAX_INSTANCES).contains(&config.instances) {
        return Err(OpenError::Instances {
            instances: config.instances,
        });
    }
    if !is_page_length(config.nominal_page as usize) {
        return Err(OpenError::NominalPage {
            bytes: config.nominal_page,
        });
    }
    Ok(())
}

/// Places the devices one after the other in the location space.
fn lay_out(config: &Config) -> Result<Vec<Geometry>, OpenError> {
    let total = config
        .devices
        .iter()
        .fold(0u64, |sum, device| sum.saturating_add(device.bytes));
    let mut base = 0;
    let mut geometries = Vec::new();
    for device in &config.devices {
        if device.bytes < MIN_DEVICE_BYTES {
            return Err(OpenError::TooSmall {
                path: device.path.clone(),
                bytes: device.bytes,
                minimum: MIN_DEVICE_BYTES,
            });
        }
        let too_large = OpenError::TooLarge {
            bytes: total,
            maximum: u64::from(u32::MAX) * UNIT as u64,
        };
        let geometry = Geometry::new(base, device.bytes, config.nominal_page).ok_or(too_large)?;
        base += geometry.units() as u32;
        geometries.push(geometry);
    }
    Ok(geometries)
}

/// Whether an extension of this configuration fits its memory limit, with the policy's normal memory and enough staging to load
/// pages. Staging may take a quarter of a small limit.
pub fn fits(config: &Config) -> bool {
    let limit = config.memory_limit;
    let fitted =
        lay_out(config).and_then(|geometries| Plan::new(config, &geometries).fit(limit, 0));
    fitted.is_ok_and(|plan| {
        let staging = USUAL_STAGING.min(limit / 4);
        plan.pressure == MemoryPressure::Normal && plan.staging >= staging
    })
}

/// A number that distinguishes the footers of this opening from those of any other.
fn new_session() -> u64 {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_nanos() as u64);
    let mut random = [0u8; 8];
    // SAFETY: the buffer has that many bytes. Without random bytes the time and the process id must suffice.
    unsafe {
        libc::getrandom(
            random.as_mut_ptr().cast(),
            random.len(),
            libc::GRND_NONBLOCK,
        );
    }
    mix64(time) ^ u64::from_le_bytes(random) ^ u64::from(std::process::id())
}

/// Opens the devices, with their contents if `contents` is set. Returns which of them have their contents.
///
/// A device that cannot be opened fails, and is retried like any other failed device.
///
/// # Errors
/// No device could be opened. Returns the first error.
fn open_devices(devices: &[Device], contents: bool, wrap: &Wrap) -> Result<Vec<bool>, OpenError> {
    let mut first = None;
    let mut kept = Vec::new();
    for device in devices {
        let opened = device.open(contents, wrap);
        kept.push(*opened.as_ref().unwrap_or(&false));
        if let Err(error) = opened {
            device.health.fail(&error);
            first.get_or_insert(error);
        }
    }
    match first {
        Some(error) if devices.iter().all(|device| !device.health.active()) => Err(error),
        _ => Ok(kept),
    }
}

/// The parts of an arena, and the arena if one is configured and available, or why not. Without an arena the contents of an
/// earlier process are lost, but the extension opens.
fn parts(
    config: &Config,
    geometries: &[Geometry],
    plan: &Plan,
) -> io::Result<(arena::Parts, Result<Option<Arena>, OpenError>)> {
    let opened = config.arena.as_ref().map(|path| {
        let layout = Layout::new(config, geometries, plan.entries);
        Arena::open(path, layout, config.recover_session)
    });
    let arena = match opened {
        Some(Ok((arena, parts))) => return Ok((parts, Ok(Some(arena)))),
        Some(Err(error)) => Err(error),
        None => Ok(None),
    };
    let tables = geometries.iter().map(|g| Table::new(g.segments));
    let parts = arena::Parts {
        tables: tables.collect(),
        directories: plan.directories()?,
    };
    Ok((parts, arena))
}

pub(crate) fn open(
    config: &Config,
    generations: Arc<Generations>,
    wrap: &Wrap,
) -> Result<Shared, OpenError> {
    check(config)?;
    let geometries = lay_out(config)?;
    let device_bytes = geometries.iter().map(Geometry::data_bytes).sum();
    let plan = Plan::new(config, &geometries).fit(config.memory_limit, device_bytes)?;
    let no_memory = |source| OpenError::Memory {
        bytes: plan.memory(),
        source,
    };
    let (parts, arena) = parts(config, &geometries, &plan).map_err(no_memory)?;
    let (arena, refused) = match arena {
        Ok(arena) => (arena, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let instances = plan.instances(parts.directories).map_err(no_memory)?;
    let staging = Staging::new(plan.staging).map_err(no_memory)?;
    let left = arena.as_ref().and_then(Arena::recovered_session);
    let session = left.unwrap_or_else(new_session);
    let mut devices = Vec::new();
    let places = geometries.into_iter().zip(parts.tables);
    for (device, (geometry, table)) in config.devices.iter().zip(places) {
        let timeout = config.read_timeout;
        devices.push(Device::new(device, geometry, table, session, timeout));
    }
    let kept = open_devices(&devices, left.is_some(), wrap)?;
    let mut shared = Shared::new(Parts {
        arena,
        generations,
        instances,
        staging,
        devices: devices.into(),
        compression: config.compression,
        io_capacity: config.io_capacity,
        budget: Arc::clone(&config.budget),
        nominal_page: config.nominal_page as usize,
        memory_bytes: plan.memory() - plan.buffers,
    });
    if left.is_some() {
        shared.recovered = attach(&shared, &kept);
    }
    shared.recovered.refused = refused;
    if let Some(arena) = &shared.arena {
        arena.begin(session);
    }
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::config::DeviceConfig;

    fn config(bytes: u64, instances: u32) -> Config {
        let device = DeviceConfig {
            path: "/nowhere".into(),
            bytes,
            owner: Default::default(),
            file_name: String::from("cache"),
        };
        Config {
            devices: vec![device],
            instances,
            ..Config::default()
        }
    }

    fn plan(config: &Config) -> Plan {
        Plan::new(config, &lay_out(config).unwrap())
    }

    /// Bytes of directory and counters.
    fn without_the_rest(plan: &Plan) -> u64 {
        plan.memory() - Staging::memory_needed(plan.staging) - plan.buffers - plan.fixed
    }

    #[test]
    fn at_most_sixteen_bytes_a_page_for_directory_and_sketch() {
        for &policy in PolicyName::ALL {
            for (bytes, instances) in [(1 << 30, 1), (64 << 30, 8), (1 << 40, 16)] {
                let plan = plan(&Config {
                    policy,
                    ..config(bytes, instances)
                });
                let pages = bytes / 16384;
                let memory = without_the_rest(&plan);
                let most = if instances > 8 || instances == 1 {
                    16 * pages
                } else {
                    17 * pages
                };
                assert!(
                    memory <= most,
                    "{policy}, {bytes}: {} bytes a page",
                    memory as f64 / pages as f64
                );
            }
        }
    }

    #[test]
    fn limit_shrinks_staging_then_is_refused_with_minimum() {
        let c = config(64 << 30, 8);
        let whole = plan(&c);
        assert_eq!(whole.staging, 64 << 20);
        assert_eq!(whole.fit(0, 1).unwrap(), whole);
        let tight = whole.fit(whole.memory() - 1, 1).unwrap();
        assert_eq!(
            (tight.staging, tight.pressure),
            (32 << 20, MemoryPressure::Normal)
        );
        let Err(OpenError::MemoryLimit { needed, .. }) = whole.fit(1 << 20, 1) else {
            panic!()
        };
        assert!(whole.fit(needed, 1).is_ok());
        assert!(whole.fit(needed - 1, 1).is_err());
    }

    #[test]
    fn largest_size_of_a_limit_has_usual_staging() {
        for limit in [4 << 20, 8 << 20, 12 << 20, 41 << 20, 300 << 20] {
            let sized = |mib: u64| Config {
                memory_limit: limit,
                ..config(mib << 20, 8)
            };
            let (mut good, mut bad) = (64, 1 << 21);
            assert!(fits(&sized(good)) && !fits(&sized(bad)), "{limit}");
            while bad - good > 1 {
                let middle = u64::midpoint(good, bad);
                match fits(&sized(middle)) {
                    true => good = middle,
                    false => bad = middle,
                }
            }
            let tight = plan(&sized(good)).fit(limit, 1).unwrap();
            assert_eq!(tight.pressure, MemoryPressure::Normal, "{limit}");
            assert!(tight.staging >= USUAL_STAGING.min(limit / 4), "{limit}");
            // A larger one fits only with less.
            assert!(good << 20 > limit * 60, "{limit}: {good} MiB");
        }
    }

    #[test]
    fn a_limit_has_room_for_the_groups_of_rules() {
        for (bytes, instances) in [(64 << 30, 1), (64 << 30, 8), (1 << 40, 16)] {
            let whole = plan(&config(bytes, instances));
            let groups = whole.memory_at_most() - whole.memory();
            let pages = (bytes / 16384) as f64;
            let a_page = groups as f64 / pages;
            assert!((0.68..0.72).contains(&a_page), "{bytes}: {a_page}");
            if instances == 1 {
                let a_page = (without_the_rest(&whole) + groups) as f64 / pages;
                assert!(a_page < 16.6, "{a_page}");
            }
            assert_eq!(whole.fit(whole.memory_at_most(), 1).unwrap(), whole);
            let tight = whole.fit(whole.memory_at_most() - 1, 1).unwrap();
            assert!(tight.memory_at_most() < whole.memory_at_most());
        }
    }

    #[test]
    fn compression_plans_for_more_pages_as_memory_allows() {
        let raw = plan(&config(64 << 30, 8));
        let lz4 = plan(&Config {
            compression: Compression::Lz4,
            ..config(64 << 30, 8)
        });
        let pages = (64 << 30) / 16384 * LZ4_FIFTHS / 5;
        let memory = without_the_rest(&lz4);
        assert!(
            memory <= pages * 17,
            "sixteen bytes for each page that is cached"
        );
        let without = without_the_rest(&raw);
        assert!(memory > without * 2);
        // Before it is refused, it uses as little memory as without compression.
        let least = raw.fit(1 << 20, 1).unwrap_err();
        let OpenError::MemoryLimit { needed, .. } = least else {
            panic!()
        };
        // Plus the compressor.
        let needed = needed + Writer::bytes(Compression::Lz4) - Writer::bytes(Compression::Off);
        let tight = lz4.fit(needed, 1).unwrap();
        assert_eq!(tight.pages, raw.pages);
        assert!(lz4.fit(needed - 1, 1).is_err());
    }

    #[test]
    fn bad_configurations() {
        assert!(matches!(
            check(&Config::default()),
            Err(OpenError::NoDevice)
        ));
        assert!(matches!(
            check(&config(1 << 30, 0)),
            Err(OpenError::Instances { .. })
        ));
        assert!(matches!(
            check(&config(1 << 30, 65)),
            Err(OpenError::Instances { .. })
        ));
        let page = Config {
            nominal_page: 1000,
            ..config(1 << 30, 1)
        };
        assert!(matches!(check(&page), Err(OpenError::NominalPage { .. })));
        assert!(matches!(
            lay_out(&config(1 << 20, 1)),
            Err(OpenError::TooSmall { .. })
        ));
        assert!(matches!(
            lay_out(&config(1 << 43, 1)),
            Err(OpenError::TooLarge { .. })
        ));
        assert!(matches!(
            lay_out(&config(u64::MAX, 1)),
            Err(OpenError::TooLarge { .. })
        ));
    }
}
