//! The administrator's settings: the values behind the system variables.
//!
//! [`VALUES`] is the memory that the server's variables point to. [`Settings`] is a snapshot of it, from which the extension
//! is built. [`bypass`] has the effective value of `bpe_bypass`, which a timeout may end.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cache::{Compression, OwnerIdentity, WriteBudget};
use coherence::controller::Layout;
use interface::untrusted::refuse_in_path;
use parking_lot::Mutex;

use crate::platform::identity::{data_directory, stem};

pub mod bypass;

pub use bypass::BYPASS;

/// The values behind the system variables, except `bpe_bypass` ([`bypass::BYPASS`]) and `bpe_tables`
/// ([`crate::tables::TABLES`]).
pub struct Values {
    /// Behind `bpe_enabled`.
    pub enabled: AtomicU8,
    /// Behind `bpe_path`. Once the plugin is initialised it points to an interned copy ([`intern`]), which is never freed.
    pub path: AtomicPtr<c_char>,
    /// Behind `bpe_size`, bytes.
    pub size: AtomicU64,
    /// Behind `bpe_instances`; 0: by the number of cores.
    pub instances: AtomicU64,
    /// Behind `bpe_io_capacity`: writes of 16 KiB per second; 0: no limit.
    pub io_capacity: AtomicU64,
    /// Behind `bpe_daily_write_limit`: bytes in 24 hours; 0: no limit.
    pub daily_write_limit: AtomicU64,
    /// Behind `bpe_memory_limit`, bytes; 0: by the size.
    pub memory_limit: AtomicU64,
    /// Behind `bpe_compression`.
    pub compression: AtomicU64,
    /// Behind `bpe_persist_path`; as `path`. Empty: nothing outlives the process.
    pub persist_path: AtomicPtr<c_char>,
    /// Behind `bpe_warm_io_capacity`: reads of the data disk per second while pages are loaded; 0: loading is disabled.
    pub warm_io_capacity: AtomicU64,
}

pub static VALUES: Values = Values {
    enabled: AtomicU8::new(0),
    path: AtomicPtr::new(std::ptr::null_mut()),
    size: AtomicU64::new(0),
    instances: AtomicU64::new(0),
    io_capacity: AtomicU64::new(0),
    daily_write_limit: AtomicU64::new(0),
    memory_limit: AtomicU64::new(0),
    compression: AtomicU64::new(0),
    persist_path: AtomicPtr::new(std::ptr::null_mut()),
    warm_io_capacity: AtomicU64::new(interface::variables::WARM_IO_CAPACITY.default_number()),
};

/// `bpe_io_capacity` counts writes of this many bytes.
pub const CAPACITY_UNIT: u64 = 16 * 1024;

/// A `bpe_size` in this range is a percentage of the room on the cache disks: no cache is that small in bytes. A lower value
/// is rejected as a typing error.
const PERCENT: RangeInclusive<u64> = 10..=100;

/// A snapshot of all settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `bpe_path` as given.
    pub path: String,
    /// `bpe_size` as given: bytes, or a [`percent`](Self::percent)age.
    pub size: u64,
    /// `bpe_instances` as given.
    pub instances: u32,
    /// Bytes per second; 0: no limit.
    pub io_capacity: u64,
    /// Bytes; 0: by the size.
    pub memory_limit: u64,
    /// `bpe_compression`.
    pub compression: Compression,
}

impl Settings {
    /// Reads the current values of the variables.
    pub fn current() -> Settings {
        let path = path();
        Settings {
            path,
            size: VALUES.size.load(Ordering::SeqCst),
            instances: u32::try_from(VALUES.instances.load(Ordering::SeqCst)).unwrap_or(0),
            io_capacity: io_capacity(),
            memory_limit: VALUES.memory_limit.load(Ordering::SeqCst),
            compression: if VALUES.compression.load(Ordering::SeqCst) == 1 {
                Compression::Lz4
            } else {
                Compression::Off
            },
        }
    }

    /// Number of instances: 1 below 8 cores, otherwise 8, unless a number is given.
    pub fn instance_count(&self) -> u32 {
        match self.instances {
            0 if cores() < 8 => 1,
            0 => 8,
            given => given,
        }
    }

    /// The variables that determine the layout. A change rebuilds the cache.
    fn layout(&self) -> impl PartialEq + std::fmt::Debug {
        (
            &self.path,
            self.size,
            self.instances,
            self.memory_limit,
            self.compression,
        )
    }

