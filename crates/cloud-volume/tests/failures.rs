//! Faults, stalls and power loss.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use cloud_volume::{Effect, Fault, Operation, Options, Profile};
use common::{Page, Trial, open_direct};
use rustix::fs::{FallocateFlags, fallocate};

/// A way to change a file, and its name.
type Change = (&'static str, fn(&File));

fn options(forget_unsynced: bool) -> Options {
    Options {
        profile: Profile::unlimited(),
        forget_unsynced,
        ..Options::default()
    }
}

fn failed<T>(result: io::Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
            true
        }
    }
}

#[test]
fn reads_fail_one_in_n_by_suffix() {
    let Some(trial) = Trial::mount(options(false)) else {
        return;
    };
    let mut page = Page::of(1);
    let files = ["a.ibd", "a.log"].map(|name| {
        fs::write(trial.path(name), page.0).unwrap();
        open_direct(&trial.path(name))
    });
    trial.volume.add_fault(Fault {
        every: 4,
        path_suffix: Some(".ibd".into()),
        ..Fault::error(Operation::Read)
    });
    let mut failures = [0, 0];
    for _ in 0..40 {
        for (file, failures) in files.iter().zip(&mut failures) {
            *failures += u32::from(failed(file.read_at(&mut page.0, 0)));
        }
    }
    assert_eq!(failures, [10, 0]);
    assert_eq!(trial.volume.statistics().faults, 10);
    // The suffix applies to the file's current name.
    fs::rename(trial.path("a.ibd"), trial.path("a.bak")).unwrap();
    assert!((0..8).all(|_| !failed(files[0].read_at(&mut page.0, 0))));
    fs::rename(trial.path("a.bak"), trial.path("b.ibd")).unwrap();
    assert!((0..4).any(|_| failed(files[0].read_at(&mut page.0, 0))));
    trial.volume.clear_faults();
    assert!((0..8).all(|_| !failed(files[0].read_at(&mut page.0, 0))));
}

#[test]
fn failed_write_stores_nothing_failed_sync_persists_nothing() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    let file = open_direct(&trial.path("file"));
    file.write_all_at(&Page::of(1).0, 0).unwrap();
    file.sync_data().unwrap();
    trial.volume.add_fault(Fault::error(Operation::Write));
    assert!(failed(file.write_at(&Page::of(2).0, 0)));
    assert_eq!(fs::read(trial.backing("file")).unwrap(), [1; 16384]);
    trial.volume.clear_faults();
    trial.volume.add_fault(Fault::error(Operation::Sync));
    file.write_all_at(&Page::of(3).0, 0).unwrap();
    assert!(failed(file.sync_data()));
    trial.volume.power_loss().unwrap();
    assert_eq!(fs::read(trial.backing("file")).unwrap(), [1; 16384]);
}

#[test]
fn torn_writes_leave_a_prefix() {
    let Some(trial) = Trial::mount(options(false)) else {
        return;
    };
    for (effect, reported) in [(Effect::Torn, true), (Effect::TornSilently, false)] {
        let file = open_direct(&trial.path("file"));
        file.write_all_at(&Page::of(1).0, 0).unwrap();
        trial.volume.add_fault(Fault {
            effect,
            ..Fault::error(Operation::Write)
        });
        assert_eq!(failed(file.write_all_at(&Page::of(2).0, 0)), reported);
        let stored = fs::read(trial.backing("file")).unwrap();
        let torn_at = stored.iter().position(|byte| *byte == 1).unwrap();
        assert!(torn_at > 0 && torn_at % 512 == 0, "{torn_at}");
        assert!(stored[torn_at..].iter().all(|byte| *byte == 1));
        trial.volume.clear_faults();
    }
}

#[test]
fn a_stall_holds_reads_until_it_ends() {
    let Some(trial) = Trial::mount(options(false)) else {
        return;
    };
    fs::write(trial.path("file"), Page::of(1).0).unwrap();
    let file = open_direct(&trial.path("file"));
    trial.volume.stall(Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut Page::of(0).0, 0));
        while trial.volume.statistics().queued == 0 {
            std::thread::yield_now();
        }
        assert!(!reader.is_finished());
        trial.volume.resume();
        assert_eq!(reader.join().unwrap().unwrap(), 16384);
    });
}

#[test]
fn requests_in_flight_fail_with_the_power() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    fs::write(trial.path("file"), Page::of(1).0).unwrap();
    let file = open_direct(&trial.path("file"));
    file.sync_all().unwrap();
    trial.volume.stall(Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut Page::of(0).0, 0));
        let writer = scope.spawn(|| file.write_at(&Page::of(2).0, 0));
        while trial.volume.statistics().queued < 2 {
            std::thread::yield_now();
        }
        trial.volume.power_loss().unwrap();
        assert!(failed(reader.join().unwrap()));
        assert!(failed(writer.join().unwrap()));
    });
    trial.volume.resume();
    assert_eq!(fs::read(trial.path("file")).unwrap(), [1; 16384]);
}

