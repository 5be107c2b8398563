//! Instruction counts of whole hooks, from the server's call to its return. Valgrind's callgrind counts them, as for the
//! extension (`crates/cache/benches/instructions.rs`).
//! `cargo bench -p plugin --bench instructions [-- --record]`
//!
//! The calls behind the hooks do next to nothing: only the hook and the extension below it are counted.

#[path = "../../cache/benches/common/instructions.rs"]
mod instructions;
#[path = "instructions/operations.rs"]
mod operations;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../../cache/benches/common/options.rs"]
mod options;

use std::process::ExitCode;

use instructions::Bench;

fn main() -> ExitCode {
    instructions::main(&Bench {
        krate: "plugin",
        folder: env!("CARGO_MANIFEST_DIR"),
        operations: &operations::OPERATIONS,
        remark: |_| None,
    })
}
