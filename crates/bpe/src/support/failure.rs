//! Failures of commands, and the exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success; `status`: active; `doctor`: no obstacle |
//! | 1 | `status`: not active; `doctor`: an obstacle; `enable`: refused, nothing was changed |
//! | 2 | wrong usage |
//! | 3 | the server is unreachable or refuses the login |
//! | 4 | a step failed; its changes were undone, or the message names the remaining ones |

use std::fmt;
use std::process::ExitCode;

use crate::support::terminal::indented;

/// Exit codes of every subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    No = 1,
    Usage = 2,
    Connect = 3,
    Failed = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error message: event, reason and advice.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub what: String,
    pub advice: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: None,
        }
    }

    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// Refused before any change.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(Exit::No, what)
    }

    /// A step failed.
    pub fn step(what: impl Into<String>) -> Self {
        Self::new(Exit::Failed, what)
    }

    /// Puts the name of the thing that failed before the message.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        self.what = format!("{name}: {}", self.what);
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&indented(&self.what))?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  what to do: {}", advice.replace('\n', "\n    "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The exit code for an error that leaves `main`.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error
        .downcast_ref::<Failure>()
        .map_or(Exit::Failed, |failure| failure.exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_lines_are_indented() {
        let failure = Failure::step("no\n  put back\nforged").advise("a\nb");
        assert_eq!(
            failure.to_string(),
            "no\n  put back\n  forged\n  what to do: a\n    b"
        );
    }
}
