//! Persistence: the state of one process, and its recovery by the next.

use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::FlockOperation;
use tempfile::TempDir;

use super::{Fixture, SMALLEST, config, page};
use crate::common::canary::{Rule, with_disabled};
use crate::common::memory::Mapped;
use crate::{Config, Extension, FileId, Generations, InsertOutcome, PageId, ReadOutcome};

const LENGTH: usize = 16384;
const FILES: u32 = 3;
/// Pages per file.
const PAGES: u32 = 400;

/// Locations of an extension's files, across several processes.
struct Place {
    disk: TempDir,
    memory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            disk: tempfile::tempdir().unwrap(),
            memory: tempfile::tempdir_in("/dev/shm").unwrap(),
        }
    }

    fn arena(&self) -> PathBuf {
        self.memory.path().join("arena")
    }

    fn config(&self) -> Config {
        config_at(self.disk.path(), &self.arena())
    }

    fn open(&self) -> Fixture {
        self.open_with(self.config())
    }

    fn open_with_nothing_kept(&self) -> Extension {
        let disk = self.disk.path().join("other");
        std::fs::create_dir(&disk).unwrap();
        let config = config(&disk, SMALLEST);
        Extension::open(config, Arc::new(Generations::new())).unwrap()
    }

    fn open_with(&self, config: Config) -> Fixture {
        let fixture = fixture(config);
        trust_all(&fixture);
        fixture
    }
}

fn config_at(disk: &Path, arena: &Path) -> Config {
    Config {
        arena: Some(arena.to_path_buf()),
        ..config(disk, SMALLEST)
    }
}

fn fixture(mut config: Config) -> Fixture {
    config.recover_session = config.arena.as_deref().and_then(session_in);
    let generations = Arc::new(Generations::new());
    Fixture {
        extension: Extension::open_inline(config, Arc::clone(&generations)).unwrap(),
        generations,
        directory: tempfile::tempdir().unwrap(),
    }
}

/// Session id in an arena, of the process that wrote it.
fn session_in(arena: &Path) -> Option<u64> {
    let head = std::fs::read(arena).ok()?;
    Some(u64::from_ne_bytes(head.get(24..32)?.try_into().ok()?))
}

fn trust_all(fixture: &Fixture) {
    (0..FILES).for_each(|file| {
        fixture
            .extension
            .trust_file(FileId(file), PAGES - 1, u64::from(PAGES))
    });
}

fn persist(fixture: Fixture) {
    fixture.extension.persist();
}

fn all_pages() -> impl Iterator<Item = PageId> {
    (0..FILES).flat_map(|file| (0..PAGES).map(move |number| page(file, number)))
}

/// Reads all pages, and asserts that hits have the version from `version`. Returns the number of hits.
fn hits(fixture: &Fixture, version: impl Fn(PageId) -> u32) -> u64 {
    let hit = |&page: &PageId| fixture.read(page, version(page), LENGTH) == ReadOutcome::Hit;
    all_pages().filter(hit).count() as u64
}

/// Persists twenty pages on the device.
fn with_twenty_pages() -> Place {
    let place = Place::new();
    let first = place.open();
    assert_eq!(first.extension.recovered().refused, None);
    for number in 0..20 {
        assert_eq!(
            first.insert(page(0, number), 1, LENGTH),
            InsertOutcome::Admitted
        );
    }
    first.pump();
    persist(first);
    place
}

#[test]
fn what_is_left_is_served_by_the_next() {
    let place = with_twenty_pages();
    let second = place.open();
    let recovered = second.extension.recovered();
    assert_eq!((recovered.pages, recovered.dropped), (20, 0));
    assert_eq!(recovered.refused, None);
    second.check_books();
    assert_eq!(hits(&second, |_| 1), 20);
    // Staged pages do not survive their process.
    second.insert(page(1, 7), 1, LENGTH);
    persist(second);
    let third = place.open();
    let recovered = third.extension.recovered();
    assert_eq!((recovered.pages, recovered.dropped), (20, 1));
    // A write drops a page that this process did not enter.
    third.write(page(0, 3), 2, LENGTH);
    third.pump();
    assert_eq!(hits(&third, |page| 1 + u32::from(page.page == 3)), 20);
    third.extension.invalidate(FileId(0), 0, u32::MAX);
    assert_eq!(hits(&third, |_| 1), 0);
    third.check_books();
}

