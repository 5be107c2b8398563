//! Short benchmark of both disks: random 16 KiB reads with O_DIRECT, one at a time and eight in parallel.
//!
//! On the data disk, it only reads the server's own files. Opening and closing them here does not affect the server's
//! locks, which belong to its process. On the cache disk, it uses an unnamed file that disappears afterwards.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::finding::Finding;
use crate::installation::disk::AlignedBuffer;
use crate::support::files::{open_plain_with, unnamed};
use crate::support::size::human;

const PAGE: usize = 16 << 10;
/// Parallel reads in the second measurement.
const DEPTH: usize = 8;
/// Number of data files to read from; the largest ones are used.
const FILES: usize = 64;
/// Less data would measure the disk's own cache.
const MIN_DATA: u64 = 64 << 20;
const TEST_FILE: u64 = 256 << 20;
/// End of a finding about a slower cache disk.
pub const SLOWER: &str = "it is slower, so a cache would do harm";
/// Minimum ratio of cache disk speed to data disk speed.
const CLEARLY: f64 = 2.0;

/// Performance of a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// Median latency of single reads.
    pub latency: Duration,
    /// Reads per second with eight in parallel.
    pub rate: f64,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.2} ms for one random read of 16 KiB, {:.0} a second eight at a time",
            self.latency.as_secs_f64() * 1000.0,
            self.rate
        )
    }
}

/// Measures the disk of the data directory, if it contains enough data.
pub fn data_disk(data: &Path, duration: Duration) -> (Finding, Option<Speed>) {
    let mut files = data_files(data);
    files.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    files.truncate(FILES);
    let total: u64 = files.iter().map(|(_, length)| length).sum();
    if total < MIN_DATA {
        let text = format!(
            "not measured: only {} in the data directory's files",
            human(total)
        );
        return (Finding::warn("data disk", text), None);
    }
    let opened: io::Result<Vec<_>> = files
        .iter()
        .map(|(path, length)| Ok((open_direct(path)?, *length)))
        .collect();
    match opened.and_then(|files| speed(&files, duration)) {
        Ok(speed) => (Finding::ok("data disk", speed.to_string()), Some(speed)),
        Err(error) => (
            Finding::warn("data disk", format!("cannot be measured: {error}"))
                .advise("run `bpe doctor` with sudo"),
            None,
        ),
    }
}

/// Measures a cache disk and compares it with the data disk.
pub fn cache_disk(
    path: &Path,
    folder: &Path,
    size: u64,
    duration: Duration,
    data: Option<&Speed>,
) -> Vec<Finding> {
    let shown = path.display();
    let result =
        fill(folder, size, duration).and_then(|(file, length)| speed(&[(file, length)], duration));
    let speed = match result {
        Ok(speed) => speed,
        Err(error) => {
            return vec![Finding::warn(
                "cache disk",
                format!("{shown} cannot be measured: {error}"),
            )];
        }
    };
    let mut findings = vec![Finding::ok("cache disk", format!("{shown}: {speed}"))];
    if let Some(data) = data {
        findings.push(compare(&speed, data));
    }
    findings
}

pub fn compare(cache: &Speed, data: &Speed) -> Finding {
    let latency = data.latency.as_secs_f64() / cache.latency.as_secs_f64().max(1e-9);
    let rate = cache.rate / data.rate.max(1e-9);
    let text = format!(
        "the cache disk answers {latency:.1} times as fast and does {rate:.1} times as many reads \
         as the data disk"
    );
    if latency < 1.0 && rate < 1.0 {
        return Finding::warn("speed", format!("{text}: {SLOWER}"))
            .advise("choose another disk: a local NVMe");
    }
    if latency < CLEARLY && rate < CLEARLY {
        return Finding::warn("speed", format!("{text}: not clearly faster"))
            .advise("a local NVMe is usually 5 to 10 times as fast as a network volume");
    }
    Finding::ok("speed", text)
}

/// InnoDB's files in the data directory and its subdirectories.
fn data_files(data: &Path) -> Vec<(PathBuf, u64)> {
    let list = |folder: &Path| -> Vec<fs::DirEntry> {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    };
    let mut files = Vec::new();
    let mut consider = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo");
        if let (true, Ok(meta)) = (ours, entry.metadata()) {
            if meta.is_file() && meta.len() >= PAGE as u64 {
                files.push((entry.path(), meta.len()));
            }
        }
    };
    for entry in list(data) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path()).iter().for_each(&mut consider);
        } else {
            consider(&entry);
        }
    }
    files
}

fn open_direct(path: &Path) -> io::Result<File> {
    let open = |flags| open_plain_with(path, OFlags::NOFOLLOW | flags);
    match open(OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(OFlags::empty()),
        other => other,
    }
}

