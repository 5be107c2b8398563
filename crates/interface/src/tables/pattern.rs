//! Patterns that select the tables of a rule.

use std::fmt;

use crate::untrusted::Untrusted;

/// Characters of a rule that a message repeats.
const QUOTED: usize = 60;
/// Maximum length of a schema, table or partition name, characters.
const LONGEST_NAME: usize = 64;
/// Matches files that belong to no single table.
const SYSTEM: &str = "#system";

/// Contents of a data file, by SQL names.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// A table, or a partition of it. A subpartition follows its partition after a colon.
    Table {
        schema: &'a str,
        table: &'a str,
        partition: Option<&'a str>,
    },
    /// Not part of a single table: the system tablespace, undo, general tablespaces, a table being created.
    System,
}

/// `schema.table` with wildcards, optionally followed by `#p#partition` and `#sp#subpartition`; or `#system`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Tables {
        schema: Name,
        table: Name,
        partition: Option<Name>,
        subpartition: Option<Name>,
    },
    System,
}

/// A name with wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Is(char),
    One,
    Any,
}

impl Pattern {
    /// Exactly one table.
    pub fn table(schema: &str, table: &str, folds: bool) -> Pattern {
        Pattern::Tables {
            schema: Name::exactly(schema, folds),
            table: Name::exactly(table, folds),
            partition: None,
            subpartition: None,
        }
    }

    /// # Errors
    /// The syntax error.
    pub fn parse(text: &str, folds: bool) -> Result<Pattern, String> {
        let mut rest = Rest(text.trim());
        if rest.0.is_empty() {
            return Err(
                "it names no table; write schema.table, such as shop.orders or shop.*".to_owned(),
            );
        }
        if rest.0.eq_ignore_ascii_case(SYSTEM) {
            return Ok(Pattern::System);
        }
        let (schema, alone) = rest.name("schema", folds)?;
        if rest.0.is_empty() && alone == "*" {
            return Ok(Pattern::Tables {
                table: schema.clone(),
                schema,
                partition: None,
                subpartition: None,
            });
        }
        if !rest.take(".") {
            let alone = quoted(alone);
            return Err(format!(
                "after {alone} a dot is missing: write schema.table, {alone}.* or *.{alone}"
            ));
        }
        let (table, _) = rest.name("table", folds)?;
        // The servers compare partition names case-insensitively.
        let partition = if rest.take("#p#") {
            Some(rest.name("partition", true)?.0)
        } else {
            None
        };
        let has_sub = partition.is_some() && rest.take("#sp#");
        let subpartition = if has_sub {
            Some(rest.name("subpartition", true)?.0)
        } else {
            None
        };
        if !rest.0.is_empty() {
            let what = quoted(rest.0);
            return Err(format!(
                "\"{what}\" after the table is too much; separate rules by a comma, put names with odd characters in backquotes, and \
                 write partitions as shop.orders#p#p2026"
            ));
        }
        Ok(Pattern::Tables {
            schema,
            table,
            partition,
            subpartition,
        })
    }

    /// Whether the pattern matches. `folds`: as when it was parsed.
    pub fn fits(&self, named: &Named<'_>, folds: bool) -> bool {
        match (self, named) {
            (Pattern::System, Named::System) => true,
            (
                Pattern::Tables {
                    schema,
                    table,
                    partition,
                    subpartition,
                },
                Named::Table {
                    schema: in_schema,
                    table: of,
                    partition: part,
                },
            ) => {
                let (part, sub) = match part.map(|part| part.split_once(':').unwrap_or((part, "")))
                {
                    Some((part, sub)) => (Some(part), Some(sub).filter(|sub| !sub.is_empty())),
                    None => (None, None),
                };
                let has = |wanted: &Option<Name>, there: Option<&str>| match (wanted, there) {
                    (None, _) => true,
                    (Some(wanted), Some(there)) => wanted.fits(there, true),
                    (Some(_), None) => false,
                };
                schema.fits(in_schema, folds)
                    && table.fits(of, folds)
                    && has(partition, part)
                    && has(subpartition, sub)
            }
            _ => false,
        }
    }

    /// Whether the pattern matches everything that another one matches.
    pub fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::System, Pattern::System) => true,
            (
                Pattern::Tables {
                    schema,
                    table,
                    partition,
                    subpartition,
                },
                Pattern::Tables {
                    schema: schemas,
                    table: tables,
                    partition: partitions,
                    subpartition: subpartitions,
                },
            ) => {
                let covers = |one: &Option<Name>, other: &Option<Name>| match (one, other) {
                    (None, _) => true,
                    (Some(one), Some(other)) => one.covers(other),
                    (Some(_), None) => false,
                };
                schema.covers(schemas)
                    && table.covers(tables)
                    && covers(partition, partitions)
                    && covers(subpartition, subpartitions)
            }
            _ => false,
        }
    }

    /// Returns schema and table if the pattern names one table, or one of its partitions, without wildcards.
    pub fn exact(&self) -> Option<(String, String)> {
        match self {
            Pattern::Tables { schema, table, .. } => Some((schema.exact()?, table.exact()?)),
            Pattern::System => None,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pattern::Tables {
            schema,
            table,
            partition,
            subpartition,
        } = self
        else {
            return f.write_str(SYSTEM);
        };
        write!(f, "{schema}.{table}")?;
        if let Some(partition) = partition {
            write!(f, "#p#{partition}")?;
        }
        if let Some(subpartition) = subpartition {
            write!(f, "#sp#{subpartition}")?;
        }
        Ok(())
    }
}

