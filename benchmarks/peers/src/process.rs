//! What the kernel says of this process.

use std::fs;

use anyhow::{Context, Result};

/// CPU seconds, user and system, of all threads.
pub fn cpu_seconds() -> f64 {
    // SAFETY: all bytes zero is a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours to be written.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(result, 0, "getrusage of the process itself cannot fail");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Resident bytes. Exact, which the cheaper `statm` is not.
///
/// # Errors
/// If /proc is not there.
pub fn resident_bytes() -> Result<u64> {
    Ok(field("/proc/self/smaps_rollup", "Rss:")? << 10)
}

/// Bytes the process caused to be written to disks; 0 where files lie in memory.
///
/// # Errors
/// If /proc is not there.
pub fn written_bytes() -> Result<u64> {
    field("/proc/self/io", "write_bytes:")
}

fn field(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    number_after(&text, name).with_context(|| format!("{path} has no number '{name}'"))
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Gives memory that was freed back to the kernel, so that what grows from here on is seen.
pub fn trim() {
    // SAFETY: always sound to call.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        assert_eq!(number_after("a: 1\nRss:   12 kB\n", "Rss:"), Some(12));
        assert_eq!(number_after("a: 1\n", "Rss:"), None);
        assert!(resident_bytes().unwrap() > 1 << 16);
        written_bytes().unwrap();
    }
}
