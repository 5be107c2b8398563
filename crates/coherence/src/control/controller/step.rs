//! Transitions of the controller.
//!
//! Combinations of state and event that [`Machine::step`] does not list cannot happen, or change nothing.

use std::collections::VecDeque;
use std::time::Duration;

use super::events::{Answer, Event, Later, LogEvent, Refused, Store};
#[cfg(test)]
use super::state::Fault;
use super::state::{
    By, DEFAULT_PAGE_SIZE, Failed, Idle, Job, Layout, Machine, On, Phase, Ready, State, Work,
};

/// Time after which an uncommitted ready engine is retired.
pub const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between the first two attempts. It doubles with each further attempt.
pub const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum pause between two attempts.
pub const LAST_PAUSE: Duration = Duration::from_secs(60);
/// Pause before retrying after an interruption.
pub const INTERRUPTED_PAUSE: Duration = Duration::from_millis(500);

/// Effects of a transition, in order.
#[derive(Debug)]
pub struct Effects<S, E> {
    pub stores: Vec<Store<E>>,
    pub later: Vec<Later<S, E>>,
}

impl<S, E> Default for Effects<S, E> {
    fn default() -> Effects<S, E> {
        Effects {
            stores: Vec::new(),
            later: Vec::new(),
        }
    }
}

impl<S, E> Effects<S, E> {
    fn answer(&mut self, answer: Answer) {
        self.later.push(Later::Answer(answer));
    }

    fn tell(&mut self, told: LogEvent<S>) {
        self.later.push(Later::Tell(told));
    }
}

