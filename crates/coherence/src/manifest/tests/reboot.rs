//! What is believed once the machine was started anew.

use super::*;

/// Sets the machine's clock, which is asked when a file is opened, to that of these tests.
fn os_now() -> Machine {
    let os = os();
    let behind = now() - os.file_time();
    os.set_clock_by(behind as i64);
    os
}

/// Leaves one file, closed and flushed, that was not changed for so many milliseconds.
fn closed(rest: i128, flushed: bool) -> (Manifest, File) {
    let (manifest, mut file) = (new(), File::new());
    let record = opened(&manifest, &file);
    record.begin(&manifest);
    file.change();
    record.end(true, &manifest);
    pass(rest);
    record.close(&closed_now(&file), flushed);
    manifest.note_clocks(&os_now());
    (manifest, file)
}

fn closed_now(file: &File) -> Closed {
    Closed {
        identity: Identity::of(&file.stat),
        clocks: Clocks {
            since_boot: 1000,
            file_time: now(),
        },
    }
}

fn restart(manifest: &Manifest) {
    pass(100_000);
    manifest.of_another_boot((1, 1));
}

/// Another mount than before, as always then.
const MOUNTED: Which = Which {
    mount: Some(77),
    ..WHICH
};

fn doubt_of(manifest: &Manifest, which: &Which, file: &File) -> Option<Doubt> {
    let alive = manifest.is_followed().then(|| get(&manifest.head.alive));
    let left = manifest.records[0].left(alive).expect("there is a record");
    left.doubt(which, &file.stat, &os_now())
}

#[test]
fn a_file_is_believed_if_it_was_closed_settled_and_flushed() {
    let cases = [
        (100, true, None),
        (100, false, Some(Doubt::Unflushed)),
        (10, true, Some(Doubt::Unsettled)),
        (10, false, Some(Doubt::Unflushed)),
    ];
    for (rest, flushed, doubt) in cases {
        let (manifest, file) = closed(rest, flushed);
        // In the same start of the machine none of this matters.
        assert_eq!(super::doubt(&manifest, &file), None, "{rest} {flushed}");
        restart(&manifest);
        assert_eq!(
            doubt_of(&manifest, &MOUNTED, &file),
            doubt,
            "{rest} {flushed}"
        );
        assert_eq!(manifest.session(), Some(1));
        assert_eq!(left(&manifest).unwrap().flushed, doubt.is_none());
    }
}

/// It was looked at some time after it was closed. Whoever dies meanwhile has said nothing that is not so.
#[test]
fn a_file_that_was_closed_right_after_a_change_is_settled_later() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    for at in 0..3 {
        let (manifest, file) = closed(10, true);
        let record = &manifest.records[0];
        assert!(record.unsettled().is_some());
        pass(1000);
        let now = Clocks {
            since_boot: 1000 + 1000 * MILLISECOND,
            file_time: now(),
        };
        DIES_IN.set(Some(at));
        let ended = catch_unwind(AssertUnwindSafe(|| record.is_still(&now))).is_ok();
        DIES_IN.set(None);
        assert_eq!(ended, at == 2);
        if at == 1 {
            assert!(record.closed().clocks.were_set_back(now));
        }
        if at != 1 {
            assert_eq!(super::doubt(&manifest, &file), None, "{at}");
        }
        assert_eq!(record.unsettled().is_some(), at == 0);
        restart(&manifest);
        let doubt = doubt_of(&manifest, &MOUNTED, &file);
        assert_eq!(doubt, (at == 0).then_some(Doubt::Unsettled), "{at}");
    }
    std::panic::set_hook(quiet);
}

#[test]
fn a_file_that_was_open_is_not_believed() {
    for unseen in [false, true] {
        let (manifest, file) = (new(), File::new());
        let record = opened(&manifest, &file);
        if unseen {
            record.begin_unseen(&manifest);
        }
        restart(&manifest);
        let doubt = doubt_of(&manifest, &MOUNTED, &file);
        assert_eq!(doubt, Some(Doubt::WasOpen));
    }
}

#[test]
fn each_difference_is_a_doubt() {
    let (manifest, file) = closed(100, true);
    restart(&manifest);
    let with = |change: &dyn Fn(&mut Stat)| {
        let mut stat = file.stat;
        change(&mut stat);
        let version = file.version;
        doubt_of(&manifest, &MOUNTED, &File { stat, version })
    };
    assert_eq!(with(&|_| ()), None);
    assert_eq!(with(&|stat| stat.size += 1), Some(Doubt::Changed));
    assert_eq!(with(&|stat| stat.modified.1 += 1), Some(Doubt::Changed));
    assert_eq!(with(&|stat| stat.changed.1 -= 1), Some(Doubt::Changed));
    let of = |which: Which| doubt_of(&manifest, &which, &file);
    let (birth, inode) = (Some(5), (1, 5));
    let other = Some(Doubt::OtherFile);
    assert_eq!(of(Which { birth, ..MOUNTED }), other);
    assert_eq!(of(Which { inode, ..MOUNTED }), other);
    let mount = None;
    assert_eq!(of(Which { mount, ..MOUNTED }), Some(Doubt::UnknownMount));
    pass(-101_000);
    assert_eq!(of(MOUNTED), Some(Doubt::ClockSetBack));
}

