use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::machine_for_tests::Machine;

mod reboot;

const MILLISECOND: i128 = 1_000_000;
const START: i128 = 1_700_000_000_000_000_000;

thread_local! {
    /// After so many stores the process dies.
    static DIES_IN: Cell<Option<u32>> = const { Cell::new(None) };
    static NOW: Cell<i128> = const { Cell::new(START) };
}

struct Death;

pub(super) fn may_die() {
    if let Some(left) = DIES_IN.get() {
        if left == 0 {
            std::panic::panic_any(Death);
        }
        DIES_IN.set(Some(left - 1));
    }
}

fn now() -> i128 {
    NOW.get()
}

fn pass(milliseconds: i128) {
    NOW.set(NOW.get() + milliseconds * MILLISECOND);
}

fn new() -> Manifest {
    let records: Vec<Record> = (0..8).map(|_| Record::default()).collect();
    let (head, records) = (Box::leak(Box::default()), records.leak());
    let manifest = Manifest::new(
        head,
        records,
        2,
        Memory {
            now,
            grow: |_| true,
        },
    );
    manifest.attach(Some(1), manifest.detached());
    manifest
}

/// One file, whose contents have versions.
struct File {
    stat: Stat,
    version: u32,
}

const WHICH: Which = Which {
    inode: (1, 2),
    birth: Some(3),
    mount: Some(4),
};

impl File {
    fn new() -> File {
        let mut file = File {
            stat: Stat {
                inode: WHICH.inode,
                size: 1 << 20,
                ..Stat::default()
            },
            version: 0,
        };
        file.change();
        pass(100);
        file
    }

    fn change(&mut self) {
        self.version += 1;
        let time = (now() / 1_000_000_000) as i64;
        let nanoseconds = (now() % 1_000_000_000) as i64 | 1;
        (self.stat.modified, self.stat.changed) = ((time, nanoseconds), (time, nanoseconds));
    }
}

/// The machine's own clocks do not go with those of these files; so what is asked of them is made to fit.
fn os() -> Machine {
    Machine::default()
}

fn left(manifest: &Manifest) -> Option<Left> {
    let alive = manifest.is_followed().then(|| get(&manifest.head.alive));
    manifest.records[0].left(alive)
}

fn doubt(manifest: &Manifest, file: &File) -> Option<Doubt> {
    match left(manifest) {
        Some(left) => left.doubt(&WHICH, &file.stat, &os()),
        None => Some(Doubt::Changed),
    }
}

fn opened(manifest: &Manifest, file: &File) -> &'static Record {
    let record = manifest.record(1).unwrap();
    record.identify(7);
    record.shape(16384, 0);
    record.open(&WHICH, &file.stat, manifest);
    record
}

#[test]
fn a_file_that_was_open_is_believed_between_two_times() {
    let changes: [(i128, i128, bool); 6] = [
        (0, 0, true),
        (0, 15, true),
        // Somebody else, later; and somebody else whose clock was set back.
        (0, 30, false),
        (0, 5000, false),
        (-30, 0, false),
        (-5000, 0, false),
    ];
    for (back, later, believed) in changes {
        let (manifest, mut file) = (new(), File::new());
        let record = opened(&manifest, &file);
        pass(10_000);
        record.begin(&manifest);
        file.change();
        record.end(true, &manifest);
        if (back, later) != (0, 0) {
            pass(back + later);
            file.change();
        }
        assert_eq!(
            doubt(&manifest, &file).is_none(),
            believed,
            "{back} {later}"
        );
    }
}

