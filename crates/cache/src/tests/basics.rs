//! Behaviour for a single caller.

use std::os::unix::fs::{FileExt, PermissionsExt};

use std::time::Duration;

use super::*;
use crate::device::segment::format::DATA_OFFSET;
use crate::{Compression, CopyOutcome, Group, Located, MissReason, OpenError};

const ALL_LENGTHS: [usize; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];
const ABSENT: ReadOutcome = ReadOutcome::Miss(MissReason::Absent);

#[test]
fn all_page_lengths_are_served_from_staging_and_device() {
    for compression in [Compression::Off, Compression::Lz4] {
        let f = inline(|c| c.compression = compression);
        for (file, length) in (0..).zip(ALL_LENGTHS) {
            for n in 0..5 {
                assert_eq!(f.read(page(file, n), 1, length), ABSENT);
                assert_eq!(f.insert(page(file, n), 1, length), InsertOutcome::Admitted);
                assert_eq!(f.read(page(file, n), 1, length), ReadOutcome::Hit);
            }
        }
        assert_eq!(f.extension.statistics().hits_staged, 35);
        f.pump();
        f.check_books();
        let s = f.extension.statistics();
        assert_eq!(
            (s.pages_staged, s.pages_cached, s.hits, s.misses),
            (0, 35, 35, 35)
        );
        for (file, length) in (0..).zip(ALL_LENGTHS) {
            for n in 0..5 {
                assert_eq!(
                    f.read(page(file, n), 1, length),
                    ReadOutcome::Hit,
                    "{length} {compression:?}"
                );
            }
            let wrong = if length == 1024 { 2048 } else { length / 2 };
            assert!(matches!(
                f.read(page(file, 0), 1, wrong),
                ReadOutcome::Miss(_)
            ));
        }
        let s = f.extension.statistics();
        assert_eq!((s.hits, s.hits_staged), (70, 35));
        assert_eq!(
            f.extension.file_pages(&[FileId(0), FileId(6), FileId(9)])[2],
            0
        );
        let stored = s.bytes_written_user as usize;
        let raw = 5 * ALL_LENGTHS.iter().sum::<usize>();
        match compression {
            Compression::Off => assert_eq!(stored, raw),
            Compression::Lz4 => assert!(stored < raw * 3 / 4, "{stored} of {raw}"),
        }
    }
}

#[test]
fn misaligned_buffers_work() {
    let f = inline(|_| {});
    f.insert(page(1, 1), 1, 16384);
    f.pump();
    let mut memory = vec![0; 20000];
    for shift in [0, 1, 512, 1024, 3000] {
        let buffer = &mut memory[shift..shift + 16384];
        assert_eq!(
            f.extension.read(page(1, 1), Group::NORMAL, buffer),
            ReadOutcome::Hit
        );
        assert!(*buffer == content(page(1, 1), 1, 16384));
    }
}

#[test]
fn odd_lengths_are_refused() {
    let f = inline(|_| {});
    let ticket = f.generations.begin_read(0, 0).unwrap();
    for length in [0, 1, 512, 5000, 131_072] {
        let mut buffer = vec![0; length];
        assert_eq!(
            f.extension.read(page(0, 0), Group::NORMAL, &mut buffer),
            ReadOutcome::Miss(MissReason::Unsuitable)
        );
        assert_eq!(
            f.extension
                .insert(page(0, 0), Group::NORMAL, &buffer, ticket, Source::Read),
            InsertOutcome::Unsuitable
        );
        assert!(
            f.extension
                .locate(page(0, 0), Group::NORMAL, length, 0)
                .is_none()
        );
    }
}

