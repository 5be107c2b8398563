//! What the controller needs of this server's process, and the controller itself.

use std::sync::atomic::{AtomicBool, Ordering};

use coherence::controller::{Built, Controller, Engine, Event, Host, Told};

use super::building::{lay_out, usual_page};
use super::texts;
use super::watch::Watch;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::pool;
use crate::process::{CORE, KNOWN};
use crate::settings::{self, Settings};
use crate::switch::Active;
use crate::unseen;

/// The process that the library was loaded into.
pub struct Server {
    /// The plugin was loaded before InnoDB started.
    pub early: AtomicBool,
}

/// Of the same server.
pub static CONTROLLER: Controller<Server> = Controller::new(
    &CORE,
    Server {
        early: AtomicBool::new(false),
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
        unseen::waits_for_innodb() || pool::is_waited_for(&Settings::current())
    }

    fn open(
        &self,
        settings: &Settings,
        page: u32,
        post: impl Fn(Event<Settings, Engine>),
    ) -> Result<Built<Engine>, String> {
        lay_out(settings, usual_page(page), |page| {
            post(Event::PageRefused(page));
        })
    }

    fn adjust(&self, active: &Active) {
        active.extension.set_io_capacity(settings::io_capacity());
        active.extension.set_admission(settings::admission());
    }

    /// Says what it did: a server's status variables end with the server.
    fn close(&self, engine: Engine) {
        let figures = engine.extension.statistics();
        if figures.hits + figures.misses > 0 {
            Linux.note(&texts::closed(&figures));
        }
    }

    fn tell(&self, told: Told<Settings>) {
        texts::tell(told, self.early.load(Ordering::Relaxed));
    }

    fn watch(
        &self,
        watch: &mut Watch,
        nominal: Option<u32>,
        post: impl Fn(Event<Settings, Engine>),
    ) {
        KNOWN.bypassing.look(&CORE);
        if let Some(page) = nominal.and_then(|nominal| watch.smaller_page(nominal)) {
            let settings = Settings::current();
            post(Event::UsualPage { page, settings });
        }
        if let Some((epoch, why)) = watch.foreign() {
            post(Event::Foreign { epoch, why });
        }
        if let Some(why) = watch.unseen() {
            post(Event::Unseen(why));
        }
    }
}
