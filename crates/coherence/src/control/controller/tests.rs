//! Walks through the transitions: every event in every state, and all sequences of events up to a length. The tests' small
//! world has a switch, work in progress and engines.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use super::events::{Event, Later, LogEvent, Refused, Store};
use super::state::{Built, Fault, Idle, Job, Layout, Machine, Phase, Shown, State, Work};

const SECOND: Duration = Duration::from_secs(1);
const TRACK: u8 = 1;
const SERVE: u8 = 2;
const RECORD: u8 = 8;

/// Settings are a number, which is also the layout.
impl Layout for u32 {
    fn same_layout(&self, other: &u32) -> bool {
        self == other
    }
}

/// Test engine: not copyable, and counted when dropped.
#[derive(Debug)]
struct Engine {
    gone: Rc<Cell<u32>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.gone.set(self.gone.get() + 1);
    }
}

struct World {
    machine: Machine<u32, Engine>,
    now: Duration,
    /// Mode word of the switch.
    word: u8,
    live: Option<Engine>,
    live_epoch: u32,
    /// A session has turned the switch but not taken the lock yet.
    killed_before: bool,
    /// Pending work of threads.
    under_way: VecDeque<Later<u32, Engine>>,
    told: Vec<String>,
    answer: Option<Result<Vec<String>, Refused>>,
    waits: bool,
    made: u32,
    closed: u32,
    gone: Rc<Cell<u32>>,
}

impl World {
    fn new() -> World {
        World {
            machine: Machine::new(),
            now: 100 * SECOND,
            word: 0,
            live: None,
            live_epoch: 0,
            killed_before: false,
            under_way: VecDeque::new(),
            told: Vec::new(),
            answer: None,
            waits: false,
            made: 0,
            closed: 0,
            gone: Rc::default(),
        }
    }

    fn installed(wanted: bool) -> World {
        let mut world = World::new();
        world.post(init(wanted));
        world
    }

    fn engine(&mut self) -> Engine {
        self.made += 1;
        Engine {
            gone: Rc::clone(&self.gone),
        }
    }

    fn built(&mut self) -> Built<Engine> {
        let engine = self.engine();
        Built {
            engine,
            epoch: self.made,
            page: 16384,
            warnings: Vec::new(),
        }
    }

    /// Steps and runs the immediate effects; queues those of threads. Returns the list of effects.
    fn post(&mut self, event: Event<u32, Engine>) -> String {
        let is_off = matches!(event, Event::Off);
        let is_stop = matches!(event, Event::Stop | Event::Leave);
        let ends_early_kill = is_off || is_stop || matches!(event, Event::Panicked);
        self.answer = None;
        self.waits = false;
        let mut done = String::new();
        let mut machine = std::mem::take(&mut self.machine);
        let later = machine.post(event, self.now, |store| {
            let _ = write!(done, " {}", name_of_store(&store));
            self.store(store)
        });
        self.machine = machine;
        self.killed_before &= !ends_early_kill;
        for one in later {
            let _ = write!(done, " {}", name_of_later(&one));
            match one {
                Later::Tell(told) => self.told.push(format!("{told:?}")),
                Later::Answer(answer) => self.answer = Some(answer),
                Later::Wait => self.waits = true,
                Later::Close(_) => {
                    self.closed += 1;
                    self.under_way.push_back(one);
                }
                work => self.under_way.push_back(work),
            }
        }
        self.check();
        if is_off || is_stop {
            let none = self.live.is_none() && self.machine.waiting().is_none();
            let at_once = !matches!(self.machine.state, State::Building(_)) && none;
            assert!(at_once && self.word == 0, "{:?}", self.machine);
            assert!(!self.machine.is_wanted());
        }
        done
    }

