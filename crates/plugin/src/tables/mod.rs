//! The current rules of `bpe_tables`: their effect on each data file, and their report.
//!
//! `interface::tables` parses the text. This module applies the rules to this server's files. The crate `coherence` asks for
//! the rule of a file when it is opened or renamed, and of all files when the rules change ([`RuleLookup`]). The extension
//! receives the groups of pages. A rule with a limit keeps its group number for its whole life, so its counters survive
//! changes of other rules.
//!
//! Lock order: the lock of [`Tables`] is held while files are judged again, and comes before the registry's. No hook takes
//! it.

pub mod table_name;

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use cache::{Extension, Group, Limits};
use coherence::core::Core;
use coherence::file_rule::{FileRule, RuleLookup};
use coherence::os::Os as _;
use interface::tables::{Action, LONGEST, Named, Rules, Said};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::platform::Linux;
use crate::platform::server::lookup;
use crate::settings;
use table_name::TableName;

/// Maximum number of unused rules that a warning names.
const MAX_WARNED: usize = 5;

/// The rules, and the group of each one's pages.
#[derive(Default)]
struct RuleBook {
    rules: Rules,
    /// One group for each rule, in order.
    groups: Vec<Group>,
}

/// State of the rules.
pub struct Tables {
    /// Behind `bpe_tables`; as [`settings::Values::path`].
    pub text: AtomicPtr<c_char>,
    now: Mutex<Option<Arc<RuleBook>>>,
    /// The error in the option file's value, if it was not applied.
    error: Mutex<Option<String>>,
}

/// The rules of this server.
pub static TABLES: Tables = Tables::new();

impl Tables {
    pub const fn new() -> Tables {
        Tables {
            text: AtomicPtr::new(std::ptr::null_mut()),
            now: Mutex::new(None),
            error: Mutex::new(None),
        }
    }

    fn book(&self) -> Arc<RuleBook> {
        self.now.lock().clone().unwrap_or_default()
    }
}

impl Default for Tables {
    fn default() -> Tables {
        Tables::new()
    }
}

impl RuleBook {
    /// A limit for the same pattern keeps its group. A new limit gets a group that no previous rule had, while there are any.
    fn new(rules: Rules, before: &RuleBook) -> RuleBook {
        let mut taken = [false; Group::COUNT];
        let known = |pattern: &interface::tables::Pattern| {
            let mut pairs = before.rules.iter().zip(&before.groups);
            pairs.find(|(rule, _)| rule.action.is_limit() && rule.pattern == *pattern)
        };
        let kept: Vec<Option<Group>> = rules
            .iter()
            .map(|rule| match rule.action {
                Action::Limit(_) => known(&rule.pattern).map(|(_, group)| *group),
                Action::Prefer => Some(Group::PREFERRED),
                _ => Some(Group::NORMAL),
            })
            .collect();
        for group in kept.iter().flatten() {
            taken[group.number()] = true;
        }
        let was: Vec<Group> = before.groups.clone();
        let mut next = |is_fresh: bool| {
            let free =
                |group: &Group| !taken[group.number()] && (!is_fresh || !was.contains(group));
            let group = (0..).map_while(Group::limited).find(free)?;
            taken[group.number()] = true;
            Some(group)
        };
        let groups = kept
            .into_iter()
            .map(|group| group.or_else(|| next(true)).or_else(|| next(false)))
            // There are as many groups as rules with limits.
            .map(Option::unwrap_or_default)
            .collect();
        RuleBook { rules, groups }
    }

    fn rule_for(&self, table: Option<&TableName>) -> FileRule {
        match self.rules.of(&named(table)) {
            Said::Nothing => FileRule::NORMAL,
            Said::NotIncluded => FileRule::Excluded,
            Said::Rule(at) => match self.rules.iter().nth(at).map(|rule| rule.action) {
                Some(Action::Exclude) => FileRule::Excluded,
                _ => FileRule::Cached(self.groups.get(at).copied().unwrap_or_default()),
            },
        }
    }

    /// Returns the groups in use, and the limit of each, percent.
    fn groups(&self) -> ([bool; Group::COUNT], Limits) {
        let (mut used, mut limits) = ([false; Group::COUNT], [0; Group::COUNT]);
        for (rule, group) in self.rules.iter().zip(&self.groups) {
            used[group.number()] = true;
            if let Action::Limit(percent) = rule.action {
                limits[group.number()] = percent;
            }
        }
        used[Group::NORMAL.number()] = false;
        (used, limits)
    }

    fn prefers(&self, table: Option<&TableName>) -> bool {
        self.rule_for(table) == FileRule::Cached(Group::PREFERRED)
    }

    /// Whether the previous rules preferred one of these files, given by path, and these do not.
    fn takes_preference(&self, before: &RuleBook, mut paths: impl Iterator<Item = String>) -> bool {
        paths.any(|path| {
            let table = table_name::of_path(&path);
            before.prefers(table.as_ref()) && !self.prefers(table.as_ref())
        })
    }

