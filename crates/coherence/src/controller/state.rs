//! What the controller knows.

use std::time::Duration;

/// The usual page size of InnoDB, bytes.
pub const USUAL_PAGE: u32 = 16384;

/// Settings that an engine is built from.
pub trait Layout: Clone {
    /// Whether an engine built from the other settings is laid out as these say.
    fn same_layout(&self, other: &Self) -> bool;
}

/// Everything that decides what an event does. `S` are settings, `E` is an engine.
#[derive(Debug)]
pub struct Machine<S, E> {
    pub(super) state: State<S, E>,
    /// How many builds have begun. A result names its own.
    pub(super) builds: u64,
    /// Which installation of the plugin this is. A thread of the one before may still hang.
    pub(super) life: u64,
    /// What a thread is at: one at a time, since two would compete for the same files. Where it builds and the state is not
    /// [`State::Building`], it was overtaken, and what comes of it is closed.
    pub(super) work: Option<Work>,
    /// Engines that nobody has begun to close.
    pub(super) retiring: Vec<E>,
    /// Engines that somebody is closing.
    pub(super) closing: usize,
    /// The page size for which the last engine was laid out, bytes.
    pub(super) nominal_page: u32,
    /// A page size for which no engine could be laid out.
    pub(super) refused_page: Option<u32>,
    #[cfg(test)]
    pub(super) left_out: Option<LeftOut>,
}

/// What is left out, to show that the tests notice.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// A build that is under way goes on after a switching off.
    Overtaking,
    /// An accusation counts whatever serves now.
    Epoch,
    /// Switching off forgets an engine that was ready.
    Retiring,
    /// A client begins to build while another thread is at work.
    OneAtATime,
}

/// What the extension is doing. The word of the switch and the active engine follow from it.
#[derive(Debug)]
pub enum State<S, E> {
    /// The plugin is not installed. Nothing is followed.
    Gone,
    /// The calls are not intercepted. Nothing is followed.
    Passive(String),
    /// A hook panicked: off for the life of the process. `shown`: nobody has switched off since.
    Broken { shown: bool },
    /// There is no engine, and none is being built. Nothing is followed.
    Idle(Idle<S>),
    /// An engine is being built. Files are followed from [`Phase::Scanning`] on.
    Building(Job<S, E>),
    /// There is an engine, and files are followed. Nobody has said yet that it shall serve.
    Ready(Ready<S, E>),
    /// The engine is the switch's, and serves.
    On(On<S>),
}

/// Why there is no engine.
#[derive(Clone, Debug)]
pub enum Idle<S> {
    /// Nobody wants one.
    Off,
    /// Asynchronous I/O passes the hooks by.
    Unseen(String),
    /// Somebody else has written to the data files. A client may want it all the same.
    Distrusted(String),
    /// One is wanted. It is built when it is `due`, or at once if the settings of the failure were changed.
    Wanted {
        due: Duration,
        failed: Option<Failed<S>>,
    },
}

/// What came of the last try.
#[derive(Clone, Debug)]
pub struct Failed<S> {
    pub why: String,
    /// Between this try and the next.
    pub pause: Duration,
    pub tried: S,
}

/// For whom an engine is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client waits for the answer, and says afterwards whether it shall serve.
    Client,
    /// The controller's thread: it serves as soon as it can.
    Own,
}

#[derive(Debug)]
pub struct Job<S, E> {
    pub by: By,
    pub settings: S,
    /// What it is again if this fails.
    pub before: Idle<S>,
    pub phase: Phase<E>,
}

#[derive(Debug)]
pub enum Phase<E> {
    /// For engines of before to let go of their files.
    Waiting,
    /// The cache files are opened.
    Opening,
    /// The open data files are looked for. Files are followed.
    Scanning(Built<E>),
}

/// An engine, just opened.
#[derive(Debug)]
pub struct Built<E> {
    pub engine: E,
    /// Which switching on this is.
    pub epoch: u32,
    /// The page size that it is laid out for, bytes.
    pub page: u32,
    /// For the client, or for the log.
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub struct Ready<S, E> {
    pub engine: E,
    pub epoch: u32,
    pub settings: S,
    pub since: Duration,
    pub before: Idle<S>,
}

#[derive(Debug)]
pub struct On<S> {
    pub settings: S,
    pub epoch: u32,
}

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Builds an engine; which build it is.
    Build(u64),
    /// Looks for the open files, for a recording.
    Recording,
}