/// The next process knows nothing of file 0: it was dropped, and this process ended before its entries were cleared.
#[test]
fn recovered_entries_of_unknown_files_are_removed() {
    let place = Place::new();
    let first = place.open();
    for number in 0..PAGES {
        for file in 0..2 {
            first.insert(page(file, number / 2), 1, LENGTH);
            first.pump();
        }
    }
    persist(first);
    let second = fixture(place.config());
    second
        .extension
        .trust_file(FileId(1), u32::MAX, u64::from(PAGES / 2));
    let cached = |number: u32| second.read(page(1, number), 1, LENGTH) == ReadOutcome::Hit;
    let own = (0..PAGES).filter(|&number| cached(number)).count() as u64;
    let before = second.extension.statistics().pages_cached;
    assert!(own > 100 && before > own + 100, "{own} of {before}");
    second.pump();
    assert_eq!(second.extension.statistics().pages_cached, before);
    second.extension.clear_unknown();
    second.pump();
    second.check_books();
    // The footer of the segment that was open is missing.
    let after = second.extension.statistics().pages_cached;
    assert!((own..own + 64).contains(&after), "{own} of {after}");
    assert_eq!(
        (0..PAGES).filter(|&number| cached(number)).count() as u64,
        own
    );
    // A file that is forgotten later.
    second.extension.forget_file(FileId(1), 0);
    second.extension.clear_unknown();
    second.pump();
    let after = second.extension.statistics().pages_cached;
    assert!(after < 64, "{after}");
    second.check_books();
    // A writer with a thread.
    for number in 0..PAGES {
        second.insert(page(0, number), 1, LENGTH);
        second.pump();
    }
    persist(second);
    let mut config = place.config();
    config.recover_session = session_in(&place.arena());
    let third = Extension::open(config, Arc::new(Generations::new())).unwrap();
    assert!(third.recovered().pages > 200, "{:?}", third.recovered());
    third.clear_unknown();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while third.statistics().pages_cached >= 64 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = third.statistics().pages_cached;
    assert!(after < 64, "{after}");
}

#[test]
fn swapped_disks_are_emptied() {
    let place = Place::new();
    let mut config = place.config();
    let mut second = config.devices[0].clone();
    second.path = place.disk.path().join("second");
    config.devices.push(second);
    let filled = || {
        let fixture = place.open_with(config.clone());
        for number in 0..PAGES {
            fixture.insert(page(0, number), 1, LENGTH);
        }
        fixture.pump();
        let devices = fixture.extension.device_statistics();
        assert!(devices.iter().all(|device| device.bytes_written > 0));
        persist(fixture);
    };
    filled();
    let same = place.open_with(config.clone());
    assert!(hits(&same, |_| 1) > 0);
    persist(same);
    let mut swapped = config.clone();
    swapped.devices.reverse();
    let fixture = place.open_with(swapped);
    let recovered = fixture.extension.recovered();
    assert!(
        recovered.pages == 0 && recovered.dropped > 0,
        "{recovered:?}"
    );
    assert_eq!(hits(&fixture, |_| 1), 0);
    fixture.check_books();
}

