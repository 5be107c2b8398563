//! Random failovers of clusters of three servers with the extension on. Under load, servers are killed, stopped and replaced by
//! copies of others. Joiners and donors are killed halfway; extensions are switched and bypassed at any time. Then the primary
//! is killed or stopped, and another server is promoted.
//!
//! After each step, every server has the rows that the clients expect, and the servers' own checksums agree. After each
//! failover, all cached pages are compared with the data files.
//!
//! `BPE_FAILOVERS_AT_RANDOM` is the number of failovers over all clusters (`make failovers`). Without it nothing runs here,
//! because `replication`, `galera` and `group_replication` cover each kind. `BPE_FAILOVERS_SEED` seeds the order of events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::expect_the_same;
use integration_tests::cluster::galera::{self, Copying};
use integration_tests::cluster::group::Group;
use integration_tests::cluster::replicas::Replicas;
use integration_tests::cluster::servers::{Cluster, Servers};
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Flavour, Outcome, Place, Server, Suite, note, sql};

/// Duration of the load beside an event. A returning server catches up within it, however busy the machine is.
const BESIDE: Duration = Duration::from_secs(8);
/// Number of clusters that share the failovers.
const CLUSTERS: u64 = 4;

/// The tests of this subject.
pub fn suite() -> Suite {
    let suite = Suite::new("failovers");
    if from_environment("BPE_FAILOVERS_AT_RANDOM").is_none() {
        return suite;
    }
    suite
        .each("replicas", replicas)
        .with(Flavour::MariaDb1011, "galera", galera)
        .with(Flavour::MySql97, "group", group)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn replicas(place: &Place) -> Outcome {
    let (cluster, servers) = Replicas::begin(place)?;
    at_random(&cluster, servers, |_| "backup or clone")
}

/// The servers run as another account than root: rsync refuses to copy as root.
fn galera(_: &Place) -> Outcome {
    const USER: &str = "nobody";
    let place = Place::readable_by(USER, Flavour::MariaDb1011)?;
    let run = || {
        let cluster = galera::Cluster::new(&place, None)?.run_by(USER)?;
        let first = cluster.begin()?;
        let second = cluster.start(1)?;
        cluster.copy_by(Copying::Rsync);
        let third = cluster.start(2)?;
        at_random(
            &cluster,
            Servers::new([first, second, third]),
            |random| match random.bool() {
                true => {
                    cluster.copy_by(Copying::Rsync);
                    "rsync"
                }
                false => {
                    cluster.copy_by(Copying::MariaBackup);
                    "mariabackup"
                }
            },
        )
    };
    run().map_err(|error: anyhow::Error| {
        place.keep_for_inspection();
        error.context(place.last_words())
    })
}

fn group(place: &Place) -> Outcome {
    let group = Group::new(place)?;
    let first = group.begin()?;
    let mut servers = vec![first];
    for member in 1..3 {
        let server = group.prepare(member)?;
        servers.push(group.join(member, server)?);
    }
    at_random(&group, Servers::new(servers), |_| "clone")
}

/// Event on a server that is not the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Only the extensions are switched.
    None,
    Killed,
    Stopped,
    /// The server gets another server's data.
    Replaced,
    /// As `Replaced`, but the joiner is killed halfway first.
    JoinerKilled,
    /// As `Replaced`, but the donor is killed halfway.
    DonorKilled,
}

const EVENTS: [Event; 6] = [
    Event::None,
    Event::Killed,
    Event::Stopped,
    Event::Replaced,
    Event::JoinerKilled,
    Event::DonorKilled,
];

/// Counts of the events so far.
#[derive(Default)]
struct Book {
    done: BTreeMap<String, u32>,
    last: Vec<String>,
    switched: u32,
    hits: u64,
    compared: Compared,
}

impl Book {
    fn done(&mut self, what: String) {
        self.last.push(what.clone());
        *self.done.entry(what).or_default() += 1;
    }

    fn summary(&self) -> String {
        let done = self.done.iter();
        let done: Vec<String> = done
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        format!(
            "{}; {} switches, {} hits; {:?}",
            done.join(", "),
            self.switched,
            self.hits,
            self.compared
        )
    }
}

/// The run of one cluster.
struct Run<'a> {
    cluster: &'a dyn Cluster,
    servers: Servers,
    ledger: Ledger,
    random: fastrand::Rng,
    book: Book,
}