#[test]
fn a_written_page_is_gone_until_it_is_offered_again() {
    let f = inline(|_| {});
    for pump in [false, true] {
        f.insert(page(1, 1), 1, 4096);
        if pump {
            f.pump();
        }
        let old = f.generations.begin_read(1, 1).unwrap();
        f.generations.begin_write(1, 1, 1);
        assert!(f.extension.invalidate(FileId(1), 1, 1));
        assert!(!f.extension.invalidate(FileId(1), 1, 1));
        assert_eq!(f.read(page(1, 1), 1, 4096), ABSENT);
        let stale = f.extension.insert(
            page(1, 1),
            Group::NORMAL,
            &content(page(1, 1), 1, 4096),
            old,
            Source::Read,
        );
        assert_eq!(stale, InsertOutcome::Stale);
        f.generations.end_write(1, 1, 1).unwrap();
        let stale = f.extension.insert(
            page(1, 1),
            Group::NORMAL,
            &content(page(1, 1), 1, 4096),
            old,
            Source::Read,
        );
        assert_eq!(stale, InsertOutcome::Stale);
        assert_eq!(f.write(page(1, 1), 2, 4096), InsertOutcome::Admitted);
        assert_eq!(f.read(page(1, 1), 2, 4096), ReadOutcome::Hit);
        assert_eq!(f.insert(page(1, 1), 2, 4096), InsertOutcome::AlreadyCached);
        f.pump();
        assert_eq!(f.read(page(1, 1), 2, 4096), ReadOutcome::Hit);
        assert_eq!(f.insert(page(1, 1), 2, 4096), InsertOutcome::AlreadyCached);
        f.check_books();
        assert!(f.extension.invalidate(FileId(1), 0, 5));
    }
    assert_eq!(f.extension.statistics().invalidated, 4);
}

#[test]
fn ranges_of_any_length_are_invalidated() {
    let f = inline(|_| {});
    for (first, pages, gone) in [
        (10, 20, 10..30),
        (64, 64, 64..128),
        (0, u32::MAX, 0..200),
        (100, 5000, 100..200),
        (150, 0, 0..0),
    ] {
        (0..200).for_each(|n| _ = f.insert(page(3, n), 1, 1024));
        f.insert(page(4, 15), 1, 1024);
        f.pump();
        assert_eq!(
            f.extension.invalidate(FileId(3), first, pages),
            !gone.is_empty()
        );
        for n in 0..200 {
            assert_eq!(
                f.read(page(3, n), 1, 1024) == ReadOutcome::Hit,
                !gone.contains(&n),
                "{first} {pages} {n}"
            );
        }
        assert_eq!(f.read(page(4, 15), 1, 1024), ReadOutcome::Hit);
        assert!(!f.extension.invalidate(FileId(5), first, pages));
        f.extension.invalidate(FileId(3), 0, u32::MAX);
        f.check_books();
    }
}

#[test]
fn a_full_device_goes_round_and_keeps_what_is_hit() {
    for compression in [Compression::Off, Compression::Lz4] {
        let f = inline(|c| c.compression = compression);
        // The device holds 512 uncompressed pages.
        for n in 0..4000 {
            f.insert(page(1, n), 1, 16384);
            f.pump();
            for hot in (0..20.min(n)).filter(|_| n % 20 == 0) {
                f.read(page(1, hot), 1, 16384);
            }
        }
        f.check_books();
        let s = f.extension.statistics();
        assert!(s.evicted > 2000, "{s:?}");
        assert_eq!((s.failed_proofs, s.device_errors), (0, 0));
        for hot in 0..20 {
            assert_eq!(
                f.read(page(1, hot), 1, 16384),
                ReadOutcome::Hit,
                "{hot} {compression:?}"
            );
        }
        let cached = (0..4000)
            .filter(|&n| f.read(page(1, n), 1, 16384) == ReadOutcome::Hit)
            .count();
        match compression {
            Compression::Off => assert!((300..512).contains(&cached), "{cached}"),
            Compression::Lz4 => assert!((400..1024).contains(&cached), "{cached}"),
        }
    }
}