#[test]
fn nothing_is_left_by_one_that_is_switched_off() {
    let place = with_twenty_pages();
    drop(place.open());
    for folder in [&place.disk, &place.memory] {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    assert_eq!(place.open().extension.recovered().pages, 0);
}

#[test]
fn one_that_could_not_be_opened_takes_no_memory() {
    let place = Place::new();
    let mut config = place.config();
    config.devices[0].path = place.disk.path().join("missing/cache");
    let opened = Extension::open_inline(config, Arc::new(Generations::new()));
    assert!(opened.is_err());
    assert!(!place.arena().exists());
}

/// Changes between two processes cost the contents, and nothing else.
#[test]
fn what_does_not_belong_together_is_not_used() {
    type Change = fn(&Place, &mut Config);
    let changes: [(&str, Change); 9] = [
        ("other number of instances", |_, config| {
            config.instances = 2
        }),
        ("another size", |_, config| {
            config.devices[0].bytes += 4 << 20
        }),
        ("another page size", |_, config| config.nominal_page = 4096),
        ("cache file removed", |place, _| {
            std::fs::remove_file(place.disk.path().join("cache")).unwrap();
        }),
        ("cache file shorter", |place, _| {
            let file = std::fs::File::options()
                .write(true)
                .open(place.disk.path().join("cache"));
            file.unwrap().set_len(SMALLEST / 2).unwrap();
        }),
        ("cache file of another process", |place, config| {
            let other = Place::new();
            persist(other.open());
            let (from, to) = (
                other.disk.path().join("cache"),
                place.disk.path().join("cache"),
            );
            std::fs::copy(from, to).unwrap();
            config.devices[0].owner = other.config().devices[0].owner;
        }),
        ("arena removed", |place, _| {
            std::fs::remove_file(place.arena()).unwrap()
        }),
        ("arena emptied", |place, _| {
            std::fs::File::create(place.arena()).unwrap();
        }),
        ("arena made by somebody who died at once", |place, _| {
            let file = std::fs::File::options()
                .write(true)
                .open(place.arena())
                .unwrap();
            file.set_len(0).unwrap();
            file.set_len(1 << 20).unwrap();
        }),
    ];
    for (what, change) in changes {
        let place = with_twenty_pages();
        let mut config = place.config();
        change(&place, &mut config);
        let fixture = place.open_with(config.clone());
        let recovered = fixture.extension.recovered().clone();
        assert_eq!((recovered.pages, &recovered.refused), (0, &None), "{what}");
        assert_eq!(hits(&fixture, |_| 1), 0, "{what}");
        // It works, and its contents survive the process.
        fixture.insert(page(0, 1), 5, LENGTH);
        fixture.pump();
        fixture.check_books();
        persist(fixture);
        assert_eq!(hits(&place.open_with(config), |_| 5), 1, "{what}");
    }
}

#[test]
fn what_is_not_ours_is_left_alone_and_said() {
    type Change = fn(&Path, &mut Config);
    let changes: [(&str, Change); 7] = [
        ("not a cache file", |path, _| {
            std::fs::write(path, [7; 4096]).unwrap()
        }),
        ("belongs to another server", |_, config| {
            config.devices[0].owner.0[0] ^= 1
        }),
        ("has mode 0644", |path, _| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
        }),
        ("has 2 names", |path, _| {
            std::fs::hard_link(path, path.with_extension("2")).unwrap()
        }),
        ("symbolic link", |path, _| {
            let other = path.with_extension("other");
            std::fs::rename(path, &other).unwrap();
            symlink(other, path).unwrap();
        }),
        ("not on a file system in memory", |_, config| {
            config.arena = Some(config.devices[0].path.join("arena"));
        }),
        ("No such file", |_, config| {
            config.arena = Some("/dev/shm/missing/arena".into())
        }),
    ];
    for (what, change) in changes {
        let place = with_twenty_pages();
        // The cache file alone would be rejected.
        std::fs::remove_file(place.disk.path().join("cache")).unwrap();
        let mut config = place.config();
        change(&place.arena(), &mut config);
        let fixture = place.open_with(config);
        let recovered = fixture.extension.recovered();
        assert_eq!(recovered.pages, 0, "{what}");
        let refused = recovered.refused.clone().unwrap_or_default();
        assert!(
            refused.contains(what) || what == "symbolic link",
            "{what}: {refused}"
        );
        assert!(place.arena().symlink_metadata().is_ok(), "{what}");
        fixture.insert(page(0, 1), 5, LENGTH);
        fixture.pump();
        assert_eq!(hits(&fixture, |_| 5), 1, "{what}");
    }
}