    fn apply_groups(&self, extension: &Extension) {
        let (used, limits) = self.groups();
        if let Err(error) = extension.set_groups(&used, &limits) {
            Linux.warning(&format!(
                "prefer and limit in bpe_tables are not followed, as there is no memory for them ({error}); exclude and include are"
            ));
        }
    }
}

impl RuleLookup for RuleBook {
    fn rule(&self, name: &str) -> FileRule {
        self.rule_for(table_name::of_path(name).as_ref())
    }
}

fn named(table: Option<&TableName>) -> Named<'_> {
    match table {
        None => Named::System,
        Some(of) => Named::Table {
            schema: &of.schema,
            table: &of.table,
            partition: of.partition.as_deref(),
        },
    }
}

/// Whether the server compares names in lower case (`lower_case_table_names`). Both servers export the variable.
fn folds_case() -> bool {
    let symbol = lookup(&[c"lower_case_table_names"]).cast::<u32>();
    // SAFETY: null, or the server's variable: an unsigned int that it sets when it starts.
    !symbol.is_null() && unsafe { *symbol } != 0
}

/// Figures of one file, for the report of the rules.
pub struct FileFigures {
    pub table: Option<TableName>,
    pub hits: u64,
    pub misses: u64,
    pub excluded_accesses: u64,
    pub cached_pages: u64,
}

impl Tables {
    /// Validates a value for `bpe_tables`. Returns warnings for the client.
    ///
    /// # Errors
    /// The error in the first invalid rule.
    pub fn check(&self, core: &'static Core<Linux>, text: &str) -> Result<Vec<String>, String> {
        let rules = Rules::parse(text, folds_case())?;
        if !core.switch().mode().tracks() {
            return Ok(Vec::new());
        }
        let files = core.files.all();
        let tables: Vec<Option<TableName>> = files
            .iter()
            .map(|file| table_name::of_path(&file.name()))
            .collect();
        let fits_none = |rule: &&interface::tables::Rule| {
            let fits =
                |table: &Option<TableName>| rule.pattern.fits(&named(table.as_ref()), folds_case());
            !tables.iter().any(fits)
        };
        let unused: Vec<String> = rules
            .iter()
            .filter(fits_none)
            .map(ToString::to_string)
            .collect();
        let more = unused.len().saturating_sub(MAX_WARNED);
        let mut warnings: Vec<String> = unused
        .into_iter()
        .take(MAX_WARNED)
        .map(|rule| {
            format!(
                "{rule} fits no table that the server has open now; it will count when there is one"
            )
        })
        .collect();
        if more > 0 {
            warnings.push(format!(
                "{more} more rules of bpe_tables fit no table that the server has open now"
            ));
        }
        Ok(warnings)
    }

    /// Applies the current value of `bpe_tables`. It was checked, or is from an option file at the server's start.
    pub fn apply(&self, core: &'static Core<Linux>) {
        let text = settings::text_of(&self.text);
        let parsed = Rules::parse(&text, folds_case());
        let error = parsed.as_ref().err().cloned();
        if let Some(why) = &error {
            Linux.error(&format!(
            "bpe_tables is not followed, and all tables are cached as usual: {why}. Correct it in the option file, or with SET GLOBAL bpe_tables"
        ));
        }
        *self.error.lock() = error;
        let mut now = self.now.lock();
        let before = now.clone().unwrap_or_default();
        let book = Arc::new(RuleBook::new(parsed.unwrap_or_default(), &before));
        *now = Some(Arc::clone(&book));
        core.files
            .set_rules((!book.rules.is_empty()).then(|| Arc::clone(&book) as Arc<dyn RuleLookup>));
        if let Some(active) = &*core.switch().active() {
            // Pages of a group with a new meaning lose their mark. Entries do not identify their file, so all preferred
            // pages lose it as soon as one file is no longer preferred.
            let mut paths = core.files.all().into_iter().map(|file| file.name());
            let prefers_less = book.takes_preference(&before, &mut paths);
            let stays = |number: usize| {
                let of = |book: &RuleBook| {
                    let mut pairs = book.rules.iter().zip(&book.groups);
                    pairs
                        .find(|(_, group)| group.number() == number)
                        .map(|(rule, _)| (rule.action.as_str(), rule.pattern.clone()))
                };
                if number == Group::PREFERRED.number() {
                    return !prefers_less;
                }
                of(&before).is_some() && of(&before) == of(&book)
            };
            let (mut used, limits) = book.groups();
            for (number, used) in used.iter_mut().enumerate() {
                *used &= stays(number);
            }
            let _ = active.extension.set_groups(&used, &limits);
            book.apply_groups(&active.extension);
        }
    }

    /// Sends the groups to an extension that starts, or continues with other settings.
    pub fn adjust(&self, extension: &Extension) {
        self.book().apply_groups(extension);
    }

    /// The reason why `bpe_tables` is not applied; empty if it is.
    pub fn error(&self) -> String {
        self.error.lock().clone().unwrap_or_default()
    }

