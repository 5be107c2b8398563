//! What the controller needs of this server's process, and the controller itself.

use std::sync::atomic::{AtomicBool, Ordering};

use coherence::controller::{Built, Controller, Engine, Event, Host, Told};

use super::building::{lay_out, usual_page};
use super::shelf::Shelf;
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
    /// What was switched off.
    pub shelf: Shelf,
}

/// Of the same server.
pub static CONTROLLER: Controller<Server> = Controller::new(
    &CORE,
    Server {
        early: AtomicBool::new(false),
        shelf: Shelf::new(),
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
        let page = usual_page(page);
        if let Some(built) = self.shelf.take(settings, page) {
            return Ok(built);
        }
        let built = lay_out(settings, page, |page| {
            post(Event::PageRefused(page));
        })?;
        self.shelf.built(&built.engine, settings, built.page);
        Ok(built)
    }

    fn adjust(&self, active: &Active) {
        active.extension.set_io_capacity(settings::io_capacity());
        let admission = settings::admission();
        active.extension.set_admission(admission.mode());
        active.extension.set_policy(admission.policy());
        KNOWN.tables.adjust(&active.extension);
    }

    /// Says what it did: a server's status variables end with the server. What a client has switched off is kept for a while.
    fn close(&self, engine: Engine) {
        let keeps = CONTROLLER.with(|machine| machine.may_return());
        let closed = if keeps {
            self.shelf.keep(engine)
        } else {
            Err(engine)
        };
        let Err(engine) = closed else {
            return;
        };
        if let Some(text) = texts::ended(&engine.extension.statistics(), false) {
            Linux.note(&text);
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
        self.shelf.look();
        watch.note();
        watch.follow_policy();
        watch.scrub.look();
        if let Some(page) = nominal.and_then(|nominal| watch.smaller_page(nominal)) {
            let settings = Settings::current();
            post(Event::UsualPage { page, settings });
        }
        if let Some((epoch, why)) = watch.inherited().or_else(|| watch.foreign()) {
            self.shelf.forget_built();
            post(Event::Foreign { epoch, why });
        }
        if let Some(why) = watch.unseen() {
            self.shelf.forget_built();
            post(Event::Unseen(why));
        }
    }
}
