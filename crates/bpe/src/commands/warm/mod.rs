//! `bpe warm`: keeps a standby's cache as warm as another server's, once or at intervals.
//!
//! The command holds both connections; the servers do not know each other. The source lists its cached pages and their
//! heat (`bpe_report('heat')`). The standby accepts the list (`warm-put`), loads those pages from its data files
//! (`warm-load`), and reports progress (`warm-status`). Each round transfers the whole list, about one byte per page.
//! If the command dies, the standby still loads the rest of the list.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::connect::server::Server;
use crate::connect::{self, Target, report};
use crate::support::failure::{Exit, Failure};
use crate::support::interruption::Interruption;
use crate::support::progress_line::ProgressLine;
use crate::support::terminal::{complain, say};

mod endpoint;
mod file;
mod fingerprints;
mod lag;
mod list;
mod pool;
mod standby;

use fingerprints::Compared;
use list::List;
use pool::Looks;
use standby::{Standby, WarmProgress};

/// Maximum number of files named for each reason.
const MAX_NAMED: usize = 5;
/// Maximum delay before a failed round is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Timeouts of the source's answers, and of the list of its pool.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const POOL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the last list is kept if the new one is much shorter, because an emptied cache fills again.
const EMPTIED_TIMEOUT: Duration = Duration::from_secs(3600);
/// Polling interval of the progress, without and with `--follow`.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(300);
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Args {
    /// Server whose cache is warm: its name in the file of --servers, the path of its socket, or HOST:PORT
    #[arg(long, value_name = "SERVER", required_unless_present = "load")]
    from: Option<String>,
    /// Server to make warm, named likewise
    #[arg(long, value_name = "SERVER", required_unless_present = "save")]
    to: Option<String>,
    /// Keep the list in this file, for --load
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "load"])]
    save: Option<PathBuf>,
    /// Take the list out of this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "from"])]
    load: Option<PathBuf>,
    /// For a server whose data are no physical copy: load whole tables, those cached nearly whole on the other
    #[arg(long)]
    by_name: bool,
    /// List what InnoDB's own pool holds on --from, too: the hottest pages, which never leave it. The server walks its pool for it, at most
    /// once in ten minutes; the account needs PROCESS
    #[arg(long, conflicts_with = "load")]
    pool: bool,
    /// File that names servers, as `bpe console --servers` takes it
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
    /// Hand a new list over at intervals, until interrupted
    #[arg(long)]
    follow: bool,
    /// Seconds between two rounds of --follow
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "follow", value_parser = clap::value_parser!(u64).range(5..=86_400))]
    every: u64,
    /// Reads of the data disk per second that loading may make: sets bpe_warm_io_capacity while this command runs
    #[arg(long, value_name = "READS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    io_capacity: Option<u64>,
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let target = |text: &String| {
        let mut target = endpoint::target(text, args.servers.as_deref(), &args.connection)?;
        target.ask_password()?;
        Ok::<_, Failure>(target)
    };
    let from = args.from.as_ref().map(target).transpose()?;
    let to = args.to.as_ref().map(target).transpose()?;
    let both = from.as_ref().zip(to.as_ref());
    if both.is_some_and(|(from, to)| from.address == to.address) {
        return Err(Failure::usage("--from and --to are the same server").into());
    }
    let interruption = Interruption::catch()?;
    Ok(match (from, to) {
        (Some(from), Some(to)) if args.follow => follow(&args, from, to, &interruption)?,
        (from, to) => once(&args, from, to, &interruption)?,
    })
}

/// Adds the server to a failure.
fn of(end: &str, target: &Target) -> impl Fn(Failure) -> Failure + use<> {
    let whose = format!("{end} ({})", target.address);
    move |failure| failure.about(&whose)
}

fn log_in_to_source(from: &mut Target) -> Result<Server, Failure> {
    let mut server = Server::log_in(from)?;
    server.wait_for_answers(Some(ANSWER_TIMEOUT));
    Ok(server)
}

/// Fetches the source's list. `known`: adds fingerprints of the files not compared before. `pool`: adds the pages of
/// InnoDB's pool. Also returns the reason if those could not be listed.
fn fetch(
    from: &mut Target,
    known: Option<&Compared>,
    pool: Option<&mut Looks>,
) -> Result<(List, Option<Failure>), Failure> {
    let at_source = of("--from", from);
    let fetched = || {
        let mut server = log_in_to_source(from)?;
        report::require_plugin(&mut server)?;
        let mut bar = ProgressLine::new(0, "{spinner} {elapsed_precise} {msg}");
        let mut why = None;
        let held = pool.and_then(|looks| {
            let text = "asking what InnoDB's pool holds";
            bar.show(None, text, || text.to_owned());
            server.wait_for_answers(Some(POOL_TIMEOUT));
            why = looks.look(&mut server).err();
            server.wait_for_answers(Some(ANSWER_TIMEOUT));
            looks.held.as_ref()
        });
        if server.lost().is_some() {
            server = log_in_to_source(from)?;
        }
        let mut list = List::fetch(&mut server, |pages| {
            let text = format!("{pages} hot pages so far");
            bar.show(None, &text, || text.clone());
        })?;
        // Sample before adding pages that are not cached.
        if let Some(known) = known {
            list.fetch_prints(&mut server, known)?;
        }
        if let Some(held) = held {
            held.add_to(&mut list)?;
        }
        Ok((list, why))
    };
    let (list, why) = fetched().map_err(&at_source)?;
    if list.cached == 0 {
        let what = format!("--from ({}): nothing is cached there yet", from.address);
        return Err(Failure::refused(what).advise("let its cache fill first"));
    }
    Ok((list, why.map(at_source)))
}

