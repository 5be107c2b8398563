//! The plan of an extension: derived from the settings once for each switch-on.
//!
//! The plan resolves names, owner and room when it is created. The check and the opening use the same plan, so the checked
//! plan is the opened one. Only [`Plan::wait_for_space`] reads the room again, before both.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cache::{Config, DeviceConfig, OpenError, OwnerIdentity};
use interface::untrusted::refuse_in_path;

use crate::control::buffer_pool;
use crate::platform::identity::{data_directory, owner_identity, stem};
use crate::settings::{self, Settings, persisted_file};

/// Without `bpe_memory_limit`, the extension takes at most this fraction of the host's memory.
const MAX_MEMORY_PART: u64 = 8;
/// Where `bpe_size` is a percentage: memory in percent of InnoDB's buffer pool, and the minimum for each path, bytes.
const PERCENT_OF_POOL: u64 = 4;
const MIN_MEMORY: u64 = 4 << 20;
/// A size is searched in steps of this fraction of the room.
const SIZE_STEPS: u64 = 1 << 20;
/// Number of checks whether a device has room for an equal share.
const MAX_SPACE_CHECKS: u32 = 4;
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Parameters of an extension, without the usual page size.
#[derive(Clone, Debug)]
pub struct Plan {
    config: Config,
    /// Total bytes of all devices.
    size: u64,
    /// Size in percent of the available room.
    percent: Option<u64>,
    /// Memory, and not room, limits the size.
    is_limited: bool,
    data: PathBuf,
}

impl Plan {
    /// Resolves names and room.
    ///
    /// # Errors
    /// A variable is not set, or cannot be applied.
    pub fn new(settings: &Settings) -> Result<Plan, String> {
        Plan::beside(settings, data_directory)
    }

