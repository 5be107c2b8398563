//! Events of the controller and their effects.

use super::state::{Built, Work};

#[derive(Debug)]
pub enum Event<S, E> {
    /// The plugin is installed.
    /// - `passive`: why the calls are not intercepted.
    /// - `unseen`: which asynchronous I/O bypasses the hooks.
    /// - `broken`: a hook has panicked in this process.
    /// - `wanted`: the configuration enables the extension.
    Init {
        passive: Option<String>,
        unseen: Option<String>,
        broken: bool,
        wanted: bool,
    },
    /// Plugin unload.
    Stop,
    /// Server shutdown with a persisted cache.
    Leave,
    /// A client asks to switch on with these settings.
    AskOn(S),
    /// The client commits the switching on that it prepared.
    Commit,
    /// A client switches off.
    Off,
    /// A foreign process wrote to the data files while the engine of this epoch was active.
    Foreign { epoch: u32, why: String },
    /// The server has begun to use asynchronous I/O that bypasses the hooks.
    Unseen(String),
    /// A hook has panicked.
    Panicked,
    /// Tick of the controller's thread of this life. `waits`: builds must wait for InnoDB's start.
    Tick { life: u64, settings: S, waits: bool },
    /// Most bytes are read in pages of this size.
    UsualPage { page: u32, settings: S },
    /// No engine could be laid out for pages of this size.
    PageRefused(u32),
    /// Previous engines have released their files, and the hooks observe all asynchronous I/O.
    Released(u64),
    /// The builder found asynchronous I/O that bypasses the hooks.
    NotSeen { number: u64, why: String },
    /// The engine is built.
    Opened { number: u64, built: Built<E> },
    /// The work ended without a result.
    Failed { work: Work, why: String },
    /// Files are tracked. `begins`: tracking has just begun, so the open files must be scanned.
    Followed { work: Work, begins: bool },
    /// The scan for open files has ended.
    Scanned(Work),
    /// The engine serves. `before`: the previously active engine.
    Published(Option<E>),
    /// The engine does not serve: another thread has ended tracking in the meantime, by switching off or after a panic. Carries
    /// the engine, unless that thread has taken it.
    Interrupted(Option<E>),
    /// Engine that a switching off removed from the switch.
    Taken(E),
    /// A closing thread asks for the next engine.
    CloseNext,
    /// An engine is closed or suspended.
    Closed,
    /// A recording asks for file tracking.
    AskRecord,
}

/// Immediate effect. It only stores, so that an older decision never overwrites a newer one.
#[derive(Debug, PartialEq, Eq)]
pub enum Store<E> {
    /// Turns every hook off, recordings included. Returns [`Event::Taken`] if an engine was active.
    Kill,
    /// Turns the extension off; a recording continues. Returns [`Event::Taken`] if an engine was active.
    SwitchOff,
    /// Stops serving. Writes continue to drop the pages that they touch.
    Leave,
    /// Makes the hooks track files. Returns [`Event::Followed`].
    Follow(Work),
    /// Activates the engine. Returns [`Event::Published`] or [`Event::Interrupted`].
    Publish(E),
}

/// Slow effect. The poster runs it without the lock.
#[derive(Debug, PartialEq, Eq)]
pub enum Later<S, E> {
    /// Wait for previous engines; `own`: no other thread closes them. [`Event::Released`], or an event with the obstacle.
    Prepare { number: u64, own: bool },
    /// Open the cache files for pages of this size, unless another size is usual. [`Event::Opened`] or [`Event::Failed`].
    Open { number: u64, settings: S, page: u32 },
    /// Scan for open files. [`Event::Scanned`].
    Scan(Work),
    /// Close the engine once it is unused. [`Event::Closed`].
    Close(E),
    /// Log this.
    Tell(LogEvent<S>),
    /// Answer to the client.
    Answer(Answer),
    /// Post the same event again after a change.
    Wait,
}

/// Answer to the client: warnings, or the refusal.
pub type Answer = Result<Vec<String>, Refused>;

/// Log messages.
#[derive(Debug, PartialEq, Eq)]
pub enum LogEvent<S> {
    SwitchedOn(S),
    SwitchedOff,
    /// Stays off: the server cannot be tracked.
    Passive(String),
    /// Switched off: the server can no longer be tracked.
    Unseen(String),
    Foreign(String),
    /// Failed; the build will be retried.
    Failed(String),
    Warnings(Vec<String>),
    /// Rebuild with a layout for smaller pages of this size, bytes.
    SmallerPages(u32),
}

/// Why a client's request is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Why(String),
    /// Another build or switching takes longer than a client waits.
    Busy,
    /// Another session has switched off in between.
    Overtaken,
    /// A hook has panicked.
    Broken,
    NotInstalled,
    /// The server cannot be tracked.
    Unseen(String),
}
