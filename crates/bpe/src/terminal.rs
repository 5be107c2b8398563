//! Lines for the user; colours and questions on a terminal only.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use ratatui::style::{Color, Style};

/// `println!` that goes on when nobody reads any more (`bpe enable | head`): a change must not stop
/// half-way for that.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::terminal::write_line(std::io::stdout(), format_args!($($argument)*)) };
}

/// `eprintln!` that goes on when nobody reads any more.
#[macro_export]
macro_rules! complain {
    ($($argument:tt)*) => { $crate::terminal::write_line(std::io::stderr(), format_args!($($argument)*)) };
}

pub use {complain, say};

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
        Self {
            coloured: io::stdout().is_terminal() && !colours_refused(),
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

/// Columns of the terminal that standard output is, if it is one.
pub fn width() -> Option<usize> {
    let columns = ratatui::crossterm::terminal::size().ok()?.0;
    (io::stdout().is_terminal() && columns > 0).then_some(columns.into())
}

/// Breaks a text into lines of at most so many characters, longer words excepted.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A count with separators between thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in the unit that suits it; `-` for none.
pub fn microseconds(number: f64) -> String {
    let three_digits = |number: f64, unit: &str| {
        let digits = usize::from(number < 99.95) + usize::from(number < 9.995);
        format!("{number:.digits$} {unit}")
    };
    if number <= 0.0 {
        "-".to_owned()
    } else if number < 999.5 {
        format!("{number:.0} us")
    } else if number < 999_500.0 {
        three_digits(number / 1000.0, "ms")
    } else {
        three_digits(number / 1e6, "s")
    }
}

fn colours_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// A colour for a whole screen; none if NO_COLOR is set.
pub fn coloured(color: Color) -> Style {
    if colours_refused() {
        Style::new()
    } else {
        Style::new().fg(color)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("a bb  ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrapped("unbreakable x", 4), ["unbreakable", "x"]);
        assert!(wrapped(" ", 10).is_empty());
    }

    #[test]
    fn numbers_read_well() {
        for (number, text) in [
            (0.0, "0"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in [
            (0.0, "-"),
            (90.4, "90 us"),
            (2500.0, "2.50 ms"),
            (45_000.0, "45.0 ms"),
            (999_000.0, "999 ms"),
            (3_200_000.0, "3.20 s"),
        ] {
            assert_eq!(microseconds(number), text);
        }
    }
}