#[test]
fn two_do_not_share_an_arena() {
    let place = Place::new();
    let _first = place.open();
    let other = Place::new();
    let second = fixture(config_at(other.disk.path(), &place.arena()));
    assert!(second.extension.recovered().refused.is_some());
}

/// Offers, writes, whole-file changes and process ends, at random. A hit must have the last written version.
fn one_after_the_other(seed: u64, steps: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    let mut fixture = place.open();
    let mut versions: HashMap<PageId, u32> = HashMap::new();
    let mut recovered = 0;
    for _ in 0..steps {
        // Neighbours, so that related pages fill segments.
        let first = page(random.u32(..FILES), random.u32(..PAGES / 20) * 20);
        match random.u32(..100) {
            0..2 => {
                persist(fixture);
                fixture = place.open();
                recovered += fixture.extension.recovered().pages;
                fixture.check_books();
            }
            2..4 => {
                fixture.extension.invalidate(first.file, 0, PAGES);
                (0..PAGES).for_each(|n| *versions.entry(page(first.file.0, n)).or_insert(1) += 1);
            }
            4..30 => {
                for number in first.page..first.page + 20 {
                    let page = page(first.file.0, number);
                    let version = versions.entry(page).or_insert(1);
                    *version += 1;
                    fixture.write(page, *version, LENGTH);
                }
            }
            30..60 => fixture.pump(),
            _ => {
                for number in first.page..first.page + 20 {
                    let page = page(first.file.0, number);
                    let version = *versions.entry(page).or_insert(1);
                    if fixture.read(page, version, LENGTH) != ReadOutcome::Hit {
                        fixture.insert(page, version, LENGTH);
                    }
                }
            }
        }
    }
    fixture.pump();
    fixture.check_books();
    assert!(hits(&fixture, |page| versions.get(&page).copied().unwrap_or(1)) > 0);
    assert!(recovered > 1000, "{recovered}");
}

#[test]
fn many_one_after_the_other() {
    for seed in 0..4 {
        one_after_the_other(seed, 2000);
    }
}

/// A full segment becomes empty, the next process writes to it and ends before it is full. Its footer is outdated.
fn a_footer_of_before() {
    let place = Place::new();
    let fill = |fixture: &Fixture, file: u32, pages: u32| {
        for number in 0..pages {
            fixture.insert(page(file, number), 1, LENGTH);
            fixture.pump();
        }
    };
    let first = place.open();
    fill(&first, 0, 70);
    first.extension.invalidate(FileId(0), 0, PAGES);
    persist(first);
    let second = place.open();
    fill(&second, 1, 10);
    persist(second);
    let third = place.open();
    (0..FILES).for_each(|file| fill(&third, file, PAGES));
    third.check_books();
    assert!(hits(&third, |_| 1) > 400);
}

#[test]
fn a_footer_of_before_is_not_believed() {
    a_footer_of_before();
}

#[test]
fn rules_that_are_left_out_are_noticed() {
    for rule in [
        Rule::Staged,
        Rule::Footers,
        Rule::Sequences,
        Rule::Counts,
        Rule::Files,
    ] {
        let run = || {
            a_footer_of_before();
            (0..4).for_each(|seed| one_after_the_other(seed, 2000));
        };
        assert!(with_disabled(rule, run).is_err(), "{rule:?}");
    }
}

// A killed process.

const PLACE: &str = "BPE_TEST_INHERITING";
const NOT_DROPPED: &str = "BPE_TEST_NOT_DROPPED";

/// Content of the data files: a version per page.
fn truth(memory: &Path) -> Mapped<AtomicU32> {
    let path = memory.join("truth");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let file = file.unwrap();
    let pages = (FILES * PAGES) as usize;
    file.set_len((pages as u64 * 4).next_multiple_of(4096))
        .unwrap();
    // SAFETY: no process truncates the file; integers that are changed as atomics.
    unsafe { Mapped::of_file(&file, 0, pages) }.unwrap()
}

