//! The command `bpe`; the library contains its implementation.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpe::commands::main()
}