impl<S: Layout, E> Machine<S, E> {
    /// Steps, runs the immediate effects, and steps with the events that follow. Returns the slow effects.
    pub fn post(
        &mut self,
        event: Event<S, E>,
        now: Duration,
        mut store: impl FnMut(Store<E>) -> Option<Event<S, E>>,
    ) -> Vec<Later<S, E>> {
        let mut later = Vec::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let effects = self.step(event, now);
            events.extend(effects.stores.into_iter().filter_map(&mut store));
            later.extend(effects.later);
        }
        later
    }

    /// The transition. `now` is any monotonic clock.
    pub fn step(&mut self, event: Event<S, E>, now: Duration) -> Effects<S, E> {
        let mut effects = Effects::default();
        let fx = &mut effects;
        let state = std::mem::replace(&mut self.state, State::Gone);
        self.state = match event {
            Event::Init { .. } => self.init(state, event, now, fx),
            Event::Stop => {
                self.switch_off(state, Idle::Off, fx);
                State::Gone
            }
            Event::Leave => match state {
                State::On(_) => {
                    fx.stores.push(Store::Leave);
                    State::Gone
                }
                state => {
                    self.switch_off(state, Idle::Off, fx);
                    State::Gone
                }
            },
            Event::Off => self.switch_off(state, Idle::Off, fx),
            Event::Foreign { epoch, why } => match state {
                State::On(on) if self.accused(on.epoch, epoch) => {
                    let next = self.switch_off(State::On(on), Idle::Distrusted(why.clone()), fx);
                    fx.tell(LogEvent::Foreign(why));
                    next
                }
                state => state,
            },
            Event::Unseen(why) => match state {
                State::On(_) => {
                    let next = self.switch_off(state, Idle::Unseen(why.clone()), fx);
                    fx.tell(LogEvent::Unseen(why));
                    next
                }
                state => state,
            },
            Event::Panicked => self.panicked(state, fx),
            Event::AskOn(settings) => self.ask_on(state, settings, fx),
            Event::AskRecord => self.ask_record(state, fx),
            Event::Commit => self.commit(state, now, fx),
            Event::Tick {
                life,
                settings,
                waits,
            } if life == self.life && self.work.is_none() => {
                self.tick(state, settings, waits, now, fx)
            }
            Event::Tick { .. } => state,
            Event::UsualPage { page, settings } => match state {
                State::On(_)
                    if self.work.is_none()
                        && page < self.nominal_page
                        && self.refused_page != Some(page) =>
                {
                    fx.tell(LogEvent::SmallerPages(page));
                    self.rebuild(Idle::Off, settings, now, fx)
                }
                state => state,
            },
            Event::PageRefused(page) => {
                self.refused_page = Some(page);
                state
            }
            Event::Released(number) => match self.of_work(state, Work::Build(number)) {
                Of::Current(mut job) if matches!(job.phase, Phase::Waiting) => {
                    if let Idle::Unseen(_) = job.before {
                        job.before = Idle::Off; // the builder has checked again
                    }
                    fx.later.push(Later::Open {
                        number,
                        settings: job.settings.clone(),
                        page: self.nominal_page,
                    });
                    job.phase = Phase::Opening;
                    State::Building(job)
                }
                Of::Current(job) => State::Building(job),
                Of::Stale(state) => self.ended(state, fx),
                Of::Nothing(state) => state,
            },
            Event::Opened { number, built } => match self.of_work(state, Work::Build(number)) {
                Of::Current(mut job) if matches!(job.phase, Phase::Opening) => {
                    fx.stores.push(Store::Follow(Work::Build(number)));
                    job.phase = Phase::Scanning(built);
                    State::Building(job)
                }
                Of::Current(job) => {
                    self.retiring.push(built.engine);
                    State::Building(job)
                }
                Of::Stale(state) => {
                    self.retiring.push(built.engine);
                    self.ended(state, fx)
                }
                Of::Nothing(state) => {
                    self.retiring.push(built.engine);
                    state
                }
            },
            Event::NotSeen { number, why } => match self.of_work(state, Work::Build(number)) {
                Of::Current(job) if matches!(job.phase, Phase::Waiting) => {
                    self.work = None;
                    // Files may have been tracked since the server's start.
                    fx.stores.push(Store::SwitchOff);
                    if !matches!(&job.before, Idle::Unseen(known) if *known == why) {
                        fx.tell(LogEvent::Passive(why.clone()));
                    }
                    fx.answer(Err(Refused::Why(why.clone())));
                    State::Idle(Idle::Unseen(why))
                }
                Of::Current(job) => State::Building(job),
                Of::Stale(state) => {
                    self.work = None;
                    fx.answer(Err(Refused::Why(why)));
                    state
                }
                Of::Nothing(state) => state,
            },
            Event::Failed { work, why } => match self.of_work(state, work) {
                Of::Current(job) => self.failed(job, why, now, fx),
                Of::Stale(state) => {
                    self.work = None;
                    fx.answer(Err(Refused::Why(why)));
                    state
                }
                Of::Nothing(state) => state,
            },
            Event::Followed { work, begins: true } => {
                fx.later.push(Later::Scan(work));
                state
            }
            Event::Followed {
                work,
                begins: false,
            }
            | Event::Scanned(work) => self.scanned(state, work, now, fx),
            Event::Published(before) => {
                self.retiring.extend(before);
                if let State::On(on) = &state {
                    fx.tell(LogEvent::SwitchedOn(on.settings.clone()));
                }
                state
            }
            Event::Interrupted(ours) => {
                self.retiring.extend(ours);
                match state {
                    // The interrupting caller is about to post its own event.
                    State::On(_) => State::Idle(Idle::Off.wanted(now + INTERRUPTED_PAUSE)),
                    state => state,
                }
            }
            Event::Taken(engine) => {
                self.retiring.push(engine);
                state
            }
            Event::CloseNext => {
                if let Some(engine) = self.retiring.pop() {
                    self.closing += 1;
                    fx.later.push(Later::Close(engine));
                }
                state
            }
            Event::Closed => {
                self.closing = self.closing.saturating_sub(1);
                state
            }
        };
        effects
    }

    fn init(
        &mut self,
        state: State<S, E>,
        event: Event<S, E>,
        now: Duration,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        let Event::Init {
            passive,
            unseen,
            broken,
            wanted,
        } = event
        else {
            return state;
        };
        if !matches!(state, State::Gone) {
            return state;
        }
        self.life += 1;
        self.nominal_page = DEFAULT_PAGE_SIZE;
        if let Some(why) = passive {
            fx.tell(LogEvent::Passive(why.clone()));
            State::Passive(why)
        } else if broken {
            State::Broken { shown: wanted }
        } else if let Some(why) = unseen {
            fx.tell(LogEvent::Passive(why.clone()));
            State::Idle(Idle::Unseen(why))
        } else if wanted {
            State::Idle(Idle::Off.wanted(now))
        } else {
            State::Idle(Idle::Off)
        }
    }

    /// Every switching off except after a panic. `next` is the reason; [`Idle::Off`] does not replace [`Idle::Unseen`].
    fn switch_off(
        &mut self,
        state: State<S, E>,
        next: Idle<S>,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        fx.stores.push(Store::Kill);
        match state {
            State::Gone | State::Passive(_) => state,
            State::Broken { .. } => State::Broken { shown: false },
            #[cfg(test)]
            State::Building(job) if self.has_fault(Fault::Overtaking) => State::Building(job),
            State::On(_) => {
                fx.tell(LogEvent::SwitchedOff);
                State::Idle(next)
            }
            state => State::Idle(match (self.let_go(state), next) {
                (Some(before @ Idle::Unseen(_)), Idle::Off) => before,
                (_, next) => next,
            }),
        }
    }

    /// Retires the engine of a build or of a pending commit, if any. Returns the idle state to return to; `None` for the other
    /// states. The engine of [`State::On`] is retired later, by [`Event::Taken`].
    fn let_go(&mut self, state: State<S, E>) -> Option<Idle<S>> {
        match state {
            State::Idle(before) => Some(before),
            State::Building(Job { before, phase, .. }) => {
                if let Phase::Scanning(built) = phase {
                    self.retiring.push(built.engine);
                }
                Some(before)
            }
            State::Ready(ready) => {
                #[cfg(test)]
                if self.has_fault(Fault::Retiring) {
                    return Some(ready.before);
                }
                self.retiring.push(ready.engine);
                Some(ready.before)
            }
            _ => None,
        }
    }

    fn panicked(&mut self, state: State<S, E>, fx: &mut Effects<S, E>) -> State<S, E> {
        match state {
            State::Gone | State::Passive(_) | State::Broken { .. } => state,
            state => {
                fx.stores.push(Store::Kill);
                let was_on = matches!(state, State::On(_));
                let before = self.let_go(state);
                let shown = was_on || before.is_some_and(|before| before.is_wanted());
                State::Broken { shown }
            }
        }
    }

    fn ask_on(&mut self, state: State<S, E>, settings: S, fx: &mut Effects<S, E>) -> State<S, E> {
        match state {
            State::Idle(before) if self.may_begin() => {
                return self.begin(By::Client, settings, before, fx);
            }
            State::Idle(_) | State::Building(_) => fx.later.push(Later::Wait),
            // If its settings differ, the next tick rebuilds it.
            State::Ready(_) | State::On(_) => fx.answer(Ok(Vec::new())),
            State::Gone => fx.answer(Err(Refused::Overtaken)),
            State::Broken { .. } => fx.answer(Err(Refused::Broken)),
            State::Passive(ref why) => fx.answer(Err(Refused::Why(why.clone()))),
        }
        state
    }

    fn ask_record(&mut self, state: State<S, E>, fx: &mut Effects<S, E>) -> State<S, E> {
        match &state {
            State::Gone => fx.answer(Err(Refused::NotInstalled)),
            State::Broken { .. } => fx.answer(Err(Refused::Broken)),
            State::Passive(why) => fx.answer(Err(Refused::Unseen(why.clone()))),
            state => match state.idle() {
                Some(Idle::Unseen(why)) => fx.answer(Err(Refused::Unseen(why.clone()))),
                _ if self.work.is_some() => fx.later.push(Later::Wait),
                _ => {
                    self.work = Some(Work::Recording);
                    fx.stores.push(Store::Follow(Work::Recording));
                }
            },
        }
        state
    }

    fn commit(&mut self, state: State<S, E>, now: Duration, fx: &mut Effects<S, E>) -> State<S, E> {
        match state {
            State::Ready(ready) => publish(ready, fx),
            // Another session has switched off between the two halves. This commit is the latest decision.
            State::Idle(before) => State::Idle(before.wanted(now)),
            State::Building(mut job) => {
                job.before = job.before.wanted(now);
                State::Building(job)
            }
            State::Broken { .. } => State::Broken { shown: true },
            State::Gone | State::Passive(_) | State::On(_) => state,
        }
    }

    /// Handles a tick while no work is in progress.
    fn tick(
        &mut self,
        state: State<S, E>,
        settings: S,
        waits: bool,
        now: Duration,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        match state {
            // Left by a client whose statement failed after the check.
            State::Ready(ready) if !ready.before.is_wanted() => {
                if now.saturating_sub(ready.since) <= READY_TIMEOUT {
                    return State::Ready(ready);
                }
                fx.stores.push(Store::SwitchOff);
                self.retiring.push(ready.engine);
                State::Idle(ready.before)
            }
            state if waits => state,
            // A client is about to commit this engine. It satisfies the demand, so it is not rebuilt. It is committed here in
            // case the client's statement fails.
            State::Ready(ready) if settings.same_layout(&ready.settings) => publish(ready, fx),
            State::Ready(ready) => {
                self.retiring.push(ready.engine);
                self.rebuild(ready.before, settings, now, fx)
            }
            State::On(on) if !settings.same_layout(&on.settings) => {
                self.rebuild(Idle::Off, settings, now, fx)
            }
            State::Idle(Idle::Wanted { due, failed }) => {
                let changed = failed
                    .as_ref()
                    .is_some_and(|failed| !settings.same_layout(&failed.tried));
                let before = Idle::Wanted { due, failed };
                if changed || due <= now {
                    return self.begin(By::Own, settings, before, fx);
                }
                State::Idle(before)
            }
            state => state,
        }
    }

    fn rebuild(
        &mut self,
        before: Idle<S>,
        settings: S,
        now: Duration,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        fx.stores.push(Store::SwitchOff);
        self.begin(By::Own, settings, before.wanted(now), fx)
    }

    fn begin(
        &mut self,
        by: By,
        settings: S,
        before: Idle<S>,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        self.builds += 1;
        let number = self.builds;
        self.work = Some(Work::Build(number));
        let own = by == By::Own;
        fx.later.push(Later::Prepare { number, own });
        State::Building(Job {
            by,
            settings,
            before,
            phase: Phase::Waiting,
        })
    }

    /// Matches a result with the current work.
    fn of_work(&self, state: State<S, E>, work: Work) -> Of<S, E> {
        match state {
            state if self.work != Some(work) => Of::Nothing(state),
            State::Building(job) => Of::Current(job),
            state => Of::Stale(state),
        }
    }

    fn may_begin(&self) -> bool {
        #[cfg(test)]
        if self.has_fault(Fault::OneAtATime) {
            return true;
        }
        self.work.is_none()
    }

    fn accused(&self, active: u32, accused: u32) -> bool {
        #[cfg(test)]
        if self.has_fault(Fault::Epoch) {
            return true;
        }
        active == accused
    }

    /// Ends overtaken work.
    fn ended(&mut self, state: State<S, E>, fx: &mut Effects<S, E>) -> State<S, E> {
        self.work = None;
        fx.answer(Err(refused_late(&state)));
        state
    }

    fn failed(
        &mut self,
        job: Job<S, E>,
        why: String,
        now: Duration,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        self.work = None;
        // Files may have been tracked since the server's start.
        fx.stores.push(Store::SwitchOff);
        if let Phase::Scanning(built) = job.phase {
            self.retiring.push(built.engine);
        }
        let known = match job.before {
            Idle::Wanted { due, failed } if job.by == By::Client => {
                fx.answer(Err(Refused::Why(why)));
                // The next attempt begins when it is due, or when the settings change again.
                let failed = failed.map(|failed| Failed {
                    tried: job.settings,
                    ..failed
                });
                return State::Idle(Idle::Wanted { due, failed });
            }
            before if job.by == By::Client => {
                fx.answer(Err(Refused::Why(why)));
                return State::Idle(before);
            }
            Idle::Wanted { failed, .. } => failed,
            _ => None,
        };
        let pause = known
            .as_ref()
            .map_or(FIRST_PAUSE, |known| (known.pause * 2).min(LAST_PAUSE));
        if known.is_none_or(|known| known.why != why) {
            fx.tell(LogEvent::Failed(why.clone()));
        }
        State::Idle(Idle::Wanted {
            due: now + pause,
            failed: Some(Failed {
                why,
                pause,
                tried: job.settings,
            }),
        })
    }

    fn scanned(
        &mut self,
        state: State<S, E>,
        work: Work,
        now: Duration,
        fx: &mut Effects<S, E>,
    ) -> State<S, E> {
        match self.of_work(state, work) {
            Of::Current(Job {
                by,
                settings,
                before,
                phase: Phase::Scanning(built),
            }) => {
                self.work = None;
                self.nominal_page = built.page;
                let ready = Ready {
                    engine: built.engine,
                    epoch: built.epoch,
                    settings,
                    since: now,
                    before,
                };
                match by {
                    By::Client => {
                        fx.answer(Ok(built.warnings));
                        State::Ready(ready)
                    }
                    By::Own => {
                        fx.tell(LogEvent::Warnings(built.warnings));
                        publish(ready, fx)
                    }
                }
            }
            Of::Current(job) => State::Building(job),
            Of::Stale(state)
                if work == Work::Recording && !matches!(state, State::Broken { .. }) =>
            {
                self.work = None;
                fx.answer(Ok(Vec::new()));
                state
            }
            Of::Stale(state) => self.ended(state, fx),
            Of::Nothing(state) => state,
        }
    }
}

/// Owner of a work result.
enum Of<S, E> {
    /// The job in progress.
    Current(Job<S, E>),
    /// A recording, or a job that was overtaken.
    Stale(State<S, E>),
    /// No such work is in progress.
    Nothing(State<S, E>),
}

fn refused_late<S, E>(state: &State<S, E>) -> Refused {
    match state {
        State::Broken { .. } => Refused::Broken,
        _ => Refused::Overtaken,
    }
}

fn publish<S, E>(ready: Ready<S, E>, fx: &mut Effects<S, E>) -> State<S, E> {
    fx.stores.push(Store::Publish(ready.engine));
    State::On(On {
        settings: ready.settings,
        epoch: ready.epoch,
    })
}
