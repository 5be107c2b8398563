//! What the administrator asked for: the values behind the system variables, and the configuration made of them.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use extension::{
    AdmissionMode, Compression, Config, DeviceConfig, OpenError, OwnerIdentity, ReadTimeout,
    WriteBudget,
};
use parking_lot::Mutex;

/// Behind `bpe_enabled`.
pub static ENABLED: AtomicU8 = AtomicU8::new(0);
/// Behind `bpe_path`. Once the plugin is initialised it points to text of ours ([`intern`]), which stays.
pub static PATH: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
/// Behind `bpe_size`, bytes.
pub static SIZE: AtomicU64 = AtomicU64::new(0);
/// Behind `bpe_instances`; 0: by the number of cores.
pub static INSTANCES: AtomicI32 = AtomicI32::new(0);
/// Behind `bpe_io_capacity`: writes of 16 KiB per second; 0: no limit.
pub static IO_CAPACITY: AtomicU64 = AtomicU64::new(0);
/// Behind `bpe_daily_write_limit`: bytes in 24 hours; 0: no limit.
pub static DAILY_WRITE_LIMIT: AtomicU64 = AtomicU64::new(0);
/// Behind `bpe_read_timeout`: milliseconds; 0: as long as it takes.
pub static READ_TIMEOUT: AtomicU64 = AtomicU64::new(DEFAULT_READ_TIMEOUT);
/// Behind `bpe_memory_limit`, bytes; 0: by the size.
pub static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(0);
/// Behind `bpe_admission`, an index into [`ADMISSION_NAMES`](crate::abi::variables).
pub static ADMISSION: AtomicU64 = AtomicU64::new(1);
/// Behind `bpe_compression`.
pub static COMPRESSION: AtomicU64 = AtomicU64::new(0);
/// Behind `bpe_diagnostics_key`, which never shows what it was set to.
pub static NO_KEY: AtomicPtr<c_char> = AtomicPtr::new(c"".as_ptr().cast_mut());
/// Behind `bpe_async_io`.
pub static ASYNC_IO: AtomicU64 = AtomicU64::new(0);

/// Longer than a disk that works takes, even when it is busy.
pub const DEFAULT_READ_TIMEOUT: u64 = 1000;

/// `bpe_io_capacity` counts writes of this many bytes.
pub const CAPACITY_UNIT: u64 = 16 * 1024;

/// Without `bpe_memory_limit` the extension takes this part of the machine's memory at most.
const MOST_OF_MEMORY: u64 = 8;

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

/// How asynchronous I/O is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncIo {
    /// Make a server that starts choose libaio; serve what can be served.
    Auto,
    /// Leave the server's choice.
    Native,
    /// Never serve asynchronous reads.
    Off,
}

/// All settings at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `bpe_path` as given.
    pub path: String,
    /// `bpe_size`, bytes.
    pub size: u64,
    /// `bpe_instances` as given.
    pub instances: u32,
    /// Bytes per second; 0: no limit.
    pub io_capacity: u64,
    /// Bytes; 0: by the size.
    pub memory_limit: u64,
    /// `bpe_admission`.
    pub admission: AdmissionMode,
    /// `bpe_compression`.
    pub compression: Compression,
}

impl Settings {
    /// The values of the variables now.
    pub fn current() -> Settings {
        let path = path();
        Settings {
            path,
            size: SIZE.load(Ordering::SeqCst),
            instances: u32::try_from(INSTANCES.load(Ordering::SeqCst)).unwrap_or(0),
            io_capacity: io_capacity(),
            memory_limit: MEMORY_LIMIT.load(Ordering::SeqCst),
            admission: admission(),
            compression: if COMPRESSION.load(Ordering::SeqCst) == 1 {
                Compression::Lz4
            } else {
                Compression::Off
            },
        }
    }

    /// Whether an extension built from the other settings is laid out as these say.
    pub fn same_layout(&self, other: &Settings) -> bool {
        let layout = |settings: &Settings| {
            (
                settings.size,
                settings.instances,
                settings.memory_limit,
                settings.compression,
            )
        };
        self.path == other.path && layout(self) == layout(other)
    }