#[test]
fn forgotten_files_make_room_for_others() {
    let f = inline(|c| c.instances = 1);
    for n in 0..300 {
        f.insert(page(1, n), 1, 16384);
        f.pump();
        f.read(page(1, n), 1, 16384);
    }
    assert_eq!(f.extension.file_pages(&[FileId(1)]), [300]);
    f.extension.forget_file(FileId(1), 0);
    assert_eq!(f.extension.file_pages(&[FileId(1)]), [0]);
    for n in 0..512 {
        f.insert(page(2, n), 1, 16384);
        f.pump();
    }
    f.check_books();
    let s = f.extension.statistics();
    assert_eq!(s.reinserted, 0);
    // Some 476 of 512 pages fit, and a segment was emptied.
    assert!(s.evicted < 100, "the 300 pages of file 1 go first: {s:?}");
}

/// The background task clears them before an insertion needs the room. Other files keep their pages.
#[test]
fn forgotten_files_are_no_longer_counted() {
    let f = inline(|c| c.instances = 1);
    for n in 0..200 {
        f.insert(page(1, n * 3), 1, 16384);
        f.insert(page(2, n), 1, 16384);
        f.pump();
    }
    // One more page is only staged.
    f.insert(page(1, 5000), 1, 16384);
    f.extension.forget_file(FileId(1), 0);
    while f.extension.clear_forgotten(Duration::ZERO) {}
    let s = f.extension.statistics();
    assert!((195..=200).contains(&s.pages_cached), "{s:?}");
    assert!(!f.extension.clear_forgotten(Duration::from_secs(1)));
    let kept = (0..200).filter(|&n| f.read(page(2, n), 1, 16384) == ReadOutcome::Hit);
    assert_eq!(kept.count() as u64, s.pages_cached);
    f.check_books();
}

/// Clearing removes the pages that this process entered, and the persisted pages below the given end.
#[test]
fn inherited_pages_of_forgotten_files_go_as_far_as_is_known() {
    let left = |known, entered: u32| {
        let f = inline(|c| c.instances = 3);
        for n in 0..200 {
            f.insert(page(1, n), 1, 16384);
            f.pump();
        }
        // Turns the entries into persisted ones.
        for instance in &f.extension.shared.instances {
            let mut state = instance.0.lock();
            state.forget(FileId(1), 0);
            state.forgotten.clear();
        }
        f.extension.trust_file(FileId(1), u32::MAX, 200);
        for n in 0..entered {
            f.write(page(1, 150 + n), 2, 16384);
            f.pump();
        }
        f.extension.forget_file(FileId(1), known);
        while f.extension.clear_forgotten(Duration::from_secs(1)) {}
        f.check_books();
        f.extension.statistics().pages_cached
    };
    assert_eq!([left(0, 0), left(100, 0), left(200, 0)], [200, 100, 0]);
    assert_eq!(left(100, 64), 0, "it has grown since it was opened");
}

/// Clearing a file with few cached pages would cost other files more pages than it frees.
#[test]
fn forgotten_files_that_are_hardly_cached_are_left_alone() {
    let f = inline(|c| c.instances = 1);
    for n in [0, 20_000_000] {
        f.insert(page(1, n), 1, 16384);
        f.pump();
    }
    f.extension.forget_file(FileId(1), 0);
    assert!(!f.extension.clear_forgotten(Duration::ZERO));
    assert_eq!(f.extension.statistics().pages_cached, 2);
}

#[test]
fn staging_is_bounded() {
    let f = inline(|_| {});
    let outcomes: Vec<_> = (0..300).map(|n| f.insert(page(1, n), 1, 16384)).collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|o| **o == InsertOutcome::Admitted)
            .count(),
        192
    );
    assert_eq!(outcomes.last(), Some(&InsertOutcome::StagingFull));
    assert_eq!(f.extension.statistics().dropped_staging_full, 108);
    f.pump();
    assert_eq!(f.insert(page(1, 299), 1, 16384), InsertOutcome::Admitted);
}

