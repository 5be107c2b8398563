//! Rules of `bpe_tables`: which tables are cached, and how.
//!
//! ```text
//! exclude shop.log_*, limit 20% reports.*, prefer shop.orders
//! exclude shop.orders#p#p2019; normal `my db`.`a,b`
//! ```
//!
//! A rule is a word and a [`Pattern`]. The first matching rule decides. A table without a matching rule is cached as usual,
//! unless there is an `include`: then only tables named by a rule are cached. A rule that can never match is an error, since
//! an earlier rule decides otherwise for the same tables.
//!
//! Parsing takes memory for the rules alone, and time proportional to the square of their number, at most [`MOST`].

mod pattern;

use std::fmt;

use crate::untrusted::refuse_controls;

use pattern::quoted;
pub use pattern::{Named, Pattern};

/// Maximum length of the text, bytes. A line of an option file takes 4,096.
pub const LONGEST: usize = 4000;
/// Maximum number of rules.
pub const MOST: usize = 100;
/// Maximum number of rules with a limit.
pub const MOST_LIMITS: usize = 14;

/// Effect of a rule on its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cached as usual; tables that no rule names are not cached.
    Include,
    /// Never cached.
    Exclude,
    /// Cached as usual: an exception from a later rule.
    Normal,
    /// Admitted sooner, evicted later.
    Prefer,
    /// Takes at most this percentage of the cache.
    Limit(u8),
}

impl Action {
    /// Whether it is a limit.
    pub const fn is_limit(self) -> bool {
        matches!(self, Action::Limit(_))
    }

    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Include => "include",
            Action::Exclude => "exclude",
            Action::Normal => "normal",
            Action::Prefer => "prefer",
            Action::Limit(_) => "limit",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Action::Limit(percent) => write!(f, " {percent}%"),
            _ => Ok(()),
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub action: Action,
    pub pattern: Pattern,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.pattern)
    }
}

/// The rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Whether names are folded: the server's `lower_case_table_names` is not 0.
    folds: bool,
}

/// The result of the rules for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The rule with this index matches.
    Rule(usize),
    /// No rule matches: cached as usual.
    Nothing,
    /// No rule matches, and there is an `include`.
    NotIncluded,
}

impl Rules {
    /// Parses the value of `bpe_tables`. `folds`: the server's names are in lower case, whatever a client writes.
    ///
    /// # Errors
    /// The first invalid rule, and how to correct it.
    pub fn parse(text: &str, folds: bool) -> Result<Rules, String> {
        if text.len() > LONGEST {
            return Err(format!(
                "bpe_tables has {} bytes and can have {LONGEST}; use wildcards (shop.log_*), or move tables that belong together \
                 into a schema of their own",
                text.len()
            ));
        }
        refuse_controls("bpe_tables", text)?;
        let mut rules: Vec<Rule> = Vec::new();
        for text in pattern::split(text)? {
            let number = rules.len() + 1;
            let rule = rule(text, folds)
                .map_err(|why| format!("rule {number} ({}): {why}", quoted(text)))?;
            rules.push(rule);
            if rules.len() > MOST {
                return Err(format!("bpe_tables has more than {MOST} rules"));
            }
        }
        let limits = rules
            .iter()
            .filter(|rule| matches!(rule.action, Action::Limit(_)));
        if limits.count() > MOST_LIMITS {
            return Err(format!(
                "bpe_tables has more than {MOST_LIMITS} limits; let one pattern fit several tables (reports.*)"
            ));
        }
        let rules = Rules { rules, folds };
        rules.contradiction().map_or(Ok(rules), Err)
    }