    /// How many instances these settings mean: 1 below 8 cores, 8 from there on, unless a number is given.
    pub fn instance_count(&self) -> u32 {
        match self.instances {
            0 if cores() < 8 => 1,
            0 => 8,
            given => given,
        }
    }

    /// The devices, each with its share of the size, by the room that there is now.
    pub fn devices(&self) -> Result<Vec<DeviceConfig>, String> {
        let paths: Vec<&str> = self
            .path
            .split(':')
            .filter(|path| !path.is_empty())
            .collect();
        if paths.is_empty() {
            return Err("bpe_path is not set; SET GLOBAL bpe_path to a file or directory on a fast local disk".into());
        }
        let data = data_directory();
        let owner = owner_identity();
        let name = cache_file_name(&owner);
        let mut devices: Vec<DeviceConfig> = paths
            .into_iter()
            .map(|path| DeviceConfig {
                path: data.join(path), // an absolute path replaces the data directory
                bytes: 0,
                owner,
                file_name: name.clone(),
            })
            .collect();
        let rooms: Vec<_> = devices.iter().map(extension::room).collect();
        for (device, share) in devices.iter_mut().zip(extension::divide(self.size, &rooms)) {
            device.bytes = share;
        }
        Ok(devices)
    }

    /// Waits a moment for room: some file systems show only later that a file is gone, as the one of the cache before.
    pub fn wait_for_room(&self) {
        for _ in 0..LOOKS_FOR_ROOM {
            match self.devices() {
                Ok(devices) if smaller(self.size, &devices).next().is_some() => {
                    std::thread::sleep(BETWEEN_LOOKS);
                }
                _ => return,
            }
        }
    }

    /// What the extension is opened with. `nominal_page` is the usual page size in bytes.
    pub fn config(&self, nominal_page: u32) -> Result<Config, String> {
        if self.size == 0 {
            return Err("bpe_size is not set; SET GLOBAL bpe_size to the bytes that the cache may take on disk, \
                        usually 5 to 20 times innodb_buffer_pool_size"
                .into());
        }
        Ok(Config {
            devices: self.devices()?,
            instances: self.instance_count(),
            memory_limit: match self.memory_limit {
                0 => physical_memory() / MOST_OF_MEMORY,
                given => given,
            },
            io_capacity: self.io_capacity,
            policy: extension::PolicyName::default(),
            admission: self.admission,
            compression: self.compression,
            budget: write_budget(),
            read_timeout: read_timeout(),
            nominal_page,
        })
    }

    /// The least `bpe_size` for these paths, bytes.
    pub fn smallest_size(&self) -> u64 {
        let paths = self
            .path
            .split(':')
            .filter(|path| !path.is_empty())
            .count()
            .max(1);
        paths as u64 * extension::LEAST_DEVICE_BYTES
    }

    /// Looks at paths and size without leaving anything behind. `own` are cache files that this server uses now.
    /// Returns warnings. One bad path is an error.
    pub fn check(&self, own: &[PathBuf]) -> Result<Vec<String>, String> {
        let (warnings, errors) = self.look(own)?;
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(warnings),
        }
    }

    /// The same for switching on: it is an error only if no path is good. What is wrong with a bad one the extension says
    /// when it is opened.
    pub fn check_any(&self) -> Result<Vec<String>, String> {
        let count = self.devices()?.len();
        let (warnings, mut errors) = self.look(&[])?;
        if errors.len() < count {
            return Ok(warnings);
        }
        Err(errors.swap_remove(0))
    }

    /// Warnings, and what is wrong with paths.
    fn look(&self, own: &[PathBuf]) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        let data_device = std::fs::metadata(data_directory())
            .map(|meta| meta.dev())
            .ok();
        let devices = self.config(16384)?.devices;
        for device in smaller(self.size, &devices) {
            warnings.push(format!(
                "'{}' has room for only {} bytes, less than an equal share of bpe_size; the other paths take the rest",
                device.path.display(),
                device.bytes
            ));
        }
        for device in devices {
            let facts = match extension::check_device(&device) {
                Ok(facts) => facts,
                // Our own file, which gives its room back before the new one takes it.
                Err(OpenError::InUse { path } | OpenError::NoSpace { path, .. })
                    if own.contains(&path) =>
                {
                    errors.extend(enough_room(&device, &path).err());
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
            if !facts.direct {
                warnings.push(format!(
                    "the file system of '{}' has no O_DIRECT; the cache works, but takes memory from the page cache",
                    facts.path.display()
                ));
            }
        }
        Ok((warnings, errors))
    }
}