/// Reads the located page like a caller of `locate`.
fn read_of(f: &Fixture, located: &Located) -> Vec<u8> {
    let file = std::fs::File::open(f.directory.path().join("cache")).unwrap();
    let mut bytes = vec![0; located.length as usize];
    file.read_exact_at(&mut bytes, located.offset).unwrap();
    bytes
}

#[test]
fn located_pages_are_read_by_the_caller_and_proven() {
    let f = inline(|_| {});
    f.insert(page(1, 1), 1, 16384);
    f.pump();
    let locate = || f.extension.locate(page(1, 1), Group::NORMAL, 16384, 0);
    assert!(
        f.extension
            .locate(page(1, 1), Group::NORMAL, 8192, 0)
            .is_none(),
        "of another length"
    );
    assert!(
        f.extension
            .locate(page(1, 2), Group::NORMAL, 16384, 0)
            .is_none(),
        "absent"
    );
    let located = locate().unwrap();
    let mut bytes = read_of(&f, &located);
    assert!(bytes == content(page(1, 1), 1, 16384));
    assert!(f.extension.prove_page(&located, None, &mut bytes));
    f.extension.release(locate().unwrap());
    f.extension.release_failed(locate().unwrap(), libc::EIO);
    let s = f.extension.statistics();
    assert_eq!(
        (s.hits, s.hits_located, s.misses_unsuitable, s.misses_absent),
        (1, 1, 1, 1)
    );
    assert_eq!(s.hit_bytes, 16384);
    assert_eq!((s.misses_device_error, s.device_errors), (1, 1));
    assert_eq!(s.misses, 3, "each locate but one was a hit, or counts");
    // A write between `locate` and `prove_page`.
    let located = locate().unwrap();
    f.write(page(1, 1), 2, 16384);
    assert!(!f.extension.prove_page(&located, None, &mut bytes));
    f.pump();
    // Damage on the device.
    let located = locate().unwrap();
    let mut bytes = content(page(1, 1), 2, 16384);
    bytes[5000] ^= 1;
    assert!(!f.extension.prove_page(&located, None, &mut bytes));
    assert_eq!(
        f.read(page(1, 1), 2, 16384),
        ABSENT,
        "the entry was dropped"
    );
    assert_eq!(f.extension.statistics().failed_proofs, 1);
}

#[test]
fn a_located_page_in_staging_was_copied() {
    let f = inline(|_| {});
    let mut bytes = vec![0; 16384];
    let locate = || f.extension.locate(page(1, 1), Group::NORMAL, 16384, 0);
    // SAFETY: no read fills the memory.
    let copy = |located: &Located| unsafe { located.bytes() }.map(<[u8]>::to_vec);
    f.insert(page(1, 1), 1, 16384);
    let located = locate().unwrap();
    assert_eq!(located.length, 0, "nothing is left to be read");
    assert!(
        f.extension
            .locate(page(1, 1), Group::NORMAL, 8192, 0)
            .is_none()
    );
    assert!(
        f.extension
            .prove_page(&located, copy(&located).as_deref(), &mut bytes)
    );
    assert!(bytes == content(page(1, 1), 1, 16384));
    // A flush to the device between `locate` and `prove_page`.
    let located = locate().unwrap();
    f.pump();
    assert!(
        f.extension
            .prove_page(&located, copy(&located).as_deref(), &mut bytes)
    );
    let s = f.extension.statistics();
    assert_eq!((s.hits, s.hits_staged, s.hits_located), (2, 2, 0));
    // A write by the server in between; the page is staged again, perhaps in the same frame.
    f.write(page(1, 1), 2, 16384);
    let located = locate().unwrap();
    assert_eq!(located.length, 0);
    f.write(page(1, 1), 3, 16384);
    assert!(
        !f.extension
            .prove_page(&located, copy(&located).as_deref(), &mut bytes)
    );
    // An error of an empty read is no device error.
    f.extension.release_failed(locate().unwrap(), libc::EINVAL);
    let s = f.extension.statistics();
    assert_eq!((s.misses_invalidated, s.device_errors), (1, 0));
}

