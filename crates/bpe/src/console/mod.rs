//! `bpe console`: a web page that shows what the extension does on some servers, and switches it.
//!
//! A [`sampler`] thread for each server polls it once a second ([`crate::observe`]) and publishes the results to every
//! page ([`watched`]). Requests pass the [`guard`]; one thread answers them ([`api`]), and other threads run whatever
//! waits for a server. A change of a server is a task ([`tasks`]), and every page sees its steps. Nothing is kept on
//! disk except, on request, the [`token`].

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::change::enable::Locations;
use crate::cluster::ready::Limits;
use crate::connect::{self, Target, servers_file};
use crate::support::failure::{Exit, Failure};
use crate::support::size::CacheSize;
use crate::support::terminal::{complain, say};

mod answer;
mod api;
mod cluster_tasks;
mod clusters;
mod comparing;
mod connections;
mod console_extension;
mod details;
mod error;
mod events;
mod guard;
mod health;
mod listen;
mod page;
mod refusals;
mod rolling;
mod sampler;
mod state;
mod switching;
mod task;
mod tasks;
mod token;
mod watched;

pub use crate::support::private_file::may_own;
pub use answer::{Answer, Said, blocking};
pub use console_extension::ConsoleExtension;
pub use error::Refusal;
use events::Events;
pub use events::{Level, now_ms, shortened};
use guard::{Guard, Names};
use state::Console;
use token::Token;
use watched::CacheDefaults;
pub use watched::Watched;

/// How pages reach the console.
#[derive(clap::Args, Debug, Clone)]
pub struct Listening {
    /// Address of the loopback and port to listen on; port 0 lets the system choose one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8600", value_parser = loopback)]
    listen: SocketAddr,
    /// File with the token that pages need; created, readable by you alone, if it does not exist
    /// [default: a new token at every start]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Another host name that the page and --health answer for, such as db1.example; with :PORT, for that port alone
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Take the web page from this folder (for work on the page itself)
    #[arg(long, hide = true, value_name = "FOLDER")]
    web_folder: Option<PathBuf>,
}

/// Accepts loopback addresses only. Remote users must come through a tunnel or proxy that encrypts and authenticates.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "must be an address and a port such as 127.0.0.1:8600".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(
        "must be an address of the loopback, such as 127.0.0.1:8600: reach it from elsewhere through an SSH tunnel or a \
         reverse proxy (docs/user/console.md)"
            .to_owned(),
    )
}

impl Listening {
    /// Whether the address is free; checked before work that takes long.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self) -> Result<(), Failure> {
        std::net::TcpListener::bind(self.listen)
            .map(drop)
            .map_err(|error| self.taken(&error))
    }

    fn taken(&self, error: &std::io::Error) -> Failure {
        Failure::refused(format!("cannot listen on {}: {error}", self.listen))
            .advise("another console may run there; choose another address with --listen")
    }
}

/// What is watched, and how.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    listening: Listening,
    /// File that names further servers (TOML: [[server]] with name, and socket or host, port, user, password, or
    /// defaults-file)
    #[arg(long, value_name = "FILE")]
    servers: Option<PathBuf>,
    /// Name to show for the server that the connection options lead to
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Seconds to wait for the answer to one statement of a change; after that the change is undone
    #[arg(long, value_name = "SECONDS", default_value_t = watched::CHANGE_SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    change_timeout: u64,
    #[command(flatten)]
    health: health::Args,
    #[command(flatten)]
    locations: Locations,
    #[command(flatten)]
    connection: connect::Args,
}

/// A name, and how to reach the server.
pub type Named = (String, Target);

/// A console that is ready to start.
pub struct Opening {
    listening: Listening,
    health: health::Args,
    console: Console,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    run_with(&args, |_| Ok(()))
}

/// Runs a console. `add` may add a guest.
///
/// # Errors
/// Why it cannot start, or the error of `add`.
pub fn run_with(
    args: &Args,
    add: impl FnOnce(&mut Opening) -> Result<(), Failure>,
) -> anyhow::Result<ExitCode> {
    let (named, wishes): (Vec<_>, Vec<_>) = servers(args)?.into_iter().unzip();
    if args.health.is_wanted() {
        health::tell_apart(named.iter().map(|(name, _)| name.as_str()))?;
    }
    let mut opening = Opening::new(&args.listening, named, &args.locations)?;
    opening.health = args.health.clone();
    opening.console.limits = args.health.limits();
    for (server, wish) in opening.console.servers.iter().zip(wishes) {
        server.set_change_limit(args.change_timeout);
        server.wish(wish);
    }
    add(&mut opening)?;
    end_on_signal(
        opening.console.servers.clone(),
        Arc::clone(&opening.console.rolling),
        opening.console.guest.clone(),
    )?;
    opening.serve()?;
    Ok(Exit::Ok.into())
}

