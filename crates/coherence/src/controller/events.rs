//! What may happen, and what may be wanted done about it.

use super::state::{Built, Work};

/// What happens.
#[derive(Debug)]
pub enum Event<S, E> {
    /// The plugin is installed. `passive`: why the calls are not intercepted; `unseen`: which asynchronous I/O passes them by;
    /// `broken`: a hook has panicked in this process; `wanted`: the configuration asks for the extension.
    Init {
        passive: Option<String>,
        unseen: Option<String>,
        broken: bool,
        wanted: bool,
    },
    /// The plugin goes.
    Stop,
    /// The server goes, and what is cached is left to the next one.
    Leave,
    /// A client asks whether it can be switched on with these settings.
    AskOn(S),
    /// A client switches on what it has asked for.
    Commit,
    /// A client switches off.
    Off,
    /// Somebody else has written to the data files while the engine of this epoch was active.
    Foreign { epoch: u32, why: String },
    /// The server has begun to use asynchronous I/O that passes the hooks by.
    Unseen(String),
    /// A hook has panicked.
    Panicked,
    /// The controller's thread of this life looks. `waits`: InnoDB has not made its choice yet.
    Tick { life: u64, settings: S, waits: bool },
    /// Most bytes are read in pages of this size.
    UsualPage { page: u32, settings: S },
    /// No engine could be laid out for pages of this size.
    PageRefused(u32),
    /// Engines of before have let go of their files, and all asynchronous I/O is seen.
    Released(u64),
    /// Asynchronous I/O passes the hooks by, as whoever builds has found.
    NotSeen { number: u64, why: String },
    /// The engine is built.
    Opened { number: u64, built: Built<E> },
    /// The work ended without a result.
    Failed { work: Work, why: String },
    /// Files are followed. `begins`: they were not before, so the open ones have to be looked for.
    Followed { work: Work, begins: bool },
    /// The open files are known.
    Scanned(Work),
    /// The engine serves. `before`: what served until then.
    Published(Option<E>),
    /// The engine does not serve, since the switch was turned meanwhile. It comes back, unless who turned it has it.
    Interrupted(Option<E>),
    /// What a switching off took out of the switch.
    Taken(E),
    /// Somebody can close an engine.
    CloseNext,
    /// An engine is closed, or was put aside.
    Closed,
    /// A recording wants files to be followed.
    AskRecord,
}

/// Done at once. It only stores, so that what was decided before never comes last.
#[derive(Debug, PartialEq, Eq)]
pub enum Store<E> {
    /// Every hook is off, a recording too. [`Event::Taken`] if an engine was active.
    Kill,
    /// The extension is off, a recording goes on. [`Event::Taken`] if an engine was active.
    SwitchOff,
    /// Nothing is served any more, but writes go on dropping what they touch.
    Leave,
    /// Hooks follow files. [`Event::Followed`].
    Follow(Work),
    /// The engine becomes the active one. [`Event::Published`] or [`Event::Interrupted`].
    Publish(E),
}

/// Done by whoever posted the event, when others may post theirs.
#[derive(Debug, PartialEq, Eq)]
pub enum Later<S, E> {
    /// Wait for engines of before; `own` means that nobody else closes them. [`Event::Released`] or one that says why not.
    Prepare { number: u64, own: bool },
    /// Open the cache files, for pages of this size unless others are usual. [`Event::Opened`] or [`Event::Failed`].
    Open { number: u64, settings: S, page: u32 },
    /// Look for the files that are open. [`Event::Scanned`].
    Scan(Work),
    /// Close the engine when nobody uses it. [`Event::Closed`].
    Close(E),
    /// Say this in the log.
    Tell(Told<S>),
    /// The client's answer: warnings, or why it is refused.
    Answer(Result<Vec<String>, Refused>),
    /// Ask again when something has changed.
    Wait,
}

/// What the log says.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<S> {
    SwitchedOn(S),
    SwitchedOff,
    /// What is cached is left to the next process.
    Left,
    /// It stays off since the server cannot be followed.
    Passive(String),
    /// It was switched off since the server cannot be followed any more.
    Unseen(String),
    Foreign(String),
    /// It is tried again.
    Failed(String),
    Warnings(Vec<String>),
    /// It is laid out anew for smaller pages, of so many bytes.
    SmallerPages(u32),
}

/// Why a client is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Why(String),
    /// Others build or switch, for longer than a client waits.
    Busy,
    /// Another session has switched off meanwhile.
    Overtaken,
    /// A hook has panicked.
    Broken,
    NotInstalled,
    /// The server cannot be followed.
    Unseen(String),
}