#[test]
fn a_located_page_that_is_compressed_is_decompressed() {
    let f = inline(|config| config.compression = Compression::Lz4);
    let repeated = |version: u8| {
        let mut bytes = vec![version; 16384];
        bytes[4..8].copy_from_slice(&1_u32.to_be_bytes());
        bytes
    };
    let insert = |version| {
        let ticket = f.generations.begin_read(1, 1).unwrap();
        let outcome = f.extension.insert(
            page(1, 1),
            Group::NORMAL,
            &repeated(version),
            ticket,
            Source::Read,
        );
        assert_eq!(outcome, InsertOutcome::Admitted);
        f.pump();
    };
    insert(1);
    let located = f
        .extension
        .locate(page(1, 1), Group::NORMAL, 16384, 0)
        .unwrap();
    assert!(located.length < 16384 && located.buffer().is_some());
    let read = read_of(&f, &located);
    let mut bytes = vec![0; 16384];
    assert!(f.extension.prove_page(&located, Some(&read), &mut bytes));
    assert!(bytes == repeated(1));
    // With another length the entry appears to be another page's.
    let located = f
        .extension
        .locate(page(1, 1), Group::NORMAL, 8192, 0)
        .unwrap();
    let read_again = read_of(&f, &located);
    assert!(
        !f.extension
            .prove_page(&located, Some(&read_again), &mut bytes[..8192])
    );
    assert_eq!(f.extension.statistics().misses_unsuitable, 1);
    // Damaged bytes.
    let located = f
        .extension
        .locate(page(1, 1), Group::NORMAL, 16384, 0)
        .unwrap();
    assert!(
        !f.extension
            .prove_page(&located, Some(&vec![0; read.len()]), &mut bytes)
    );
    let s = f.extension.statistics();
    assert_eq!((s.hits_located, s.failed_proofs), (1, 1));
    assert!(
        f.extension
            .locate(page(1, 1), Group::NORMAL, 16384, 0)
            .is_none(),
        "the entry was dropped"
    );
}

#[test]
fn a_located_page_whose_segment_was_reused_is_not_believed() {
    let f = inline(|_| {});
    f.insert(page(1, 1), 1, 16384);
    f.pump();
    let located = f
        .extension
        .locate(page(1, 1), Group::NORMAL, 16384, 0)
        .unwrap();
    for n in 2..3000 {
        f.insert(page(1, n), 1, 16384);
        f.pump();
    }
    assert!(
        !f.extension
            .prove_page(&located, None, &mut content(page(1, 1), 1, 16384))
    );
    assert_eq!(f.extension.statistics().misses_reclaimed, 1);
}

/// A page of `file` with the fingerprint and the buckets of another page.
fn twin_of(f: &Fixture, victim: PageId, file: u32) -> PageId {
    let state = f.extension.shared.instance(victim).lock();
    (2..u32::MAX)
        .map(|n| page(file, n))
        .find(|&n| state.directory.look_alike(n, victim))
        .unwrap()
}

