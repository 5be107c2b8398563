//! `bpe warm`: hands the warmth of one server's cache over to another, once, or again and again, so that a standby stays as warm as
//! the server that it may have to stand in for.
//!
//! This command holds both connections; the servers do not know each other. One says which pages it has cached and how hot they are
//! (`bpe_report('heat')`), the other loads those that it has not from its own data files (`bpe_report('warm-...')`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::connection::{self, Target};
use crate::failure::{Exit, Failure};
use crate::interruption::Interruption;
use crate::progress::Progress as Bar;
use crate::report;
use crate::server::Server;
use crate::terminal::{complain, say};

mod behind;
mod endpoint;
mod file;
mod list;
mod pool;
mod prints;
mod receiver;

use behind::Watch;
use list::List;
use pool::Looks;
use receiver::{LeftOut, Progress, Receiver};

/// Files that are named for each reason.
const NAMED: usize = 5;
/// Between two attempts to reach a server that went away.
const AGAIN: Duration = Duration::from_secs(5);
/// How long an answer of the serving server is waited for, and that to what its pool holds.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_FOR_POOL: Duration = Duration::from_secs(600);
/// How long the list of before stays when the new one is much shorter: a cache that was emptied fills again.
const STAYS: Duration = Duration::from_secs(3600);
/// Between two questions while nothing is loaded: the server forgets a command that it does not hear of for 15 s.
const HEARTBEAT: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub struct Args {
    /// Server whose cache is warm: its name in the file of --servers, the path of its socket, or HOST:PORT
    #[arg(long, value_name = "SERVER", required_unless_present = "load")]
    from: Option<String>,
    /// Server that is to be made warm, named likewise
    #[arg(long, value_name = "SERVER", required_unless_present = "save")]
    to: Option<String>,
    /// Keep the list in this file, for --load
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "load"])]
    save: Option<PathBuf>,
    /// Take the list out of this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "from"])]
    load: Option<PathBuf>,
    /// For a server whose data are no physical copy: load whole tables, those that are cached nearly whole on the other
    #[arg(long)]
    by_name: bool,
    /// List what InnoDB's own pool holds on --from, too: the hottest pages, which never leave it. The server walks its pool for it, at most
    /// once in ten minutes; the account needs PROCESS
    #[arg(long, conflicts_with = "load")]
    pool: bool,
    /// File that names servers, as `bpe console --servers` takes it
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
    /// Go on for ever, and hand over what has changed
    #[arg(long)]
    follow: bool,
    /// Seconds between two rounds of --follow
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "follow", value_parser = clap::value_parser!(u64).range(5..=86_400))]
    every: u64,
    /// Reads of the data disk per second that loading may make: sets bpe_warm_io_capacity while this command runs
    #[arg(long, value_name = "READS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    io_capacity: Option<u64>,
    #[command(flatten)]
    connection: connection::Args,
}

/// The two servers, and how to reach them. A file may stand for either.
struct Ends {
    from: Option<Target>,
    to: Option<Target>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let target = |text: &str| endpoint::target(text, args.servers.as_deref(), &args.connection);
    let mut ends = Ends {
        from: args.from.as_deref().map(target).transpose()?,
        to: args.to.as_deref().map(target).transpose()?,
    };
    let both = ends.from.as_ref().zip(ends.to.as_ref());
    if both.is_some_and(|(from, to)| from.address == to.address) {
        return Err(Failure::usage("--from and --to are the same server").into());
    }
    for end in [&mut ends.from, &mut ends.to].into_iter().flatten() {
        end.ask_password()?;
    }
    let interruption = Interruption::catch()?;
    if args.follow {
        follow(&args, &mut ends, &interruption)
    } else {
        Ok(once(&args, &mut ends, &interruption)?)
    }
}

/// Says of which server a failure is.
fn of(end: &str, target: &Target) -> impl Fn(Failure) -> Failure + use<> {
    let whose = format!("{end} ({})", target.address);
    move |mut failure| {
        failure.what = format!("{whose}: {}", failure.what);
        failure
    }
}

fn log_in_to_source(from: &mut Target) -> Result<Server, Failure> {
    let mut server = Server::log_in(from)?;
    server.wait_for_answers(Some(PATIENCE));
    Ok(server)
}

