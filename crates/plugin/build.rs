//! Link options of `bpe.so`.

fn main() {
    // The server must never unmap this library: GOT slots point into it for the life of the process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
