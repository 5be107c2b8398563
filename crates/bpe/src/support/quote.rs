//! Quotes values for other languages: SQL, the servers' option files, the shell.
//!
//! Each language has one function, and no other code puts a value into such a text. A value may come from a server or
//! another account. Quoting guarantees that it stays one value.

use std::fmt::Write as _;

use interface::canary;
use interface::untrusted::{refuse_controls, without_controls};

/// Maximum bytes of an option file line that both servers read as one line.
const MAX_LINE: usize = 4090;

/// A text as a hexadecimal SQL literal: no character can end the literal, for any `sql_mode` and character set.
pub fn sql_text(text: &str) -> String {
    if canary!("sql-literals") {
        return format!("'{text}'");
    }
    let mut literal = String::with_capacity(2 * text.len() + 12);
    literal.push_str(TEXT);
    for byte in text.bytes() {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

/// Prefix of [`sql_text`].
const TEXT: &str = "_utf8mb4 x'";

/// A variable's value: numbers, ON and OFF unquoted, everything else as [`sql_text`].
pub fn sql_value(value: &str) -> String {
    if value.parse::<u64>().is_ok() || matches!(value, "ON" | "OFF") {
        value.to_owned()
    } else {
        sql_text(value)
    }
}

/// An identifier in backquotes, valid for any `sql_mode`.
pub fn sql_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// An account in GRANT syntax, for a statement that a user runs. The host contains no @.
pub fn sql_account(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    let part = |text: &str| match text.contains(['\'', '\\']) {
        true => sql_name(text),
        false => format!("'{text}'"),
    };
    format!("{}@{}", part(user), part(host))
}

/// A statement for a message, with readable literals.
pub fn readable(sql: &str) -> String {
    let mut parts = sql.split(TEXT);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_once('\'').unwrap_or((part, ""));
        let text = String::from_utf8(decoded(digits)).unwrap_or_default();
        let _ = write!(shown, "'{}'{rest}", without_controls(&text));
    }
    shown
}

fn decoded(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// An option file line that sets an option to this value.
///
/// # Errors
/// The servers would read another value, or two lines.
pub fn option_line(name: &str, value: &str) -> Result<String, String> {
    refuse_controls(name, value)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._:-".contains(c);
    let line = if !value.is_empty() && value.chars().all(is_plain) {
        format!("{name} = {value}")
    } else {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name} = \"{value}\"")
    };
    if line.len() > MAX_LINE && !canary!("long-option-lines") {
        return Err(format!(
            "{name} takes a line of {} bytes in an option file, and servers read no more than {MAX_LINE} as one line",
            line.len()
        ));
    }
    Ok(line)
}

/// One word of a shell command for the user to copy.
pub fn shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._:-+,@%=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) || canary!("shell-words") {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Like [`shell`], for a path.
pub fn shell_path(path: &std::path::Path) -> String {
    shell(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::option_file::OptionFiles;

    const HOSTILE: [&str; 8] = [
        "",
        "/mnt/a b",
        "x\\';grant all on *.* to m;-- ",
        "x';drop table t;-- ",
        "a\"b\\c`d",
        "$(reboot) `reboot` !x ~ * ? #x ; & | < > (y) {z}",
        "--option",
        "東京\u{202e}",
    ];

    #[test]
    fn sql_literal_holds_no_character_of_its_text() {
        assert_eq!(sql_text("/a'"), "_utf8mb4 x'2f6127'");
        for text in HOSTILE {
            let literal = sql_text(text);
            let digits = literal
                .strip_prefix(TEXT)
                .and_then(|rest| rest.strip_suffix('\''));
            let digits = digits.unwrap();
            assert!(
                digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{literal}"
            );
            assert_eq!(decoded(digits), text.as_bytes());
            let statement = format!("SET GLOBAL x = {literal}, y = 1");
            assert_eq!(
                readable(&statement),
                format!("SET GLOBAL x = '{text}', y = 1")
            );
        }
        assert_eq!(readable("a _utf8mb4 x'0a' b"), "a '\\u{a}' b");
        for (value, literal) in [
            ("12", "12"),
            ("ON", "ON"),
            ("all", "_utf8mb4 x'616c6c'"),
            ("1;x", "_utf8mb4 x'313b78'"),
        ] {
            assert_eq!(sql_value(value), literal);
        }
    }

    #[test]
    fn sql_names_and_accounts_stay_whole() {
        assert_eq!(sql_name("a`; drop table b; `"), "`a``; drop table b; ```");
        assert_eq!(sql_account("a@localhost"), "'a'@'localhost'");
        assert_eq!(sql_account("a@b@%"), "'a@b'@'%'");
        assert_eq!(sql_account("o'b@::1"), "`o'b`@'::1'");
        assert_eq!(sql_account("o\\@h"), "`o\\`@'h'");
        assert_eq!(sql_account("role"), "'role'@'%'");
    }

    #[test]
    fn option_values_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.cnf");
        for value in HOSTILE {
            let line = option_line("x", value).unwrap();
            std::fs::write(&path, format!("[g]\n{line}\n")).unwrap();
            let mut files = OptionFiles::new();
            files.read_if_present(&path);
            assert_eq!(files.value(&["g".to_owned()], "x"), Some(value));
        }
    }

    #[test]
    fn option_line_is_one_line() {
        for bad in [
            "a\ninit_file=/x",
            "a\rb",
            "a\0",
            "a\u{1b}",
            "a\u{85}b",
            "a\u{2028}b",
            "\t",
        ] {
            let why = option_line("bpe_path", bad).unwrap_err();
            assert!(why.contains("bpe_path") && !why.contains('\n'), "{why}");
        }
        // The servers read the rest of a longer line as another line.
        let quotes = "\"".repeat(MAX_LINE / 2);
        assert!(option_line("bpe_tables", &quotes).is_err());
        assert!(option_line("bpe_tables", &"x".repeat(MAX_LINE - 20)).is_ok());
    }

    #[test]
    fn shell_reads_a_word_as_it_is() {
        assert_eq!(
            shell("/usr/lib/mysql/plugin/bpe.so"),
            "/usr/lib/mysql/plugin/bpe.so"
        );
        assert_eq!(shell("/nowhere/$(reboot)"), "'/nowhere/$(reboot)'");
        for word in HOSTILE {
            let command = format!("printf %s {}", shell(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &command])
                .output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), word);
        }
    }
}
