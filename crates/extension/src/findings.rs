//! What a look at the books finds: each part adds its own, [`crate::validate`] collects them.

/// Collects what does not agree.
#[derive(Default)]
pub(crate) struct Findings(pub Vec<String>);

impl Findings {
    /// More would tell nobody more.
    const MOST: usize = 20;

    pub fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.0.len() < Self::MOST {
            self.0.push(what());
        }
    }

    pub fn equal<T: PartialEq + std::fmt::Debug>(&mut self, counted: T, found: T, what: &str) {
        self.expect(counted == found, || {
            format!("{what}: counted {counted:?}, found {found:?}")
        });
    }
}
