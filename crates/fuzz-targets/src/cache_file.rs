//! A disk that returns other bytes than were written: a cache in use, whose file changes underneath.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cache::{
    Compression, Config, DeviceConfig, Extension, FileId, Generations, Group, MIN_DEVICE_BYTES,
    OwnerIdentity, PageId, PolicyName, ReadOutcome, Source,
};

/// A few pages of this length fill the smallest device.
const LENGTH: usize = 65536;
const PAGES: u32 = 256;

fn content(page: u32, version: u8) -> Vec<u8> {
    let mut bytes = vec![version; LENGTH];
    bytes[4..8].copy_from_slice(&page.to_be_bytes());
    for (n, word) in bytes[64..].chunks_exact_mut(64).enumerate() {
        word[..4].copy_from_slice(&(n as u32 ^ page.wrapping_mul(0x9e37_79b1)).to_le_bytes());
    }
    bytes
}

/// The input is a sequence of operations of four bytes each: offer pages, write a page, run the writer, read a page,
/// change the file at some offset. A hit must be the last written version.
pub fn cache_file(bytes: &[u8]) {
    let parent = if Path::new("/dev/shm").is_dir() {
        Path::new("/dev/shm").into()
    } else {
        std::env::temp_dir()
    };
    let Ok(folder) = tempfile::tempdir_in(parent) else {
        return;
    };
    let (compression, operations) = match bytes.split_first() {
        Some((first, rest)) if first & 1 == 1 => (Compression::Lz4, rest),
        Some((_, rest)) => (Compression::Off, rest),
        None => return,
    };
    let config = Config {
        devices: vec![DeviceConfig {
            path: folder.path().into(),
            bytes: MIN_DEVICE_BYTES,
            owner: OwnerIdentity::default(),
            file_name: "cache".into(),
        }],
        policy: PolicyName::SecondChance,
        compression,
        nominal_page: LENGTH as u32,
        ..Config::default()
    };
    let generations = Arc::new(Generations::new());
    let Ok(cache) = Extension::open_inline(config, Arc::clone(&generations)) else {
        return;
    };
    let Ok(file) = OpenOptions::new()
        .read(true)
        .write(true)
        .open(folder.path().join("cache"))
    else {
        return;
    };
    let mut versions = vec![1u8; PAGES as usize];
    let mut buffer = vec![0; LENGTH];
    let id = |page: u32| PageId::new(FileId(1), page);
    for operation in operations.chunks_exact(4).take(64) {
        let [kind, a, b, c] = [operation[0], operation[1], operation[2], operation[3]];
        let page = u32::from(a);
        match kind % 6 {
            0 | 1 => {
                for n in 0..u32::from(b % 64) + 1 {
                    let page = (page + n) % PAGES;
                    if let Some(ticket) = generations.begin_read(1, page) {
                        cache.insert(
                            id(page),
                            Group::NORMAL,
                            &content(page, versions[page as usize]),
                            ticket,
                            Source::Read,
                        );
                    }
                    if n % 8 == 7 {
                        cache.pump();
                    }
                }
            }
            2 => {
                generations.begin_write(1, page, 1);
                let was_cached = cache.invalidate(FileId(1), page, 1);
                versions[page as usize] = versions[page as usize].wrapping_add(1);
                if let Some(ticket) = generations.end_write(1, page, 1) {
                    cache.insert(
                        id(page),
                        Group::NORMAL,
                        &content(page, versions[page as usize]),
                        ticket,
                        Source::Write { was_cached },
                    );
                }
            }
            3 => {
                cache.pump();
            }
            4 => {
                for n in 0..8 {
                    let page = (page + n) % PAGES;
                    if cache.read(id(page), Group::NORMAL, &mut buffer) == ReadOutcome::Hit {
                        assert!(
                            buffer == content(page, versions[page as usize]),
                            "page {page}"
                        );
                    }
                }
            }
            _ => {
                // At any offset, but often at those of footers.
                let at = (u64::from(a) << 15 | u64::from(b) << 7) % MIN_DEVICE_BYTES;
                let length = 1 + usize::from(c) * 16;
                let _ = file.write_all_at(
                    &vec![b ^ c; length],
                    at.min(MIN_DEVICE_BYTES - length as u64),
                );
            }
        }
    }
    while cache.pump() {}
    let books = cache.validate();
    assert!(books.is_ok(), "{books:?}");
}
