//! `bpe top`: the figures of a server, live on a terminal.
//!
//! The `watcher` thread polls the server. The main thread reads keys and draws the last known state (`state`, `draw`),
//! so a server that hangs does not block the screen. The terminal is restored on every exit: keys, signals, a panic.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::connect;
use crate::observe::Observer;
use crate::support::failure::{Exit, Failure};
use crate::support::terminal::say;
use state::TopState;
use view::View;
use watcher::Watcher;

mod draw;
mod once;
mod overview;
mod parts;
mod state;
mod tables;
mod view;
mod watcher;

/// Interval between checks for signals and for updates of the watcher.
const TICK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct Args {
    /// Seconds between two readings
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// What to show first
    #[arg(long, value_enum, default_value_t = View::Overview)]
    view: View,
    /// Print one frame as text and exit; needs no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let interval = Duration::from_secs(args.interval);
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.once && !terminal {
        let failure = Failure::usage("`bpe top` needs a terminal, and this is not one");
        let advice = "`bpe status --json` gives the figures to scripts (with --seconds 5, rates too), `bpe top --once` prints \
                      one frame as text";
        return Err(failure.advise(advice).into());
    }
    let mut observer = Observer::new(&args.connection)?;
    // Ask for the password and report an unreachable server before the terminal switches modes.
    let server = observer.server()?;
    let title = format!("{} {}, {}", server.flavour, server.version, server.address);
    let mut state = TopState::new(title, args.view, args.interval);
    if args.once {
        let active = once::fill(&mut state, &mut observer, interval)?;
        say!("{}", once::text(&state)?);
        return Ok(if active { Exit::Ok } else { Exit::No }.into());
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let watcher = Watcher::start(observer, args.view, interval);
    // Its panic hook also restores the terminal.
    let mut terminal = ratatui::try_init().context("preparing the terminal")?;
    let result = show(&mut terminal, &mut state, &watcher, &ended);
    ratatui::restore();
    result.map(|()| Exit::Ok.into())
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut TopState,
    watcher: &Watcher,
    ended: &AtomicBool,
) -> anyhow::Result<()> {
    while !ended.load(Ordering::Relaxed) {
        terminal
            .draw(|frame| draw::frame(frame, state))
            .context("drawing")?;
        if event::poll(TICK).context("waiting for keys")? {
            match event::read().context("reading a key")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let view = state.view;
                    if !pressed(state, key) {
                        return Ok(());
                    }
                    if state.view != view {
                        watcher.look_at(state.view);
                    }
                }
                _ => {} // a new size: it is drawn anew in any case
            }
        }
        loop {
            match watcher.updates.try_recv() {
                Ok(update) => state.take(update),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    anyhow::bail!("the thread that asks the server has ended")
                }
            }
        }
    }
    Ok(())
}

/// Handles a key; returns whether to continue.
fn pressed(state: &mut TopState, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => return false,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return false,
        KeyCode::Char('p' | 'P' | ' ') => state.paused = !state.paused,
        KeyCode::Tab | KeyCode::Right => state.turn(1),
        KeyCode::BackTab | KeyCode::Left => state.turn(-1),
        KeyCode::Char(digit @ '1'..='9') => state.turn_to(digit as usize - '1' as usize),
        KeyCode::Down => state.scroll(1),
        KeyCode::Up => state.scroll(-1),
        KeyCode::PageDown => state.scroll(10),
        KeyCode::PageUp => state.scroll(-10),
        KeyCode::Home => state.scroll(isize::MIN),
        KeyCode::End => state.scroll(isize::MAX),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn keys_do_what_the_last_line_says() {
        let mut state = TopState::new(String::new(), View::Overview, 1);
        for (code, view) in [
            (KeyCode::Tab, View::Devices),
            (KeyCode::Right, View::Instances),
            (KeyCode::Left, View::Devices),
            (KeyCode::BackTab, View::Overview),
            (KeyCode::BackTab, View::Explain),
            (KeyCode::Char('4'), View::Files),
            (KeyCode::Char('9'), View::Files),
        ] {
            assert!(pressed(&mut state, key(code)));
            assert_eq!(state.view, view, "after {code:?}");
        }
        assert!(pressed(&mut state, key(KeyCode::Char('p'))) && state.paused);
        assert!(pressed(&mut state, key(KeyCode::Char('p'))) && !state.paused);
        assert!(pressed(&mut state, key(KeyCode::Char('c'))));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for end in [key(KeyCode::Char('q')), key(KeyCode::Esc), interrupt] {
            assert!(!pressed(&mut state, end));
        }
    }
}