    /// Describes the rule of a file; `None` if no rule applies and the file is cached as usual.
    pub fn rule_of(&self, table: Option<&TableName>) -> Option<String> {
        let book = self.book();
        match book.rules.of(&named(table)) {
            Said::Nothing => None,
            Said::NotIncluded => Some("not included".to_owned()),
            Said::Rule(at) => book.rules.iter().nth(at).map(ToString::to_string),
        }
    }

    /// The rows of `bpe_report('rules')`.
    pub fn report(&self, files: &[FileFigures], extension: Option<&Extension>) -> Value {
        let book = self.book();
        let matches: Vec<Said> = files
            .iter()
            .map(|file| book.rules.of(&named(file.table.as_ref())))
            .collect();
        let counted = extension.map(Extension::group_pages);
        let rules = book.rules.iter().zip(&book.groups).enumerate();
        rules
        .map(|(at, (rule, group))| {
            let its = || files.iter().zip(&matches).filter(move |(_, said)| **said == Said::Rule(at)).map(|(file, _)| file);
            let limit = matches!(rule.action, Action::Limit(_)).then(|| counted.map(|counted| counted[group.number()]));
            let limit = limit.flatten();
            json!({
                "rule": at + 1,
                "text": rule.to_string(),
                "action": rule.action.as_str(),
                "tables": rule.pattern.to_string(),
                "files": its().count(),
                "hits": its().map(|file| file.hits).sum::<u64>(),
                "misses": its().map(|file| file.misses).sum::<u64>(),
                "cached_pages": limit.map_or_else(|| its().map(|file| file.cached_pages).sum::<u64>(), |(pages, _)| pages),
                "limit_pages": limit.map(|(_, most)| most),
                "kept_out": its().map(|file| file.excluded_accesses).sum::<u64>(),
            })
        })
        .collect()
    }
}

const _: () = assert!(LONGEST < 4096, "a line of an option file");
const _: () = assert!(interface::tables::MOST_LIMITS == Group::LIMITED);

#[cfg(test)]
mod tests {
    use super::*;

    fn book(text: &str, before: &RuleBook) -> RuleBook {
        RuleBook::new(Rules::parse(text, false).unwrap(), before)
    }

    fn limited(number: usize) -> Group {
        Group::limited(number).unwrap()
    }

    #[test]
    fn limit_keeps_its_group_while_others_change() {
        let first = book(
            "limit 5% a.*, prefer b.c, limit 6% d.*",
            &RuleBook::default(),
        );
        assert_eq!(first.groups, [limited(0), Group::PREFERRED, limited(1)]);
        let second = book("exclude x.y, limit 7% d.*, limit 1% e.f", &first);
        assert_eq!(second.groups, [Group::NORMAL, limited(1), limited(2)]);
        let (used, limits) = second.groups();
        assert_eq!(
            (
                used.iter().filter(|used| **used).count(),
                limits[3],
                limits[4]
            ),
            (2, 7, 1)
        );
        let third = book("limit 7% a.*", &second);
        assert_eq!(third.groups, [limited(0)]);
    }

    #[test]
    fn all_limits_change_at_once() {
        let many = |schema: &str| {
            let rules = (0..Group::LIMITED).map(|n| format!("limit 5% {schema}.t{n}"));
            rules.collect::<Vec<_>>().join(", ")
        };
        let first = book(&many("a"), &RuleBook::default());
        let second = book(&many("b"), &first);
        let mut numbers: Vec<usize> = second.groups.iter().map(|group| group.number()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (2..Group::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn removed_preference_is_noticed() {
        let before = book("prefer a.*, prefer b.c, limit 5% d.*", &RuleBook::default());
        let takes = |text: &str, paths: &[&str]| {
            let paths = paths.iter().map(ToString::to_string);
            book(text, &before).takes_preference(&before, paths)
        };
        let all = ["./a/x.ibd", "./b/c.ibd", "./d/e.ibd", "./ibdata1"];
        assert!(!takes("prefer a.*, prefer b.c, prefer d.e", &all), "more");
        assert!(!takes("exclude d.*, prefer *.*", &all));
        assert!(takes("prefer a.*", &all));
        assert!(!takes("prefer a.*", &["./a/x.ibd", "./d/e.ibd"]));
        assert!(takes("exclude b.c, prefer a.*, prefer b.*", &all));
        assert!(takes("normal a.x, prefer a.*, prefer b.c", &all));
        assert!(takes("", &all));
    }

    #[test]
    fn files_are_treated_by_their_tables() {
        let book = book(
            "exclude shop.log_*, limit 5% reports.*, prefer shop.orders#p#p1",
            &RuleBook::default(),
        );
        for (path, rule) in [
            ("./shop/log_1.ibd", FileRule::Excluded),
            ("./shop/orders#P#p1.ibd", FileRule::Cached(Group::PREFERRED)),
            ("./shop/orders#P#p2.ibd", FileRule::NORMAL),
            ("./reports/a.ibd", FileRule::Cached(limited(0))),
            ("./ibdata1", FileRule::NORMAL),
            ("./shop/#sql-ib12.ibd", FileRule::NORMAL),
        ] {
            assert_eq!(book.rule(path), rule, "{path}");
        }
    }
}