    /// The plan of an existing cache: `layout` is its bytes of memory and of each device. As [`new`](Self::new) if there is
    /// none, or if the settings no longer suit its memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_layout(
        settings: &Settings,
        layout: Option<(u64, Vec<u64>)>,
    ) -> Result<Plan, String> {
        let layout = layout.filter(|(memory, _)| suits_memory(settings, *memory));
        let Some((memory, sizes)) = layout else {
            return Plan::new(settings);
        };
        let mut plan = Plan::resolve(settings, data_directory)?;
        if plan.percent.is_some() {
            plan.refuse_data_disk()?;
        }
        if sizes.len() == plan.devices().len() {
            plan.config.memory_limit = memory;
            let devices = plan.config.devices.iter_mut().zip(&sizes);
            devices.for_each(|(device, size)| device.bytes = *size);
            plan.size = sizes.iter().sum();
            // The size is fixed.
            plan.percent = None;
        }
        Ok(plan)
    }

    /// Maximum memory of the extension, bytes.
    pub fn memory_limit(&self) -> u64 {
        self.config.memory_limit
    }

    fn beside(settings: &Settings, data: impl FnOnce() -> PathBuf) -> Result<Plan, String> {
        let mut plan = Plan::resolve(settings, data)?;
        if plan.percent.is_some() {
            plan.refuse_data_disk()?;
        }
        plan.divide_space();
        Ok(plan)
    }

    fn resolve(settings: &Settings, data: impl FnOnce() -> PathBuf) -> Result<Plan, String> {
        refuse_in_path("bpe_path", &settings.path)?;
        let paths: Vec<&str> = settings.paths().collect();
        if paths.is_empty() {
            return Err("bpe_path is not set; SET GLOBAL bpe_path to a file or directory on a fast local disk".into());
        }
        if settings.size == 0 {
            return Err("bpe_size is not set; SET GLOBAL bpe_size to the bytes that the cache may take on disk, \
                        usually 5 to 20 times innodb_buffer_pool_size, or to 10 to 100 percent of the room there"
                .into());
        }
        let data = data();
        let owner = owner_identity(&data);
        let file_name = cache_file_name(&owner);
        let devices = paths
            .into_iter()
            .map(|path| DeviceConfig {
                path: data.join(path), // an absolute path replaces the data directory
                bytes: 0,
                owner,
                file_name: file_name.clone(),
            })
            .collect();
        let is_persisted =
            settings::persist_path().is_some() && settings::check_persist_path().is_ok();
        let config = Config {
            devices,
            instances: settings.instance_count(),
            memory_limit: memory_limit(settings),
            io_capacity: settings.io_capacity,
            compression: settings.compression,
            budget: settings::write_budget(),
            read_timeout: settings::read_timeout(),
            arena: is_persisted.then(|| persisted_file(&owner, "arena")),
            ..Config::default()
        };
        Ok(Plan {
            config,
            size: settings.size,
            percent: settings.percent(),
            is_limited: false,
            data,
        })
    }

    /// The devices, each with its share of the size according to its room.
    pub fn devices(&self) -> &[DeviceConfig] {
        &self.config.devices
    }

    /// The server that owns the cache.
    pub fn owner(&self) -> OwnerIdentity {
        let first = self.config.devices.first();
        first.map_or_else(OwnerIdentity::default, |device| device.owner)
    }

    /// The configuration of the extension. `nominal_page` is the usual page size in bytes.
    pub fn config(&self, nominal_page: u32, inherit: Option<u64>) -> Config {
        Config {
            nominal_page,
            recover_session: inherit,
            ..self.config.clone()
        }
    }

    /// Refuses to fill the data's own disk. A missing mount, for example, leaves a directory there.
    fn refuse_data_disk(&self) -> Result<(), String> {
        let Ok(data) = std::fs::metadata(&self.data) else {
            return Ok(());
        };
        for device in self.devices() {
            if cache::room(device).is_some_and(|room| room.file_system == data.dev()) {
                return Err(format!(
                    "'{}' lies on the file system of the data directory, which a percentage of its room would fill; \
                     mount the fast disk there, or SET GLOBAL bpe_size to a number of bytes",
                    device.path.display()
                ));
            }
        }
        Ok(())
    }

    /// The chosen size and the reason, where `bpe_size` is a percentage.
    pub fn chosen_size(&self) -> Option<String> {
        let percent = self.percent?;
        let why = if self.is_limited {
            format!(
                "as many as {} bytes of memory allow (bpe_memory_limit; if it is 0, {PERCENT_OF_POOL} % of the buffer pool)",
                self.config.memory_limit
            )
        } else {
            format!("{percent} % of the room (bpe_size)")
        };
        Some(format!(
            "the cache takes {} bytes on its disks: {why}",
            self.size
        ))
    }

    /// Sizes each device to the same percentage of its room, or less where memory limits it. A device with unknown room gets
    /// the others' average: opening it fails, or reports the reason.
    fn size_by_percent(&mut self, percent: u64) {
        let devices = &mut self.config.devices;
        let rooms: Vec<_> = devices.iter().map(cache::room).collect();
        let parts = cache::part(percent, &rooms);
        let known = parts.iter().flatten().count() as u64;
        let sum = parts
            .iter()
            .flatten()
            .fold(0, |sum: u64, part| sum.saturating_add(*part));
        let usual = sum.checked_div(known).unwrap_or(0);
        let share = |config: &mut Config, of: u64| {
            for (device, part) in config.devices.iter_mut().zip(&parts) {
                let bytes =
                    u128::from(part.unwrap_or(usual)) * u128::from(of) / u128::from(SIZE_STEPS);
                device.bytes = (bytes as u64).max(cache::MIN_DEVICE_BYTES);
            }
        };
        // Bisects for the largest size that fits.
        let (mut fits, mut too_much) = (0, SIZE_STEPS + 1);
        while too_much - fits > 1 {
            let middle = fits.midpoint(too_much);
            share(&mut self.config, middle);
            if cache::fits(&self.config) {
                fits = middle;
            } else {
                too_much = middle;
            }
        }
        share(&mut self.config, fits);
        self.is_limited = fits < SIZE_STEPS;
        self.size = self.devices().iter().map(|device| device.bytes).sum();
    }

    fn divide_space(&mut self) {
        if let Some(percent) = self.percent {
            return self.size_by_percent(percent);
        }
        let devices = &mut self.config.devices;
        let rooms: Vec<_> = devices.iter().map(cache::room).collect();
        for (device, share) in devices.iter_mut().zip(cache::divide(self.size, &rooms)) {
            device.bytes = share;
        }
    }

    /// Devices that get less than an equal share of the size.
    fn smaller(&self) -> impl Iterator<Item = &DeviceConfig> {
        let equal = self.size / self.devices().len().max(1) as u64;
        self.devices()
            .iter()
            .filter(move |device| self.percent.is_none() && device.bytes < equal)
    }

    /// Waits briefly for room: some file systems show the space of a removed file, such as the previous cache, with a delay.
    pub fn wait_for_space(&mut self) {
        for _ in 0..MAX_SPACE_CHECKS {
            if self.percent.is_none() && self.smaller().next().is_none() || self.is_limited {
                return;
            }
            let before = self.size;
            std::thread::sleep(SPACE_CHECK_INTERVAL);
            self.divide_space();
            if self.percent.is_some() && self.size <= before {
                return;
            }
        }
    }

    /// Checks the devices without side effects. `own` are cache files that this server uses now. Returns warnings.
    ///
    /// # Errors
    /// A single bad path is an error.
    pub fn check(&self, own: &[PathBuf]) -> Result<Vec<String>, String> {
        let (warnings, errors) = self.check_devices(own);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(warnings),
        }
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The same check for switching on. The extension reports a bad path when it is opened.
    ///
    /// # Errors
    /// No path is good.
    pub fn check_any(&self) -> Result<Vec<String>, String> {
        let (warnings, mut errors) = self.check_devices(&[]);
        if errors.len() < self.devices().len() {
            return Ok(warnings);
        }
        Err(errors.swap_remove(0))
    }

    /// Returns warnings, and errors of paths.
    fn check_devices(&self, own: &[PathBuf]) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        let data_device = std::fs::metadata(&self.data).map(|meta| meta.dev()).ok();
        for device in self.smaller() {
            warnings.push(format!(
                "'{}' has room for only {} bytes, less than an equal share of bpe_size; the other paths take the rest",
                device.path.display(),
                device.bytes
            ));
        }
        for device in self.devices() {
            let facts = match cache::check_device(device) {
                Ok(facts) => facts,
                // The server's own file, which frees its room before the new one takes it.
                Err(
                    OpenError::HeldHere { path }
                    | OpenError::InUse { path }
                    | OpenError::SameData { path }
                    | OpenError::NoSpace { path, .. },
                ) if own.contains(&path) => {
                    errors.extend(check_space(device, &path).err());
                    continue;
                }
                Err(error) => {
                    errors.push(format!("bpe_path: {error}"));
                    continue;
                }
            };
            warnings.extend(facts.warnings);
            if Some(facts.device_number) == data_device {
                warnings.push(format!(
                    "'{}' lies on the same file system as the data directory; the cache helps only on a faster disk",
                    facts.path.display()
                ));
            }
            // The location of a new file is that of its directory.
            let place = device.path.canonicalize().or_else(|_| {
                let folder = device.path.parent().unwrap_or(Path::new("/"));
                folder.canonicalize()
            });
            if place.is_ok_and(|place| place.starts_with(&self.data)) {
                warnings.push(format!(
                    "'{}' lies in the data directory, where the server takes folders for databases and a node of a Galera \
                     cluster that joins gets a copy of the cache file; name a folder elsewhere",
                    facts.path.display()
                ));
            }
            if !facts.direct {
                warnings.push(format!(
                    "the file system of '{}' has no O_DIRECT; the cache works, but takes memory from the page cache",
                    facts.path.display()
                ));
            }
        }
        (warnings, errors)
    }
}