#[test]
fn what_was_under_way_has_a_time_up_to_the_last_sign_of_life() {
    for (sign, late, believed) in [(true, 500, true), (false, 500, false), (true, 530, false)] {
        let (manifest, mut file) = (new(), File::new());
        let record = opened(&manifest, &file);
        record.begin(&manifest);
        let other = manifest.record(2).unwrap();
        other.open(&WHICH, &file.stat, &manifest);
        pass(500);
        if sign {
            other.begin(&manifest);
        }
        pass(late - 500);
        file.change();
        assert_eq!(doubt(&manifest, &file).is_none(), believed, "{sign} {late}");
        // Whoever comes after the next sees no later sign.
        let first = left(&manifest);
        pass(10_000);
        other.end(true, &manifest);
        assert_eq!(left(&manifest), first);
    }
}

#[test]
fn a_file_that_nobody_changes_keeps_its_times() {
    let (manifest, mut file) = (new(), File::new());
    let record = opened(&manifest, &file);
    pass(1000);
    assert_eq!(doubt(&manifest, &file), None);
    // A change was about to be made, and never was.
    record.begin(&manifest);
    assert_eq!(doubt(&manifest, &file), None);
    pass(1000);
    file.change();
    assert_eq!(doubt(&manifest, &file), Some(Doubt::Changed));
}

#[test]
fn a_closed_file_is_what_it_was() {
    let os = os();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [1; 100]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(40));
    let stat = || {
        use std::os::fd::AsRawFd;
        os.stat(file.as_file().as_raw_fd()).unwrap()
    };
    let manifest = new();
    let record = manifest.record(1).unwrap();
    record.identify(7);
    record.shape(16384, 0);
    let which = Which {
        inode: stat().inode,
        ..WHICH
    };
    record.open(&which, &stat(), &manifest);
    record.close(&Closed::of(&stat(), &os).expect("settled"), false);
    manifest.detach();
    let left = left(&manifest).expect("closed files are believed though nobody follows");
    let doubt = |which: Which| left.doubt(&which, &stat(), &os);
    assert_eq!(doubt(which), None);
    assert_eq!(
        doubt(Which {
            birth: Some(5),
            ..which
        }),
        Some(Doubt::OtherFile)
    );
    assert_eq!(
        doubt(Which {
            mount: Some(5),
            ..which
        }),
        Some(Doubt::OtherMount)
    );
    assert_eq!(
        doubt(Which {
            mount: None,
            ..which
        }),
        Some(Doubt::UnknownMount)
    );
    os.set_clock_by(-1_000_000_000);
    assert_eq!(doubt(which), Some(Doubt::ClockSetBack));
    os.set_clock_by(0);
    std::fs::write(file.path(), [2; 100]).unwrap();
    assert_eq!(doubt(which), Some(Doubt::Changed));
}

#[test]
fn who_stops_following_leaves_open_files_doubtful() {
    let (manifest, file) = (new(), File::new());
    let record = opened(&manifest, &file);
    let since = manifest.detached();
    manifest.detach();
    assert_eq!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    // Somebody else had begun to follow before.
    manifest.attach(Some(2), since);
    assert_eq!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    manifest.attach(Some(2), manifest.detached());
    assert_ne!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    // A change whose end nobody sees: until it must have ended.
    record.begin_unseen(&manifest);
    assert_eq!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    pass(59_000);
    record.begin(&manifest);
    record.end(true, &manifest);
    assert_eq!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    pass(2_000);
    record.begin(&manifest);
    record.end(true, &manifest);
    assert_ne!(doubt(&manifest, &file), Some(Doubt::NotFollowed));
    record.begin_unseen(&manifest);
    let closed = Closed {
        identity: Identity::of(&file.stat),
        clocks: Clocks::now(&os()),
    };
    record.close(&closed, false);
    assert_ne!(
        doubt(&manifest, &file),
        Some(Doubt::NotFollowed),
        "closed files have no changes under way"
    );
}

#[test]
fn who_crashes_soon_is_not_trusted_again() {
    let os = os();
    let manifest = new();
    manifest.crash();
    assert!(!manifest.crashed_soon(), "it had taken over nothing");
    manifest.take_over(&os);
    assert!(!manifest.crashed_soon());
    manifest.crash();
    assert!(manifest.crashed_soon());
    let late = Clocks::now(&os).since_boot + SOON;
    set(&manifest.head.since_boot, word(late));
    assert!(!manifest.crashed_soon());
    manifest.note_clocks(&os);
    manifest.clear();
    assert!(!manifest.crashed_soon());
}

