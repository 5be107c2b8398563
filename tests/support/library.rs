//! The library under test: `BPE_LIBRARY`, or the release build of this workspace, which is rebuilt if outdated.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};

/// The path of `bpe.so`.
pub fn library() -> anyhow::Result<&'static Path> {
    static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        match std::env::var_os("BPE_LIBRARY") {
            Some(path) => PathBuf::from(path)
                .canonicalize()
                .context("BPE_LIBRARY names no file"),
            None => build("release", &["--release"]),
        }
        .map_err(|error| format!("{error:#}"))
    });
    match found {
        Ok(path) => Ok(path),
        Err(reason) => bail!("{reason}"),
    }
}

/// The canary library, which can omit rules: the build with debug assertions. `BPE_CANARY_LIBRARY` names one from another
/// build.
pub fn canary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("BPE_CANARY_LIBRARY") {
        return PathBuf::from(path)
            .canonicalize()
            .context("BPE_CANARY_LIBRARY names no file");
    }
    // Beside the command, `bpe enable` would install this library.
    let folder = target_folder().join("debug").join("canary");
    std::fs::create_dir_all(&folder)?;
    let (own, library) = (
        folder.join(format!("libbpe_plugin.so.{}", std::process::id())),
        folder.join("libbpe_plugin.so"),
    );
    // Another test program may move it first.
    let built = build("debug", &[]);
    let moved = built.and_then(|built| {
        std::fs::copy(&built, &own)?;
        std::fs::rename(&own, &library)?;
        Ok(std::fs::remove_file(&built)?)
    });
    if !library.is_file() {
        moved?;
    }
    Ok(library.canonicalize()?)
}

fn build(profile: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("this package lies in a workspace")?;
    let target = target_folder();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(workspace)
        .args(["build", "--quiet", "-p", "plugin", "--lib"])
        .args(options)
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .output()
        .context("cargo build")?;
    ensure!(
        output.status.success(),
        "bpe.so does not build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let library = target.join(profile).join("libbpe_plugin.so");
    library
        .canonicalize()
        .with_context(|| format!("{} is missing", library.display()))
}

/// Cargo's target directory, from the path of this program (`<target>/<profile>/deps/<program>`).
pub fn target_folder() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.ancestors().nth(3)?.to_path_buf()))
        .expect("cargo puts test programs into its target directory")
}

/// A plugin that the distribution ships outside the server's core package. It is used where it is installed, or extracted from
/// the package, which is downloaded once and not installed.
pub fn plugin_of_package(package: &str, file: &str) -> anyhow::Result<PathBuf> {
    let name = Path::new("usr/lib/mysql/plugin").join(file);
    let installed = Path::new("/").join(&name);
    if installed.is_file() {
        return Ok(installed);
    }
    let folder = crate::place::work_folder()?.join("packages").join(package);
    let unpacked = folder.join(&name);
    if !unpacked.is_file() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let done = Command::new("sh")
            .current_dir(&folder)
            .args([
                "-c",
                "apt-get download \"$0\" && dpkg -x ./*.deb . && rm ./*.deb",
                package,
            ])
            .stdin(Stdio::null())
            .output()?;
        if !done.status.success() {
            return Err(crate::harness::skip(format!(
                "{file} is in the package {package}, which could not be downloaded: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            )));
        }
    }
    ensure!(unpacked.is_file(), "{package} does not hold {file}");
    Ok(unpacked)
}

/// Names of the plugin's threads in a server.
pub fn threads(server: &private_server::Server) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", server.pid()))? {
        let name = std::fs::read_to_string(thread?.path().join("comm")).unwrap_or_default();
        if name.starts_with("bpe") {
            names.push(name.trim().to_owned());
        }
    }
    Ok(names)
}