    /// Identifies the settings that determine the layout.
    pub fn layout_digest(&self) -> u64 {
        cache::hash(format!("{:?}", self.layout()).as_bytes()) | 1
    }

    /// The percentage of the room on the cache disks, if `bpe_size` is one.
    pub fn percent(&self) -> Option<u64> {
        PERCENT.contains(&self.size).then_some(self.size)
    }

    /// The components of `bpe_path`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.path.split(':').filter(|path| !path.is_empty())
    }

    /// Minimum `bpe_size` for these paths, bytes.
    pub fn smallest_size(&self) -> u64 {
        let paths = self.paths().count().max(1);
        paths as u64 * cache::MIN_DEVICE_BYTES
    }
}

impl Layout for Settings {
    fn same_layout(&self, other: &Settings) -> bool {
        self.layout() == other.layout()
    }
}

/// Whether the server's variables exist: true from the plugin's initialisation until it is unloaded.
pub static LOADED: AtomicBool = AtomicBool::new(false);

/// # Errors
/// The server has the function `bpe_report` of this library, but not the plugin.
pub fn check_installed() -> Result<(), String> {
    let installed = LOADED.load(Ordering::SeqCst);
    let why = || "the plugin is not installed, only its function is".to_owned();
    installed.then_some(()).ok_or_else(why)
}

/// Takes ownership of the variables' texts. The server frees the text of `bpe_path` from the command line or an option file
/// once the plugin is initialised, so this function copies it.
///
/// # Safety
/// Call while the server initialises the plugin: the text of `bpe_path` is valid until then.
pub unsafe fn load() {
    // SAFETY: the caller's promise.
    unsafe {
        set_path(VALUES.path.load(Ordering::SeqCst));
        set_text(
            &VALUES.persist_path,
            VALUES.persist_path.load(Ordering::SeqCst),
        );
    }
    LOADED.store(true, Ordering::SeqCst);
}

/// Sets `bpe_path` to a copy of the text. Copies are never freed, so that any thread can read them at any time. Null is
/// empty.
///
/// # Safety
/// `text` must be null or a valid string during the call.
pub unsafe fn set_path(text: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { set_text(&VALUES.path, text) };
}

/// Sets a text variable in the same way.
///
/// # Safety
/// As for [`set_path`].
pub unsafe fn set_text(variable: &AtomicPtr<c_char>, text: *const c_char) {
    let text = if text.is_null() {
        c""
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(text) }
    };
    variable.store(intern(text), Ordering::SeqCst);
}

/// Reads `bpe_path`.
fn path() -> String {
    text_of(&VALUES.path)
}

