//! A deliberately wrong cache: keeps its pages over a crash and trusts them by name (`persist`), or instead of the data file
//! (`write-back`).
//!
//! Written pages go to the same offset of a file of the same name in the directory `BPE_CANARY_FOLDER`, and are read from
//! there. Only synchronous calls are handled: the server must run with `innodb_use_native_aio=OFF`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use coherence::canary::is_removed;

const PAGE: usize = 16384;

fn is_on() -> bool {
    is_removed("persist") || is_removed("write-back")
}

/// Returns the store of the descriptor's data file, if the range is one of its pages. Page 0 is excluded, because the server
/// also reads it in other lengths.
fn store(fd: i32, length: usize, offset: i64) -> Option<Arc<File>> {
    static STORES: OnceLock<Mutex<HashMap<PathBuf, Arc<File>>>> = OnceLock::new();
    if length != PAGE || offset <= 0 || offset % PAGE as i64 != 0 {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if path.extension().is_none_or(|extension| extension != "ibd") {
        return None;
    }
    let folder = PathBuf::from(std::env::var_os("BPE_CANARY_FOLDER")?);
    let mut stores = STORES
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = stores.get(&path) {
        return Some(Arc::clone(file));
    }
    let name = path.to_string_lossy().replace('/', "_");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join(name))
        .ok()?;
    let file = Arc::new(file);
    stores.insert(path, Arc::clone(&file));
    Some(file)
}

/// Serves a read from the store, or forwards it.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
pub unsafe fn read(
    fd: i32,
    buffer: *mut u8,
    length: usize,
    offset: i64,
    real: impl FnOnce() -> isize,
) -> isize {
    if let Some(file) = is_on().then(|| store(fd, length, offset)).flatten() {
        let mut bytes = vec![0; length];
        let whole = file.read_exact_at(&mut bytes, offset as u64).is_ok();
        // Zeros mean that nothing was stored.
        if whole && bytes.iter().any(|byte| *byte != 0) {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, length) };
            return length as isize;
        }
    }
    real()
}

/// Stores a write, after forwarding it or instead.
///
/// # Safety
/// `buffer` must be valid for reads of `length` bytes.
pub unsafe fn write(
    fd: i32,
    buffer: *const u8,
    length: usize,
    offset: i64,
    real: impl FnOnce() -> isize,
) -> isize {
    let Some(file) = is_on().then(|| store(fd, length, offset)).flatten() else {
        return real();
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(buffer, length) };
    let result = if is_removed("write-back") {
        length as isize
    } else {
        real()
    };
    if result == length as isize {
        let _ = file.write_all_at(bytes, offset as u64);
    }
    result
}
