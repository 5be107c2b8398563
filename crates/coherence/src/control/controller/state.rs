//! State of the controller.

use std::time::Duration;

/// The usual page size of InnoDB, bytes.
pub const DEFAULT_PAGE_SIZE: u32 = 16384;

/// Settings from which an engine is built.
pub trait Layout: Clone {
    /// Whether an engine built from the other settings has the same layout.
    fn same_layout(&self, other: &Self) -> bool;
}

/// Complete input of a transition besides the event. `S` are settings, `E` is an engine.
#[derive(Debug)]
pub struct Machine<S, E> {
    pub(super) state: State<S, E>,
    /// Number of builds begun. Each result carries the number of its build.
    pub(super) builds: u64,
    /// Number of the plugin's installation. A thread of the previous one may still hang.
    pub(super) life: u64,
    /// Work of a thread. Only one at a time, because two would compete for the same files. If it is a build and the state is
    /// not [`State::Building`], the build was overtaken: its engine will be closed.
    pub(super) work: Option<Work>,
    /// Engines to close.
    pub(super) retiring: Vec<E>,
    /// Number of engines being closed.
    pub(super) closing: usize,
    /// Page size of the last engine's layout, bytes.
    pub(super) nominal_page: u32,
    /// Page size that no engine could be laid out for, bytes.
    pub(super) refused_page: Option<u32>,
    #[cfg(test)]
    pub(super) fault: Option<Fault>,
}

/// Deliberate faults that the tests must detect.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A build in progress continues after switching off.
    Overtaking,
    /// A foreign write counts against the current engine, whatever its epoch.
    Epoch,
    /// Switching off forgets a ready engine.
    Retiring,
    /// A client begins a build while another thread is at work.
    OneAtATime,
}

/// State of the extension. The mode of the switch and the active engine follow from it.
#[derive(Debug)]
pub enum State<S, E> {
    /// The plugin is not installed. No files are tracked.
    Gone,
    /// The calls are not intercepted. No files are tracked.
    Passive(String),
    /// A hook panicked: off until the process ends. `shown`: no client has switched off since.
    Broken { shown: bool },
    /// No engine exists or is being built. No files are tracked.
    Idle(Idle<S>),
    /// An engine is being built. Files are tracked from [`Phase::Scanning`] on.
    Building(Job<S, E>),
    /// An engine exists and files are tracked. The commit is pending.
    Ready(Ready<S, E>),
    /// The engine is active and serves reads.
    On(On<S>),
}

/// Why there is no engine.
#[derive(Clone, Debug)]
pub enum Idle<S> {
    /// Not wanted.
    Off,
    /// Asynchronous I/O bypasses the hooks.
    Unseen(String),
    /// A foreign process has written to the data files. A client may still switch on.
    Distrusted(String),
    /// Wanted. The build begins at `due`, or immediately if the settings differ from those of the failure.
    Wanted {
        due: Duration,
        failed: Option<Failed<S>>,
    },
}

/// Result of the last failed build.
#[derive(Clone, Debug)]
pub struct Failed<S> {
    pub why: String,
    /// Pause between this attempt and the next.
    pub pause: Duration,
    pub tried: S,
}

/// Requester of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client that waits for the answer and then commits.
    Client,
    /// The controller's thread: the engine serves as soon as it can.
    Own,
}

#[derive(Debug)]
pub struct Job<S, E> {
    pub by: By,
    pub settings: S,
    /// State to return to on failure.
    pub before: Idle<S>,
    pub phase: Phase<E>,
}

#[derive(Debug)]
pub enum Phase<E> {
    /// Waits for previous engines to release their files.
    Waiting,
    /// Opens the cache files.
    Opening,
    /// Scans for open data files. Files are tracked.
    Scanning(Built<E>),
}

/// A newly opened engine.
#[derive(Debug)]
pub struct Built<E> {
    pub engine: E,
    /// Number of this activation.
    pub epoch: u32,
    /// Page size of the layout, bytes.
    pub page: u32,
    /// Warnings for the client or the log.
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

/// Work of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Builds an engine; the number of the build.
    Build(u64),
    /// Scans for open files, for a recording.
    Recording,
}

/// State as reported to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    Off,
    /// Wanted, not attempted yet.
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

    /// Wanted from now on, whatever the previous state.
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
    /// Reason why no engine serves; `None` if one serves or none is possible.
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
    /// State before the plugin is installed.
    pub const fn new() -> Machine<S, E> {
        Machine {
            state: State::Gone,
            builds: 0,
            life: 0,
            work: None,
            retiring: Vec::new(),
            closing: 0,
            nominal_page: DEFAULT_PAGE_SIZE,
            refused_page: None,
            #[cfg(test)]
            fault: None,
        }
    }

    #[cfg(test)]
    pub(super) fn has_fault(&self, what: Fault) -> bool {
        let is_removed = what == Fault::Overtaking && canary!("stale-built-published");
        is_removed || self.fault == Some(what)
    }

    /// State as reported to users.
    pub fn shown(&self) -> Shown<'_> {
        match &self.state {
            State::Gone | State::Broken { shown: false } => Shown::Off,
            State::Passive(why) => Shown::Passive(why),
            State::Broken { shown: true } => Shown::Broken,
            State::On(_) => Shown::On,
            state => state.idle().map_or(Shown::Off, Idle::shown),
        }
    }

    /// Whether the extension is on or wanted.
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

    /// Number of the plugin's installation; 0 before the first.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Whether a thread builds an engine or scans for files.
    pub fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Whether all previous engines have released their files.
    pub fn is_released(&self) -> bool {
        self.retiring.is_empty() && self.closing == 0
    }

    /// Whether engines wait to be closed.
    pub fn has_to_close(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// Whether a tick would begin a build.
    pub fn is_due(&self, now: Duration) -> bool {
        self.work.is_none()
            && matches!(self.state, State::Idle(Idle::Wanted { due, .. }) if due <= now)
    }

    /// Whether there is work that only the controller's thread does.
    pub fn needs_thread(&self) -> bool {
        self.has_to_close() || self.is_wanted()
    }

    /// Engine that is opened but not active yet.
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

    /// Page size of the last engine's layout, bytes.
    pub fn nominal_page(&self) -> u32 {
        self.nominal_page
    }
}
