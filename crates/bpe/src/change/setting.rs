//! Variables of the extension that a change sets, in order.

use interface::tables::Rules;

use super::{Row, Run};
use crate::support::failure::Failure;
use crate::support::quote::sql_value;

/// Variable with the table rules.
pub const TABLES: &str = "bpe_tables";

/// One variable to set.
#[derive(Debug, Clone)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// Current value; `None` while the plugin is not loaded.
    pub before: Option<String>,
}

impl Setting {
    /// Whether the server has a different value. Rules are compared after parsing, not as texts.
    pub fn differs(&self) -> bool {
        let rules = |text: &str| Rules::parse(text, false);
        match &self.before {
            Some(before) if *before == self.value => false,
            Some(before) if self.name == TABLES => {
                rules(before).is_err() || rules(before) != rules(&self.value)
            }
            _ => true,
        }
    }

    pub fn row(&self) -> Row {
        Row::setting(self.name, self.before.as_deref(), &self.value)
    }
}

/// Sets these variables.
///
/// # Errors
/// The server's own error. The undo log contains the variables set before.
pub fn set_all(run: &mut Run<'_>, settings: &[Setting]) -> Result<(), Failure> {
    for setting in settings {
        let (name, value) = (setting.name, setting.value.as_str());
        match setting.before.as_deref() {
            // The undo of a rebuild switches off first, to change the settings back.
            Some(before) if before == value => run.set(name, value, "OFF"),
            Some(before) => run.set(name, value, before),
            // The undo of a fresh install removes the whole plugin; switching off first removes its data on disk.
            None if name == "bpe_enabled" => run.set(name, value, "OFF"),
            None => run.sql(&format!("SET GLOBAL {name} = {}", sql_value(value))),
        }?;
        run.tell(format!("{name} = {value}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_differ_by_their_meaning() {
        let setting = |name, before: &str| Setting {
            name,
            value: "exclude a.b, limit 5% c.*".to_owned(),
            before: Some(before.to_owned()),
        };
        assert!(!setting(TABLES, "exclude a.b;  limit 5 % `c`.*").differs());
        assert!(setting(TABLES, "exclude a.b").differs());
        assert!(setting(TABLES, "no rules").differs());
        assert!(setting("bpe_path", "exclude a.b;limit 5% c.*").differs());
    }
}
