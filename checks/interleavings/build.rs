//! Everything in this workspace is compiled for the checker.

fn main() {
    println!("cargo:rustc-cfg=checker");
    println!("cargo:rerun-if-changed=build.rs");
}
