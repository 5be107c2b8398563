//! Concurrent sessions, hooks, the controller's thread and its clock: properties 10, 11, 12 and 16.

use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};
use crate::control::controller::Answer;
use crate::platform::sync::pause;

const TICK: Duration = Duration::from_millis(500);
/// Longer than every time limit.
const LONG: Duration = Duration::from_secs(21);

/// Actions of the server for clients and administrators.
impl World {
    /// With the plugin installed and a file open.
    fn installed(engines: usize, wanted: bool) -> World {
        let world = World::new(engines, Duration::ZERO);
        world.open(0);
        *world.controller().host.wanted.lock() = wanted;
        assert_eq!(world.controller().start(None, None, wanted), Ok(()));
        world
    }

    /// The check of `SET GLOBAL bpe_enabled = ON`.
    fn prepare(&self) -> Answer {
        let controller = self.controller();
        controller.prepare(|| controller.host.size())
    }

    /// `SET GLOBAL bpe_enabled = ON`. Checks may overlap, assignments do not.
    fn set_on(&self) {
        match self.prepare() {
            Ok(_) => {
                let mut wanted = self.controller().host.wanted.lock();
                *wanted = true;
                self.controller().commit();
            }
            Err(_) => seen("not on", 1),
        }
    }

    /// `SET GLOBAL bpe_enabled = ON` in a statement that fails after the check.
    fn set_on_in_vain(&self) {
        let _ = self.prepare();
    }

    fn set_off(&self) {
        let mut wanted = self.controller().host.wanted.lock();
        *wanted = false;
        self.controller().disable();
        assert!(!self.controller().with(|machine| machine.is_wanted()));
    }

    /// Sets the variable that needs a new layout.
    fn set_size(&self, size: u32) {
        let _assigns = self.controller().host.wanted.lock();
        self.controller().host.set_size(size);
    }

    /// Sets the variable that needs no new layout.
    fn set_capacity(&self, capacity: u32) {
        let _assigns = self.controller().host.wanted.lock();
        self.controller().host.set_capacity(capacity);
        self.controller().settings_changed();
    }

    fn let_pass(&self, time: Duration) {
        self.kernel().pass(time);
        self.controller().time_has_passed();
    }

    fn ticks(&self, times: u32) {
        (0..times).for_each(|_| self.let_pass(TICK));
    }

    /// Advances time until the condition holds.
    fn come_to(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..500 {
            if is_so() {
                return;
            }
            self.let_pass(TICK);
            (0..20).for_each(|_| pause(TICK));
        }
        panic!(
            "{what}: {}",
            self.controller()
                .with(|machine| format!("{:?}", machine.shown()))
        );
    }

    /// Requires that the last session's request takes effect with the current settings, and that nothing leaks.
    fn settle(&self) {
        let wanted = *self.controller().host.wanted.lock();
        let host = &self.controller().host;
        if wanted && !self.controller().has_panicked() {
            self.come_to("not on as it was said last", || {
                host.serves_as_wanted() && self.controller().with(|machine| machine.is_released())
            });
            seen("on", 1);
        } else {
            self.come_to("not off as it was said last", || {
                self.core.switch().mode().is_off() && host.all_are_closed()
            });
            seen("off", 1);
        }
        self.come_to("a thread of the time before goes on", || {
            self.kernel().threads() == 1
        });
        host.assert_unharmed();
    }

    /// Uninstalls the plugin. No thread and no extension may remain.
    fn uninstall(&self) {
        self.controller().stop(|| ());
        assert!(self.core.switch().mode().is_off());
        let host = &self.controller().host;
        self.come_to("something goes on", || {
            self.kernel().threads() == 0 && host.all_are_closed()
        });
        host.assert_unharmed();
    }

    fn settle_and_end(self) {
        self.settle();
        self.uninstall();
        self.end();
    }
}

/// Two sessions with opposite requests, beside page reads and writes.
fn two_minds() {
    let world = World::installed(5, false);
    side_by_side(
        world,
        [
            |w| {
                w.set_on();
                w.set_off();
                w.set_on();
            },
            |w| {
                w.set_on();
                w.set_off();
            },
            |w| {
                w.read(0, 1);
                w.write(0, 1);
                w.read(0, 1);
                w.read(0, 1);
            },
            |w| w.ticks(3),
        ],
    );
    world.settle_and_end();
}

/// Settings that change while the extension is switched on, and a statement that fails.
fn other_settings() {
    let world = World::installed(6, false);
    side_by_side(
        world,
        [
            |w| {
                w.set_on();
                w.set_size(2);
                w.set_capacity(2);
            },
            |w| {
                w.set_on_in_vain();
                w.set_size(3);
            },
            |w| {
                w.read(0, 1);
                w.write(0, 1);
                w.read(0, 1);
            },
            |w| w.ticks(4),
        ],
    );
    world.settle_and_end();
}

/// The size changes while the extension serves, and a session switches off when the controller begins the rebuild.
fn a_rebuild() {
    let world = World::installed(5, false);
    world.set_on();
    side_by_side(
        world,
        [
            |w| {
                w.set_off();
                w.set_on();
            },
            |w| {
                w.set_size(2);
                w.ticks(3);
            },
            |w| {
                w.read(0, 1);
                w.write(0, 1);
                w.read(0, 1);
            },
        ],
    );
    world.settle_and_end();
}

/// A disk that refuses, for clients and for the controller.
fn a_bad_disk() {
    let world = World::installed(4, true);
    world.controller().host.refuse(2);
    side_by_side(
        world,
        [
            |w| w.set_on(),
            |w| {
                w.set_size(2);
                w.set_on_in_vain();
            },
            |w| w.let_pass(LONG),
        ],
    );
    world.settle_and_end();
}

