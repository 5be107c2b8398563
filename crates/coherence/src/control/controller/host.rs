//! Interface from the controller to its process.
//!
//! A client that switches on passes the settings to `prepare`. [`Host::refusal`] is the only condition, [`Host::open`] the only
//! work of the process, and `prepare` returns the outcome. `commit` calls [`Host::adjust`], then [`Host::tell`]. The
//! controller's thread builds the same way, with the settings of [`Host::conditions`].

use std::sync::Arc;

use super::events::{Event, LogEvent};
use super::state::{Built, Layout};
use crate::platform::os::Os;
use crate::switch::Active;

/// An extension. It has a single owner once no hook uses it.
pub type Engine = Arc<Active>;

/// The process. Hooks never call it. Only [`adjust`](Self::adjust) is called with the controller's lock held. A panic in
/// [`conditions`](Self::conditions), [`open`](Self::open), [`close`](Self::close) or [`watch`](Self::watch) ends only that
/// call.
pub trait Host: Send + Sync + Sized + 'static {
    /// Operating system interface.
    type Os: Os;
    /// Settings for opening an extension.
    type Settings: Layout + Send;
    /// State of [`watch`](Self::watch) between two calls.
    type Watched: Default;

    /// Current values of the variables, and whether builds must wait for InnoDB's start, because they depend on its choices.
    fn conditions(&self) -> (Self::Settings, bool);

    /// Why the server's asynchronous I/O cannot be tracked, if so. May sleep.
    fn refusal(&self) -> Option<String>;

    /// Opens an extension for pages of `page` bytes, unless another size is usual. May take as long as a disk. Calls `refused`
    /// with a page size that no extension can be laid out for.
    ///
    /// # Errors
    /// The reason, for the client or the log.
    fn open(
        &self,
        settings: &Self::Settings,
        page: u32,
        refused: impl FnOnce(u32),
    ) -> Result<Built<Engine>, String>;

    /// Applies settings that need no new layout to the active extension.
    fn adjust(&self, active: &Active);

    /// Closes an unused extension. May take as long as a disk.
    fn close(&self, engine: Engine);

    /// Writes a line to the log.
    fn tell(&self, told: LogEvent<Self::Settings>);

    /// Checks whether the server can still be tracked, and posts the findings. Runs in the controller's thread after each tick.
    /// `nominal`: page size of the layout in bytes, if the extension is on.
    fn watch(
        &self,
        watched: &mut Self::Watched,
        nominal: Option<u32>,
        post: impl Fn(Event<Self::Settings, Engine>),
    );
}