fn version(truth: &[AtomicU32], page: PageId) -> &AtomicU32 {
    &truth[(page.file.0 * PAGES + page.page) as usize]
}

/// Body of the killed process.
#[test]
#[ignore = "is called by a_killed_process_leaves_what_is_true"]
fn work_until_killed() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    let careless = std::env::var_os(NOT_DROPPED).is_some();
    let truth = truth(&place);
    let config = config_at(&place.join("disk"), &place.join("arena"));
    let fixture = fixture(config);
    assert_eq!(fixture.extension.recovered().refused, None);
    trust_all(&fixture);
    let mut random = fastrand::Rng::new();
    // Bounded, in case the kill fails.
    for _ in 0..50_000_000 {
        let page = page(random.u32(..FILES), random.u32(..PAGES));
        let now = version(&truth, page);
        match random.u32(..10) {
            0..3 => {
                let next = now.load(Ordering::SeqCst) + 1;
                fixture.generations.begin_write(page.file.0, page.page, 1);
                if !careless || random.u32(..50) > 0 {
                    fixture.extension.invalidate(page.file, page.page, 1);
                }
                // The write to the data file.
                now.store(next, Ordering::SeqCst);
                fixture.generations.end_write(page.file.0, page.page, 1);
            }
            3..5 => fixture.pump(),
            _ => drop(fixture.insert(page, now.load(Ordering::SeqCst), LENGTH)),
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills `kills` processes, one after the other. Returns the number of correct persisted pages.
fn kill_again_and_again(kills: u32, careless: bool) -> u64 {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(memory.path().join("disk")).unwrap();
    let truth = truth(memory.path());
    let mut served = 0;
    for _ in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--ignored",
            "--exact",
            "tests::persistence::work_until_killed",
        ]);
        command
            .env(PLACE, memory.path())
            // A killed process leaves its temporary directories.
            .env("TMPDIR", memory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if careless {
            command.env(NOT_DROPPED, "1");
        }
        let child = Killed(command.spawn().unwrap());
        std::thread::sleep(Duration::from_millis(fastrand::u64(50..250)));
        drop(child);
        let fixture = fixture(config_at(
            &memory.path().join("disk"),
            &memory.path().join("arena"),
        ));
        assert_eq!(fixture.extension.recovered().refused, None);
        trust_all(&fixture);
        fixture.check_books();
        served += hits(&fixture, |page| {
            version(&truth, page).load(Ordering::SeqCst)
        });
        fixture.check_books();
        persist(fixture);
    }
    served
}