#[test]
fn pages_with_the_same_fingerprint_are_told_apart_from_damage() {
    let f = inline(|c| c.instances = 1);
    let victim = page(1, 1);
    f.insert(victim, 1, 4096);
    f.pump();
    let twin = twin_of(&f, victim, 1);
    assert_eq!(
        f.read(twin, 1, 4096),
        ReadOutcome::Miss(MissReason::Collision)
    );
    assert_eq!(f.read(victim, 1, 4096), ABSENT);
    let s = f.extension.statistics();
    assert_eq!(
        (s.failed_proofs, s.device_errors, s.misses_collision),
        (0, 0, 1)
    );
    // Staging distinguishes pages exactly; on the device the newer page replaces the older.
    f.insert(victim, 1, 4096);
    assert_eq!(f.read(twin, 1, 4096), ABSENT);
    assert!(!f.extension.invalidate(twin.file, twin.page, 1));
    assert_eq!(f.insert(twin, 1, 4096), InsertOutcome::Admitted);
    assert_eq!(f.read(victim, 1, 4096), ABSENT);
    assert_eq!(f.read(twin, 1, 4096), ReadOutcome::Hit);
    f.pump();
    assert_eq!(f.read(twin, 1, 4096), ReadOutcome::Hit);
    f.check_books();
}

type Fill = fn(PageId, usize) -> Vec<u8>;

/// Compresses to half.
fn half(page: PageId, length: usize) -> Vec<u8> {
    content(page, 1, length)
}

/// Compresses to a single unit.
fn sparse(page: PageId, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[4..8].copy_from_slice(&page.page.to_be_bytes());
    bytes
}

/// Page lengths differ between files of one server: tables with ROW_FORMAT=COMPRESSED have shorter pages.
#[test]
#[cfg_attr(miri, ignore = "searches millions of pages")]
fn twin_of_other_length_is_a_collision() {
    let f = inline(|c| {
        c.instances = 1;
        c.compression = Compression::Lz4;
    });
    let cases: [(Fill, usize, usize); 6] = [
        // Compressed to one unit, which is valid for either length.
        (sparse, 2048, 4096),
        (sparse, 4096, 2048),
        // Compressed to more units than the twin can have.
        (half, 16384, 4096),
        // A compressed page of the twin's length takes more bytes for the same number of units.
        (half, 4096, 65536),
        (sparse, 65536, 16384),
        // Not compressed.
        (half, 1024, 4096),
    ];
    for (file, (fill, length, twin_length)) in (0..).zip(cases) {
        let victim = page(file, 1);
        let ticket = f.generations.begin_read(file, 1).unwrap();
        let candidates = f.extension.insert(
            victim,
            Group::NORMAL,
            &fill(victim, length),
            ticket,
            Source::Read,
        );
        assert_eq!(candidates, InsertOutcome::Admitted);
        f.pump();
        let twin = twin_of(&f, victim, 1000 + file);
        assert_eq!(
            f.read(twin, 1, twin_length),
            ReadOutcome::Miss(MissReason::Collision),
            "a page of {length} bytes and its twin of {twin_length}"
        );
        // The victim no longer blocks it.
        assert_eq!(f.insert(twin, 1, twin_length), InsertOutcome::Admitted);
        f.pump();
        assert_eq!(f.read(twin, 1, twin_length), ReadOutcome::Hit);
    }
    let s = f.extension.statistics();
    assert_eq!(
        (s.failed_proofs, s.device_errors, s.misses_collision),
        (0, 0, 6)
    );
    f.check_books();
}

#[test]
#[cfg_attr(miri, ignore = "searches millions of pages")]
fn damaged_twin_of_other_length_fails_its_proof() {
    for compression in [Compression::Off, Compression::Lz4] {
        let f = inline(|c| {
            c.instances = 1;
            c.compression = compression;
        });
        let victim = page(1, 1);
        f.insert(victim, 1, 8192);
        f.pump();
        let path = f.directory.path().join("cache");
        let cache = std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        // Enough bytes to damage page content, not only offsets of the compression.
        let (mut bytes, in_page) = ([0; 16], DATA_OFFSET + 2000);
        cache.read_exact_at(&mut bytes, in_page).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
        cache.write_all_at(&bytes, in_page).unwrap();
        let twin = twin_of(&f, victim, 2);
        assert_eq!(
            f.read(twin, 1, 16384),
            ReadOutcome::Miss(MissReason::FailedProof)
        );
        assert_eq!(f.read(victim, 1, 8192), ABSENT, "the entry was dropped");
        let s = f.extension.statistics();
        assert_eq!((s.failed_proofs, s.device_errors), (1, 1));
    }
}

