//! Lines for the user; colours and questions on a terminal only.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use interface::untrusted::{is_visible, visible_json};
use ratatui::style::{Color, Style};
use serde_json::Value;

/// `println!` that ignores a closed pipe (`bpe enable | head`), so that a change does not stop half-way.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::support::terminal::say_line(format_args!($($argument)*)) };
}

/// `eprintln!` that ignores a closed pipe.
#[macro_export]
macro_rules! complain {
    ($($argument:tt)*) => { $crate::support::terminal::complain_line(format_args!($($argument)*)) };
}

pub use {complain, say};

/// Writes a line to standard output and ignores errors. Of control characters, only line feeds, tabs and the colours of [`Paint`] remain.
pub fn say_line(line: fmt::Arguments<'_>) {
    let text = visible(&line.to_string(), Paint::stdout());
    let _ = writeln!(io::stdout(), "{text}");
}

/// Writes a line to standard error in the same way, without colours.
pub fn complain_line(line: fmt::Arguments<'_>) {
    let text = visible(&line.to_string(), Paint::NONE);
    let _ = writeln!(io::stderr(), "{text}");
}

/// Indents all lines but the first by two spaces, so that none of them looks like a line of another origin.
pub fn indented(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut shown = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let indent = if line.starts_with("  ") { "" } else { "  " };
        shown.extend(["\n", indent, line]);
    }
    shown
}

/// Prints JSON; invisible characters become JSON escapes.
pub fn say_json(json: &Value) {
    let text = format!("{json:#}");
    let _ = writeln!(io::stdout(), "{}", visible_json(&text));
}

/// A text of this command, made safe for a terminal.
pub fn visible(text: &str, paint: Paint) -> String {
    let styles = if paint.coloured { &STYLES[..] } else { &[] };
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        match styles.iter().find(|(mark, _)| *mark == letter) {
            Some((_, code)) => clean.extend(["\x1b[", code, "m"]),
            None if matches!(letter, '\n' | '\t') || is_visible(letter) => clean.push(letter),
            None => clean.extend(letter.escape_unicode()),
        }
    }
    clean
}

/// Style marks in a text before output. They are noncharacters, which a server's text never contains.
const STYLES: [(char, &str); 6] = [
    (PLAIN, "0"),
    ('\u{fdd1}', "32"),
    ('\u{fdd2}', "33"),
    ('\u{fdd3}', "1;31"),
    ('\u{fdd4}', "1"),
    ('\u{fdd5}', "2"),
];
const PLAIN: char = '\u{fdd0}';

/// Adds colours if standard output is a terminal and NO_COLOR is not set.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    coloured: bool,
}

impl Paint {
    pub const NONE: Self = Self { coloured: false };

    pub fn stdout() -> Self {
        Self {
            coloured: io::stdout().is_terminal() && !colours_refused(),
        }
    }

    fn paint(self, style: usize, text: &str) -> String {
        if self.coloured {
            format!("{}{text}{PLAIN}", STYLES[style].0)
        } else {
            text.to_owned()
        }
    }

    pub fn green(self, text: &str) -> String {
        self.paint(1, text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.paint(2, text)
    }

    pub fn red(self, text: &str) -> String {
        self.paint(3, text)
    }

    pub fn bold(self, text: &str) -> String {
        self.paint(4, text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint(5, text)
    }
}

/// Columns of the terminal on standard output, if it is one.
pub fn width() -> Option<usize> {
    let columns = ratatui::crossterm::terminal::size().ok()?.0;
    (io::stdout().is_terminal() && columns > 0).then_some(columns.into())
}

/// Breaks a text into lines of at most `width` characters, except for longer words.
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

/// A number with thousands separators.
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

/// A time in a suitable unit; `-` for none.
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

/// A colour for full-screen output; none if NO_COLOR is set.
pub fn coloured(color: Color) -> Style {
    if colours_refused() {
        Style::new()
    } else {
        Style::new().fg(color)
    }
}

/// Asks a question on the terminal; `None` without a terminal.
pub fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    write!(io::stdout(), "{} [y/N] ", visible(question, Paint::NONE)).ok()?;
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
    fn nothing_but_lines_and_styles_reaches_a_terminal() {
        let paint = Paint { coloured: true };
        let text = format!(
            "{}\tb\n\x1b[2K\x1b]0;x\x07\u{202e}\u{9b}\rc",
            paint.red("a")
        );
        assert_eq!(
            visible(&text, paint),
            "\x1b[1;31ma\x1b[0m\tb\n\\u{1b}[2K\\u{1b}]0;x\\u{7}\\u{202e}\\u{9b}\\u{d}c"
        );
        // Without colours, style marks are escaped, too.
        assert_eq!(visible("\u{fdd3}a", Paint::NONE), "\\u{fdd3}a");
        for style in [
            Paint::green,
            Paint::yellow,
            Paint::red,
            Paint::bold,
            Paint::dim,
        ] {
            let shown = visible(&style(paint, "a"), paint);
            assert!(
                shown.starts_with("\x1b[") && shown.ends_with("ma\x1b[0m"),
                "{shown}"
            );
            assert_eq!(style(Paint::NONE, "a"), "a");
        }
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