    fn store(&mut self, store: Store<Engine>) -> Option<Event<u32, Engine>> {
        match store {
            Store::Kill => {
                self.word = 0;
                self.live.take().map(Event::Taken)
            }
            Store::SwitchOff => {
                self.word &= RECORD;
                self.live.take().map(Event::Taken)
            }
            Store::Follow(work) => {
                let begins = self.word & (TRACK | RECORD) == 0;
                self.word |= match work {
                    Work::Build(_) => TRACK,
                    Work::Recording => RECORD,
                };
                Some(Event::Followed { work, begins })
            }
            Store::Publish(engine) if self.word & (TRACK | SERVE) == TRACK => {
                self.word |= SERVE;
                self.live_epoch = self.made;
                Some(Event::Published(self.live.replace(engine)))
            }
            Store::Publish(engine) => Some(Event::Interrupted(Some(engine))),
            Store::Leave => {
                // The engine ends with its process.
                self.word = 0;
                self.closed += u32::from(self.live.take().is_some());
                self.gone.set(0);
                None
            }
        }
    }

    /// Checks the invariants after each step.
    fn check(&self) {
        let (tracks, serves) = (self.word & TRACK != 0, self.word & SERVE != 0);
        let machine = &self.machine;
        let followed = match &machine.state {
            State::Building(job) => matches!(job.phase, Phase::Scanning(_)),
            State::Ready(_) | State::On(_) => true,
            _ => false,
        };
        if !self.killed_before {
            assert_eq!(tracks, followed, "files are followed: {machine:?}");
            assert_eq!(serves, machine.is_on(), "reads are served: {machine:?}");
            assert_eq!(self.live.is_some(), machine.is_on(), "{machine:?}");
        }
        if machine.is_gone() {
            assert_eq!(self.word & RECORD, 0, "a recording outlives the plugin");
        }
        match &machine.state {
            State::Building(_) => {
                assert_eq!(machine.work, Some(Work::Build(machine.builds)), "one job");
            }
            State::Ready(_) | State::On(_) => {
                assert!(
                    !matches!(machine.work, Some(Work::Build(_))),
                    "a second job"
                );
            }
            _ => {}
        }
        let works = |one: &&Later<u32, Engine>| !matches!(one, Later::Close(_));
        let at_work = self.under_way.iter().filter(works).count();
        assert_eq!(at_work, usize::from(machine.work.is_some()), "{machine:?}");
        assert_eq!(self.gone.get(), 0, "an engine was lost");
    }

    /// Completes a thread's oldest work, or its oldest closing if `close`.
    fn end(&mut self, close: bool, well: bool) -> bool {
        let is_close = |one: &Later<u32, Engine>| matches!(one, Later::Close(_));
        let Some(at) = self.under_way.iter().position(|one| is_close(one) == close) else {
            return false;
        };
        let Some(one) = self.under_way.remove(at) else {
            return false;
        };
        let failed = |work| Event::Failed {
            work,
            why: "bad".into(),
        };
        let event = match one {
            Later::Close(engine) => {
                drop(engine);
                self.gone.set(0);
                Event::Closed
            }
            Later::Prepare { number, .. } if well => Event::Released(number),
            Later::Prepare { number, .. } => Event::NotSeen {
                number,
                why: "unseen".into(),
            },
            Later::Open { number, .. } if well => Event::Opened {
                number,
                built: self.built(),
            },
            Later::Open { number, .. } => failed(Work::Build(number)),
            Later::Scan(work) if well => Event::Scanned(work),
            Later::Scan(work) => failed(work),
            Later::Tell(_) | Later::Answer(_) | Later::Wait => return false,
        };
        self.post(event);
        true
    }

    fn work_to_the_end(&mut self) {
        while self.end(false, true) {}
    }

    fn tick(&mut self, settings: u32) -> Event<u32, Engine> {
        Event::Tick {
            life: self.machine.life,
            settings,
            waits: false,
        }
    }

    /// Settles from any state: a session's request takes effect, and nothing leaks afterwards.
    fn settle(mut self) {
        self.work_to_the_end();
        if self.killed_before {
            self.post(Event::Off);
        }
        if self.machine.is_gone() {
            self.post(init(false));
        }
        if !self.machine.is_broken() {
            self.post(Event::AskOn(7));
            assert!(!self.waits, "nobody is at work: {:?}", self.machine);
            self.work_to_the_end();
            self.post(Event::Commit);
            let tick = self.tick(7);
            self.post(tick);
            self.work_to_the_end();
            let on = matches!(&self.machine.state, State::On(on) if on.settings == 7);
            assert!(on, "{:?}", self.machine);
            assert_eq!(self.machine.shown(), Shown::On);
        }
        self.post(Event::Off);
        assert!(!self.machine.is_wanted());
        loop {
            self.post(Event::CloseNext);
            if !self.end(true, true) {
                break;
            }
        }
        assert!(self.machine.is_released() && self.word == 0);
        assert_eq!(self.made, self.closed, "each engine is closed once");
    }
}