/// Whether a cache file of the wanted size can replace the existing one.
fn check_space(device: &DeviceConfig, path: &Path) -> Result<(), String> {
    let Some(file) = cache::room(device).filter(|room| room.own > 0) else {
        return Ok(());
    };
    let (room, bytes) = (file.free + file.own, device.bytes);
    if room < bytes {
        return Err(format!(
            "the file system of '{}' has room for {room} bytes, including the cache file that is there now, but \
             {bytes} are needed; lower bpe_size or free space",
            path.display()
        ));
    }
    Ok(())
}

/// Whether these settings allow about as much memory as the previous extension had. A limit that follows InnoDB's pool may
/// differ by a tenth: lowering or raising the pool by the extension's own memory must not discard the cache.
fn suits_memory(settings: &Settings, before: u64) -> bool {
    let follows_pool = settings.memory_limit == 0 && settings.percent().is_some();
    !follows_pool || memory_limit(settings).abs_diff(before) <= before / 10
}

/// Maximum memory of an extension, bytes.
fn memory_limit(settings: &Settings) -> u64 {
    let usual = physical_memory() / MAX_MEMORY_PART;
    match (settings.memory_limit, settings.percent()) {
        (0, Some(_)) => {
            let least = settings.paths().count() as u64 * MIN_MEMORY;
            let of_pool = buffer_pool::bytes().map(|pool| pool / 100 * PERCENT_OF_POOL);
            of_pool.unwrap_or(usual).clamp(least, usual.max(least))
        }
        (0, None) => usual,
        (given, _) => given,
    }
}

fn physical_memory() -> u64 {
    // SAFETY: plain C calls.
    let (pages, bytes) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(bytes).unwrap_or(0)
}

