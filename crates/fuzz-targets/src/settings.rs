//! `bpe_path` and the numeric settings.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bpe_plugin::control::plan::Plan;
use bpe_plugin::settings::Settings;
use cache::Compression;

static FOLDER: LazyLock<Option<tempfile::TempDir>> = LazyLock::new(|| tempfile::tempdir().ok());
static RUN: AtomicU64 = AtomicU64::new(0);

/// Numbers first, then the path. The path is accessed only inside a private directory.
pub fn settings(bytes: &[u8]) {
    let (numbers, path) = bytes.split_at(bytes.len().min(24));
    let number = |at: usize| {
        let mut eight = [0; 8];
        let part = numbers.get(at..).unwrap_or_default();
        let length = part.len().min(8);
        eight[..length].copy_from_slice(&part[..length]);
        u64::from_le_bytes(eight)
    };
    let settings = Settings {
        path: String::from_utf8_lossy(path).into_owned(),
        size: number(0),
        instances: number(8) as u32,
        io_capacity: number(8) >> 32,
        memory_limit: number(16),
        compression: if number(8) & 1 == 0 {
            Compression::Off
        } else {
            Compression::Lz4
        },
    };
    let _ = (settings.smallest_size(), settings.instance_count());
    let Ok(plan) = Plan::new(&settings) else {
        return;
    };
    for page in [0, 1024, 16384, u32::MAX] {
        let devices = plan.config(page, None).devices;
        // In percent it is a part of the available room.
        let most = settings.percent().map_or(settings.size, |_| u64::MAX);
        assert!(devices.iter().all(|device| device.bytes <= most));
    }

    let Some(folder) = &*FOLDER else { return };
    let inside: Vec<String> = settings
        .path
        .split(':')
        .filter(|part| !part.is_empty() && !part.contains("..") && !part.contains('\0'))
        .map(|part| format!("{}/{}", folder.path().display(), part))
        .collect();
    let looked_at = Settings {
        path: inside.join(":"),
        ..settings
    };
    let before = std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    let _ = Plan::new(&looked_at).and_then(|plan| plan.check(&[]));
    let after = std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    assert_eq!(before, after, "looking at paths left something behind");
    RUN.fetch_add(1, Ordering::Relaxed);
}
