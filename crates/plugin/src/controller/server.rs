//! The controller, and its interface to this server's process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use coherence::controller::{Built, Controller, Engine, Event, Host, LogEvent};

use super::building::{lay_out, usual_page};
use super::texts;
use super::watch::Watch;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::persist;
use crate::pool;
use crate::process::{CORE, KNOWN};
use crate::settings::{self, Settings};
use crate::switch::Active;
use crate::unseen;

/// The process that the library was loaded into.
pub struct Server {
    /// The plugin was loaded before InnoDB started.
    pub early: AtomicBool,
    /// Called at each iteration of the controller's thread, for checks outside the controller.
    pub look: OnceLock<fn()>,
}

/// The controller of this server.
pub static CONTROLLER: Controller<Server> = Controller::new(
    &CORE,
    Server {
        early: AtomicBool::new(false),
        look: OnceLock::new(),
    },
);

impl Host for Server {
    type Os = Linux;
    type Settings = Settings;
    type Watched = Watch;

    fn settings(&self) -> Settings {
        Settings::current()
    }

    fn refusal(&self) -> Option<String> {
        unseen::refusal().map(|refusal| refusal.to_string())
    }

    fn waits(&self) -> bool {
        !persist::is_pending()
            && (unseen::waits_for_innodb() || pool::is_waited_for(&Settings::current()))
    }

    fn open(
        &self,
        settings: &Settings,
        page: u32,
        post: impl Fn(Event<Settings, Engine>),
    ) -> Result<Built<Engine>, String> {
        let page = usual_page(page);
        lay_out(settings, page, |page| {
            post(Event::PageRefused(page));
        })
    }

    fn adjust(&self, active: &Active) {
        active.extension.set_io_capacity(settings::io_capacity());
        KNOWN.tables.adjust(&active.extension);
    }

    /// Logs the totals: the server's status variables end with the server.
    fn close(&self, engine: Engine) {
        if let Some(text) = texts::ended(&engine.extension.statistics(), false) {
            Linux.note(&text);
        }
    }

    fn tell(&self, told: LogEvent<Settings>) {
        texts::tell(told, self.early.load(Ordering::Relaxed));
    }

    fn watch(
        &self,
        watch: &mut Watch,
        nominal: Option<u32>,
        post: impl Fn(Event<Settings, Engine>),
    ) {
        KNOWN.bypassing.look(&CORE);
        watch.note();
        if let Some(look) = self.look.get() {
            look();
        }
        if let Some(page) = nominal.and_then(|nominal| watch.smaller_page(nominal)) {
            let settings = Settings::current();
            post(Event::UsualPage { page, settings });
        }
        if let Some((epoch, why)) = watch.inherited().or_else(|| watch.foreign()) {
            post(Event::Foreign { epoch, why });
        }
        if let Some(why) = watch.unseen() {
            post(Event::Unseen(why));
        }
    }
}
