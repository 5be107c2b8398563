//! Subcommands and options of earlier versions, and their present names.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::support::failure::Failure;

/// The message for a command line that is wrong only because it uses an earlier name.
pub fn explain(error: &clap::Error) -> Option<Failure> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (before, now) = match error.kind() {
        ErrorKind::InvalidSubcommand => match named(ContextKind::InvalidSubcommand)? {
            name @ ("demo" | "replay") => (name, name),
            _ => return None,
        },
        ErrorKind::UnknownArgument => match named(ContextKind::InvalidArg)? {
            "--experience" => ("console --experience", "console"),
            _ => return None,
        },
        _ => return None,
    };
    Some(Failure::usage(format!(
        "`bpe {before}` is now `bpe-lab {now}`, with the same options"
    )))
}
