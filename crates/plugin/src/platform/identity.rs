//! The server's data directory and identity. The names of all its files derive from them.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cache::OwnerIdentity;
use interface::owner;

#[cfg(test)]
thread_local! {
    /// Number of look-ups of the data directory by this thread.
    pub static LOOKUPS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The server's data directory, canonical.
pub fn data_directory() -> PathBuf {
    #[cfg(test)]
    LOOKUPS.set(LOOKUPS.get() + 1);
    // Both servers export this array; their working directory is the data directory too.
    // SAFETY: a symbol lookup. The array holds a zero-terminated string from early on.
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
pub fn owner_identity(data: &Path) -> OwnerIdentity {
    let mut host = [0u8; 256];
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let host = host.split(|byte| *byte == 0).next().unwrap_or_default();
    OwnerIdentity(owner::identity(host, data.as_os_str().as_bytes()))
}

/// Prefix of the names of this server's files.
pub fn stem(owner: &OwnerIdentity) -> String {
    owner::stem(&owner.0)
}

/// The identity of this server.
pub fn owner() -> OwnerIdentity {
    owner_identity(&data_directory())
}
