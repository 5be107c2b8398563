//! Rules for tables, as `bpe_tables` has them: which tables are cached, and how.
//!
//! ```text
//! exclude shop.log_*, limit 20% reports.*, prefer shop.orders
//! exclude shop.orders#p#p2019; normal `my db`.`a,b`
//! ```
//!
//! A rule is a word and a [`Pattern`]. The first rule that fits a table counts. Where no rule fits, a table is cached as usual,
//! unless there is an `include`: then only what a rule names is cached. A rule that could never count is an error, as the one
//! before it says otherwise of the same tables.
//!
//! Parsing takes memory for the rules alone, and time in proportion to their number squared, of which there are [`MOST`].

mod pattern;

use std::fmt;

use crate::untrusted::refuse_controls;

use pattern::quoted;
pub use pattern::{Named, Pattern};

/// Bytes of the longest text. A line of an option file takes 4,096.
pub const LONGEST: usize = 4000;
/// Rules at most.
pub const MOST: usize = 100;
/// Of them, with a limit.
pub const MOST_LIMITS: usize = 14;

/// What becomes of the tables that a rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cached as usual, and nothing is that no rule names.
    Include,
    /// Never cached.
    Exclude,
    /// Cached as usual: an exception from a rule that follows.
    Normal,
    /// Gets in sooner, and goes later.
    Prefer,
    /// Takes so many percent of the cache at most.
    Limit(u8),
}

impl Action {
    /// Whether it is a limit.
    pub const fn is_limit(self) -> bool {
        matches!(self, Action::Limit(_))
    }

    /// As the reports call it.
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

/// The rules, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Of names: that of the server, `lower_case_table_names` other than 0.
    folds: bool,
}

/// What the rules say of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The rule with this index.
    Rule(usize),
    /// None fits, and that means as usual.
    Nothing,
    /// None fits, and there is an `include`.
    NotIncluded,
}

impl Rules {
    /// Reads the value of `bpe_tables`. `folds`: the server's names are in lower case, whatever a client writes.
    ///
    /// # Errors
    /// Says which rule is wrong, and what would be right.
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

    /// A rule that can never count.
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

    /// Whether what no rule names is not cached.
    pub fn only_included(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == Action::Include)
    }

    /// What they say of a table, or of what belongs to none.
    pub fn of(&self, named: &Named<'_>) -> Said {
        let fits = |rule: &Rule| rule.pattern.fits(named, self.folds);
        match self.rules.iter().position(fits) {
            Some(at) => Said::Rule(at),
            None if self.only_included() => Said::NotIncluded,
            None => Said::Nothing,
        }
    }

    /// What becomes of it; `None`: as usual, for want of a rule.
    pub fn action(&self, named: &Named<'_>) -> Option<Action> {
        match self.of(named) {
            Said::Rule(at) => Some(self.rules[at].action),
            Said::Nothing => None,
            Said::NotIncluded => Some(Action::Exclude),
        }
    }

    /// The same rules but for one table, of which they shall say this; `None`: as usual. The text for `bpe_tables`.
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
        // What is wanted may follow from the rules that are left.
        if usual(rules.action(&named)) != usual(action) {
            let action = action.unwrap_or(Action::Normal);
            rules.rules.insert(0, Rule { action, pattern });
            // Narrower rules, of its partitions, come first.
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

/// Word, limit, pattern.
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
