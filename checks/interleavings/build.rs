//! Compiles everything in this workspace for the checker.

fn main() {
    println!("cargo:rustc-cfg=checker");
    println!("cargo:rerun-if-changed=build.rs");
}