fn init(wanted: bool) -> Event<u32, Engine> {
    Event::Init {
        passive: None,
        unseen: None,
        broken: false,
        wanted,
    }
}

fn name_of_store(store: &Store<Engine>) -> &'static str {
    match store {
        Store::Kill => "KILL",
        Store::SwitchOff => "SWITCH-OFF",
        Store::Follow(Work::Build(_)) => "FOLLOW",
        Store::Follow(Work::Recording) => "FOLLOW-RECORDING",
        Store::Publish(_) => "PUBLISH",
        Store::Leave => "LEAVE",
    }
}

fn name_of_later(later: &Later<u32, Engine>) -> String {
    match later {
        Later::Prepare { own, .. } => if *own { "prepare-own" } else { "prepare" }.into(),
        Later::Open { settings, .. } => format!("open({settings})"),
        Later::Scan(_) => "scan".into(),
        Later::Close(_) => "close".into(),
        Later::Wait => "wait".into(),
        Later::Answer(Ok(_)) => "yes".into(),
        Later::Answer(Err(refused)) => match refused {
            Refused::Why(why) => format!("refuse({why})"),
            Refused::Unseen(why) => format!("refuse-unseen({why})"),
            other => format!("refuse-{other:?}").to_lowercase(),
        },
        Later::Tell(told) => match told {
            LogEvent::SwitchedOn(_) => "log-on".into(),
            LogEvent::SwitchedOff => "log-off".into(),
            LogEvent::Passive(_) => "log-passive".into(),
            LogEvent::Unseen(_) => "log-unseen".into(),
            LogEvent::Foreign(_) => "log-foreign".into(),
            LogEvent::Failed(_) => "log-failed".into(),
            LogEvent::Warnings(_) => "log-warnings".into(),
            LogEvent::SmallerPages(_) => "log-pages".into(),
        },
    }
}

fn name_of_idle(idle: &Idle<u32>, now: Duration) -> String {
    match idle {
        Idle::Off => "off".into(),
        Idle::Unseen(_) => "unseen".into(),
        Idle::Distrusted(_) => "distrusted".into(),
        Idle::Wanted { due, failed } => {
            let when = if *due <= now {
                "now".into()
            } else {
                format!("in {} s", (*due - now).as_secs())
            };
            match failed {
                None => format!("wanted({when})"),
                Some(failed) => format!("wanted({when}, failed with {})", failed.tried),
            }
        }
    }
}

/// Short name of the state and of the fields beside it.
fn name_of(machine: &Machine<u32, Engine>, now: Duration) -> String {
    let mut name = match &machine.state {
        State::Gone => "gone".into(),
        State::Passive(_) => "passive".into(),
        State::Broken { shown } => if *shown { "broken(shown)" } else { "broken" }.into(),
        State::Idle(idle) => name_of_idle(idle, now),
        State::Building(Job {
            by, before, phase, ..
        }) => {
            let phase = match phase {
                Phase::Waiting => "waiting",
                Phase::Opening => "opening",
                Phase::Scanning(_) => "scanning",
            };
            format!("{phase}({by:?} from {})", name_of_idle(before, now)).to_lowercase()
        }
        State::Ready(ready) => format!("ready(from {})", name_of_idle(&ready.before, now)),
        State::On(on) => format!("on({})", on.settings),
    };
    match machine.work {
        Some(Work::Recording) => name.push_str(" + recording"),
        Some(Work::Build(_)) if !matches!(machine.state, State::Building(_)) => {
            name.push_str(" + orphan")
        }
        _ => {}
    }
    if !machine.retiring.is_empty() {
        let _ = write!(name, " + {} to close", machine.retiring.len());
    }
    name
}