/// How often it is looked again whether a device has room for an equal share.
const LOOKS_FOR_ROOM: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// Devices that take less than an equal share of the size.
fn smaller(size: u64, devices: &[DeviceConfig]) -> impl Iterator<Item = &DeviceConfig> {
    let equal = size / devices.len().max(1) as u64;
    devices.iter().filter(move |device| device.bytes < equal)
}

/// Whether the server's variables exist: not before the plugin is initialised, nor after it was unloaded.
pub static LOADED: AtomicBool = AtomicBool::new(false);

/// The variables get values from now on. The text of `bpe_path` that the server took from the command line or an option
/// file lies in memory that the server frees once the plugin is initialised: from now on it is ours.
///
/// # Safety
/// To be called while the server initialises the plugin: what `bpe_path` points to is valid until then.
pub unsafe fn load() {
    // SAFETY: the caller's promise.
    unsafe { set_path(PATH.load(Ordering::SeqCst)) };
    LOADED.store(true, Ordering::SeqCst);
}

/// Gives `bpe_path` a value: a copy of the text, which nobody frees, so that it can be read at any time. Null is empty.
///
/// # Safety
/// `text` must be null or a valid string during the call.
pub unsafe fn set_path(text: *const c_char) {
    let text = if text.is_null() {
        c""
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(text) }
    };
    PATH.store(intern(text), Ordering::SeqCst);
}

