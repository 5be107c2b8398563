//! The command `bpe`. All of it lies in the library beside.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpe_command::command::main()
}