/// `compares`: with fingerprints of pages. `pool`: what InnoDB's pool held of late, if that is to be listed, too, and why it could not be
/// asked for. `meanwhile` is called again and again.
fn fetch(
    from: &mut Target,
    before: Option<&List>,
    compares: bool,
    pool: Option<&mut Looks>,
    meanwhile: &mut dyn FnMut(),
) -> Result<(List, Option<Failure>), Failure> {
    let at_source = of("--from", from);
    let fetched = || {
        let mut server = log_in_to_source(from)?;
        report::require_plugin(&mut server)?;
        let mut bar = Bar::new(0, "{spinner} {elapsed_precise} {msg}");
        let mut why = None;
        let held = pool.and_then(|looks| {
            let text = "asking what InnoDB's pool holds";
            bar.show(None, text, || text.to_owned());
            server.wait_for_answers(Some(PATIENCE_FOR_POOL));
            why = looks.look(&mut server).err();
            server.wait_for_answers(Some(PATIENCE));
            looks.held.as_ref()
        });
        if server.lost().is_some() {
            // The list can be asked for all the same.
            server = log_in_to_source(from)?;
        }
        let add = |list: &mut List| {
            if let Some(held) = held {
                held.add_to(list);
            }
        };
        let list = List::fetch(&mut server, before, compares, add, |pages| {
            let text = format!("{pages} hot pages so far");
            bar.show(None, &text, || text.clone());
            meanwhile();
        })?;
        Ok((list, why))
    };
    let (list, why) = fetched().map_err(&at_source)?;
    if list.cached == 0 {
        let what = format!("--from ({}): nothing is cached there yet", from.address);
        return Err(Failure::refused(what).advise("let its cache fill first"));
    }
    Ok((list, why.map(at_source)))
}

fn once(args: &Args, ends: &mut Ends, interruption: &Interruption) -> Result<ExitCode, Failure> {
    let mut looks = Looks::default();
    let list = match (&mut ends.from, &args.load) {
        (Some(from), _) => {
            let pool = args.pool.then_some(&mut looks);
            match fetch(from, None, !args.by_name, pool, &mut || ())? {
                (_, Some(failure)) => return Err(failure),
                (list, None) => list,
            }
        }
        (None, Some(path)) => file::load(path)?,
        (None, None) => return Err(Failure::usage("--from or --load is missing")),
    };
    say!(
        "Source      {} pages of {} files are {} ({} MiB){}",
        list.pages(),
        list.files.len(),
        if looks.held.is_some() {
            "cached or in the pool"
        } else {
            "cached"
        },
        list.bytes() >> 20,
        match list.age().as_secs() {
            0..60 => String::new(),
            seconds => format!(", {} min ago", seconds / 60),
        }
    );
    if let Some(pool) = &looks.held {
        say!(
            "Pool        {} pages are in InnoDB's own pool there (told in {:.1} s)",
            pool.pages,
            pool.took.as_secs_f64()
        );
    }
    if let Some(path) = &args.save {
        file::save(path, &list)?;
        say!("Saved       {}", path.display());
    }
    let Some(to) = &mut ends.to else {
        return Ok(Exit::Ok.into());
    };
    let at_target = of("--to", to);
    let server = Server::log_in(to).map_err(&at_target)?;
    let mut receiver =
        Receiver::begin(server, args.io_capacity, args.by_name).map_err(&at_target)?;
    let began = Instant::now();
    let result = load(&mut receiver, &list, &mut Watch::new(to), interruption);
    let denied = receiver.denied.clone();
    receiver.end();
    let (progress, left_out) = result.map_err(&at_target)?;
    let fit = list
        .files
        .iter()
        .filter(|(name, _)| !left_out.contains_key(*name));
    let listed = match args.by_name {
        true => 0,
        false => fit.map(|(_, file)| file.hot.len() as u64).sum(),
    };
    tell(
        &progress,
        listed,
        &left_out,
        denied.as_deref(),
        began.elapsed(),
    );
    let nothing = progress.listed == 0;
    Ok(if nothing { Exit::No } else { Exit::Ok }.into())
}

fn load(
    receiver: &mut Receiver,
    list: &List,
    watch: &mut Watch,
    interruption: &Interruption,
) -> Result<(Progress, BTreeMap<String, LeftOut>), Failure> {
    let before = receiver.progress(false)?;
    let left_out = receiver.hand_over(list)?;
    let template = "{spinner} {elapsed_precise} {bar:20.cyan/dim} {msg}";
    let mut bar = Bar::new(1000, template);
    loop {
        let mut now = receiver.progress(watch.falls())?;
        let text = format!(
            "{:.1} % warm, {} pages loaded{}",
            now.percent.max(0.0),
            now.loaded.saturating_sub(before.loaded),
            if now.slowed {
                ", slowed down: the server falls behind"
            } else if now.state == "paused" {
                ", waits: the server needs its data disk, or was switched on less than a minute ago"
            } else {
                ""
            }
        );
        bar.show(Some((now.percent.max(0.0) * 10.0) as u64), &text, || {
            text.clone()
        });
        if now.done {
            now.loaded = now.loaded.saturating_sub(before.loaded);
            now.reads = now.reads.saturating_sub(before.reads);
            return Ok((now, left_out));
        }
        interruption.wait(Receiver::PAUSE);
        if interruption.came() {
            return Err(Failure::step("interrupted; what was loaded stays"));
        }
    }
}