#[test]
fn a_killed_process_leaves_what_is_true() {
    let kills = std::env::var("BPE_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let served = kill_again_and_again(kills, false);
    assert!(
        served > u64::from(kills) * 50,
        "{served} pages in {kills} rounds"
    );
}

#[test]
fn a_process_that_does_not_drop_what_it_writes_is_noticed() {
    let found = std::panic::catch_unwind(|| kill_again_and_again(20, true));
    assert!(found.is_err());
}

/// Directories for 100 GiB, without the pages: time to create and to attach them, and cost of a lookup, compared with
/// private memory.
#[test]
#[ignore = "a measurement"]
fn how_long_it_takes_to_adopt() {
    use std::time::Instant;

    use crate::device::segment::Geometry;
    use crate::index::directory::{Directory, Entry, Kind};
    use crate::instance::arena::{Arena, Layout};

    const LOOKUPS: u32 = 2_000_000;
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = memory.path().join("arena");
    let pages = (100 << 30) / LENGTH as u64;
    let (instances, entries) = (8, pages / 8 + 2000);
    let config = Config {
        instances,
        ..config(Path::new("/nowhere"), 100 << 30)
    };
    let geometry = [Geometry::new(0, 100 << 30, LENGTH as u32).unwrap()];
    let open = || {
        let begin = Instant::now();
        let layout = Layout::new(&config, &geometry, entries);
        let (arena, parts) = Arena::open(&path, layout, Some(1)).unwrap();
        (arena, parts.directories, begin)
    };
    let fill = |directories: &mut [Directory]| {
        for number in 0..pages as u32 {
            let page = page(number % 7, number);
            let directory = &mut directories[page.instance(instances)];
            let key = directory.key(page);
            let entry = Entry {
                check: number,
                location: (number / 240) * 4096 + number % 240 * 16,
                kind: Kind::raw(LENGTH),
                clock: 0,
            };
            if directory.find(key).is_none() {
                let _ = directory.insert(key, entry, crate::Group::NORMAL);
            }
        }
    };
    let look_up = |directories: &[Directory]| {
        let mut random = fastrand::Rng::with_seed(1);
        let begin = Instant::now();
        let found = (0..LOOKUPS).filter(|_| {
            let page = page(random.u32(..14), random.u32(..pages as u32));
            let directory = &directories[page.instance(instances)];
            directory.find(directory.key(page)).is_some()
        });
        let found = found.count();
        (begin.elapsed().as_nanos() / u128::from(LOOKUPS), found)
    };
    let (arena, mut directories, begin) = open();
    println!("made in {:?}", begin.elapsed());
    arena.begin(1);
    fill(&mut directories);
    drop((arena, directories));
    let (arena, mut directories, begin) = open();
    assert_eq!(arena.recovered_session(), Some(1));
    let mapped = begin.elapsed();
    let attached = directories
        .iter_mut()
        .map(|directory| directory.attach(|_| true));
    let kept: u64 = attached.map(|(kept, _)| kept).sum();
    let took = begin.elapsed();
    println!("{kept} of {pages} entries adopted in {took:?}, of which {mapped:?} for the mapping");
    let mut others: Vec<Directory> = (0..instances)
        .map(|_| Directory::new(entries).unwrap())
        .collect();
    fill(&mut others);
    for _ in 0..7 {
        let (kept, other) = (look_up(&directories), look_up(&others));
        println!(
            "a lookup: {} ns in the arena, {} ns in memory of the process",
            kept.0, other.0
        );
        assert_eq!(kept.1, other.1);
    }
}

/// Frozen locations are what the next process must find.
#[test]
fn what_is_frozen_changes_no_more() {
    let place = Place::new();
    let extension = Extension::open(place.config(), Arc::new(Generations::new())).unwrap();
    let generations = Arc::clone(&extension.shared.generations);
    let fixture = Fixture {
        extension,
        generations,
        directory: tempfile::tempdir().unwrap(),
    };
    // On a busy host the writer does not always have room.
    let taken =
        |&number: &u32| fixture.insert(page(0, number), 1, LENGTH) == InsertOutcome::Admitted;
    let taken = (0..200).filter(taken).count() as u64;
    let timeout = Duration::from_secs(10);
    let frozen = fixture.extension.freeze(timeout).unwrap();
    assert_eq!(frozen.session, session_in(&place.arena()).unwrap());
    let copy = std::fs::read(place.arena()).unwrap();
    let [device] = &frozen.devices[..] else {
        panic!("{frozen:?}");
    };
    assert_eq!(device.parent(), Some(place.disk.path()));
    // The persisted cache file stays, and no process has it open.
    let device = crate::open_own(device).unwrap().unwrap();
    rustix::fs::flock(&device, FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(device);
    fixture.insert(page(1, 0), 1, LENGTH);
    let fixture = {
        drop((frozen, fixture));
        std::fs::write(place.arena(), copy).unwrap();
        place.open()
    };
    let recovered = fixture.extension.recovered();
    assert_eq!(recovered.pages + recovered.dropped, taken, "{recovered:?}");
    assert_eq!(hits(&fixture, |_| 1), recovered.pages);
    assert!(place.open_with_nothing_kept().freeze(timeout).is_none());
}