#[test]
fn cached_page_read_in_other_length_is_unsuitable() {
    let f = inline(|c| c.compression = Compression::Lz4);
    let compressible = [sparse(page(0, 1), 4096), content(page(1, 1), 1, 16384)];
    for (file, bytes) in (0..).zip(compressible) {
        let ticket = f.generations.begin_read(file, 1).unwrap();
        f.extension
            .insert(page(file, 1), Group::NORMAL, &bytes, ticket, Source::Read);
        f.pump();
        for length in ALL_LENGTHS.into_iter().filter(|&n| n != bytes.len()) {
            assert_eq!(
                f.read(page(file, 1), 1, length),
                ReadOutcome::Miss(MissReason::Unsuitable),
                "{} bytes read as {length}",
                bytes.len()
            );
        }
        let mut buffer = vec![0; bytes.len()];
        assert_eq!(
            f.extension.read(page(file, 1), Group::NORMAL, &mut buffer),
            ReadOutcome::Hit
        );
        assert!(buffer == bytes);
    }
    let s = f.extension.statistics();
    assert_eq!((s.failed_proofs, s.device_errors), (0, 0));
}

#[test]
fn copy_requires_length_and_proof() {
    let f = inline(|_| {});
    let inspect = |length: usize| {
        let mut bytes = vec![0; length];
        let found = f.extension.copy(page(1, 1), &mut bytes);
        (found, bytes == content(page(1, 1), 1, length))
    };
    assert!(matches!(inspect(16384), (CopyOutcome::Absent, _)));
    f.insert(page(1, 1), 1, 16384);
    assert!(
        matches!(inspect(16384), (CopyOutcome::Copied, true)),
        "staged"
    );
    assert!(
        matches!(inspect(8192), (CopyOutcome::Unproven, _)),
        "staged"
    );
    f.pump();
    assert!(matches!(inspect(16384), (CopyOutcome::Copied, true)));
    assert!(matches!(inspect(8192), (CopyOutcome::Unproven, _)));
    assert!(matches!(inspect(1000), (CopyOutcome::Absent, _)));
    let located = f
        .extension
        .locate(page(1, 1), Group::NORMAL, 16384, 0)
        .unwrap();
    let cache = std::fs::File::options()
        .write(true)
        .open(f.directory.path().join("cache"))
        .unwrap();
    cache.write_all_at(&[0x5a; 4096], located.offset).unwrap();
    f.extension.release(located);
    assert!(
        matches!(inspect(16384), (CopyOutcome::Unproven, _)),
        "damaged"
    );
}

#[test]
fn several_devices_share_the_pages() {
    let second = tempfile::tempdir().unwrap();
    let f = inline(|c| c.devices.push(device(second.path(), "other", SMALLEST * 2)));
    for n in 0..3000 {
        f.insert(page(1, n), 1, 16384);
        if n % 40 == 0 {
            // Rotate which writer runs first.
            f.extension.with_writers(|writers| writers.reverse());
            f.pump();
        }
    }
    f.pump();
    f.check_books();
    let devices = f.extension.device_statistics();
    assert!(
        devices
            .iter()
            .all(|d| d.pages > 100 && d.active && d.state == "active"),
        "{devices:?}"
    );
    let cached = f.extension.statistics().pages_cached;
    let hits = (0..3000)
        .filter(|&n| f.read(page(1, n), 1, 16384) == ReadOutcome::Hit)
        .count();
    // A page that collides with an absent one may have been dropped before its turn.
    let lost = cached - f.extension.statistics().pages_cached;
    assert!(
        hits as u64 <= cached && hits as u64 + lost >= cached && lost < 5,
        "{hits} of {cached}, {lost} lost"
    );
}

