//! Bypass begins and ends beside reads, writes and asynchronous requests: property 15.

use std::time::Duration;

use shuttle::thread;

use super::requests::cached;
use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};
use crate::switch::{Bypass, Switch};

impl World {
    fn uses(&self, bypass: Bypass, control_group: bool) {
        self.core.switch().use_for(bypass, control_group);
    }
}

/// Reads and writes of a page in all three modes, beside the thread that writes to the cache disk.
fn a_page() {
    let world = World::new(1, Duration::ZERO);
    world.on();
    world.open(0);
    world.read(0, 1);
    side_by_side(
        world,
        [
            |w| {
                w.read(0, 1);
                w.read(0, 1);
            },
            |w| {
                w.write(0, 1);
                w.read(0, 1);
                w.write(0, 1);
            },
            |w| {
                w.uses(Bypass::On, false);
                w.uses(Bypass::Refill, true);
                w.uses(Bypass::Off, true);
            },
            |w| w.pump(),
        ],
    );
    world.read(0, 1);
    world.end();
}

/// Requests that are submitted in one mode and end in another, beside writes.
fn requests() {
    let world = cached(1);
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1)]);
                w.submit_write(0, 1, 2);
                w.submit(0, &[(2, 1)]);
            },
            |w| (0..3).for_each(|_| w.harvest()),
            |w| {
                w.uses(Bypass::On, false);
                w.uses(Bypass::Off, true);
                w.uses(Bypass::Refill, false);
                w.uses(Bypass::Off, false);
            },
            |w| {
                w.write_unlatched(0, 1);
                w.read_unlatched(0, 1);
            },
        ],
    );
    world.drain();
    world.end();
}

/// The extension is switched off and on beside, with requests in flight: off stays off, and the bypass setting holds for the
/// next extension.
fn off_and_on() {
    let world = cached(2);
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1)]);
                w.submit_write(0, 1, 2);
            },
            |w| (0..2).for_each(|_| w.harvest()),
            |w| {
                w.kill();
                w.on();
            },
            |w| {
                w.uses(Bypass::On, false);
                w.uses(Bypass::Refill, false);
            },
        ],
    );
    let mode = world.core.switch().mode();
    assert_eq!(mode.bypass(), Bypass::Refill, "what was set last counts");
    seen("bypassed", 1);
    world.uses(Bypass::Off, false);
    world.drain();
    world.end();
}

/// The mode word alone: without an active extension, the bypass setting has no effect.
fn off_is_off() {
    let switch: &'static Switch = Box::leak(Box::default());
    switch.start_tracking(|| ());
    let _ = switch.begin_to_serve(None);
    let uses = thread::spawn(move || {
        switch.use_for(Bypass::On, false);
        switch.use_for(Bypass::Off, true);
    });
    let off = thread::spawn(move || {
        drop(switch.kill());
        assert!(switch.mode().is_off());
        switch.start_tracking(|| ());
        assert!(!switch.mode().is_active(), "nobody has published");
    });
    for thread in [uses, off] {
        thread.join().expect("no thread panics");
    }
    drop(switch.kill());
    assert!(switch.mode().is_off());
}

#[test]
fn what_is_read_is_current_however_bypass_comes_and_goes() {
    let page = explore("bypass, a page", a_page);
    let requests = explore("bypass, requests", requests);
    let off_and_on = explore("bypass, off and on", off_and_on);
    explore("bypass, off", off_is_off);
    assert!(page["hits"] > 0 && requests["cache reads"] > 0 && requests["told"] > 0);
    assert!(off_and_on["bypassed"] > 0);
}

#[test]
fn writes_that_drop_nothing_in_bypass_are_noticed() {
    is_noticed("bypass-skips-writes", a_page);
    is_noticed("bypass-skips-writes", requests);
}

#[test]
fn an_extension_that_is_used_while_off_is_noticed() {
    is_noticed("used-while-off", off_is_off);
}