impl Opening {
    /// Checks everything possible before listening.
    ///
    /// # Errors
    /// The token is invalid.
    pub fn new(
        listening: &Listening,
        servers: Vec<Named>,
        locations: &Locations,
    ) -> Result<Self, Failure> {
        let token = match &listening.token_file {
            Some(path) => Token::from_file(path)?,
            None => Token::random()?,
        };
        let events = Arc::new(Events::default());
        let console = Console {
            guard: Arc::new(Guard::new(token, Names::new(&listening.allow_host))),
            servers: watch(servers, &events),
            events,
            tasks: Arc::default(),
            rolling: Arc::default(),
            locations: locations.clone(),
            limits: Limits::default(),
            guest: None,
        };
        Ok(Self {
            listening: listening.clone(),
            health: health::Args::default(),
            console,
        })
    }

    /// The first server of the list.
    pub fn first(&self) -> Option<&Arc<Watched>> {
        self.console.servers.first()
    }

    pub fn locations(&self) -> &Locations {
        &self.console.locations
    }

    /// Adds the pages of a guest.
    pub fn invite(&mut self, guest: Arc<dyn ConsoleExtension>) {
        self.console.guest = Some(guest);
    }

    /// Listens and serves requests until the process ends.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn serve(self) -> anyhow::Result<()> {
        let pages = page::Pages {
            folder: self.listening.web_folder.clone(),
        };
        if pages.is_missing() {
            complain!("bpe: note: {}", page::MISSING);
        }
        // Each server has its own threads for requests that wait for it, see `Watched::turn`. One more thread reads the
        // folder of scripts.
        let waiting = watched::TURNS * self.console.servers.len() + 1;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(waiting)
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let tcp = listen::bind(self.listening.listen)
                .map_err(|error| self.listening.taken(&error))?;
            let address = tcp.local_addr()?;
            for server in &self.console.servers {
                sampler::start(server).context("cannot start a thread")?;
            }
            // Output that is no terminal is often a log. A token from a file stays valid as long as the file, so do not log it.
            let hidden = self.listening.token_file.as_deref();
            let hidden = hidden.filter(|_| !std::io::stdout().is_terminal());
            announce(address, &self.console, hidden);
            let listener = listen::Listener::new(tcp).context("cannot watch the socket")?;
            let console = Arc::new(self.console);
            health::open(&self.health, &console)?;
            listen::serve(listener, api::router(console, pages), listen::HEAD_TIMEOUT).await;
            Ok(())
        })
    }
}

/// `hidden`: the token file, whose token must not be printed.
fn announce(address: SocketAddr, console: &Console, hidden: Option<&Path>) {
    let port = address.port();
    for server in &console.servers {
        if server.name == server.address {
            say!("Watching {}", server.address);
        } else {
            say!("Watching {} ({})", server.name, server.address);
        }
    }
    let token = match hidden {
        Some(file) => format!("TOKEN, where TOKEN is what {} holds", file.display()),
        None => console.guard.token().text().to_owned(),
    };
    say!("Open in a browser:  {}", link(address, &token));
    say!("From elsewhere:     ssh -L {port}:{address} USER@HOST, and then the same address there");
    say!("Anyone with this address can switch the extension. Ctrl-C ends the console.");
}

/// The URL to open. It contains an IP address and no host name: a name may resolve to several addresses, and another
/// user may listen on one of them.
fn link(address: SocketAddr, token: &str) -> String {
    format!("http://{address}/#token={token}")
}