#[test]
fn opening_leaves_a_private_file_and_closing_none() {
    let f = inline(|_| {});
    let path = f.directory.path().join("cache");
    let metadata = std::fs::metadata(&path).unwrap();
    assert!((SMALLEST * 9 / 10..=SMALLEST).contains(&metadata.len()));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let again = Extension::open_inline(
        config(f.directory.path(), SMALLEST),
        Arc::clone(&f.generations),
    );
    assert!(matches!(again, Err(OpenError::HeldHere { .. })));
    assert!(path.exists());
    drop(f.extension);
    assert!(!path.exists());
}

#[test]
fn memory_is_what_was_planned() {
    let f = inline(|c| c.instances = 3);
    let shared = &f.extension.shared;
    let mut parts = shared.store.staging.memory_bytes() - shared.store.staging.untouched();
    for instance in &shared.instances {
        let state = instance.0.lock();
        parts += state.directory.memory_bytes() + state.policy.memory_bytes();
    }
    // Bounce buffers belong to the process, and other tests use some.
    let told = f.extension.statistics().memory_bytes - crate::common::memory::bounce_bytes();
    assert!(parts < told && told < parts + (2 << 20), "{parts} {told}");
    for n in 0..10_000 {
        f.extension.trust_file(FileId(n), u32::MAX, 1);
    }
    let least = 3 * 10_000 * 24;
    let files = shared.file_bytes();
    assert!((least..least * 4).contains(&files), "{files} bytes");
}

#[test]
fn writers_in_threads_write_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let generations = Arc::new(Generations::new());
    let c = Config {
        io_capacity: 100 << 20,
        ..config(directory.path(), SMALLEST)
    };
    let extension = Extension::open(c, Arc::clone(&generations)).unwrap();
    let f = Fixture {
        extension,
        generations,
        directory,
    };
    for n in 0..1000 {
        while f.insert(page(1, n), 1, 16384) == InsertOutcome::StagingFull {
            std::thread::yield_now();
        }
    }
    while f.extension.statistics().pages_staged > 0 || f.extension.staged_bytes() > 0 {
        std::thread::yield_now();
    }
    f.check_books();
    // A writer may still evict pages.
    let before = f.extension.statistics().pages_cached;
    let hits = (0..1000).filter(|&n| f.read(page(1, n), 1, 16384) == ReadOutcome::Hit);
    let hits = hits.count() as u64;
    let after = f.extension.statistics().pages_cached;
    assert!(
        (after..=before).contains(&hits) && hits > 200,
        "{hits} hits, {before} and then {after} pages cached"
    );
    drop(f.extension);
    assert!(!f.directory.path().join("cache").exists());
}

#[test]
fn many_threads_read_without_a_bound_in_bounded_memory() {
    const THREADS: usize = 80;
    let f = inline(|c| {
        c.compression = Compression::Lz4;
        c.read_timeout = None;
    });
    for n in 0..THREADS as u32 {
        f.insert(page(1, n), 1, 65536);
        f.pump();
    }
    let before = crate::common::memory::bounce_bytes();
    let (done, measured) = (
        std::sync::Barrier::new(THREADS + 1),
        std::sync::Barrier::new(THREADS + 1),
    );
    let grown = std::thread::scope(|scope| {
        for n in 0..THREADS as u32 {
            let (f, done, measured) = (&f, &done, &measured);
            scope.spawn(move || {
                f.read(page(1, n), 1, 65536);
                done.wait();
                measured.wait();
            });
        }
        done.wait();
        let grown = crate::common::memory::bounce_bytes().saturating_sub(before);
        measured.wait();
        grown
    });
    let counters = f.extension.statistics();
    assert!(counters.hits > 0, "{counters:?}");
    // At least 32 slots exist; other tests use buffers at the same time.
    assert!(
        grown < 60 * crate::common::memory::BOUNCE as u64,
        "{grown} bytes for {THREADS} threads"
    );
}
