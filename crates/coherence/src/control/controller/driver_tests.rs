//! Tests of the controller with a process in which every `open` fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::driver::Controller;
use super::events::{Event, LogEvent, Refused};
use super::host::{Engine, Host};
use super::state::{Built, Shown};
use crate::switch::Active;
use crate::testing::os_for_tests::{TestOs, active_in, core};

#[derive(Default)]
struct Bare {
    /// A build has to wait.
    waits: bool,
    asked: AtomicU32,
}

type Happens = Event<u32, Engine>;

impl Host for Bare {
    type Os = TestOs;
    type Settings = u32;
    type Watched = ();

    fn conditions(&self) -> (u32, bool) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (1, self.waits)
    }

    fn refusal(&self) -> Option<String> {
        None
    }

    fn open(&self, _: &u32, _: u32, _: impl FnOnce(u32)) -> Result<Built<Engine>, String> {
        Err("no disk".into())
    }

    fn adjust(&self, _: &Active) {}

    fn close(&self, _: Engine) {}

    fn tell(&self, _: LogEvent<u32>) {}

    fn watch(&self, (): &mut (), _: Option<u32>, _: impl Fn(Happens)) {}
}

fn controller() -> &'static Controller<Bare> {
    controller_with(Bare::default())
}

fn controller_with(host: Bare) -> &'static Controller<Bare> {
    Box::leak(Box::new(Controller::new(core(), host)))
}

#[test]
fn a_build_that_has_to_wait_is_asked_about_once_a_tick() {
    let controller = controller_with(Bare {
        waits: true,
        ..Bare::default()
    });
    assert_eq!(controller.start(None, None, true), Ok(()));
    let asked = || controller.host.asked.load(Ordering::SeqCst);
    while asked() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(asked() < 50, "{} times", asked());
    controller.stop(|| ());
}

#[test]
fn an_extension_that_a_session_is_bringing_is_waited_for() {
    let controller = controller();
    let soon = Duration::from_millis(1);
    let released = || controller.wait_until(soon, |machine| controller.is_released(machine));
    assert!(released());
    // A session has taken it out of the switch but does not hold the lock yet.
    controller.ahead.fetch_add(1, Ordering::SeqCst);
    assert!(!released());
    controller.ahead.fetch_sub(1, Ordering::SeqCst);
    assert!(released());
}

#[test]
fn nothing_is_built_before_extensions_of_before_are_closed() {
    let controller = controller();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(controller.start(None, None, false), Ok(()));
    let switch = controller.core.switch();
    switch.start_tracking(|| ());
    let active = active_in(switch, folder.path());
    assert!(matches!(switch.publish(active), Ok(None)));
    controller.panicked();
    let room = |own| controller.make_room(1, own);
    assert!(matches!(room(true), Event::Released(1)));
    assert!(controller.with(|machine| machine.is_released()));
    assert!(matches!(room(false), Event::Released(1)));
    controller.stop(|| ());
}

#[test]
fn what_was_active_when_a_hook_panicked_is_closed() {
    let controller = controller();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(controller.start(None, None, false), Ok(()));
    assert_eq!(
        controller.prepare(|| 1),
        Err(Refused::Why("no disk".into()))
    );
    let switch = controller.core.switch();
    switch.start_tracking(|| ());
    assert!(matches!(
        switch.publish(active_in(switch, folder.path())),
        Ok(None)
    ));
    // A hook does not wait for the lock.
    let inner = controller.lock();
    controller.panicked();
    assert!(switch.mode().is_off() && switch.active().is_none());
    drop(inner);
    assert!(controller.with(|machine| machine.is_broken() && !machine.is_released()));
    assert_eq!(controller.prepare(|| 1), Err(Refused::Broken));
    assert!(controller.wait_for_retired(), "the thread closes it");
    controller.stop(|| ());
    assert!(controller.with(|machine| machine.shown() == Shown::Off));
    let _ = controller.start(None, None, true);
    assert!(controller.with(|machine| machine.shown() == Shown::Broken));
    controller.stop(|| ());
    assert!(controller.no_thread().is_none());
}
