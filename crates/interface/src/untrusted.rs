//! Text from outside: from a server or a peer, a file name, an option file, a trace.
//!
//! Such text must not forge log lines, send escape sequences to a terminal, or look different from its content.
//! [`Untrusted`] displays it: invisible characters become `\u{...}`, and the text ends at a limit. [`without_controls`]
//! makes text harmless that is used as data, and [`refuse_controls`] rejects it on input.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::canary;

/// Default limit of displayed characters.
pub const LIMIT: usize = 2000;

/// A text from outside. Its `Display` escapes invisible characters, and ends at a limit with an ellipsis.
#[derive(Clone, Copy, Debug)]
pub struct Untrusted<'a> {
    text: &'a str,
    limit: usize,
}

impl<'a> Untrusted<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { text, limit: LIMIT }
    }

    /// Limits the displayed characters.
    #[must_use]
    pub const fn cut_at(self, limit: usize) -> Self {
        Self { limit, ..self }
    }
}

impl fmt::Display for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, letter) in self.text.chars().enumerate() {
            if number == self.limit {
                return f.write_char('…');
            }
            let is_mark = number == 0 && combines(letter);
            if is_visible(letter) && !is_mark || canary!("unseen-characters") {
                f.write_char(letter)?;
            } else {
                write!(f, "{}", letter.escape_unicode())?;
            }
        }
        Ok(())
    }
}

/// Returns the whole text on one line, with invisible characters escaped. Like [`Untrusted`] without a limit.
pub fn one_line(text: &str) -> String {
    Untrusted::new(text).cut_at(usize::MAX).to_string()
}

/// Invisible characters that are neither control nor format characters: joiners, fillers, variation selectors.
const INVISIBLE: [std::ops::RangeInclusive<char>; 9] = [
    '\u{34f}'..='\u{34f}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{e0100}'..='\u{e01ef}',
];

/// Whether a reader sees the character as itself. False for control, format and bidirectional characters, separators other
/// than the space, and private and unassigned characters.
pub fn is_visible(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    !INVISIBLE.iter().any(|range| range.contains(&letter)) && is_printable(letter)
}

/// Uses the standard library's Unicode table. Inside a text, `escape_debug` leaves combining marks unescaped.
fn is_printable(letter: char) -> bool {
    let mut bytes = [b'a', 0, 0, 0, 0];
    let length = 1 + letter.encode_utf8(&mut bytes[1..]).len();
    let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
    text.escape_debug().nth(1) == Some(letter)
}

/// Whether the character is drawn over the previous one.
fn combines(letter: char) -> bool {
    !letter.is_ascii() && letter.escape_debug().next() == Some('\\')
}

/// Whether the character can end a line or control a terminal, or is a noncharacter (for internal use of programs).
fn is_control(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{fdd0}'..='\u{fdef}')
}

/// Returns the text with control characters and line separators escaped. Other characters stay, so that names and paths
/// still match the server's.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_control(letter) {
            clean.extend(letter.escape_unicode());
        } else {
            clean.push(letter);
        }
    }
    Cow::Owned(clean)
}

/// Refuses control characters and line separators in a setting: a line of an option file holds one setting.
///
/// # Errors
/// The setting's name, and the character.
pub fn refuse_controls(name: &str, value: &str) -> Result<(), String> {
    if canary!("control-characters") {
        return Ok(());
    }
    refuse(
        name,
        value,
        is_control,
        "control characters or line separators",
    )
}

/// The same for a setting with file names. Backslashes are refused too: SQL and option files interpret them differently, and
/// no name needs one.
///
/// # Errors
/// The setting's name, and the character.
pub fn refuse_in_path(name: &str, value: &str) -> Result<(), String> {
    refuse_controls(name, value)?;
    refuse(name, value, |letter| letter == '\\', "backslashes")
}