/// The value of `bpe_path`.
fn path() -> String {
    if !LOADED.load(Ordering::SeqCst) {
        return String::new();
    }
    let text = PATH.load(Ordering::SeqCst);
    if text.is_null() {
        return String::new();
    }
    // SAFETY: since the plugin was loaded it points to interned text, which is never freed.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Whether the cache file of this device that is there now can be replaced by one of the size wanted.
fn enough_room(device: &DeviceConfig, path: &Path) -> Result<(), String> {
    let Some(file) = extension::room(device).filter(|room| room.own > 0) else {
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

/// `bpe_io_capacity` in bytes per second.
pub fn io_capacity() -> u64 {
    IO_CAPACITY
        .load(Ordering::SeqCst)
        .saturating_mul(CAPACITY_UNIT)
}

static WRITE_BUDGET: LazyLock<Arc<WriteBudget>> = LazyLock::new(Arc::default);

/// The account of what is written in a day, under the limit that is set. It goes on when the cache is rebuilt.
pub fn write_budget() -> Arc<WriteBudget> {
    WRITE_BUDGET.set_limit(DAILY_WRITE_LIMIT.load(Ordering::SeqCst));
    Arc::clone(&WRITE_BUDGET)
}

static TIMEOUT: LazyLock<Arc<ReadTimeout>> = LazyLock::new(Arc::default);

/// `bpe_read_timeout`, shared with every extension.
pub fn read_timeout() -> Arc<ReadTimeout> {
    TIMEOUT.set(Duration::from_millis(READ_TIMEOUT.load(Ordering::SeqCst)));
    Arc::clone(&TIMEOUT)
}

/// `bpe_admission`.
pub fn admission() -> AdmissionMode {
    if ADMISSION.load(Ordering::SeqCst) == 0 {
        AdmissionMode::All
    } else {
        AdmissionMode::Frequency
    }
}

/// `bpe_async_io`.
pub fn async_io() -> AsyncIo {
    match ASYNC_IO.load(Ordering::SeqCst) {
        1 => AsyncIo::Native,
        2 => AsyncIo::Off,
        _ => AsyncIo::Auto,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

static INTERNED: LazyLock<Mutex<Vec<CString>>> = LazyLock::new(Mutex::default);

/// A copy of a string that lives as long as the process, one for each distinct value: the server may still be reading
/// the value of a variable that was just replaced.
pub fn intern(text: &CStr) -> *mut c_char {
    let mut interned = INTERNED.lock();
    if let Some(known) = interned.iter().find(|known| known.as_c_str() == text) {
        return known.as_ptr().cast_mut();
    }
    interned.push(text.to_owned());
    interned[interned.len() - 1].as_ptr().cast_mut()
}

/// The server's data directory, canonical.
pub fn data_directory() -> PathBuf {
    // Both servers export this array; their working directory is the data directory too.
    // SAFETY: a symbol lookup; the array holds a string that ends with a zero byte from early on.
    let named = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"mysql_real_data_home".as_ptr());
        (!symbol.is_null()).then(|| CStr::from_ptr(symbol.cast()).to_string_lossy().into_owned())
    };
    let named = named
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| ".".into());
    let path = Path::new(&named);
    path.canonicalize()
        .or_else(|_| std::env::current_dir())
        .unwrap_or_else(|_| path.to_path_buf())
}

/// Identifies the server by host and data directory; stays the same across restarts and reboots.
pub fn owner_identity() -> OwnerIdentity {
    use std::os::unix::ffi::OsStrExt;
    let mut host = [0u8; 256];
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let host = host.split(|byte| *byte == 0).next().unwrap_or_default();
    let data = data_directory();
    // FNV-1a, 128 bits: stable over versions of the toolchain, which the hashers of the standard library are not.
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in host.iter().chain(b"\0").chain(data.as_os_str().as_bytes()) {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    }
    OwnerIdentity(hash.to_be_bytes())
}

fn cache_file_name(owner: &OwnerIdentity) -> String {
    let hex: String = owner.0[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("bpe-{hex}.cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &str, size: u64) -> Settings {
        Settings {
            path: path.into(),
            size,
            ..Settings::current()
        }
    }

    #[test]
    fn a_missing_path_or_size_is_said() {
        assert!(
            settings("", 1 << 30)
                .config(16384)
                .unwrap_err()
                .contains("bpe_path")
        );
        assert!(
            settings("/x", 0)
                .config(16384)
                .unwrap_err()
                .contains("bpe_size")
        );
    }

    #[test]
    fn the_size_is_shared_by_the_devices() {
        let devices = settings("/a/x:relative/x:/c/x", 300).devices().unwrap();
        assert_eq!(devices.len(), 3);
        assert!(devices.iter().all(|device| device.bytes == 100));
        assert!(devices[1].path.is_absolute());
        assert_eq!(devices[0].path, Path::new("/a/x"));
    }

    #[test]
    fn the_path_does_not_lie_in_memory_of_the_server() {
        let mut of_the_server = CString::new("/fast:/faster").unwrap().into_bytes_with_nul();
        PATH.store(of_the_server.as_mut_ptr().cast(), Ordering::SeqCst);
        // SAFETY: valid during the call, as in a server that initialises the plugin.
        unsafe { load() };
        of_the_server.fill(b'x');
        assert_eq!(path(), "/fast:/faster");
        let mut of_the_server = CString::new("/other").unwrap().into_bytes_with_nul();
        // SAFETY: as above.
        unsafe { set_path(of_the_server.as_ptr().cast()) };
        of_the_server.fill(b'x');
        assert_eq!(path(), "/other");
        // SAFETY: null is allowed.
        unsafe { set_path(std::ptr::null()) };
        assert_eq!(path(), "");
        LOADED.store(false, Ordering::SeqCst);
    }

    #[test]
    fn strings_are_kept_once() {
        assert_eq!(intern(c"/a"), intern(c"/a"));
        assert_ne!(intern(c"/a"), intern(c"/b"));
    }

    #[test]
    fn a_server_has_one_name() {
        assert_eq!(owner_identity(), owner_identity());
        let name = cache_file_name(&owner_identity());
        assert!(
            name.starts_with("bpe-") && name.ends_with(".cache") && name.len() == 26,
            "{name}"
        );
    }
}