    /// Describes a rule that can never match.
    fn contradiction(&self) -> Option<String> {
        for (at, later) in self.rules.iter().enumerate() {
            let covers = |rule: &Rule| rule.pattern.covers(&later.pattern);
            let Some(before) = self.rules[..at].iter().position(covers) else {
                continue;
            };
            let rule = &self.rules[before];
            let (first, second) = (before + 1, at + 1);
            return Some(if rule.pattern != later.pattern {
                format!(
                    "rule {second} ({}) would never count, as rule {first} ({}) comes before it and fits all of its tables; put \
                     rule {second} first",
                    quoted(&later.to_string()),
                    quoted(&rule.to_string()),
                )
            } else if rule.action == later.action {
                format!(
                    "rules {first} and {second} are the same ({}); remove one",
                    quoted(&rule.to_string())
                )
            } else {
                format!(
                    "rules {first} and {second} contradict each other: {} and {} say two things of the same tables; remove one",
                    quoted(&rule.to_string()),
                    quoted(&later.to_string()),
                )
            });
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether tables without a matching rule are not cached.
    pub fn only_included(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == Action::Include)
    }

    /// Applies the rules to a table, or to a file that belongs to no table.
    pub fn of(&self, named: &Named<'_>) -> Said {
        let fits = |rule: &Rule| rule.pattern.fits(named, self.folds);
        match self.rules.iter().position(fits) {
            Some(at) => Said::Rule(at),
            None if self.only_included() => Said::NotIncluded,
            None => Said::Nothing,
        }
    }

    /// The effect on a table; `None`: no rule matches, and it is cached as usual.
    pub fn action(&self, named: &Named<'_>) -> Option<Action> {
        match self.of(named) {
            Said::Rule(at) => Some(self.rules[at].action),
            Said::Nothing => None,
            Said::NotIncluded => Some(Action::Exclude),
        }
    }

    /// The same rules with another effect for one table; `None`: as usual. Returns the text for `bpe_tables`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), if the text would be too long.
    pub fn with(
        &self,
        schema: &str,
        table: &str,
        action: Option<Action>,
    ) -> Result<String, String> {
        let pattern = Pattern::table(schema, table, self.folds);
        let named = Named::Table {
            schema,
            table,
            partition: None,
        };
        let mut rules = self.clone();
        rules.rules.retain(|rule| rule.pattern != pattern);
        let usual = |action: Option<Action>| match action {
            Some(Action::Include | Action::Normal) | None => None,
            other => other,
        };
        // The remaining rules may already have the wanted effect.
        if usual(rules.action(&named)) != usual(action) {
            let action = action.unwrap_or(Action::Normal);
            rules.rules.insert(0, Rule { action, pattern });
            // Narrower rules, for its partitions, come first.
            let narrower = |rule: &Rule| {
                rules.rules[0].pattern != rule.pattern
                    && rules.rules[0].pattern.covers(&rule.pattern)
            };
            let (mut first, rest): (Vec<Rule>, Vec<Rule>) =
                rules.rules.iter().cloned().partition(narrower);
            first.extend(rest);
            rules.rules = first;
        }
        let text = rules.to_string();
        Rules::parse(&text, self.folds).map(|_| text)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{rule}")?;
        }
        Ok(())
    }
}

/// Parses word, limit, pattern.
fn rule(text: &str, folds: bool) -> Result<Rule, String> {
    let (word, rest) = first_word(text);
    let (action, rest) = match word.to_ascii_lowercase().as_str() {
        "include" => (Action::Include, rest),
        "exclude" => (Action::Exclude, rest),
        "normal" => (Action::Normal, rest),
        "prefer" => (Action::Prefer, rest),
        "limit" => limit(rest)?,
        _ => {
            return Err(format!(
                "it begins with \"{}\"; a rule begins with include, exclude, normal, prefer or limit N%",
                quoted(word)
            ));
        }
    };
    let pattern = Pattern::parse(rest, folds)?;
    Ok(Rule { action, pattern })
}

fn limit(text: &str) -> Result<(Action, &str), String> {
    const HOW: &str = "a limit is written as in: limit 20% reports.*";
    let text = text.trim_start();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start().strip_prefix('%').ok_or(HOW)?;
    match number.parse() {
        Ok(percent @ 1..=99) => Ok((Action::Limit(percent), rest)),
        Ok(0) => Err("0% would be nothing; write exclude instead".to_owned()),
        Ok(_) => Err("a limit is 1% to 99% of the cache".to_owned()),
        Err(_) if number.is_empty() => Err(HOW.to_owned()),
        Err(_) => Err("a limit is 1% to 99% of the cache".to_owned()),
    }
}

fn first_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests;
