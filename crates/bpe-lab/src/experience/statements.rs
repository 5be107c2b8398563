//! Splits SQL text into statements.

/// Splits at `;`, except inside quotes and comments. Removes comments, except hints and version comments.
pub fn split(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut current = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ';' => {
                statements.push(std::mem::take(&mut current));
                rest = &rest[1..];
                continue;
            }
            '\'' | '"' | '`' => quoted(rest, first),
            '#' => line(rest),
            '-' if rest.starts_with("--")
                && rest[2..].chars().next().is_none_or(char::is_whitespace) =>
            {
                line(rest)
            }
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").map_or(rest.len(), |at| at + 4);
                if rest[2..].starts_with(['+', '!', 'M']) {
                    current.push_str(&rest[..end]);
                } else {
                    current.push(' ');
                }
                rest = &rest[end..];
                continue;
            }
            other => other.len_utf8(),
        };
        if first == '#' || (first == '-' && length > 1) {
            current.push('\n');
        } else {
            current.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    statements.push(current);
    statements
        .iter()
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

/// Length of a quoted text with its quotes. A doubled quote starts another quoted text, which has the same effect.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn line(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        assert_eq!(
            split(
                "SELECT ';', \"a\\\";b\", `c;d` ; -- e; f\nSELECT 1--1 # g;h\n;/* i; */ SELECT /*+ BKA(t;u) */ 2;; "
            ),
            [
                "SELECT ';', \"a\\\";b\", `c;d`",
                "SELECT 1--1",
                "SELECT /*+ BKA(t;u) */ 2",
            ]
        );
        assert_eq!(split("SELECT 'it''s; fine'"), ["SELECT 'it''s; fine'"]);
        for text in ["", " ; ;", "-- nothing", "/* open", "'open; too"] {
            assert!(split(text).len() <= 1, "{text}");
        }
        assert_eq!(split("SELECT '東京;'; SELECT 2").len(), 2);
    }
}
