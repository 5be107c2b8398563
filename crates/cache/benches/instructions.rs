//! Instructions of each operation, counted by valgrind's callgrind. The counts do not depend on the load of the host,
//! so continuous integration can rely on them.
//!
//! `cargo bench -p cache --bench instructions [-- --record]`
//!
//! Fails if an operation takes more than 1.3 times the instructions noted in `benches/instructions.txt`; `--record`
//! rewrites these notes. Without valgrind it reports that it was skipped (a failure if BPE_REQUIRE_ALL=1, as in
//! continuous integration). The kernel's instructions in system calls are not counted.
//!
//! The program runs itself under valgrind, once per operation, and only `bpe_measured` is counted. It does not use
//! gungraun: that needs a runner of exactly its version, and its newer versions need Rust 1.88.

#[allow(dead_code, reason = "each bench uses a part")]
mod common;
#[path = "instructions/operations.rs"]
mod operations;

use std::process::ExitCode;

use common::instructions::{self, Bench};

fn main() -> ExitCode {
    instructions::main(&Bench {
        krate: "cache",
        folder: env!("CARGO_MANIFEST_DIR"),
        operations: &operations::OPERATIONS,
        remark: |of| {
            let (hit, checksum) = (of("read, hit")?, of("hash of a page")?);
            Some(format!("a hit without its checksum: {:.0}", hit - checksum))
        },
    })
}