fn once(
    args: &Args,
    from: Option<Target>,
    to: Option<Target>,
    interruption: &Interruption,
) -> Result<ExitCode, Failure> {
    let mut looks = Looks::default();
    let list = match (from, &args.load) {
        (Some(mut from), _) => {
            let pool = args.pool.then_some(&mut looks);
            let known = Compared::new();
            match fetch(&mut from, (!args.by_name).then_some(&known), pool)? {
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
        list.files().len(),
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
    let Some(mut to) = to else {
        return Ok(Exit::Ok.into());
    };
    let at_target = of("--to", &to);
    let mut standby =
        Standby::connect(&mut to, args.io_capacity, args.by_name).map_err(&at_target)?;
    let began = Instant::now();
    let result = load(&mut standby, &list, interruption);
    let denied = standby.denied.clone();
    standby.end();
    let (progress, pages) = result.map_err(&at_target)?;
    tell(&progress, pages, began.elapsed());
    tell_left_out(&progress, denied.as_deref());
    say!("Warm        {:.1} %", progress.percent.max(0.0));
    Ok(if pages == 0 { Exit::No } else { Exit::Ok }.into())
}

/// Loads a list. Returns the final progress, and the number of pages in files that were not left out.
fn load(
    standby: &mut Standby,
    list: &List,
    interruption: &Interruption,
) -> Result<(WarmProgress, u64), Failure> {
    let before = standby.progress()?;
    let pages = standby.hand_over(list)?;
    let template = "{spinner} {elapsed_precise} {bar:20.cyan/dim} {msg}";
    let mut bar = ProgressLine::new(1000, template);
    loop {
        let mut now = standby.progress()?;
        now.loaded = now.loaded.saturating_sub(before.loaded);
        now.reads = now.reads.saturating_sub(before.reads);
        let why = match &*now.state {
            _ if now.is_slowed => ", slowed down: the server falls behind",
            "paused" => {
                ", waits: the server needs its data disk, or was switched on less than a minute ago"
            }
            _ => "",
        };
        let percent = now.percent.max(0.0);
        let text = format!("{percent:.1} % warm, {} pages loaded{why}", now.loaded);
        bar.show(Some((percent * 10.0) as u64), &text, || text.clone());
        if now.is_done() {
            return Ok((now, pages));
        }
        interruption.wait(PROGRESS_INTERVAL);
        if interruption.came() {
            return Err(Failure::step("interrupted; what was loaded stays"));
        }
    }
}

/// `pages`: pages of files that were not left out.
fn tell(progress: &WarmProgress, pages: u64, took: Duration) {
    say!(
        "Loaded      {} pages in {} reads of the data disk, {:.1} s",
        progress.loaded,
        progress.reads,
        took.as_secs_f64()
    );
    if progress.listed < pages {
        say!(
            "Cut         the cache there takes {} of {pages} pages: the hottest are loaded",
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
}

fn tell_left_out(progress: &WarmProgress, denied: Option<&str>) {
    for one in &progress.left_out {
        let more = if one.files > MAX_NAMED { ", ..." } else { "" };
        say!(
            "Left out    {} files, as {}: {}{more}",
            one.files,
            one.reason,
            one.names[..one.names.len().min(MAX_NAMED)].join(", ")
        );
    }
    if let Some(denied) = denied {
        say!(
            "            {denied}; grant SELECT on the tables that are to be kept warm, or on *.*"
        );
    }
}

/// Logs messages about the list, the pool and the lag only when they change.
#[derive(Default)]
struct Log([String; 3]);

const LIST: usize = 0;
const POOL: usize = 1;
const LAG: usize = 2;

impl Log {
    /// `news`: the part of the message whose change triggers a line.
    fn say(&mut self, subject: usize, news: &str, text: &str) {
        if self.0[subject] != news {
            complain!("bpe: {text}");
            news.clone_into(&mut self.0[subject]);
        }
    }
}

/// State that `--follow` keeps between rounds.
#[derive(Default)]
struct Follower {
    standby: Option<Standby>,
    pool: Looks,
    /// Cached pages of the last transferred list, and the time since when lists are much shorter.
    last: u64,
    shorter_since: Option<Instant>,
    rounds: u64,
    log: Log,
}

impl Follower {
    /// Transfers the list, and watches its loading until the next round.
    fn round(
        &mut self,
        args: &Args,
        from: &mut Target,
        to: &mut Target,
        is_over: &dyn Fn() -> bool,
        interruption: &Interruption,
    ) -> Result<(), Failure> {
        let at_target = of("--to", to);
        // Connect to the standby first: without it, a list is useless.
        let standby = connect(&mut self.standby, to, args).map_err(&at_target)?;
        let known = (!args.by_name).then_some(&standby.compared);
        let pool = args.pool.then_some(&mut self.pool);
        let (list, reason) = match fetch(from, known, pool) {
            Err(failure) if self.rounds == 0 => return Err(failure),
            Err(failure) => {
                let why = failure.what;
                (
                    None,
                    format!("{why}; what was loaded stays, and it is tried again"),
                )
            }
            Ok((_, Some(failure))) if self.rounds == 0 && failure.exit != Exit::Connect => {
                return Err(failure);
            }
            Ok((list, failure)) => {
                if let Some(failure) = failure {
                    let text = format!("{}; it is tried again later", failure.what);
                    self.log.say(POOL, &text, &text);
                }
                if list.cached >= self.last / 2 {
                    self.shorter_since = None;
                } else {
                    self.shorter_since.get_or_insert_with(Instant::now);
                }
                let since = self.shorter_since;
                let waits = since.is_some_and(|since| since.elapsed() < EMPTIED_TIMEOUT);
                let text = "the cache of --from was emptied, and the list of before stays until it has filled again by half, for an \
                            hour at most";
                (Some(list).filter(|_| !waits), text.to_owned())
            }
        };
        let mut loaded = || {
            if let Some(list) = &list {
                standby.hand_over(list)?;
            }
            let mut progress = standby.progress()?;
            while !progress.is_done() && !is_over() {
                interruption.wait(FOLLOW_INTERVAL);
                progress = standby.progress()?;
            }
            Ok(progress)
        };
        let progress: WarmProgress = loaded().map_err(&at_target)?;
        if !standby.lag.unseen.is_empty() {
            let text = format!(
                "how far --to is behind cannot be seen, so loading does not slow down for that: {}",
                standby.lag.unseen.join("; ")
            );
            self.log.say(LAG, &text, &text);
        }
        let Some(list) = list else {
            let text = format!("{reason}; {:.1} % warm", progress.percent.max(0.0));
            self.log.say(LIST, &reason, &text);
            return Ok(());
        };
        self.rounds += 1;
        if self.rounds == 1 {
            tell_left_out(&progress, None);
        }
        // A few pages that are accessed again in each round are no news.
        let left_out = progress.left_out.iter().map(|one| one.files);
        let left_out = left_out.fold(0, usize::saturating_add);
        let new = format!(
            "{} pages, {:.0} %, {left_out} files left out, {}",
            list.pages(),
            progress.percent,
            progress.is_slowed
        );
        let text = round_text(&list, &progress, left_out);
        self.log.say(LIST, &new, &text);
        self.last = list.cached;
        Ok(())
    }
}

/// Connects to the standby, or reconnects.
fn connect<'a>(
    standby: &'a mut Option<Standby>,
    to: &mut Target,
    args: &Args,
) -> Result<&'a mut Standby, Failure> {
    match standby {
        Some(standby) => {
            standby.connect_again()?;
            Ok(standby)
        }
        none => Ok(none.insert(Standby::connect(to, args.io_capacity, args.by_name)?)),
    }
}

/// Repeats rounds until interrupted.
fn follow(
    args: &Args,
    mut from: Target,
    mut to: Target,
    interruption: &Interruption,
) -> Result<ExitCode, Failure> {
    let mut follower = Follower::default();
    let interval = Duration::from_secs(args.every);
    let mut result = Ok(Exit::Ok.into());
    while !interruption.came() {
        let mut until = Instant::now() + interval;
        let is_over = || Instant::now() >= until || interruption.came();
        let round = follower.round(args, &mut from, &mut to, &is_over, interruption);
        if let Err(failure) = round {
            // Only an administrator can fix this error.
            if follower.rounds == 0 && failure.exit != Exit::Connect {
                result = Err(failure);
                break;
            }
            let text = format!("{}; it is tried again", failure.what);
            follower.log.say(LIST, &text, &text);
            until = Instant::now() + interval.min(RETRY_INTERVAL);
        }
        interruption.wait(until.saturating_duration_since(Instant::now()));
    }
    if let Some(standby) = follower.standby {
        standby.end();
    }
    result
}

fn round_text(list: &List, progress: &WarmProgress, left_out: usize) -> String {
    let left_out = match left_out {
        0 => String::new(),
        files => format!(", {files} files left out"),
    };
    let slowed = match progress.is_slowed {
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