/// `listed`: pages of the files that are not left out.
fn tell(
    progress: &Progress,
    listed: u64,
    left_out: &BTreeMap<String, LeftOut>,
    denied: Option<&str>,
    took: Duration,
) {
    say!(
        "Loaded      {} pages in {} reads of the data disk, {:.1} s",
        progress.loaded,
        progress.reads,
        took.as_secs_f64()
    );
    if progress.listed < listed {
        say!(
            "Cut         the cache there takes {} of {listed} pages: the hottest are loaded",
            progress.listed
        );
    }
    if progress.skipped > 0 {
        say!(
            "Skipped     {} pages: written meanwhile, beyond the end of their files, or others are asked for more often",
            progress.skipped
        );
    }
    if progress.state == "limited" {
        say!(
            "Stopped     bpe_daily_write_limit is used up; the rest is loaded when it has room again"
        );
    }
    tell_left_out(left_out, denied);
    say!("Warm        {:.1} %", progress.percent.max(0.0));
}

fn tell_left_out(left_out: &BTreeMap<String, LeftOut>, denied: Option<&str>) {
    let mut reasons: BTreeMap<&LeftOut, Vec<&str>> = BTreeMap::new();
    for (name, why) in left_out {
        reasons.entry(why).or_default().push(name);
    }
    for (why, names) in reasons {
        let more = if names.len() > NAMED { ", ..." } else { "" };
        say!(
            "Left out    {} files, as {}: {}{more}",
            names.len(),
            why.text(),
            names[..names.len().min(NAMED)].join(", ")
        );
    }
    if let Some(denied) = denied {
        say!(
            "            {denied}; grant SELECT on the tables that are to be kept warm, or on *.*"
        );
    }
}

/// What to say once, and not in each round.
#[derive(Default)]
struct Said(String);

impl Said {
    fn say(&mut self, text: String) {
        self.say_anew(text.clone(), &text);
    }

    /// `text`, unless what is new of it is as it was.
    fn say_anew(&mut self, new: String, text: &str) {
        if self.0 != new {
            complain!("bpe: {text}");
            self.0 = new;
        }
    }
}

/// A list that is so much shorter than the one before is that of a server whose cache was emptied.
fn was_emptied(list: &List, before: Option<&List>) -> bool {
    before.is_some_and(|before| list.cached < before.cached / 2)
}

