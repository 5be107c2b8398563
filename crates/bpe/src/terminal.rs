//! Lines for the user; colours and questions on a terminal only.

use std::fmt;
use std::io::{self, IsTerminal, Write};

/// `println!` that goes on when nobody reads any more (`bpe enable | head`): a change must not stop
/// half-way for that.
macro_rules! say {
    ($($argument:tt)*) => { $crate::terminal::write_line(std::io::stdout(), format_args!($($argument)*)) };
}

/// `eprintln!` that goes on when nobody reads any more.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::terminal::write_line(std::io::stderr(), format_args!($($argument)*)) };
}

pub(crate) use {complain, say};

/// Writes a line and does not care whether that works.
pub fn write_line(mut to: impl Write, line: fmt::Arguments<'_>) {
    let _ = writeln!(to, "{line}");
}

/// Writes text in colours when standard output is a terminal and NO_COLOR is not set.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    coloured: bool,
}

impl Paint {
    pub fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            coloured: io::stdout().is_terminal() && !refused,
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// Asks on the terminal; None when there is nobody to ask.
pub fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    write!(io::stdout(), "{question} [y/N] ").ok()?;
    io::stdout().flush().ok()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
