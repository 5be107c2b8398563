//! Process of a server with two variables, both numbers, and a disk that refuses or hangs.

use std::sync::Arc;

use cache::Extension;
use parking_lot::Mutex as Plain;

use super::kernel::Kernel;
use super::seen;
use crate::control::controller::{Built, Engine, Event, Host, Layout, LogEvent};
use crate::core::Core;
use crate::platform::sync::{AtomicU32, Mutex, Ordering};
use crate::switch::Active;

pub struct Process {
    core: &'static Core<Kernel>,
    /// Extensions for future activations. Their opening is not a step of any thread.
    pub engines: Plain<Vec<Extension>>,
    /// Closed when the schedule ends.
    pub retired: Plain<Vec<Engine>>,
    /// Extensions that have the cache files open.
    opened: Plain<Vec<Opened>>,
    /// Whether the last session has switched on. The server holds it while it assigns a variable.
    pub wanted: Mutex<bool>,
    /// Variable that determines the layout.
    size: AtomicU32,
    /// Variable that does not affect the layout.
    capacity: AtomicU32,
    /// Remaining refusals of the disk.
    refusals: AtomicU32,
    /// The disk hangs while this lock is held.
    pub disk: Mutex<()>,
    /// Violated invariants.
    violations: Plain<Vec<String>>,
}

#[derive(Clone, Copy)]
struct Opened {
    epoch: u32,
    size: u32,
    capacity: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Size(u32);

impl Layout for Size {
    fn same_layout(&self, other: &Size) -> bool {
        self.0 == other.0 || canary!("settings-not-compared")
    }
}

impl Process {
    pub fn new(core: &'static Core<Kernel>, engines: Vec<Extension>) -> Process {
        Process {
            core,
            engines: Plain::new(engines),
            retired: Plain::default(),
            opened: Plain::default(),
            wanted: Mutex::new(false),
            size: AtomicU32::new(1),
            capacity: AtomicU32::new(1),
            refusals: AtomicU32::new(0),
            disk: Mutex::new(()),
            violations: Plain::default(),
        }
    }

    pub fn set_size(&self, size: u32) {
        self.size.store(size, Ordering::SeqCst);
    }

    /// Current value of the variable.
    pub fn size(&self) -> Size {
        Size(self.size.load(Ordering::SeqCst))
    }

    pub fn set_capacity(&self, capacity: u32) {
        self.capacity.store(capacity, Ordering::SeqCst);
    }

    /// Makes the disk refuse this many times.
    pub fn refuse(&self, times: u32) {
        self.refusals.store(times, Ordering::SeqCst);
    }

    /// Records a violation. A panic in a callback of the controller would be caught.
    fn violated(&self, what: String) {
        self.violations.lock().push(what);
    }

    pub fn assert_unharmed(&self) {
        assert_eq!(*self.violations.lock(), [""; 0]);
    }

    /// Creates the next extension.
    pub fn activate(&self) -> Engine {
        let extension = self.engines.lock().pop().expect("one more");
        Arc::new(Active::new(extension, self.core.switch().next_epoch()))
    }

    pub fn retire(&self, active: Option<Engine>) {
        let mut retired = self.retired.lock();
        if let Some(active) = active {
            let mut others = retired.iter();
            assert!(
                others.all(|other| other.epoch != active.epoch),
                "two have got one extension to close"
            );
            retired.push(active);
        }
    }

    /// Whether no extension has the cache files open.
    pub fn all_are_closed(&self) -> bool {
        self.opened.lock().is_empty()
    }

    /// Whether the active extension serves with the current values of the variables.
    pub fn serves_as_wanted(&self) -> bool {
        let active = self.core.switch().active();
        let (size, capacity) = (
            self.size.load(Ordering::SeqCst),
            self.capacity.load(Ordering::SeqCst),
        );
        active.as_ref().is_some_and(|active| {
            let opened = self.opened.lock();
            opened
                .iter()
                .any(|one| (one.epoch, one.size, one.capacity) == (active.epoch, size, capacity))
        }) && self.core.switch().mode().serves()
    }
}

impl Host for Process {
    type Os = Kernel;
    type Settings = Size;
    type Watched = ();

    fn conditions(&self) -> (Size, bool) {
        (self.size(), false)
    }

    fn refusal(&self) -> Option<String> {
        None
    }

    fn open(
        &self,
        settings: &Size,
        page: u32,
        _: impl FnOnce(u32),
    ) -> Result<Built<Engine>, String> {
        let _answers = self.disk.lock();
        let refusals = self.refusals.load(Ordering::SeqCst);
        if refusals > 0 {
            self.refusals.store(refusals - 1, Ordering::SeqCst);
            seen("refused", 1);
            return Err("the disk is full".into());
        }
        let engine = self.activate();
        let mut opened = self.opened.lock();
        if !opened.is_empty() {
            self.violated("two extensions on the same files".into());
        }
        let epoch = engine.epoch;
        opened.push(Opened {
            epoch,
            size: settings.0,
            capacity: 0,
        });
        Ok(Built {
            engine,
            epoch,
            page,
            warnings: Vec::new(),
        })
    }

    fn adjust(&self, active: &Active) {
        let capacity = self.capacity.load(Ordering::SeqCst);
        let mut opened = self.opened.lock();
        for one in opened.iter_mut().filter(|one| one.epoch == active.epoch) {
            one.capacity = capacity;
        }
    }

    fn close(&self, engine: Engine) {
        let mut opened = self.opened.lock();
        let before = opened.len();
        opened.retain(|one| one.epoch != engine.epoch);
        if opened.len() + 1 != before || Arc::strong_count(&engine) != 1 {
            self.violated("closed twice, or in use".into());
        }
        drop(opened);
        self.retired.lock().push(engine);
        self.core.os().step();
    }

    fn tell(&self, _: LogEvent<Size>) {}

    fn watch(&self, (): &mut (), _: Option<u32>, _: impl Fn(Event<Size, Engine>)) {}
}