/// Writes the test file. Limited to the duration of a measurement and a quarter of the free space.
fn fill(folder: &Path, size: u64, duration: Duration) -> io::Result<(File, u64)> {
    const STEP: usize = 1 << 20;
    let file = match unnamed(folder, OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            unnamed(folder, OFlags::empty())
        }
        other => other,
    }?;
    let room = crate::installation::disk::room(folder)?.free / 4;
    let most = TEST_FILE.min(size).min(room).max(STEP as u64);
    let mut buffer = AlignedBuffer::new(STEP);
    let mut random = Random::new(1);
    for chunk in buffer.bytes_mut().chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    let end = Instant::now() + duration;
    let mut length = 0;
    while length < most && (length == 0 || Instant::now() < end) {
        file.write_all_at(buffer.bytes(), length)?;
        length += STEP as u64;
    }
    file.sync_data()?;
    Ok((file, length))
}

fn speed(files: &[(File, u64)], duration: Duration) -> io::Result<Speed> {
    let (mut alone, _) = random_reads(files, 1, duration)?;
    let (together, elapsed) = random_reads(files, DEPTH, duration)?;
    alone.sort_unstable();
    Ok(Speed {
        latency: alone[alone.len() / 2],
        rate: together.len() as f64 / elapsed.as_secs_f64(),
    })
}

/// Reads random pages with `depth` threads. Returns the latency of every read and the total time.
fn random_reads(
    files: &[(File, u64)],
    depth: usize,
    duration: Duration,
) -> io::Result<(Vec<Duration>, Duration)> {
    let begin = Instant::now();
    let times = thread::scope(|scope| {
        let threads: Vec<_> = (0..depth)
            .map(|number| scope.spawn(move || reader(files, number as u64, duration)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a reading thread failed")))
            })
            .collect::<io::Result<Vec<_>>>()
    })?;
    Ok((times.concat(), begin.elapsed()))
}

fn reader(files: &[(File, u64)], seed: u64, duration: Duration) -> io::Result<Vec<Duration>> {
    let pages: u64 = files.iter().map(|(_, length)| length / PAGE as u64).sum();
    let mut random = Random::new(seed + 1);
    let mut buffer = AlignedBuffer::new(PAGE);
    let mut times = Vec::new();
    let end = Instant::now() + duration;
    while times.is_empty() || Instant::now() < end {
        let mut page = random.next() % pages.max(1);
        let mut target = &files[0].0;
        for (file, length) in files {
            let here = length / PAGE as u64;
            target = file;
            if page < here {
                break;
            }
            page -= here;
        }
        let begin = Instant::now();
        // If the file has been truncated in between, the read is short, which is no reason to stop.
        target.read_at(buffer.bytes_mut(), page * PAGE as u64)?;
        times.push(begin.elapsed());
    }
    Ok(times)
}

/// splitmix64: sufficient for spreading reads.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn speed_of(microseconds: u64, rate: f64) -> Speed {
        Speed {
            latency: Duration::from_micros(microseconds),
            rate,
        }
    }

    #[test]
    fn the_cache_disk_must_be_clearly_faster() {
        let data = speed_of(500, 3000.0);
        assert_eq!(compare(&speed_of(80, 50_000.0), &data).level, Level::Ok);
        assert_eq!(compare(&speed_of(400, 9000.0), &data).level, Level::Ok);
        let same = compare(&speed_of(450, 3100.0), &data);
        assert_eq!(same.level, Level::Warn);
        assert!(same.text.contains("not clearly"));
        assert!(
            compare(&speed_of(900, 1000.0), &data)
                .text
                .contains("slower")
        );
    }

    #[test]
    fn a_disk_is_measured_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let short = Duration::from_millis(20);
        let findings = cache_disk(folder.path(), folder.path(), 4 << 20, short, None);
        assert_eq!(findings[0].level, Level::Ok, "{}", findings[0].text);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn little_data_is_not_measured() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("db")).unwrap();
        fs::write(folder.path().join("db/t.ibd"), vec![1; 2 * PAGE]).unwrap();
        fs::write(folder.path().join("other"), vec![1; 2 * PAGE]).unwrap();
        let files = data_files(folder.path());
        assert_eq!(files.len(), 1);
        let (finding, speed) = data_disk(folder.path(), Duration::from_millis(20));
        assert_eq!(finding.level, Level::Warn);
        assert!(speed.is_none());
    }

    #[test]
    fn random_reads_reach_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..3)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                fs::write(&path, vec![1; 4 * PAGE]).unwrap();
                (open_direct(&path).unwrap(), 4 * PAGE as u64)
            })
            .collect();
        let (times, elapsed) = random_reads(&files, 2, Duration::from_millis(10)).unwrap();
        assert!(times.len() >= 2 && elapsed >= Duration::from_millis(10));
    }
}