#[test]
fn a_file_of_a_file_server_is_not_believed() {
    let (manifest, file) = closed(100, true);
    set(&manifest.records[0].mount, 0);
    restart(&manifest);
    let doubt = doubt_of(&manifest, &MOUNTED, &file);
    assert_eq!(doubt, Some(Doubt::UnknownMount));
}

#[test]
fn a_file_system_without_fractions_of_a_second_tells_no_change() {
    let (manifest, mut file) = (new(), File::new());
    let record = opened(&manifest, &file);
    (file.stat.modified.1, file.stat.changed.1) = (0, 0);
    pass(100_000);
    record.close(&closed_now(&file), true);
    restart(&manifest);
    let doubt = doubt_of(&manifest, &MOUNTED, &file);
    assert_eq!(doubt, Some(Doubt::WholeSeconds));
}

#[test]
fn no_file_is_believed_after_a_gap_a_failed_flush_or_with_an_earlier_clock() {
    for doubt in [Doubt::Unfollowed, Doubt::Unflushed, Doubt::ClockSetBack] {
        let (manifest, file) = closed(100, true);
        match doubt {
            Doubt::Unfollowed => manifest.detach(),
            Doubt::Unflushed => manifest.lose(),
            _ => pass(-200_000),
        }
        restart(&manifest);
        // Then the clock is set right.
        pass(300_000);
        assert_eq!(doubt_of(&manifest, &MOUNTED, &file), Some(doubt));
        NOW.set(START);
    }
    // It stays so until the machine is started anew, whoever begins with empty records meanwhile.
    let manifest = new();
    manifest.lose();
    manifest.clear();
    manifest.attach(Some(1), manifest.detached());
    let file = File::new();
    let record = opened(&manifest, &file);
    record.close(&closed_now(&file), true);
    restart(&manifest);
    let doubt = doubt_of(&manifest, &MOUNTED, &file);
    assert_eq!(doubt, Some(Doubt::Unflushed));
    // The next records are of disks that were read anew.
    record.open(&MOUNTED, &file.stat, &manifest);
    record.close(&closed_now(&file), true);
    restart(&manifest);
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), None);
}

#[test]
fn devices_get_the_numbers_that_they_have_now() {
    for (device, now, known) in [(1, 1, true), (1, 9, true), (3, 9, true), (9, 9, false)] {
        let (manifest, file) = closed(100, true);
        set(&manifest.records[0].device, device);
        manifest.of_another_boot((1, now));
        let found = left(&manifest);
        assert_eq!(found.is_some(), known, "{device} {now}");
        let number = if device == 1 { now } else { device };
        if let Some(left) = found {
            assert_eq!(left.which.inode, (number, file.stat.inode.1));
        }
    }
}

/// Nobody has opened it in between.
#[test]
fn a_file_may_outlive_two_starts_of_the_machine() {
    let (manifest, file) = closed(100, true);
    restart(&manifest);
    // A process that takes it over and is killed.
    assert_eq!(manifest.take_over(&os_now()).len(), 1);
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), None);
    restart(&manifest);
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), None);
    // What was open stays unbelieved.
    let (manifest, file) = closed(100, false);
    restart(&manifest);
    restart(&manifest);
    let doubt = doubt_of(&manifest, &MOUNTED, &file);
    assert_eq!(doubt, Some(Doubt::Unflushed));
}

#[test]
fn whoever_dies_while_the_records_are_turned_leaves_nothing() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    for at in 0.. {
        let (manifest, file) = closed(100, at % 2 == 0);
        pass(1000);
        DIES_IN.set(Some(at));
        let turned = catch_unwind(AssertUnwindSafe(|| manifest.of_another_boot((1, 1))));
        DIES_IN.set(None);
        if turned.is_ok() {
            std::panic::set_hook(quiet);
            assert!(at > 3 && manifest.session().is_some());
            assert!(doubt_of(&manifest, &MOUNTED, &file).is_none() == (at % 2 == 0));
            return;
        }
        // At the first one nothing has begun: nobody has said yet that the records are of this start.
        assert!(at == 0 || manifest.session().is_none(), "death {at}");
    }
}

/// Somebody may have changed it, and not flushed it, before the process began that never opened it.
#[test]
fn a_flush_that_is_forgotten_counts_as_long_as_the_machine_runs() {
    let record = |manifest: &Manifest| manifest.record(1).unwrap();
    let (manifest, file) = closed(100, true);
    record(&manifest).forget_flush();
    assert!(!record(&manifest).left(None).unwrap().flushed);
    restart(&manifest);
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), Some(Doubt::Unflushed));
    let (manifest, file) = closed(100, true);
    restart(&manifest);
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), None);
    record(&manifest).forget_flush();
    assert_eq!(doubt_of(&manifest, &MOUNTED, &file), Some(Doubt::Unflushed));
}