/// Paths to each relevant state.
fn states() -> Vec<World> {
    let off = || World::installed(false);
    let wanted = || World::installed(true);
    let then = |mut world: World, events: &[&str]| {
        for event in events {
            act(&mut world, event);
        }
        world
    };
    let passive = || {
        let mut world = World::new();
        world.post(Event::Init {
            passive: Some("passive".into()),
            unseen: None,
            broken: false,
            wanted: true,
        });
        world
    };
    vec![
        World::new(),
        passive(),
        off(),
        then(off(), &["ask on", "fail"]),
        then(off(), &["on", "foreign"]),
        wanted(),
        then(wanted(), &["tick", "work", "fail"]),
        then(off(), &["ask on"]),
        then(off(), &["ask on", "work"]),
        then(off(), &["ask on", "work", "work"]),
        then(off(), &["ask on", "commit"]),
        then(wanted(), &["tick"]),
        then(wanted(), &["tick", "work"]),
        then(wanted(), &["tick", "work", "work"]),
        then(off(), &["ask on", "work", "work", "work"]),
        then(
            wanted(),
            &["tick", "work", "fail", "ask on", "work", "work", "work"],
        ),
        then(off(), &["on"]),
        then(off(), &["on", "panic"]),
        then(off(), &["panic"]),
        then(off(), &["ask on", "work", "off"]),
        then(off(), &["ask on", "work", "off", "commit"]),
        then(off(), &["ask on", "stop"]),
        then(off(), &["ask to record"]),
    ]
}

/// The named event, valid in any state; `None` if it needs work and none is in progress.
fn event(world: &mut World, name: &str) -> Option<Event<u32, Engine>> {
    let (other, epoch) = (u64::MAX - 1, world.live_epoch);
    let at_work = match world.machine.work {
        Some(Work::Build(number)) => number,
        _ => u64::MAX,
    };
    let foreign = |epoch| Event::Foreign {
        epoch,
        why: "foreign".into(),
    };
    let failed = |number| Event::Failed {
        work: Work::Build(number),
        why: "bad".into(),
    };
    Some(match name {
        "init off" => init(false),
        "init on" => init(true),
        "stop" => Event::Stop,
        "leave" => Event::Leave,
        "ask on" => Event::AskOn(1),
        "commit" => Event::Commit,
        "off" => Event::Off,
        "foreign" => foreign(epoch),
        "foreign, of another epoch" => foreign(epoch + 1),
        "unseen" => Event::Unseen("unseen".into()),
        "panic" => Event::Panicked,
        "tick" => world.tick(1),
        "tick, settings changed" => world.tick(2),
        "tick, InnoDB has not started" => Event::Tick {
            life: world.machine.life,
            settings: 2,
            waits: true,
        },
        "tick of another life" => Event::Tick {
            life: world.machine.life + 1,
            settings: 2,
            waits: false,
        },
        "smaller pages" => Event::UsualPage {
            page: 4096,
            settings: 1,
        },
        "larger pages" => Event::UsualPage {
            page: 65536,
            settings: 1,
        },
        "ask to record" => Event::AskRecord,
        "released" => Event::Released(at_work),
        "not seen" => Event::NotSeen {
            number: at_work,
            why: "unseen".into(),
        },
        "opened" => Event::Opened {
            number: at_work,
            built: world.built(),
        },
        "opened, of no build" => Event::Opened {
            number: other,
            built: world.built(),
        },
        "failed" => failed(at_work),
        "failed, of no build" => failed(other),
        "scanned" => Event::Scanned(Work::Build(at_work)),
        "scanned for a recording" => Event::Scanned(Work::Recording),
        "recording failed" => Event::Failed {
            work: Work::Recording,
            why: "bad".into(),
        },
        "interrupted" => Event::Interrupted(None),
        "taken" => Event::Taken(world.engine()),
        "close next" => Event::CloseNext,
        "closed" => Event::Closed,
        _ => return None,
    })
}