/// A disk that hangs while the extension is switched off and the plugin is uninstalled and installed again.
fn a_hanging_disk() {
    let world = World::installed(4, true);
    let hangs = world.controller().host.disk.lock();
    let client = thread::spawn(move || world.set_on_in_vain());
    pause(TICK);
    world.set_off();
    // Only time ends the wait for a hanging thread.
    let clock = thread::spawn(move || {
        while !world.controller().with(|machine| machine.life() == 2) {
            world.let_pass(LONG);
            pause(LONG);
        }
    });
    world.controller().stop(|| ());
    assert!(world.core.switch().mode().is_off());
    assert_eq!(world.controller().start(None, None, false), Ok(()));
    seen("left behind", u64::from(world.kernel().threads() > 1));
    let session = thread::spawn(move || world.set_on());
    drop(hangs);
    for thread in [client, clock, session] {
        thread.join().expect("no thread panics");
    }
    world.settle_and_end();
}

/// A hook panics at each of its locks, beside sessions.
fn a_panic() {
    let world = World::installed(5, false);
    world.set_on();
    side_by_side(
        world,
        [
            |w| {
                w.panic_in_next_hook(thread_rng().gen_range(1..6));
                w.read(0, 1);
                w.write(0, 1);
                w.read(0, 1);
            },
            |w| {
                w.set_off();
                w.set_on();
            },
            |w| {
                w.set_size(2);
                w.ticks(2);
                w.read(0, 1);
            },
        ],
    );
    world.settle();
    if world.controller().has_panicked() {
        seen("panics", 1);
        world.uninstall();
        let _ = world.controller().start(None, None, true);
        assert!(world.prepare().is_err(), "broken for good");
        world.controller().commit();
        world.ticks(3);
        assert!(world.core.switch().mode().is_off());
    }
    world.uninstall();
    world.end();
}

/// A hook panics when a recording is about to begin.
fn a_panic_beside_a_recording() {
    let world = World::installed(1, false);
    world.set_on();
    side_by_side(
        world,
        [
            |w| {
                w.panic_in_next_hook(1);
                w.read(0, 1);
            },
            |w| {
                let _ = w.controller().follow_for_recording();
            },
        ],
    );
    world.settle_and_end();
}

/// A hook panics while another thread holds the controller's lock and waits for the hook.
fn a_panic_under_the_lock() {
    let world = World::installed(1, false);
    world.set_on();
    let hook = thread::spawn(move || {
        world.panic_in_next_hook(1);
        world.read(0, 1);
    });
    world
        .controller()
        .with(|_| hook.join().expect("no thread panics"));
    world.settle_and_end();
}

/// Clients wait for each other and for the controller's thread, and no time passes: each of them must be woken.
fn without_a_clock() {
    let world = World::installed(5, false);
    side_by_side(
        world,
        [
            |w| {
                w.set_on();
                w.set_off();
                w.set_on_in_vain();
            },
            |w| {
                w.set_on();
                w.set_on_in_vain();
            },
            |w| {
                let _ = w.controller().follow_for_recording();
                w.read(0, 1);
            },
        ],
    );
    world.set_off();
    world.settle_and_end();
}

#[test]
fn what_was_said_last_is_reached() {
    // A hit is rare here: the few schedules of `make test` may have none.
    let minds = (0..10)
        .map(|_| explore("two minds", two_minds))
        .find(|minds| minds["hits"] > 0)
        .expect("a hit in ten explorations");
    let settings = explore("other settings", other_settings);
    explore("rebuild", a_rebuild);
    assert!(minds["on"] > 0 && minds["off"] > 0);
    assert!(settings["on"] > 0);
}

#[test]
fn what_a_bad_disk_refuses_is_tried_again() {
    let seen = explore("bad disk", a_bad_disk);
    assert!(seen["refused"] > 0 && seen["not on"] > 0);
}

#[test]
fn nothing_of_another_life_goes_on() {
    let seen = explore("hanging disk", a_hanging_disk);
    assert!(seen["left behind"] > 0);
}

#[test]
fn a_panic_is_off_for_good() {
    let seen = explore("panic", a_panic);
    assert!(seen["panics"] > 0 && seen["reads"] > 0);
    explore("panic beside a recording", a_panic_beside_a_recording);
    explore("panic under the lock", a_panic_under_the_lock);
}

#[test]
fn nobody_is_forgotten() {
    explore("without a clock", without_a_clock);
}

#[test]
fn settings_that_the_tick_does_not_compare_are_noticed() {
    is_noticed("settings-not-compared", other_settings);
}

#[test]
fn what_was_built_before_a_switching_off_is_noticed() {
    is_noticed("stale-built-published", two_minds);
}

#[test]
fn settings_applied_before_it_serves_are_noticed() {
    is_noticed("adjust-before-publish", other_settings);
}

#[test]
fn building_beside_what_a_session_is_bringing_is_noticed() {
    is_noticed("ahead-not-counted", a_rebuild);
}

#[test]
fn a_thread_of_another_life_is_noticed() {
    is_noticed("life-not-compared", a_hanging_disk);
}

#[test]
fn following_after_a_panic_is_noticed() {
    is_noticed("follow-after-panic", a_panic_beside_a_recording);
}

#[test]
fn a_panic_that_waits_is_noticed() {
    is_noticed("panic-after-lock", a_panic_under_the_lock);
}

#[test]
fn what_is_retired_while_nobody_looks_is_noticed() {
    is_noticed("retired-unseen", without_a_clock);
}

#[test]
fn waking_before_the_change_is_noticed() {
    is_noticed("notify-before-change", without_a_clock);
}