/// The clock is set back while the process lives, which notes the time as always, and is killed later. A change by somebody else may
/// have the time of the last that was followed.
#[test]
fn a_clock_that_is_set_back_while_the_process_lives_is_remembered() {
    let os = os();
    let (manifest, file) = (new(), File::new());
    let record = opened(&manifest, &file);
    manifest.note_clocks(&os);
    record.begin(&manifest);
    record.end(true, &manifest);
    os.set_clock_by(-3_600_000_000_000);
    manifest.note_clocks(&os);
    let taken = manifest.take_over(&os);
    let doubt = taken[0].1.doubt(&WHICH, &file.stat, &os);
    assert_eq!(doubt, Some(Doubt::NotFollowed));
    // Who comes next does not believe it either, though this one follows files.
    manifest.attach(Some(2), manifest.detached());
    assert!(self::doubt(&manifest, &file).is_some());
}

/// They begin anew, with an empty cache; the process after that may take it over.
#[test]
fn identities_that_begin_anew_are_counted_again() {
    let manifest = new();
    manifest.announce(1 << 31);
    assert_eq!(manifest.given(), None);
    manifest.clear();
    manifest.announce(1);
    assert!(
        manifest.given().is_some(),
        "or nothing is kept until the machine is started anew"
    );
}

#[test]
fn a_layout_is_remembered_for_its_settings() {
    let manifest = new();
    assert_eq!(manifest.remembered(3), None);
    manifest.remember(3, 1000, &[5, 6]);
    assert_eq!(manifest.remembered(3), Some((1000, vec![5, 6])));
    assert_eq!(manifest.remembered(4), None);
    manifest.remember(4, 1000, &[1; DEVICES + 1]);
    assert_eq!(manifest.remembered(4), None);
}

#[test]
fn identities_are_not_given_twice() {
    let manifest = new();
    for id in [1, 5, 4096, 100_000] {
        manifest.announce(id);
        assert!(manifest.given().unwrap() > id);
    }
    manifest.announce(1 << 31);
    assert_eq!(manifest.given(), None);
}

#[test]
fn there_is_room_for_more_files() {
    let manifest = new();
    assert!(manifest.record(3).is_none());
    manifest.make_room(3);
    assert!(manifest.record(3).is_some() && manifest.record(5).is_none());
    manifest.make_room(100);
    assert!(manifest.record(8).is_some() && manifest.record(9).is_none());
}

/// A file is doubtful, and the process dies at any store. The next one must doubt it until all was compared.
#[test]
fn a_doubt_outlives_a_death_at_any_store() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    for at in 0.. {
        NOW.set(START);
        let (manifest, mut file) = (new(), File::new());
        let record = opened(&manifest, &file);
        let close = |file: &File| {
            let closed = Closed {
                identity: Identity::of(&file.stat),
                clocks: Clocks::now(&os()),
            };
            record.close(&closed, false);
        };
        close(&file);
        pass(50);
        // By somebody else.
        file.change();
        pass(50);
        let id = left(&manifest).unwrap().id.0;
        DIES_IN.set(Some(at));
        let lived = catch_unwind(AssertUnwindSafe(|| {
            record.doubt(id, true);
            record.identify(id);
            record.shape(16384, 0);
            record.open(&WHICH, &file.stat, &manifest);
            record.begin(&manifest);
            file.change();
            record.end(true, &manifest);
            close(&file);
            record.identify(id);
            record.open(&WHICH, &file.stat, &manifest);
        }));
        DIES_IN.set(None);
        let next = left(&manifest);
        let doubts = |left: &Left| left.doubt(&WHICH, &file.stat, &os()).is_some();
        assert!(next.as_ref().is_none_or(doubts), "death {at}: {next:?}");
        if lived.is_ok() {
            std::panic::set_hook(quiet);
            assert!(at > 20 && next.is_some(), "{at} deaths");
            record.trust(id);
            assert!(!doubts(&left(&manifest).unwrap()));
            return;
        }
    }
}

