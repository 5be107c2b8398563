//! Size of InnoDB's buffer pool, from the table of its variables.

use std::ffi::{CStr, c_char, c_int};

use crate::platform::innodb;
use crate::settings::Settings;

/// Types of variables with 64-bit values: `long` and `long long`.
const WIDE: [c_int; 2] = [3, 4];
const TYPE: c_int = 0x7f;
const OF_A_SESSION: c_int = 0x100;
/// The server adds its prefix to the names when it loads the plugin.
const NAMES: [&CStr; 2] = [c"innodb_buffer_pool_size", c"buffer_pool_size"];
/// The beginning of `st_mysql_sys_var`.
#[repr(C)]
struct Variable {
    flags: c_int,
    name: *const c_char,
    comment: *const c_char,
    check: usize,
    update: usize,
    value: *const u64,
}

/// Whether the cache size depends on the buffer pool size, which is still unknown.
pub fn is_waited_for(settings: &Settings) -> bool {
    settings.percent().is_some() && settings.memory_limit == 0 && !innodb::runs()
}

/// Bytes of InnoDB's buffer pool; `None` where this server does not show them, or before InnoDB has started.
pub fn bytes() -> Option<u64> {
    if !innodb::runs() {
        return None;
    }
    // SAFETY: the table ends with null, and names with a zero byte. The server writes a value as one word, and so it is
    // read.
    unsafe {
        let variable = innodb::items(innodb::variables()?.cast::<*const Variable>())
            .find(|one| !(**one).name.is_null() && NAMES.contains(&CStr::from_ptr((**one).name)))?;
        let (flags, value) = ((*variable).flags, (*variable).value);
        let is_wide = WIDE.contains(&(flags & TYPE)) && flags & OF_A_SESSION == 0;
        let bytes = (is_wide && !value.is_null()).then(|| value.read_volatile());
        bytes.filter(|bytes| *bytes > 0)
    }
}
