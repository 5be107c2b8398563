//! Inconsistencies in the engine's state. Each part reports its own, [`crate::api::validate`] collects them.

/// Collects inconsistencies.
#[derive(Default)]
pub(crate) struct Violations(pub Vec<String>);

impl Violations {
    /// Maximum number of violations; more would not help to find the fault.
    const MAX: usize = 20;

    pub fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.0.len() < Self::MAX {
            self.0.push(what());
        }
    }

    pub fn equal<T: PartialEq + std::fmt::Debug>(&mut self, counted: T, found: T, what: &str) {
        self.expect(counted == found, || {
            format!("{what}: counted {counted:?}, found {found:?}")
        });
    }
}