fn at_random(
    cluster: &dyn Cluster,
    servers: Servers,
    mut choose_copying: impl FnMut(&mut fastrand::Rng) -> &'static str,
) -> Outcome {
    let failovers = from_environment("BPE_FAILOVERS_AT_RANDOM").unwrap_or(1);
    let seed = from_environment("BPE_FAILOVERS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let ledger = Ledger::small(servers.primary())?.paced();
    let mut run = Run {
        cluster,
        servers,
        ledger,
        random: fastrand::Rng::with_seed(seed),
        book: Book::default(),
    };
    let mut live = || -> Outcome {
        // Each event comes once before one repeats.
        let mut order: Vec<Event> = Vec::new();
        for failover in 0..failovers.div_ceil(CLUSTERS) {
            if order.is_empty() {
                order.extend(EVENTS);
                run.random.shuffle(&mut order);
            }
            let event = order.pop().unwrap_or(Event::None);
            let copying = choose_copying(&mut run.random);
            run.meet(event, copying)?;
            let copying = choose_copying(&mut run.random);
            run.fail_over(copying)?;
            eprintln!(
                "    failover {}: {}",
                failover + 1,
                run.book.last.join(", ")
            );
            run.book.last.clear();
        }
        Ok(())
    };
    let outcome = live();
    outcome.with_context(|| {
        let last = run.book.last.join(", ");
        format!("seed {seed}, {}; the last ones: {last}", run.book.summary())
    })?;
    ensure!(run.book.hits > 0, "nothing was served");
    for (_, server) in run.servers.running() {
        verification::check_tables(server)?;
    }
    note(format!("seed {seed}: {}", run.book.summary()));
    // The primary stops last: it waits for replicas.
    for number in run.servers.others() {
        run.servers.take(number).stop()?;
    }
    let primary = run.servers.primary_number();
    run.servers.take(primary).stop()?;
    Ok(())
}

impl Run<'_> {
    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    /// Runs the event beside the load, while the extensions on the remaining servers are switched.
    fn meet(&mut self, event: Event, copying: &str) -> Outcome {
        let cluster = self.cluster;
        let mut others = self.servers.others();
        self.random.shuffle(&mut others);
        let is_replaced =
            [Event::Replaced, Event::JoinerKilled, Event::DonorKilled].contains(&event);
        if is_replaced {
            others.retain(|number| cluster.is_physical(*number));
        }
        let Some(&number) = others.first() else {
            return Ok(());
        };
        let donor = others.get(1).copied().filter(|_| cluster.has_donors());
        let (event, donor) = match (event, donor) {
            (Event::DonorKilled, None) => (Event::JoinerKilled, None),
            (Event::DonorKilled, donor) => (event, donor),
            (event, _) => (event, None),
        };
        self.book.done(match is_replaced {
            true => format!("{event:?} ({copying})"),
            false => format!("{event:?}"),
        });
        let (wait, after) = (self.millis(100..1000), self.millis(50..2500));
        let mut gone: Vec<(usize, Server)> = Vec::new();
        if event != Event::None {
            gone.push((number, self.servers.take(number)));
        }
        let seed = self.random.u64(..);
        // The cluster chooses and uses the donor; the load and the switching use the other servers.
        let mut donated = None;
        if let Some(donor) = donor {
            for (_, server) in gone.drain(..) {
                server.kill();
            }
            let joined = self.beside_donor(number, donor, after)?;
            donated = Some((donor, joined));
        }
        let Run {
            servers, ledger, ..
        } = self;
        let steady: Vec<&Server> = servers.running().into_iter().map(|(_, one)| one).collect();
        let mut back: Vec<(usize, Server)> = Vec::new();
        let mut switched = 0;
        ledger.run_while(servers.primary(), BESIDE, || {
            switched = beside_switching(&steady, seed, || {
                std::thread::sleep(wait);
                let mut come = |number: usize, server: Server| back.push((number, server));
                for (number, server) in gone.drain(..) {
                    match event {
                        Event::Stopped => drop(server.stop()?),
                        _ => server.kill(),
                    }
                    match event {
                        Event::Killed | Event::Stopped => {
                            come(number, cluster.come_back(servers, number)?);
                        }
                        Event::Replaced => come(number, cluster.replace(servers, number)?),
                        Event::JoinerKilled => {
                            cluster.kill_joiner(servers, number, after)?;
                            come(number, cluster.replace(servers, number)?);
                        }
                        Event::None | Event::DonorKilled => {}
                    }
                }
                if let Some((donor, joined)) = donated.take() {
                    come(donor, cluster.come_back(servers, donor)?);
                    let joined = match joined {
                        Some(joined) => joined,
                        None => cluster.replace(servers, number)?,
                    };
                    come(number, joined);
                }
                std::thread::sleep(Duration::from_millis(500));
                Ok(())
            })?;
            Ok(())
        })?;
        for (number, server) in back {
            self.servers.put(number, server);
        }
        self.book.switched += switched;
        self.expect_all_right().context("after the event")
    }

    /// Kills the donor of a joiner, beside the load.
    fn beside_donor(
        &mut self,
        joiner: usize,
        donor: usize,
        after: Duration,
    ) -> anyhow::Result<Option<Server>> {
        let (cluster, ledger) = (self.cluster, &self.ledger);
        let number = self.servers.primary_number();
        // The load holds the primary while the list of servers changes.
        let primary = self.servers.take(number);
        let mut joined = None;
        let servers = &mut self.servers;
        let outcome = ledger.run_while(&primary, BESIDE, || {
            joined = cluster.kill_donor(&primary, servers, joiner, donor, after)?;
            Ok(())
        });
        self.servers.put(number, primary);
        outcome?;
        Ok(joined)
    }

    /// The primary ends, another server is promoted, and the old one returns.
    fn fail_over(&mut self, copying: &str) -> Outcome {
        let cluster = self.cluster;
        cluster.before_the_end_of_the_primary(&self.servers)?;
        // The extension is on at some servers and off at others.
        for (_, server) in self.servers.running() {
            match self.random.u32(0..4) {
                0 => server.sql("SET GLOBAL bpe_enabled = OFF")?,
                1 => server.sql("SET GLOBAL bpe_bypass = 'ON'")?,
                _ => continue,
            }
            self.book.switched += 1;
        }
        let is_killed = self.random.u32(0..4) > 0;
        let time = self.millis(500..2500);
        let old = self.servers.primary_number();
        if is_killed {
            let primary = self.servers.take(old);
            self.ledger.run_and_kill(primary, time)?;
        } else {
            self.ledger.run(self.servers.primary(), time)?;
            self.servers.take(old).stop()?;
        }
        cluster
            .promote(&mut self.servers)
            .context("the promotion")?;
        self.ledger.settle(self.servers.primary())?;
        self.expect_the_same().context("after the promotion")?;

        let is_replaced = match is_killed {
            true => !cluster.takes_back_the_killed() || self.random.bool(),
            false => self.random.bool(),
        };
        self.book.done(format!(
            "primary {}, {}",
            if is_killed { "killed" } else { "stopped" },
            match is_replaced {
                true => format!("replaced ({copying})"),
                false => "back".into(),
            }
        ));
        let (ledger, servers) = (&self.ledger, &self.servers);
        let mut back = None;
        ledger.run_while(servers.primary(), BESIDE, || {
            back = Some(match is_replaced {
                true => cluster.replace(servers, old)?,
                false => cluster.come_back(servers, old)?,
            });
            std::thread::sleep(Duration::from_millis(500));
            Ok(())
        })?;
        self.servers.put(old, back.context("it is not back")?);
        self.expect_all_right().context("after the failover")
    }

    fn expect_the_same(&self) -> Outcome {
        self.cluster.catch_up(&self.servers)?;
        let all: Vec<&Server> = self
            .servers
            .running()
            .into_iter()
            .map(|(_, one)| one)
            .collect();
        expect_the_same(&self.ledger, &all)
    }

    /// Enables all extensions, and checks that all rows are right and all cached pages match the files.
    fn expect_all_right(&mut self) -> Outcome {
        ensure!(self.servers.running().len() == self.servers.count());
        for (number, server) in self.servers.running() {
            let statements = [
                "SET GLOBAL bpe_bypass = 'OFF'",
                "SET GLOBAL bpe_enabled = ON",
            ];
            sql::run(server, &statements).with_context(|| format!("server {number}"))?;
            sql::expect_state(server, "active").with_context(|| format!("server {number}"))?;
        }
        self.expect_the_same()?;
        for (number, server) in self.servers.running() {
            verification::compare_cached(server, &mut self.book.compared)
                .with_context(|| format!("server {number}"))?;
            self.book.hits += sql::figure(server, "hits")?;
        }
        ensure!(self.book.compared.wrong == 0, "{:?}", self.book.compared);
        Ok(())
    }
}

/// Switches and bypasses the extensions of these servers at random until `event` returns; returns the number of changes.
fn beside_switching(
    servers: &[&Server],
    seed: u64,
    event: impl FnOnce() -> Outcome,
) -> anyhow::Result<u32> {
    const STATEMENTS: [&str; 5] = [
        "SET GLOBAL bpe_enabled = OFF",
        "SET GLOBAL bpe_enabled = ON",
        "SET GLOBAL bpe_bypass = 'ON'",
        "SET GLOBAL bpe_bypass = 'REFILL'",
        "SET GLOBAL bpe_bypass = 'OFF'",
    ];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let switching = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut switched = 0;
            while !is_over.load(Ordering::Relaxed) {
                let server = servers[random.usize(0..servers.len())];
                let statement = STATEMENTS[random.usize(0..STATEMENTS.len())];
                server.sql(statement)?;
                switched += 1;
                std::thread::sleep(Duration::from_millis(random.u64(50..500)));
            }
            anyhow::Ok(switched)
        });
        let outcome = event();
        is_over.store(true, Ordering::Relaxed);
        let switched = switching.join();
        let switched = switched.map_err(|_| anyhow::anyhow!("the switching panicked"))?;
        outcome?;
        switched
    })
}