fn refuse(name: &str, value: &str, is_bad: fn(char) -> bool, what: &str) -> Result<(), String> {
    match value
        .chars()
        .enumerate()
        .find(|(_, letter)| is_bad(*letter))
    {
        Some((at, letter)) => Err(format!(
            "{name} takes no {what}, and its character {} is {}",
            at + 1,
            letter.escape_unicode()
        )),
        None => Ok(()),
    }
}

/// Escapes invisible characters with JSON's own escapes: the meaning stays the same.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    let is_kept = |letter: char| is_visible(letter) || matches!(letter, '\n' | '\r' | '\t');
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if is_kept(letter) {
            clean.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(clean, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One character of each kind that must not be displayed.
    const HIDDEN: [char; 28] = [
        '\0',
        '\t',
        '\n',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{180e}',
        '\u{200b}',
        '\u{200d}',
        '\u{200e}',
        '\u{2028}',
        '\u{2029}',
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        '\u{3164}',
        '\u{e000}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{fff9}',
        '\u{fdd0}',
        '\u{e0041}',
        '\u{10ffff}',
    ];

    #[test]
    fn untrusted_escapes_what_is_not_visible() {
        for letter in HIDDEN {
            let text = format!("a{letter}b");
            let shown = format!("a{}b", letter.escape_unicode());
            assert_eq!(Untrusted::new(&text).to_string(), shown);
            assert!(shown.is_ascii() && one_line(&text) == shown, "{shown}");
        }
    }

    #[test]
    fn untrusted_keeps_words_of_all_scripts() {
        for text in [
            "shop.orders_1",
            "O'Brien \\ \"x\"",
            "東京",
            "müller",
            "नमस्ते",
            "a\u{301}",
            "🦭 — …",
        ] {
            assert_eq!(Untrusted::new(text).to_string(), text);
            assert_eq!(without_controls(text), text);
        }
        let mark = Untrusted::new("\u{301}a").to_string();
        assert_eq!(mark, "\\u{301}a", "it would change what comes before");
    }

    #[test]
    fn untrusted_ends_at_its_limit() {
        let shown = |text: &str, limit| Untrusted::new(text).cut_at(limit).to_string();
        assert_eq!(
            (shown("abc", 3), shown("abcd", 3)),
            ("abc".into(), "abc…".into())
        );
        let long = "x".repeat(2 * LIMIT);
        assert_eq!(Untrusted::new(&long).to_string().chars().count(), LIMIT + 1);
        assert_eq!(one_line(&long), long);
    }

    #[test]
    fn data_loses_control_characters_alone() {
        assert_eq!(
            without_controls("a\u{1b}[2K\nb\u{2028}\u{200d}c"),
            "a\\u{1b}[2K\\u{a}b\\u{2028}\u{200d}c"
        );
    }

    #[test]
    fn settings_take_no_control_characters() {
        for letter in (0..0xa0u8).map(char::from).filter(|c| c.is_control()) {
            assert!(
                refuse_controls("x", &format!("a{letter}")).is_err(),
                "{letter:?}"
            );
        }
        let why = refuse_controls("bpe_tables", "ab\u{2028}").unwrap_err();
        assert!(
            why.contains("bpe_tables") && why.contains("character 3 is \\u{2028}"),
            "{why}"
        );
        assert_eq!(refuse_controls("x", "a b\\c\u{e9}"), Ok(()));
        assert!(refuse_in_path("x", "/a\\b").is_err() && refuse_in_path("x", "/a\nb").is_err());
        assert_eq!(refuse_in_path("x", "/mnt/o'brien/東京"), Ok(()));
    }

    #[test]
    fn json_means_the_same() {
        let text = "{\n  \"a\": \"\u{202e}\u{e0041}\u{7f}\u{e9}\"\n}";
        let clean = visible_json(text);
        assert_eq!(
            clean,
            "{\n  \"a\": \"\\u202e\\udb40\\udc41\\u007f\u{e9}\"\n}"
        );
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&clean), value(text));
    }
}
