//! Where an extension that was switched off is kept for `bpe_keep` seconds, in case it is switched on again.
//!
//! Nobody follows the data files meanwhile. So what is cached of them is compared before it is served
//! ([`coherence::files::Files::keep`]). It is kept as it is, with its memory and its files, and closed when the time is over, when
//! another one is built, and when the plugin goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coherence::controller::{Built, Engine, Layout as _};
use extension::{Extension, Group};
use parking_lot::Mutex;

use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};
use crate::settings::Settings;
use crate::switch::Active;

/// What is there. Locks: that of who closes it, the state, then that of the registry of files; under no other.
pub struct Shelf {
    state: Mutex<State>,
    /// Held until what was there has let go of its files.
    closing: Mutex<()>,
}

struct State {
    /// By which settings the last extension was built, for pages of so many bytes, and its epoch.
    built: Option<(u32, Settings, u32)>,
    extension: Option<(Extension, Settings, u32)>,
    /// Of the process, when it was switched off.
    since: Duration,
}

impl Shelf {
    pub const fn new() -> Shelf {
        Shelf {
            state: Mutex::new(State {
                built: None,
                extension: None,
                since: Duration::ZERO,
            }),
            closing: Mutex::new(()),
        }
    }

    /// An extension was built.
    pub fn built(&self, engine: &Active, settings: &Settings, page: u32) {
        self.state.lock().built = Some((engine.epoch, settings.clone(), page));
    }

    /// What is retired next is not to be used again.
    pub fn forget_built(&self) {
        self.state.lock().built = None;
    }

    /// Keeps an extension that nobody uses any more, if it is the last one that was built, and none of its devices has failed.
    ///
    /// # Errors
    /// The extension, to be closed.
    pub fn keep(&self, engine: Engine) -> Result<(), Engine> {
        let mut state = self.state.lock();
        let last = state.built.take_if(|(epoch, _, _)| *epoch == engine.epoch);
        let Some((_, settings, page)) = last else {
            return Err(engine);
        };
        if time() == Duration::ZERO || engine.extension.has_failed() {
            return Err(engine);
        }
        let extension = Arc::try_unwrap(engine)?.extension;
        CORE.files.keep(&extension);
        state.since = Linux.running();
        state.extension = Some((extension, settings, page));
        Ok(())
    }

    /// What was kept, if it is laid out as these settings say, for pages of so many bytes; otherwise it is closed.
    pub fn take(&self, settings: &Settings, wanted: u32) -> Option<Built<Engine>> {
        let _closing = self.closing.lock();
        let taken = self.state.lock().extension.take();
        let (extension, before, page) = taken?;
        if !before.same_layout(settings) || page != wanted {
            CORE.files.forget_kept();
            drop(extension);
            return None;
        }
        // The rules for tables may have changed meanwhile, so that a group stands for other tables. Those of now are told before anybody
        // reads. To forget groups takes no memory, so it does not fail.
        let _ = extension.set_groups(&[false; Group::COUNT], &[0; Group::COUNT]);
        let engine = Arc::new(Active::new(extension, CORE.switch().next_epoch()));
        self.built(&engine, settings, page);
        Some(Built {
            epoch: engine.epoch,
            warnings: engine.device_failures(),
            engine,
            page,
        })
    }

    /// Closes it if its time is over.
    pub fn look(&self) {
        if self.left().is_some_and(|left| left == Duration::ZERO) {
            self.close();
            Linux.note("what was kept since the extension was switched off is removed (bpe_keep)");
        }
    }

    /// Closes it. May take as long as a disk takes.
    pub fn close(&self) {
        let _closing = self.closing.lock();
        let taken = self.state.lock().extension.take();
        if taken.is_some() {
            CORE.files.forget_kept();
        }
    }

    /// For how long it is kept yet; `None` if there is none.
    pub fn left(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.extension.as_ref()?;
        Some((state.since + time()).saturating_sub(Linux.running()))
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let kept = state.extension.as_ref();
        kept.map_or(0, |(extension, _, _)| extension.statistics().memory_bytes)
    }
}

/// How long something is kept.
pub fn time() -> Duration {
    Duration::from_secs(KNOWN.kept.keep.load(Ordering::SeqCst))
}