/// A server that has changed files unseen dies at any store. The next one knows either all that was there, or nothing.
#[test]
fn what_is_taken_over_late_is_said_by_nobody_afterwards() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    for at in 0.. {
        NOW.set(START);
        let (manifest, file) = (new(), File::new());
        opened(&manifest, &file);
        manifest.announce(7);
        let before = left(&manifest);
        DIES_IN.set(Some(at));
        let late = catch_unwind(AssertUnwindSafe(|| manifest.take_over_late(&os())));
        DIES_IN.set(None);
        assert!(manifest.given().unwrap() > 7, "death {at}");
        assert!(manifest.session().is_none() || left(&manifest) == before);
        if let Ok(late) = late {
            std::panic::set_hook(quiet);
            assert!(at > 4, "{at} deaths");
            assert_eq!((manifest.session(), left(&manifest)), (None, None));
            let [left] = late[..] else {
                panic!("{late:?}");
            };
            assert_eq!((left.id, left.page_size), (FileId(7), 16384));
            assert_eq!(
                left.doubt(&WHICH, &file.stat, &os()),
                Some(Doubt::Late),
                "whatever its times are"
            );
            // Whoever crashes with it may have crashed because of it.
            manifest.crash();
            assert!(manifest.crashed_soon());
            manifest.took_nothing();
            assert!(!manifest.crashed_soon());
            return;
        }
    }
}

/// What a process does to a file, with death at each of its stores. `cached`: the version that is cached, and under which identity.
fn live(manifest: &Manifest, file: &mut File, cached: &mut Option<(u32, u32)>) {
    let record = manifest.record(1).unwrap();
    let mut id = 7;
    record.identify(id);
    record.shape(16384, 0);
    record.open(&WHICH, &file.stat, manifest);
    *cached = Some((id, file.version));
    for step in 0..6 {
        pass(50);
        if step == 3 {
            // The whole file changes.
            id += 1;
            record.identify(id);
        }
        record.begin(manifest);
        *cached = None;
        file.change();
        record.end(true, manifest);
        *cached = Some((id, file.version));
    }
    pass(50);
    let closed = Closed {
        identity: Identity::of(&file.stat),
        clocks: Clocks::now(&os()),
    };
    record.close(&closed, false);
    // Opened again, after somebody else has changed it.
    file.change();
    id += 1;
    record.identify(id);
    record.open(&WHICH, &file.stat, manifest);
    *cached = Some((id, file.version));
    manifest.detach();
    // Unseen.
    file.change();
}

#[test]
fn a_process_may_die_at_any_store() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let (mut believed, mut deaths) = (0, 0);
    for at in 0.. {
        for foreign in [false, true] {
            NOW.set(START);
            let (manifest, mut file, mut cached) = (new(), File::new(), None);
            DIES_IN.set(Some(at));
            let lived = catch_unwind(AssertUnwindSafe(|| {
                live(&manifest, &mut file, &mut cached);
            }));
            DIES_IN.set(None);
            if lived.is_ok() {
                std::panic::set_hook(quiet);
                assert!(
                    deaths > 100 && believed > deaths / 5,
                    "{believed} of {deaths}"
                );
                return;
            }
            deaths += 1;
            if foreign {
                pass(30);
                file.change();
            }
            let Some(left) = left(&manifest) else {
                continue;
            };
            if left.doubt(&WHICH, &file.stat, &os()).is_none() {
                believed += 1;
                if let Some((id, version)) = cached.filter(|(id, _)| *id == left.id.0) {
                    let stale = version != file.version;
                    assert!(!stale, "death {at}, {foreign}: {id} is stale");
                }
            }
        }
    }
}