/// Until it is interrupted.
fn follow(args: &Args, ends: &mut Ends, interruption: &Interruption) -> anyhow::Result<ExitCode> {
    let (Some(from), Some(to)) = (&mut ends.from, &mut ends.to) else {
        return Err(Failure::usage("--follow needs --from and --to").into());
    };
    let at_target = of("--to", to);
    let (mut said, mut receiver, mut rounds) = (Said::default(), None::<Receiver>, 0u64);
    // The list that was handed over last, and since when much shorter ones have come.
    let (mut last, mut shorter_since) = (None::<List>, None::<Instant>);
    let (mut looks, mut said_of_pool) = (Looks::default(), Said::default());
    let (mut watch, mut said_of_lag) = (Watch::new(to), Said::default());
    let (mut failures, mut began) = (0, None::<Instant>);
    while !interruption.came() {
        let round = Instant::now();
        // First the one that is to be made warm: without it nobody need be asked for a list.
        let begun = match receiver.take() {
            Some(receiver) => Ok(receiver),
            None => begin_again(args, to, began),
        };
        let mut with = match begun {
            Ok(with) => with,
            Err(failure) => {
                // What will never work without somebody's doing.
                if rounds == 0 && failure.exit != Exit::Connect {
                    return Err(at_target(failure).into());
                }
                said.say(format!("{}; it is tried again", at_target(failure).what));
                interruption.wait(pause_after(failures, args.every));
                failures += 1;
                continue;
            }
        };
        began.get_or_insert(round);
        // By what pages were told long ago says nothing to a server that has forgotten what it was told then.
        let before = last.as_ref().filter(|_| !with.is_new());
        let mut meanwhile = || {
            // If that fails, so does what comes next.
            let _ = with.is_here();
        };
        let fetched = fetch(
            from,
            before,
            !args.by_name,
            args.pool.then_some(&mut looks),
            &mut meanwhile,
        );
        let list = match fetched {
            // What will never work without somebody's doing.
            Ok((_, Some(failure))) if rounds == 0 && failure.exit != Exit::Connect => {
                with.end();
                return Err(failure.into());
            }
            Ok((list, why)) => {
                if let Some(failure) = why {
                    said_of_pool.say(format!("{}; it is tried again later", failure.what));
                }
                Ok(list)
            }
            Err(failure) => Err(failure),
        };
        let is_shorter = list
            .as_ref()
            .is_ok_and(|list| was_emptied(list, last.as_ref()));
        shorter_since = shorter_since.or(Some(round)).filter(|_| is_shorter);
        let waits = shorter_since.is_some_and(|since| since.elapsed() < STAYS);
        let new = list.as_ref().ok().filter(|_| !waits);
        let mut handed = || {
            // A server that has forgotten what it was given gets all of it.
            let give = new.or(last.as_ref().filter(|_| with.is_new()));
            let left_out = give.map(|list| with.hand_over(list)).transpose()?;
            let until = round + Duration::from_secs(args.every);
            let mut progress = with.progress(watch.falls())?;
            while Instant::now() < until && !interruption.came() {
                let pause = if progress.done {
                    HEARTBEAT
                } else {
                    Receiver::PAUSE * 3
                };
                interruption.wait(pause.min(until.saturating_duration_since(Instant::now())));
                progress = with.progress(watch.falls())?;
            }
            Ok((progress, left_out))
        };
        let handed = handed().map_err(&at_target);
        match &handed {
            Ok(_) => receiver = Some(with),
            // What an administrator has done to end it stays as it is.
            Err(_) if with.server.lost().is_some() || with.is_stopped() => {}
            Err(_) => {
                began = None;
                with.end();
            }
        }
        if !watch.unseen.is_empty() {
            said_of_lag.say(format!(
                "how far --to is behind cannot be seen, so loading does not slow down for that: {}",
                watch.unseen.join("; ")
            ));
        }
        match (&list, handed) {
            (Ok(_), Ok((progress, _))) if new.is_none() => said.say(format!(
                "the cache of --from was emptied, and the list of before stays until it has filled again by half, for an hour at most; {:.1} % warm",
                progress.percent.max(0.0)
            )),
            (Ok(list), Ok((progress, left_out))) => {
                rounds += 1;
                failures = 0;
                let left_out = left_out.unwrap_or_default();
                if rounds == 1 {
                    tell_left_out(&left_out, None);
                }
                // A page or two that are asked for again in each round are no news.
                let new = format!(
                    "{} pages, {:.0} %, {} files left out, {}",
                    list.pages(),
                    progress.percent,
                    left_out.len(),
                    progress.slowed
                );
                said.say_anew(new, &round_text(list, &progress, left_out.len()));
            }
            (Err(failure), Ok(_)) => said.say(format!(
                "{}; what was loaded stays, and it is tried again",
                failure.what
            )),
            (_, Err(failure)) => {
                // What will never work without somebody's doing.
                if rounds == 0 && failure.exit != Exit::Connect {
                    return Err(failure.into());
                }
                said.say(format!("{}; it is tried again", failure.what));
                interruption.wait(pause_after(failures, args.every));
                failures += 1;
            }
        }
        if new.is_some() {
            last = list.ok();
        }
    }
    if let Some(receiver) = receiver {
        receiver.end();
    }
    Ok(Exit::Ok.into())
}

/// Begins a warming, `began`: as one did before. What an administrator has set `bpe_warm_io_capacity` to meanwhile stays, unless the server
/// was started anew.
fn begin_again(args: &Args, to: &mut Target, began: Option<Instant>) -> Result<Receiver, Failure> {
    let mut server = Server::log_in(to)?;
    let uptime = server.number_of_status("uptime");
    let uptime = uptime.map_err(|failure| server.without_answer(failure))?;
    let ran_then = began
        .zip(uptime)
        .is_some_and(|(began, uptime)| uptime > began.elapsed().as_secs());
    Receiver::begin(server, args.io_capacity.filter(|_| !ran_then), args.by_name)
}

/// After so many failures one after the other: longer and longer, up to the time of a round.
fn pause_after(failures: u32, every_s: u64) -> Duration {
    let longest = Duration::from_secs(every_s).max(AGAIN);
    (AGAIN * 2u32.pow(failures.min(10))).min(longest)
}

fn round_text(list: &List, progress: &Progress, left_out: usize) -> String {
    let left_out = match left_out {
        0 => String::new(),
        files => format!(", {files} files left out"),
    };
    let slowed = match progress.slowed {
        true => ", slowed down as the server falls behind",
        false => "",
    };
    format!(
        "{} pages listed in {} queries, {:.1} % warm, {} loaded so far in {} reads{left_out}{slowed}",
        list.pages(),
        list.queries,
        progress.percent.max(0.0),
        progress.loaded,
        progress.reads
    )
}
