//! Compiles everything in this workspace for the checker.

fn main() {
    println!("cargo:rustc-cfg=checker");
    // A file that both packages have: a path that does not exist would compile a package anew in each run.
    println!("cargo:rerun-if-changed=Cargo.toml");
}