impl Name {
    fn exactly(name: &str, folds: bool) -> Name {
        Name(fold(name, folds).map(Part::Is).collect())
    }

    fn fits(&self, name: &str, folds: bool) -> bool {
        let there: Vec<Part> = fold(name, folds).map(Part::Is).collect();
        fits(&self.0, &there)
    }

    fn covers(&self, other: &Name) -> bool {
        fits(&self.0, &other.0)
    }

    fn exact(&self) -> Option<String> {
        let letter = |part: &Part| match part {
            Part::Is(letter) => Some(*letter),
            _ => None,
        };
        self.0.iter().map(letter).collect()
    }
}

/// Uses backquotes where needed, around each run of letters between wildcards.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_letter = |part: &Part| matches!(part, Part::Is(_));
        for run in self.0.chunk_by(|a, b| is_letter(a) && is_letter(b)) {
            let letters: String = run.iter().map(|part| part.written()).collect();
            if is_letter(&run[0]) && !letters.chars().all(is_plain) {
                write!(f, "`{}`", letters.replace('`', "``"))?;
            } else {
                f.write_str(&letters)?;
            }
        }
        Ok(())
    }
}

impl Part {
    fn written(&self) -> char {
        match self {
            Part::Is(letter) => *letter,
            Part::One => '?',
            Part::Any => '*',
        }
    }
}

/// Whether a pattern matches a text, or everything that another pattern matches: only [`Part::Any`] matches an `Any`. The
/// time is proportional to the product of their lengths.
fn fits(pattern: &[Part], text: &[Part]) -> bool {
    let (mut at, mut there) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while there < text.len() {
        let one = match (pattern.get(at), text[there]) {
            (Some(Part::Is(a)), Part::Is(b)) => *a == b,
            (Some(Part::One), part) => part != Part::Any,
            _ => false,
        };
        if pattern.get(at) == Some(&Part::Any) {
            back = Some((at, there));
            at += 1;
        } else if one {
            at += 1;
            there += 1;
        } else if let Some((any, from)) = back {
            back = Some((any, from + 1));
            at = any + 1;
            there = from + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|part| *part == Part::Any)
}

/// Returns the letters for comparison: in lower case, if names are folded.
fn fold(text: &str, folds: bool) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(move |letter| {
        let lower = folds.then(|| letter.to_lowercase());
        let same = (!folds).then_some(letter);
        lower.into_iter().flatten().chain(same)
    })
}

/// Whether a letter needs no backquotes.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$' | '-' | '@' | '+')
}

/// The unparsed rest of a pattern.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn take(&mut self, what: &str) -> bool {
        match self.0.get(..what.len()) {
            Some(there) if there.eq_ignore_ascii_case(what) => {
                self.0 = &self.0[what.len()..];
                true
            }
            _ => false,
        }
    }

    /// Parses a name with wildcards, parts of it in backquotes. Also returns its source text.
    fn name(&mut self, what: &str, folds: bool) -> Result<(Name, &'a str), String> {
        let whole = self.0;
        let mut parts = Vec::new();
        let mut quoted = false;
        let mut letters = whole.char_indices().peekable();
        let mut end = whole.len();
        while let Some((at, letter)) = letters.next() {
            if letter == '`' {
                if quoted && letters.peek().is_some_and(|(_, next)| *next == '`') {
                    letters.next();
                    parts.push(Part::Is('`'));
                } else {
                    quoted = !quoted;
                }
            } else if quoted {
                parts.extend(fold(letter.encode_utf8(&mut [0; 4]), folds).map(Part::Is));
            } else if matches!(letter, '*' | '%') {
                // Merges consecutive wildcards, so that equivalent patterns are equal.
                if parts.last() != Some(&Part::Any) {
                    parts.push(Part::Any);
                }
            } else if letter == '?' {
                parts.push(Part::One);
            } else if is_plain(letter) {
                parts.extend(fold(letter.encode_utf8(&mut [0; 4]), folds).map(Part::Is));
            } else {
                end = at;
                break;
            }
        }
        let (written, rest) = whole.split_at(end);
        self.0 = rest;
        if parts.is_empty() {
            return Err(match rest.chars().next() {
                Some(odd) if odd != '.' && odd != '#' => {
                    format!(
                        "the name of a {what} cannot begin with {odd:?} unless it stands in backquotes"
                    )
                }
                _ => format!(
                    "the name of the {what} is missing; write schema.table, such as shop.orders or shop.*"
                ),
            });
        }
        let letters = parts
            .iter()
            .filter(|part| matches!(part, Part::Is(_)))
            .count();
        if letters > LONGEST_NAME {
            return Err(format!(
                "the name of the {what} has {letters} characters; no name has more than {LONGEST_NAME}"
            ));
        }
        Ok((Name(parts), written))
    }
}

/// Shortens a rule for a message.
pub(super) fn quoted(text: &str) -> Untrusted<'_> {
    Untrusted::new(text).cut_at(QUOTED)
}

/// Splits a text into rules at commas and semicolons. Empty rules are skipped.
pub(super) fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut found = Vec::new();
    let (mut quoted, mut begin) = (false, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            ',' | ';' if !quoted => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err(
            "a backquote is not closed in bpe_tables; a name that has one writes it twice"
                .to_owned(),
        );
    }
    found.push(&text[begin..]);
    Ok(found
        .into_iter()
        .map(str::trim)
        .filter(|rule| !rule.is_empty())
        .collect())
}