const EVENTS: [&str; 31] = [
    "init off",
    "init on",
    "stop",
    "leave",
    "ask on",
    "commit",
    "off",
    "foreign",
    "foreign, of another epoch",
    "unseen",
    "panic",
    "tick",
    "tick, settings changed",
    "tick, InnoDB has not started",
    "tick of another life",
    "smaller pages",
    "larger pages",
    "ask to record",
    "released",
    "not seen",
    "opened",
    "opened, of no build",
    "failed",
    "failed, of no build",
    "scanned",
    "scanned for a recording",
    "recording failed",
    "interrupted",
    "taken",
    "close next",
    "closed",
];

/// Runs a step of a walk: an event, or a thread's progress with its work.
fn act(world: &mut World, step: &str) {
    match step {
        "work" => {
            world.end(false, true);
        }
        "fail" => {
            world.end(false, false);
        }
        "close" => {
            world.post(Event::CloseNext);
            world.end(true, true);
        }
        "on" => {
            world.post(Event::AskOn(1));
            world.work_to_the_end();
            world.post(Event::Commit);
        }
        "time" => world.now += 61 * SECOND,
        "kill before the lock" => {
            // Models a session that switches off, or a hook that panics.
            world.word = 0;
            world.killed_before = true;
            if let Some(engine) = world.live.take() {
                world.post(Event::Taken(engine));
            }
        }
        step => {
            let event = event(world, step).expect("a step");
            world.post(event);
        }
    }
}

/// Every event in every state. Omits pairs without a change and without an effect.
#[test]
fn the_table_is_as_it_is_written() {
    let mut table = String::new();
    for number in 0..states().len() {
        let of = |number| states().swap_remove(number);
        let from: World = of(number);
        let name = name_of(&from.machine, from.now);
        let _ = writeln!(table, "{name}");
        for event_name in EVENTS {
            let mut world = of(number);
            let event = event(&mut world, event_name).expect("an event");
            let (mut machine, now) = (std::mem::take(&mut world.machine), world.now);
            let mut done = String::new();
            let later = machine.post(event, now, |store| {
                let _ = write!(done, " {}", name_of_store(&store));
                world.store(store)
            });
            for one in &later {
                let _ = write!(done, " {}", name_of_later(one));
            }
            assert_eq!(world.gone.get(), 0, "{name}: {event_name} loses an engine");
            let to = name_of(&machine, now);
            if to != name || !done.is_empty() {
                let to = if to == name { "same".into() } else { to };
                let _ = writeln!(table, "    {event_name} -> {to}:{done}");
            }
        }
    }
    let written = include_str!("transitions.txt");
    let differs = table
        .lines()
        .zip(written.lines())
        .find(|(is, should)| is != should);
    assert!(table == written, "{differs:?} in the whole table:\n{table}");
}

/// Reduced alphabet: steps of sessions, threads and hooks, in any order.
const ALPHABET: [&str; 13] = [
    "ask on",
    "commit",
    "off",
    "work",
    "fail",
    "tick",
    "tick, settings changed",
    "time",
    "foreign",
    "panic",
    "stop",
    "init on",
    "ask to record",
];

fn walk(start: bool, steps: &[&str], fault: Option<Fault>) -> World {
    let mut world = World::installed(start);
    world.machine.fault = fault;
    for step in steps {
        act(&mut world, step);
    }
    world
}

#[test]
fn all_sequences_to_a_length_keep_the_invariants() {
    const LENGTH: u32 = 5;
    let count = ALPHABET.len();
    for number in 0..count.pow(LENGTH) {
        let mut rest = number;
        let steps: Vec<&str> = (0..LENGTH)
            .map(|_| {
                let step = ALPHABET[rest % count];
                rest /= count;
                step
            })
            .collect();
        let whole = || walk(number % 2 == 0, &steps, None).settle();
        if catch_unwind(AssertUnwindSafe(whole)).is_err() {
            panic!("{steps:?}");
        }
    }
}