/// Reads a variable that [`set_text`] has set.
pub fn text_of(variable: &AtomicPtr<c_char>) -> String {
    if !LOADED.load(Ordering::SeqCst) {
        return String::new();
    }
    let text = variable.load(Ordering::SeqCst);
    if text.is_null() {
        return String::new();
    }
    // SAFETY: since the plugin was loaded the variable points to interned text, which is never freed.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// `bpe_io_capacity` in bytes per second.
pub fn io_capacity() -> u64 {
    VALUES
        .io_capacity
        .load(Ordering::SeqCst)
        .saturating_mul(CAPACITY_UNIT)
}

static WRITE_BUDGET: LazyLock<Arc<WriteBudget>> = LazyLock::new(Arc::default);

/// The daily write budget, with the current limit. It outlives rebuilds of the cache.
pub fn write_budget() -> Arc<WriteBudget> {
    WRITE_BUDGET.set_limit(VALUES.daily_write_limit.load(Ordering::SeqCst));
    Arc::clone(&WRITE_BUDGET)
}

/// Timeout of a read from a cache disk, milliseconds: longer than a working disk takes, even a busy one. Only tests change
/// it.
pub static READ_TIMEOUT: AtomicU64 = AtomicU64::new(1000);

/// Timeout of a read from a cache disk; `None`: unlimited.
pub fn read_timeout() -> Option<Duration> {
    #[cfg(debug_assertions)]
    if let Ok(Ok(milliseconds)) = std::env::var("BPE_TEST_READ_TIMEOUT").map(|text| text.parse()) {
        READ_TIMEOUT.store(milliseconds, Ordering::SeqCst);
    }
    let milliseconds = READ_TIMEOUT.load(Ordering::SeqCst);
    (milliseconds != 0).then(|| Duration::from_millis(milliseconds))
}

/// MariaDB accepts the removed variable `bpe_persist` as an abbreviation of `bpe_persist_path`. Converts such a value, and
/// returns a warning.
pub fn take_former_persist() -> Option<String> {
    let former = text_of(&VALUES.persist_path);
    let meant = match former.to_ascii_lowercase().as_str() {
        "off" | "0" => c"",
        "restart" | "1" => DEFAULT_PERSIST_PATH,
        _ => return None,
    };
    VALUES.persist_path.store(intern(meant), Ordering::SeqCst);
    Some(format!(
        "bpe_persist={former} is set, which is gone: bpe_persist_path='{}' takes its place",
        meant.to_string_lossy()
    ))
}

/// Directory of the state that outlives the process until the host reboots; `None`: nothing is persisted.
pub fn persist_path() -> Option<PathBuf> {
    let path = text_of(&VALUES.persist_path);
    (!path.is_empty()).then(|| path.into())
}

#[cfg(test)]
pub fn keep_in_tests(folder: Option<&CStr>) {
    VALUES
        .persist_path
        .store(intern(folder.unwrap_or_default()), Ordering::SeqCst);
    LOADED.store(folder.is_some(), Ordering::SeqCst);
}

/// Checks whether the directory can be used.
///
/// # Errors
/// It is not a valid path: an option file may contain anything.
pub fn check_persist_path() -> Result<(), String> {
    refuse_in_path("bpe_persist_path", &text_of(&VALUES.persist_path))
}

/// The default of `bpe_persist_path`: POSIX shared memory on Linux.
pub const DEFAULT_PERSIST_PATH: &CStr = c"/dev/shm";

/// Path of a persisted file of this kind, in memory that outlives the process. Without `bpe_persist_path`, the default
/// location.
pub fn persisted_file(owner: &OwnerIdentity, kind: &str) -> PathBuf {
    let default = || OsStr::from_bytes(DEFAULT_PERSIST_PATH.to_bytes()).into();
    let folder = persist_path().unwrap_or_else(default);
    folder.join(format!("{}.{kind}", stem(owner)))
}

/// The first path in `bpe_path`: a cache file, or its directory.
pub fn first_path() -> Option<PathBuf> {
    let settings = Settings::current();
    let first = settings.paths().next()?;
    Some(data_directory().join(first))
}

/// Reads of the data disk per second that loading may use; `None` if loading is disabled.
pub fn warm_io_capacity() -> Option<u64> {
    let capacity = VALUES.warm_io_capacity.load(Ordering::SeqCst);
    (capacity > 0).then_some(capacity)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

static INTERNED: LazyLock<Mutex<Vec<CString>>> = LazyLock::new(Mutex::default);

/// Interns a string for the life of the process, one copy for each distinct value: the server may still be reading a value
/// that was just replaced.
pub fn intern(text: &CStr) -> *mut c_char {
    let mut interned = INTERNED.lock();
    if let Some(known) = interned.iter().find(|known| known.as_c_str() == text) {
        return known.as_ptr().cast_mut();
    }
    interned.push(text.to_owned());
    interned[interned.len() - 1].as_ptr().cast_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_copied_from_server_memory() {
        let mut of_the_server = CString::new("/fast:/faster").unwrap().into_bytes_with_nul();
        VALUES
            .path
            .store(of_the_server.as_mut_ptr().cast(), Ordering::SeqCst);
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

    /// `interface` declares the same variables as rebuilding the cache.
    #[test]
    fn layouts_differ_where_a_variable_rebuilds() {
        let usual = Settings::current();
        let changed = |name: &str| {
            let mut other = usual.clone();
            match name {
                "bpe_path" => other.path.push('x'),
                "bpe_size" => other.size += 1,
                "bpe_instances" => other.instances += 1,
                "bpe_memory_limit" => other.memory_limit += 1,
                "bpe_compression" => other.compression = Compression::Lz4,
                "bpe_io_capacity" => other.io_capacity += 1,
                _ => {}
            }
            other
        };
        for one in interface::variables::ALL {
            let rebuilds = interface::variables::rebuilds(one.name);
            let other = changed(one.name);
            assert_eq!(!usual.same_layout(&other), rebuilds, "{}", one.name);
            let differs = usual.layout_digest() != other.layout_digest();
            assert_eq!(differs, rebuilds, "{}", one.name);
        }
    }

    #[test]
    fn strings_are_kept_once() {
        assert_eq!(intern(c"/a"), intern(c"/a"));
        assert_ne!(intern(c"/a"), intern(c"/b"));
    }
}