fn cache_file_name(owner: &OwnerIdentity) -> String {
    format!("{}.cache", stem(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &str, size: u64) -> Result<Plan, String> {
        Plan::new(&Settings {
            path: path.into(),
            size,
            ..Settings::current()
        })
    }

    #[test]
    fn missing_path_or_size_is_refused() {
        assert!(plan("", 1 << 30).unwrap_err().contains("bpe_path"));
        assert!(plan("/x", 0).unwrap_err().contains("bpe_size"));
    }

    #[test]
    fn path_with_control_character_is_refused() {
        for path in ["/a\nb", "/a:/b\u{1b}", "/a\u{2028}", "/a\\b"] {
            let why = plan(path, 1 << 30).unwrap_err();
            assert!(why.starts_with("bpe_path takes no"), "{why}");
        }
    }

    #[test]
    fn size_is_divided_by_devices() {
        let plan = plan("/a/x:relative/x:/c/x", 300).unwrap();
        let devices = plan.devices();
        assert_eq!(devices.len(), 3);
        assert!(devices.iter().all(|device| device.bytes == 100));
        assert!(devices[1].path.is_absolute());
        assert_eq!(devices[0].path, Path::new("/a/x"));
    }

    #[test]
    fn small_size_is_percentage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let sized = |size, memory_limit| {
            let settings = Settings {
                path: path.clone(),
                size,
                memory_limit,
                ..Settings::current()
            };
            let plan = Plan::beside(&settings, || "/proc".into()).unwrap();
            (plan.size, plan.chosen_size(), plan.config(16384, None))
        };
        let (all, why, _) = sized(100, u64::MAX);
        assert!(why.unwrap().contains("100 % of the room"));
        let (part, ..) = sized(10, u64::MAX);
        // Other programs use this disk, too.
        assert!(part > all / 20 && part < all / 5, "{part} of {all}");
        let limits = [MIN_MEMORY, 12 << 20].map(|limit| {
            let (size, why, config) = sized(100, limit);
            assert!(size < all && cache::fits(&config), "{size} of {all}");
            assert!(why.unwrap().contains("bpe_memory_limit"));
            size
        });
        assert!(limits[0] > 256 << 20 && limits[1] > limits[0], "{limits:?}");
        assert_eq!(sized(64 << 20, 0).1, None);
        // The data's own disk is not filled.
        let settings = Settings {
            path: path.clone(),
            size: 50,
            ..Settings::current()
        };
        let beside = Plan::beside(&settings, || path.clone().into());
        assert!(beside.unwrap_err().contains("of the data directory"));
    }

    /// After a server restart the mount of the fast disk is missing: the path is a directory of the data's own disk.
    #[test]
    fn percentage_on_data_disk_is_refused_after_restart() {
        let folder = tempfile::tempdir_in(data_directory()).unwrap();
        let settings = Settings {
            path: folder.path().display().to_string(),
            size: 50,
            memory_limit: 1 << 30,
            ..Settings::current()
        };
        assert!(Plan::new(&settings).is_err());
        let again = Plan::with_layout(&settings, Some((1 << 30, vec![400 << 30])));
        assert!(again.is_err(), "{again:?}");
    }

    #[test]
    fn path_in_data_directory_warns() {
        let warned = |folder: &Path| {
            let settings = Settings {
                path: folder.join("cache").display().to_string(),
                size: 64 << 20,
                ..Settings::current()
            };
            let warnings = Plan::new(&settings).unwrap().check(&[]).unwrap();
            warnings
                .iter()
                .any(|text| text.contains("lies in the data directory"))
        };
        let inside = tempfile::tempdir_in(data_directory()).unwrap();
        let outside = tempfile::tempdir().unwrap();
        assert!(warned(inside.path()) && !warned(outside.path()));
    }

    #[test]
    fn changed_pool_rebuilds_cache_that_follows_it() {
        let settings = |size, memory_limit| Settings {
            path: "/a".into(),
            size,
            memory_limit,
            ..Settings::current()
        };
        let follows = settings(50, 0);
        let now = memory_limit(&follows);
        for (before, suits) in [
            (now, true),
            (now / 100 * 96, true),
            (now / 2, false),
            (now * 2, false),
        ] {
            assert_eq!(suits_memory(&follows, before), suits, "{before} and {now}");
        }
        assert!(suits_memory(&settings(50, 1 << 30), now / 2));
        assert!(suits_memory(&settings(1 << 30, 0), now / 2));
    }

    #[test]
    fn server_name_is_stable() {
        let data = data_directory();
        assert_eq!(owner_identity(&data), owner_identity(&data));
        let name = cache_file_name(&owner_identity(&data));
        assert!(
            name.starts_with("bpe-") && name.ends_with(".cache") && name.len() == 26,
            "{name}"
        );
    }
}