/// Random walk: longer, and with more kinds of steps.
fn long_walk(seed: u64, fault: Option<Fault>) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let more = [
        "close",
        "kill before the lock",
        "smaller pages",
        "unseen",
        "foreign, of another epoch",
        "opened, of no build",
        "failed, of no build",
        "tick of another life",
        "tick, InnoDB has not started",
        "init off",
        "leave",
        "work",
        "work",
        "work",
    ];
    let mut steps = Vec::new();
    for _ in 0..40 {
        let at = next(ALPHABET.len() + more.len());
        let step = ALPHABET
            .get(at)
            .unwrap_or_else(|| &more[at - ALPHABET.len()]);
        // A panic would end every walk early.
        if *step != "panic" || next(20) == 0 {
            steps.push(*step);
        }
    }
    let whole = || walk(seed % 2 == 0, &steps, fault).settle();
    if catch_unwind(AssertUnwindSafe(whole)).is_err() {
        panic!("seed {seed}: {steps:?}");
    }
}

#[test]
fn long_walks_keep_the_invariants() {
    (0..5000).for_each(|seed| long_walk(seed, None));
}

/// The walks detect each deliberate fault.
#[test]
fn walks_notice() {
    let mut noticed = BTreeMap::new();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    for fault in [Fault::Overtaking, Fault::Retiring, Fault::OneAtATime] {
        let seed = (0..5000)
            .find(|&seed| catch_unwind(AssertUnwindSafe(|| long_walk(seed, Some(fault)))).is_err());
        noticed.insert(format!("{fault:?}"), seed);
    }
    std::panic::set_hook(quiet);
    assert!(noticed.values().all(Option::is_some), "{noticed:?}");
}

#[test]
fn an_accusation_counts_for_its_epoch() {
    for (fault, accused) in [(None, false), (Some(Fault::Epoch), true)] {
        let mut world = walk(false, &["on"], fault);
        act(&mut world, "foreign, of another epoch");
        assert_eq!(!world.machine.is_on(), accused);
    }
}

#[test]
fn pauses_double_and_the_same_reason_is_said_once() {
    let mut world = World::installed(true);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let tick = world.tick(1);
        world.post(tick);
        act(&mut world, "work");
        act(&mut world, "fail");
        let State::Idle(Idle::Wanted { due, .. }) = world.machine.state else {
            panic!("{:?}", world.machine);
        };
        pauses.push((due - world.now).as_secs());
        let tick = world.tick(1);
        world.post(tick);
        assert!(world.under_way.is_empty(), "not before it is due");
        world.now = due;
    }
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    assert_eq!(world.told.len(), 1, "{:?}", world.told);
    assert_eq!(world.machine.shown(), Shown::Failed("bad"));
}

#[test]
fn changed_settings_are_tried_at_once() {
    let mut world = walk(true, &["tick", "work", "fail", "tick"], None);
    assert!(world.under_way.is_empty());
    act(&mut world, "tick, settings changed");
    world.work_to_the_end();
    assert!(matches!(&world.machine.state, State::On(on) if on.settings == 2));
}

#[test]
fn what_nobody_commits_is_given_up() {
    let mut world = walk(false, &["ask on", "work", "work", "work", "tick"], None);
    assert!(world.machine.waiting().is_some(), "a client is about to");
    world.now += 11 * SECOND;
    act(&mut world, "tick");
    assert_eq!((world.machine.shown(), world.word), (Shown::Off, 0));
    assert_eq!(world.machine.retiring.len(), 1);
}

#[test]
fn a_commit_that_came_last_is_carried_out() {
    // Between the halves of one session's ON, another session switches off and a third begins to switch on.
    let steps = [
        "ask on", "work", "work", "work", "off", "ask on", "commit", "work", "work", "work",
    ];
    let mut world = walk(false, &steps, None);
    assert!(!world.machine.is_on());
    act(&mut world, "tick");
    assert!(world.machine.is_on());
}

#[test]
fn nobody_builds_beside_a_builder_that_hangs() {
    let mut world = walk(false, &["ask on", "work", "off", "ask on"], None);
    assert!(world.waits);
    for step in ["commit", "tick", "stop", "init on", "tick"] {
        act(&mut world, step);
    }
    assert_eq!(world.under_way.len(), 1, "still that of before");
    act(&mut world, "work");
    assert_eq!(world.answer, Some(Err(Refused::Overtaken)));
    assert_eq!((world.word, world.machine.retiring.len()), (0, 1));
    act(&mut world, "tick");
    world.work_to_the_end();
    assert!(world.machine.is_on());
}
