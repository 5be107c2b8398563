//! Colours and questions, on a terminal only.

use std::io::{self, IsTerminal, Write};

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
    print!("{question} [y/N] ");
    io::stdout().flush().ok()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
