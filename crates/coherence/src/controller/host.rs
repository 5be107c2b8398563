//! What switching on and off needs of the process that it is done in.

use std::sync::Arc;

use super::events::{Event, Told};
use super::state::{Built, Layout};
use crate::os::Os;
use crate::switch::Active;

/// An extension, which has one owner when no hook uses it any more.
pub type Engine = Arc<Active>;

/// The process. No hook calls any of it, and nothing but [`adjust`](Self::adjust) and [`settings`](Self::settings) is called
/// with the controller's lock held. A panic in [`open`](Self::open), [`close`](Self::close) or [`watch`](Self::watch) ends that
/// call alone.
pub trait Host: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Os: Os;
    /// What an extension is opened with.
    type Settings: Layout + Send;
    /// What the controller's thread remembers of what it watches.
    type Watched: Default;

    /// What the variables say now.
    fn settings(&self) -> Self::Settings;

    /// Why the server's asynchronous I/O cannot be followed, if it cannot.
    fn refusal(&self) -> Option<String>;

    /// Whether nothing may be built yet, because InnoDB has not made its choice.
    fn waits(&self) -> bool;

    /// Opens an extension, for pages of so many bytes unless others are usual. May take as long as a disk takes, and `post`
    /// events meanwhile.
    ///
    /// # Errors
    /// Why not, for the client or the log.
    fn open(
        &self,
        settings: &Self::Settings,
        page: u32,
        post: impl Fn(Event<Self::Settings, Engine>),
    ) -> Result<Built<Engine>, String>;

    /// Gives the active extension the settings that need no other layout.
    fn adjust(&self, active: &Active);

    /// Closes an extension that nobody uses. May take as long as a disk takes.
    fn close(&self, engine: Engine);

    /// Writes a line to the log.
    fn tell(&self, told: Told<Self::Settings>);

    /// Looks whether the server can still be followed, and posts what it finds. In the controller's thread, after each tick.
    /// `nominal`: the page size that the extension is laid out for, bytes, if it is on.
    fn watch(
        &self,
        watched: &mut Self::Watched,
        nominal: Option<u32>,
        post: impl Fn(Event<Self::Settings, Engine>),
    );
}