/// Ends the process on SIGINT, SIGTERM and SIGHUP, but waits for a running change of a server. A comparison is stopped
/// first and restores the switch.
fn end_on_signal(
    servers: Vec<Arc<Watched>>,
    rolling: Arc<cluster_tasks::ClusterChanges>,
    guest: Option<Arc<dyn ConsoleExtension>>,
) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
        .context("cannot catch Ctrl-C")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let Some(signal) = signals.forever().next() else {
                return;
            };
            let comparing = || guest.as_ref().is_some_and(|guest| guest.is_comparing());
            let changing = || rolling.is_busy() || servers.iter().any(|server| server.is_changing());
            let busy = || comparing() || changing();
            rolling.stop_all();
            if comparing() {
                if let Some(guest) = &guest {
                    guest.stop();
                }
                complain!(
                    "bpe: stopping a comparison; the console ends when the switch is as it was (Ctrl-C again ends it now)"
                );
            } else if busy() {
                for server in &servers {
                    server.stop_comparing();
                }
                complain!("bpe: a server is being changed; the console ends when that is done (Ctrl-C again ends it now)");
            }
            while busy() && signals.pending().next().is_none() {
                std::thread::sleep(Duration::from_millis(100));
            }
            if let Some(guest) = &guest {
                guest.end();
            }
            std::process::exit(if signal == SIGINT || signal == SIGTERM { 0 } else { 128 + signal });
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// The servers from the connection options and from the servers file.
fn servers(args: &Args) -> Result<Vec<(Named, CacheDefaults)>, Failure> {
    let in_file = match &args.servers {
        Some(path) => servers_file::read(path)?,
        None => Vec::new(),
    };
    let mut named = Vec::new();
    // The connection options name one more server if any is given, or if there is no other server.
    if args.name.is_some() || !args.connection.is_default() || in_file.is_empty() {
        let mut target = args.connection.target()?;
        target.ask_password()?;
        let name = args.name.clone().unwrap_or_default();
        named.push(((name, target), CacheDefaults::default()));
    }
    for server in in_file {
        let target = server.target()?;
        let wish = CacheDefaults {
            cluster: server.cluster,
            path: server.path,
            // A percentage is left to the command, which computes and reports the size.
            size: match server.size {
                Some(CacheSize::Bytes(bytes)) => Some(bytes.into()),
                _ => None,
            },
        };
        named.push(((server.name, target), wish));
    }
    Ok(named)
}

/// Assigns a unique id to each server.
fn watch(named: Vec<Named>, events: &Arc<Events>) -> Vec<Arc<Watched>> {
    let mut servers: Vec<Arc<Watched>> = Vec::new();
    for (name, target) in named {
        let name = if name.is_empty() {
            target.address.to_string()
        } else {
            name
        };
        let wanted = slug(&name);
        let mut id = wanted.clone();
        let mut number = 1;
        while servers.iter().any(|server| server.id == id) {
            number += 1;
            id = format!("{wanted}-{number}");
        }
        servers.push(Arc::new(Watched::new(id, name, target, Arc::clone(events))));
    }
    servers
}

/// A name as part of a URL.
fn slug(name: &str) -> String {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    if words.is_empty() {
        "server".to_owned()
    } else {
        words.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_listens_on_loopback_only() {
        for near in ["127.0.0.1:8600", "[::1]:0", "127.0.0.2:1"] {
            assert_eq!(loopback(near).unwrap().to_string(), near);
        }
        for open in [
            "0.0.0.0:8600",
            "[::]:8600",
            "10.0.0.1:8600",
            "[fe80::1]:8600",
            "[::ffff:127.0.0.1]:8600",
        ] {
            let text = loopback(open).unwrap_err();
            assert!(text.contains("SSH tunnel") && text.contains("reverse proxy"));
        }
        for none in ["localhost:8600", "8600", ""] {
            assert!(loopback(none).is_err(), "{none}");
        }
    }

    #[test]
    fn link_names_the_bound_address() {
        for (address, wanted) in [
            ("127.0.0.1:8600", "http://127.0.0.1:8600/#token=t"),
            ("[::1]:8600", "http://[::1]:8600/#token=t"),
        ] {
            assert_eq!(link(address.parse().unwrap(), "t"), wanted);
        }
    }

    #[test]
    fn names_become_parts_of_addresses() {
        assert_eq!(slug("Primary DB/1"), "primary-db-1");
        assert_eq!(slug("東京"), "server");
        assert_eq!(
            slug("socket /run/mysqld/mysqld.sock"),
            "socket-run-mysqld-mysqld-sock"
        );
    }
}
