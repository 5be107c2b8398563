//! Memory of a cache of 4 million pages, as the kernel counts it.
//!
//! The pages have 1 KiB, so the cache file has 4 GiB and not 64. Directory and sketch need the same memory for any page
//! length: an entry and some counters. Staging is a share of the bytes, at most 64 MiB, and reported separately. The
//! test uses the product's own code through its public interface, on a real file. It is the only test in this file,
//! because every test file is a separate process.
//!
//! The file is created in BPE_TEST_DIRECTORY, or in the target directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, MIN_DEVICE_BYTES, OpenError,
    OwnerIdentity, PageId, PolicyName, Source,
};

const PAGE: u32 = 1024;
/// Minimum number of cached pages at the end.
const PAGES: u32 = 4_000_000;
/// Room on the device, of which some percent are always free.
const ROOM: u32 = PAGES / 100 * 104;
/// Maximum bytes of directory, sketch and everything else that grows with the number of pages, per cached page.
const MAX_BYTES: f64 = 16.0;

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Opens an extension without threads, on a device for `pages` pages. If the disk is too small, prints this and returns
/// `None`.
fn open(
    directory: &Path,
    name: &str,
    pages: u32,
    generations: &Arc<Generations>,
) -> Option<Extension> {
    let device = DeviceConfig {
        path: directory.to_path_buf(),
        bytes: u64::from(pages) * u64::from(PAGE),
        owner: OwnerIdentity::default(),
        file_name: name.to_owned(),
    };
    let config = Config {
        devices: vec![device],
        nominal_page: PAGE,
        policy: PolicyName::SecondChance,
        ..Config::default()
    };
    match Extension::open_inline(config, Arc::clone(generations)) {
        Ok(cache) => Some(cache),
        Err(error @ OpenError::NoSpace { .. }) => {
            let required = std::env::var("BPE_REQUIRE_ALL").is_ok_and(|value| value == "1");
            assert!(!required, "{error}");
            println!("skipped: memory: {error}; or name another directory in BPE_TEST_DIRECTORY");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Offers `pages` pages, and writes them.
fn fill(cache: &Extension, pages: u32, generations: &Generations) {
    let mut bytes = vec![7; PAGE as usize];
    for number in 0..pages {
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        let ticket = generations.begin_read(1, number).unwrap();
        cache.insert(
            PageId::new(FileId(1), number),
            Group::NORMAL,
            &bytes,
            ticket,
            Source::Read,
        );
        if cache.staged_bytes() >= 1 << 20 {
            cache.pump();
        }
    }
    cache.pump();
}

#[test]
fn of_four_million_pages() {
    let directory = std::env::var_os("BPE_TEST_DIRECTORY")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let folder = tempfile::tempdir_in(directory).unwrap();
    let generations = Arc::new(Generations::new());

    // Fixed memory of the writer and others at work, independent of the number of pages. It stays open, so that the
    // code below reuses none of it.
    let before = resident();
    let least = (MIN_DEVICE_BYTES / u64::from(PAGE)) as u32;
    let Some(smallest) = open(folder.path(), "smallest", least, &generations) else {
        return;
    };
    fill(&smallest, least, &generations);
    let variable = smallest.staging_memory_bytes() + u64::from(least) * MAX_BYTES as u64;
    let fixed = (resident() - before).saturating_sub(variable);

    let before = resident();
    let Some(cache) = open(folder.path(), "cache", ROOM, &generations) else {
        return;
    };
    fill(&cache, ROOM, &generations);
    let grown = resident() - before;
    let statistics = cache.statistics();
    let (cached, said) = (statistics.pages_cached, statistics.memory_bytes);
    let staging = cache.staging_memory_bytes();

    let each = |bytes: u64| bytes as f64 / cached as f64;
    let grows = grown - staging - fixed;
    println!(
        "{cached} pages cached; resident memory grew by {grown} bytes, {:.2} a page: {:.2} directory and sketch, {:.2} \
         staging ({staging} bytes), {:.2} other fixed buffers ({fixed} bytes); the extension says {said} bytes",
        each(grown),
        each(grows),
        each(staging),
        each(fixed),
    );
    assert!(cached >= u64::from(PAGES), "only {cached} pages are cached");
    let off = grown as f64 / said as f64 - 1.0;
    assert!(
        off.abs() < 0.05,
        "what the extension says is {:.1} % off",
        off * 100.0
    );
    assert!(each(grows) <= MAX_BYTES, "{:.2} bytes a page", each(grows));
}
