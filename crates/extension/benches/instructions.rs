//! Instructions of each operation, counted by valgrind's callgrind: the same on a busy machine as on a quiet one, so that
//! continuous integration can hold on to them.
//!
//! `cargo bench -p extension --bench instructions [-- --record]`
//!
//! Fails when an operation takes more than 1.3 times the instructions noted in `benches/instructions.txt`; `--record`
//! notes them anew. Without valgrind it says that it was skipped (a failure if BPE_REQUIRE_ALL=1, as in continuous
//! integration). What the kernel does for a system call is not counted.
//!
//! The program runs itself under valgrind, once for each operation, and only what happens within `bpe_measured` is counted.
//! Own code and not gungraun: that wants a runner installed in just its version, and its newer versions want Rust 1.88.

#[allow(dead_code, reason = "each bench uses a part")]
mod common;
#[path = "instructions/operations.rs"]
mod operations;

use std::process::ExitCode;

use common::instructions::{self, Bench};

fn main() -> ExitCode {
    instructions::main(&Bench {
        krate: "extension",
        folder: env!("CARGO_MANIFEST_DIR"),
        operations: &operations::OPERATIONS,
        remark: |of| {
            let (hit, checksum) = (of("read, hit")?, of("hash of a page")?);
            Some(format!("a hit without its checksum: {:.0}", hit - checksum))
        },
    })
}
