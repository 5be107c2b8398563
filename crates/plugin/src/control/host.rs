//! The controller, and its interface to this server's process.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cache::Extension;
use coherence::controller::{Built, Controller, Engine, Event, Host, LogEvent};
use coherence::os::Os as _;
use coherence::switch::Active;
use parking_lot::Mutex;

use super::building::{lay_out, usual_page};
use super::checks::Checks;
use super::messages;
use crate::control::buffer_pool;
use crate::intercept::untracked;
use crate::platform::identity::data_directory;
use crate::platform::{CORE, Linux};
use crate::restart::persist;
use crate::settings::{self, BYPASS, Settings};
use crate::tables::TABLES;

/// The process that the library was loaded into.
pub struct Server {
    /// The plugin was loaded before InnoDB started.
    pub early: AtomicBool,
    /// Called at each iteration of the controller's thread, for checks outside the controller.
    pub periodic: OnceLock<fn()>,
    /// Cache files on the file system of the data directory, when they were opened. The lock is a leaf.
    pub beside_data: Mutex<Vec<PathBuf>>,
}

impl Server {
    /// Records which cache files share a file system with the data, so that reports keep showing it.
    fn note_beside_data(&self, extension: &Extension) {
        let number = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
        let data = number(&data_directory());
        let paths = extension
            .device_statistics()
            .into_iter()
            .map(|device| device.path);
        let beside = paths.filter(|path| data.is_some() && number(path) == data);
        *self.beside_data.lock() = beside.collect();
    }
}

/// The controller of this server.
pub static CONTROLLER: Controller<Server> = Controller::new(
    &CORE,
    Server {
        early: AtomicBool::new(false),
        periodic: OnceLock::new(),
        beside_data: Mutex::new(Vec::new()),
    },
);

impl Host for Server {
    type Os = Linux;
    type Settings = Settings;
    type Watched = Checks;

    fn conditions(&self) -> (Settings, bool) {
        let settings = Settings::current();
        let waits = !persist::is_pending()
            && (untracked::waits_for_innodb() || buffer_pool::is_waited_for(&settings));
        (settings, waits)
    }

    fn refusal(&self) -> Option<String> {
        untracked::refusal().map(|refusal| refusal.to_string())
    }

    fn open(
        &self,
        settings: &Settings,
        page: u32,
        refused: impl FnOnce(u32),
    ) -> Result<Built<Engine>, String> {
        let built = lay_out(settings, usual_page(page), refused)?;
        self.note_beside_data(&built.engine.extension);
        Ok(built)
    }

    fn adjust(&self, active: &Active) {
        active.extension.set_io_capacity(settings::io_capacity());
        TABLES.adjust(&active.extension);
    }

    /// Logs the totals: the server's status variables end with the server.
    fn close(&self, engine: Engine) {
        if let Some(text) = messages::totals(&engine.extension.statistics(), false) {
            Linux.note(&text);
        }
    }

    fn tell(&self, told: LogEvent<Settings>) {
        messages::log_event(told, self.early.load(Ordering::Relaxed));
    }

    fn watch(
        &self,
        checks: &mut Checks,
        nominal: Option<u32>,
        post: impl Fn(Event<Settings, Engine>),
    ) {
        BYPASS.expire(&CORE);
        checks.record();
        if let Some(periodic) = self.periodic.get() {
            periodic();
        }
        if let Some(page) = nominal.and_then(|nominal| checks.smaller_page(nominal)) {
            let settings = Settings::current();
            post(Event::UsualPage { page, settings });
        }
        if let Some((epoch, why)) = checks
            .sample_recovered()
            .or_else(|| checks.foreign_writer())
        {
            post(Event::Foreign { epoch, why });
        }
        if let Some(why) = checks.untracked_io() {
            post(Event::Unseen(why));
        }
    }
}
