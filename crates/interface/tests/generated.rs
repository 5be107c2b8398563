//! Files made from the lists are current.

#[path = "../examples/generate/main.rs"]
#[allow(dead_code)]
mod generate;

#[test]
fn generated_files_are_current() {
    for (path, wanted) in generate::files().unwrap() {
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == wanted,
            "{} is not current: run `cargo run -p interface --example generate`",
            path.display()
        );
    }
}