/// What people are told of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    Off,
    /// Wanted, and not tried yet.
    Pending,
    On,
    Passive(&'a str),
    Failed(&'a str),
    Broken,
}

impl<S> Idle<S> {
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Idle::Wanted { .. })
    }

    /// Wanted from now on, whatever it was.
    pub(super) fn wanted(self, now: Duration) -> Idle<S> {
        let failed = match self {
            Idle::Wanted { failed, .. } => failed,
            _ => None,
        };
        Idle::Wanted { due: now, failed }
    }

    fn shown(&self) -> Shown<'_> {
        match self {
            Idle::Off => Shown::Off,
            Idle::Unseen(why) | Idle::Distrusted(why) => Shown::Passive(why),
            Idle::Wanted { failed: None, .. } => Shown::Pending,
            Idle::Wanted {
                failed: Some(failed),
                ..
            } => Shown::Failed(&failed.why),
        }
    }
}

impl<S, E> State<S, E> {
    /// Why there was no engine, if there is none that serves.
    pub(super) fn idle(&self) -> Option<&Idle<S>> {
        match self {
            State::Idle(idle)
            | State::Building(Job { before: idle, .. })
            | State::Ready(Ready { before: idle, .. }) => Some(idle),
            _ => None,
        }
    }
}

impl<S, E> Default for Machine<S, E> {
    fn default() -> Machine<S, E> {
        Machine::new()
    }
}

impl<S, E> Machine<S, E> {
    /// Of a plugin that is not installed.
    pub const fn new() -> Machine<S, E> {
        Machine {
            state: State::Gone,
            builds: 0,
            life: 0,
            work: None,
            retiring: Vec::new(),
            closing: 0,
            nominal_page: USUAL_PAGE,
            refused_page: None,
            #[cfg(test)]
            left_out: None,
        }
    }

    #[cfg(test)]
    pub(super) fn leaves_out(&self, what: LeftOut) -> bool {
        #[cfg(checker)]
        if what == LeftOut::Overtaking && crate::interleavings::leaves_out("stale-built-published")
        {
            return true;
        }
        self.left_out == Some(what)
    }

    /// What people are told.
    pub fn shown(&self) -> Shown<'_> {
        match &self.state {
            State::Gone | State::Broken { shown: false } => Shown::Off,
            State::Passive(why) => Shown::Passive(why),
            State::Broken { shown: true } => Shown::Broken,
            State::On(_) => Shown::On,
            state => state.idle().map_or(Shown::Off, Idle::shown),
        }
    }

    /// Whether the extension is on or is to be.
    pub fn is_wanted(&self) -> bool {
        matches!(self.state, State::On(_)) || self.state.idle().is_some_and(Idle::is_wanted)
    }

    pub fn is_on(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    pub fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken { .. })
    }

    /// Which installation of the plugin this is; 0 before the first.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Whether a thread builds an engine or looks for files.
    pub fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Whether engines of before have let go of their files.
    pub fn is_released(&self) -> bool {
        self.retiring.is_empty() && self.closing == 0
    }

    /// Whether there are engines that nobody has begun to close.
    pub fn has_to_close(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// Whether a tick would begin to build.
    pub fn is_due(&self, now: Duration) -> bool {
        self.work.is_none()
            && matches!(self.state, State::Idle(Idle::Wanted { due, .. }) if due <= now)
    }

    /// Whether there is something that only the controller's thread does.
    pub fn needs_thread(&self) -> bool {
        self.has_to_close() || self.is_wanted()
    }

    /// The engine that is not active yet.
    pub fn waiting(&self) -> Option<&E> {
        match &self.state {
            State::Ready(ready) => Some(&ready.engine),
            State::Building(Job {
                phase: Phase::Scanning(built),
                ..
            }) => Some(&built.engine),
            _ => None,
        }
    }

    /// The page size for which the last engine was laid out, bytes.
    pub fn nominal_page(&self) -> u32 {
        self.nominal_page
    }
}
