//! Contents of `dist/` after `make build`: stripped files, and beside each its debug information.

#![allow(clippy::disallowed_methods)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration_tests::library;
use object::{Object, ObjectSection, ObjectSymbol};

const MIB: u64 = 1 << 20;

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the release build as `make build` does, and fills `dist` from it.
fn filled(dist: &Path) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(
        Command::new(cargo)
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["-p", "plugin", "-p", "bpe", "-p", "bpe-lab"])
            .arg("--target-dir")
            .arg(library::target_folder())
            .current_dir(&workspace),
    );
    let built = library::target_folder().join("release");
    output(
        Command::new(workspace.join("scripts/fill-dist"))
            .arg(built)
            .arg(dist),
    );
}

#[test]
fn debug_information_lies_beside() {
    let folder = tempfile::tempdir().unwrap();
    let dist = folder.path().join("dist");
    filled(&dist);
    // Three times today's size, and far below the size with debug information.
    for (name, most) in [
        ("bpe.so", 4 * MIB),
        ("bpe", 40 * MIB),
        ("bpe-lab", 40 * MIB),
    ] {
        let (file, debug): (PathBuf, PathBuf) = (
            dist.join(name),
            dist.join("debug").join(format!("{name}.debug")),
        );
        let size = fs::metadata(&file).unwrap().len();
        assert!(size < most, "{name} has {size} bytes");
        let (bytes, debug) = (fs::read(&file).unwrap(), fs::read(&debug).unwrap());
        let (stripped, debug) = (
            object::File::parse(&*bytes).unwrap(),
            object::File::parse(&*debug).unwrap(),
        );
        let of_debugging = |file: &object::File<'_>| {
            file.sections()
                .filter(|section| {
                    // This section names scripts for gdb.
                    section.name().is_ok_and(|name| {
                        name.starts_with(".debug") && name != ".debug_gdb_scripts"
                    })
                })
                .map(|section| section.size())
                .sum::<u64>()
        };
        assert_eq!(of_debugging(&stripped), 0, "{name}");
        assert!(of_debugging(&debug) > MIB, "{name}");
        // Debuggers find the file by name and checksum, or by build id.
        let (link, _) = stripped.gnu_debuglink().unwrap().expect("a link");
        assert_eq!(link, format!("{name}.debug").as_bytes());
        let build = stripped.build_id().unwrap();
        assert!(build.is_some() && build == debug.build_id().unwrap());
        // Functions keep their names: a backtrace without debug information still shows the functions.
        assert!(
            stripped
                .symbols()
                .any(|symbol| symbol.name().is_ok_and(|name| name.contains("panic"))),
            "{name}"
        );
    }
    let left: Vec<_> = fs::read_dir(&dist)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left.len(), 6, "{left:?}");

    // The files work, and source lines can be resolved.
    let version = output(Command::new(dist.join("bpe")).arg("--version"));
    assert!(version.starts_with("bpe "), "{version}");
    for (command, page, none) in [
        ("bpe", "bpe-enable", "bpe-demo"),
        ("bpe-lab", "bpe-lab-demo", "bpe-lab-enable"),
    ] {
        let of = |page: &str| dist.join("man").join(format!("{page}.1"));
        assert!(of(command).is_file() && of(page).is_file() && !of(none).exists());
        for shell in ["bash", "zsh", "fish"] {
            let script = dist.join("completions").join(format!("{command}.{shell}"));
            assert!(fs::read_to_string(script).unwrap().contains(command));
        }
    }
    // Programs that root runs on production servers contain no code that starts servers, generates load or simulates policies.
    for part in [
        "14private_server",
        "12cloud_volume",
        "8sysbench",
        "6replay8policies",
    ] {
        let has = |command: &str| {
            let bytes = fs::read(dist.join(command)).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            file.symbols()
                .any(|symbol| symbol.name().is_ok_and(|name| name.contains(part)))
        };
        assert!(has("bpe-lab") && !has("bpe"), "{part}");
    }
    let bytes = fs::read(dist.join("bpe.so")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let address = library
        .symbols()
        .find(|symbol| symbol.name() == Ok("bpe_report"))
        .expect("the function is there")
        .address();
    let line = output(
        Command::new("addr2line")
            .arg("-e")
            .arg(dist.join("debug/bpe.so.debug"))
            .arg(format!("{address:#x}")),
    );
    assert!(line.contains("report_function.rs:"), "{line}");
}