#[test]
fn power_loss_forgets_what_was_not_synced() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    let synced = open_direct(&trial.path("synced"));
    for n in 0..4 {
        synced.write_all_at(&Page::of(1).0, n * 16384).unwrap();
    }
    synced.sync_data().unwrap();
    let old = fs::read(trial.path("synced")).unwrap();
    assert_eq!(trial.volume.statistics().unsynced_bytes, 0);

    // Every kind of change: direct, buffered, mapped sizes, holes.
    let changes: [Change; 7] = [
        ("direct write", |f| {
            f.write_all_at(&Page::of(2).0, 16384).unwrap()
        }),
        ("growth", |f| {
            f.write_all_at(&Page::of(2).0, 1 << 20).unwrap()
        }),
        ("allocation", |f| {
            fallocate(f, FallocateFlags::empty(), 0, 1 << 20).unwrap()
        }),
        ("hole", |f| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(f, punch, 16384, 16384).unwrap()
        }),
        ("zeros", |f| {
            fallocate(f, FallocateFlags::ZERO_RANGE, 0, 32768).unwrap()
        }),
        ("truncation", |f| f.set_len(1000).unwrap()),
        ("truncation and growth", |f| {
            f.set_len(0).unwrap();
            f.write_all_at(&Page::of(4).0, 32768).unwrap();
        }),
    ];
    for (what, change) in changes {
        assert!(trial.volume.unsynced().is_empty(), "{what}");
        change(&synced);
        let [(path, offsets)] = &trial.volume.unsynced()[..] else {
            panic!("{what}");
        };
        assert_eq!(path, &trial.backing("synced"), "{what}");
        assert!(offsets.is_sorted() && offsets.iter().all(|offset| *offset < old.len() as u64));
        let changed = |page: u64| offsets.contains(&(page * 16384));
        match what {
            "growth" | "allocation" => assert!(offsets.is_empty(), "{what}"),
            "direct write" | "hole" => assert!(changed(1) && !changed(2), "{what}"),
            "zeros" => assert!(changed(0) && changed(1) && !changed(2), "{what}"),
            _ => assert!(changed(0) && changed(3), "{what}"),
        }
        assert_ne!(fs::read(trial.path("synced")).unwrap(), old, "{what}");
        assert_eq!(trial.volume.power_loss().unwrap(), 1, "{what}");
        assert_eq!(synced.metadata().unwrap().len(), old.len() as u64, "{what}");
        assert_eq!(fs::read(trial.path("synced")).unwrap(), old, "{what}");
        assert_eq!(fs::read(trial.backing("synced")).unwrap(), old, "{what}");
        let mut page = Page::of(0);
        synced.read_exact_at(&mut page.0, 16384).unwrap();
        assert_eq!(page.0, [1; 16384], "{what}");
    }
    assert_eq!(trial.volume.statistics().unsynced_bytes, 0);
    assert_eq!(trial.volume.statistics().power_losses, 7);
}

#[test]
fn syncs_through_any_handle_count_and_names_are_durable() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    fs::write(trial.path("kept"), "kept").unwrap();
    File::open(trial.path("kept")).unwrap().sync_all().unwrap();
    fs::write(trial.path("lost"), "lost").unwrap();
    fs::rename(trial.path("kept"), trial.path("moved")).unwrap();
    fs::write(trial.path("gone"), "gone").unwrap();
    fs::remove_file(trial.path("gone")).unwrap();
    let written_through = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DSYNC)
        .open(trial.path("dsync"))
        .unwrap();
    written_through.write_all_at(b"dsync", 0).unwrap();

    trial.volume.power_loss().unwrap();
    assert_eq!(fs::read(trial.path("moved")).unwrap(), b"kept");
    assert_eq!(fs::read(trial.path("lost")).unwrap(), b"");
    assert_eq!(fs::read(trial.path("dsync")).unwrap(), b"dsync");
    assert!(!trial.path("gone").exists());
}

#[test]
fn a_torn_power_loss_mixes_old_and_new_sectors() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    let file = open_direct(&trial.path("file"));
    file.write_all_at(&Page::of(1).0, 0).unwrap();
    file.write_all_at(&Page::of(1).0, 16384).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&Page::of(2).0, 16384).unwrap();
    trial.volume.power_loss_torn(42).unwrap();
    let after = fs::read(trial.path("file")).unwrap();
    assert_eq!(after[..16384], [1; 16384]);
    for sector in after.chunks(512) {
        assert!(sector.iter().all(|byte| *byte == sector[0]));
    }
    assert!(after[16384..].contains(&1) && after[16384..].contains(&2));
}

#[test]
fn a_reordered_power_loss_keeps_writes_whole() {
    let Some(trial) = Trial::mount(options(true)) else {
        return;
    };
    let file = open_direct(&trial.path("file"));
    for page in 0..32 {
        file.write_all_at(&Page::of(1).0, page * 16384).unwrap();
    }
    file.sync_data().unwrap();
    for page in 0..32 {
        file.write_all_at(&Page::of(2).0, page * 16384).unwrap();
    }
    trial.volume.power_loss_reordered(7, 16384).unwrap();
    let after = fs::read(trial.path("file")).unwrap();
    let pages = || after.chunks(16384);
    assert!(pages().all(|page| page.iter().all(|byte| *byte == page[0])));
    assert!(pages().any(|page| page[0] == 1) && pages().any(|page| page[0] == 2));
}

#[test]
fn power_loss_needs_its_mode() {
    let Some(trial) = Trial::mount(options(false)) else {
        return;
    };
    let error = trial.volume.power_loss().unwrap_err().to_string();
    assert!(error.contains("forget-unsynced"), "{error}");
}
